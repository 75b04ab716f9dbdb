/* What the tools see of a GPU's files: whether they exist, how large they are, all settings read at once. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"

#include "test/harness.h"

static struct t_dir dir;

static void make_dir(void)
{
	t_dir_make(&dir, NULL);
}

static void remove_dir(void)
{
	t_dir_remove(&dir);
}

TestSuite(control, .init = make_dir, .fini = remove_dir);

static void create(unsigned *slots)
{
	struct gpuarb_error err = {0};
	struct gpuarb_config config;

	cr_assert_eq(gpuarb_config_load(&config, NULL, true, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_control_create(dir.path, T_GPU, &config, slots, &err), 0, "%s", err.text);
	gpuarb_config_free(&config);
}

static off_t size_of(const char *sub)
{
	char path[1024];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s/" T_GPU, dir.path, sub);
	cr_assert_eq(stat(path, &st), 0, "%s", path);
	return st.st_size;
}

Test(control, a_gpu_without_files_is_told_from_one_with_them)
{
	struct gpuarb_error err = {0};
	unsigned slots = 0, made = 0;

	cr_assert_not(gpuarb_control_exists(dir.path, T_GPU));
	cr_assert_eq(gpuarb_control_try_state(dir.path, T_GPU, &slots, &err), -ENOENT);
	cr_assert_eq(gpuarb_control_try_settings(dir.path, T_GPU, &err), -ENOENT);
	create(&made);
	cr_assert(gpuarb_control_exists(dir.path, T_GPU));
	cr_assert_eq(gpuarb_control_try_state(dir.path, T_GPU, &slots, &err), 0, "%s", err.text);
	cr_assert_eq(slots, made);
	cr_assert_eq(gpuarb_control_try_settings(dir.path, T_GPU, &err), 0, "%s", err.text);
}

Test(control, the_size_that_is_told_is_the_size_of_the_files)
{
	unsigned slots;

	create(&slots);
	cr_assert_eq(gpuarb_control_bytes(slots), (uint64_t)(size_of("state") + size_of("control")));
}

Test(control, what_was_set_is_read_as_a_whole)
{
	struct gpuarb_change changes[] = {
		{NULL, "policy", "exclusive"}, {"web", "core", "30"}, {"batch", "mem", "1Gi"}};
	struct gpuarb_class_change class_change = {"asr", "priority", "70"};
	struct gpuarb_error err = {0};
	struct gpuarb_config config;
	char text[32];

	cr_assert_eq(gpuarb_control_change(dir.path, T_GPU, changes, 3, &err), 0, "%s", err.text);
	cr_assert_eq(
		gpuarb_control_change_classes(dir.path, T_GPU, &class_change, 1, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_control_read(dir.path, T_GPU, &config, &err), 0, "%s", err.text);
	gpuarb_config_format(ARB_KEY_POLICY, config.value[ARB_KEY_POLICY], text, sizeof(text));
	cr_assert_str_eq(text, "exclusive");
	cr_assert_eq(config.nlimits, 2);
	cr_assert_str_eq(config.limits[0].name, "web");
	cr_assert_eq(config.limits[0].set, ARB_LIMIT_CORE);
	cr_assert_eq(config.limits[0].core_pct, 30);
	cr_assert_str_eq(config.limits[1].name, "batch");
	cr_assert_eq(config.limits[1].set, ARB_LIMIT_MEM);
	cr_assert_eq(config.limits[1].mem_bytes, 1 << 30);
	cr_assert_eq(config.nclasses, 2);
	cr_assert_str_eq(config.classes[0].name, gpuarb_class_default.name);
	cr_assert_str_eq(config.classes[1].name, "asr");
	cr_assert_eq(config.classes[1].priority, 70);
	gpuarb_config_free(&config);
}

Test(control, without_settings_the_defaults_are_read)
{
	struct gpuarb_error err = {0};
	struct gpuarb_config config;

	cr_assert_eq(gpuarb_control_read(dir.path, T_GPU, &config, &err), -ENOENT);
	for (int key = 0; key < ARB_KEY_COUNT; key++)
		cr_assert_eq(config.value[key], gpuarb_keys[key].initial, "%s", gpuarb_keys[key].name);
	cr_assert_eq(config.nlimits, 0);
	cr_assert_eq(config.nclasses, 1);
	cr_assert_str_eq(config.classes[0].name, gpuarb_class_default.name);
	gpuarb_config_free(&config);
}

Test(control, a_grant_is_the_quota_of_one_window)
{
	struct gpuarb_view_account account = {.quota_ppm = 250000};
	static struct gpuarb_picture picture = {.window_ns = 100000000};

	cr_assert_eq(gpuarb_view_grant_ns(&picture, &account), 25000000);
}

/* What the tools say, and still do, when NVML fails. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb/control.h"
#include "test/multi/multi.h"

#define FIRST  "GPU-00000001-0000-0000-0000-000000000000"
#define SECOND "GPU-00000002-0000-0000-0000-000000000000"

static struct t_dir dir;
static char out[1 << 16];

static void begin(void)
{
	t_dir_make(&dir, NULL);
	setenv("GPUARB_DIR", dir.path, 1);
	setenv("GPUARB_CONF", dir.conf, 1);
	setenv("LC_ALL", "C.UTF-8", 1);
}

static void end(void)
{
	t_dir_remove(&dir);
}

TestSuite(nvml, .init = begin, .fini = end);

static void expect_with(
	const char *library, const char *fails, const char *command, int status, const char *sentence)
{
	int got = t_shell(out, sizeof(out), "LD_LIBRARY_PATH=%s FAILING_NVML=%s exec %s/%s", library, fails,
		t_build(), command);

	cr_assert_eq(got, status, "%s, %s: %d: %s", command, fails, got, out);
	cr_assert(strstr(out, sentence), "%s, %s: %s", command, fails, out);
}

static void expect(const char *fails, const char *command, int status, const char *sentence)
{
	char library[PATH_MAX];

	snprintf(library, sizeof(library), "%s/test/nvml", t_build());
	expect_with(library, fails, command, status, sentence);
}

Test(nvml, each_way_to_fail_has_a_sentence)
{
	char path[PATH_MAX];
	FILE *file;

	expect("nowhere", "gpuarb-node --list", 0,
		"0\t" FIRST "\t1048576\tFailing GPU\n1\t" SECOND "\t1048576\tFailing GPU\n");
	expect("init", "gpuarb-node --list", 1, "gpuarb-node: libnvidia-ml.so.1 finds no working driver\n");
	expect("count", "gpuarb-node --list", 1, "gpuarb-node: libnvidia-ml.so.1 cannot count the GPUs\n");
	expect("none", "gpuarb-node --list", 1, "gpuarb-node: NVML finds no GPU\n");
	expect("none", "gpuarb-node", 1, "gpuarb-node: NVML finds no GPU\n");
	expect("none", "gpuarb-cdi", 1, "gpuarb-cdi: NVML finds no GPU\n");
	expect("init", "gpuarb-cdi", 1, "finds no working driver; name the GPUs with --gpu\n");
	snprintf(path, sizeof(path), "%s/test/preload/hang", t_build());
	expect_with(path, "", "gpuarb-node --list", 1,
		"gpuarb-node: libnvidia-ml.so.1 is too old: it cannot list GPUs\n");
	/* A library that cannot be loaded hides the real one. */
	snprintf(path, sizeof(path), "%s/libnvidia-ml.so.1", dir.path);
	file = fopen(path, "w");
	cr_assert(file && fputs("nonsense", file) >= 0 && fclose(file) == 0);
	expect_with(dir.path, "", "gpuarb-node --list", 1,
		"gpuarb-node: there is no libnvidia-ml.so.1: NVIDIA's driver is not installed here\n");
}

/* A GPU that has fallen off the bus does not hide the other; the numbers are still the driver's. */
Test(nvml, what_fails_for_one_gpu_is_left_out)
{
	expect("first", "gpuarb-node --list", 0, "1\t" SECOND "\t1048576\tFailing GPU\n");
	cr_assert_null(strstr(out, FIRST), "%s", out);
	expect("uuid", "gpuarb-node --list", 0, "1\t" SECOND "\t1048576\tFailing GPU\n");
	cr_assert_null(strstr(out, FIRST), "%s", out);
	expect("name", "gpuarb-node --list", 0, "0\t" FIRST "\t1048576\t\n");
	expect("memory", "gpuarb-node --list", 0, "0\t" FIRST "\t0\tFailing GPU\n");
}

static void nothing_is_made(const char *after)
{
	char command[PATH_MAX + 64];

	snprintf(command, sizeof(command), "find %s -type f ! -name '*.conf'", dir.path);
	cr_assert_eq(t_shell(out, sizeof(out), "%s", command), 0);
	cr_assert_str_empty(out, "%s: %s", after, out);
}

#define NOBODY "GPU-0000000f-0000-0000-0000-000000000000"

static void refused(const char *fails, const char *tool, const char *gpu, const char *sentence)
{
	char command[128], whole[160];

	snprintf(command, sizeof(command), "%s --gpu '%s'", tool, gpu);
	snprintf(whole, sizeof(whole), sentence, gpu);
	expect(fails, command, 1, whole);
	nothing_is_made(command);
}

/* A segment for a GPU that does not exist would be found by all programs that name no GPU. */
Test(nvml, a_gpu_that_is_not_there_is_refused_and_nothing_is_made)
{
	static const char *const tools[] = {
		"gpuarb-node", "gpuarb-node --gpu 0", "gpuarb-cdi", "gpuarb-cdi --output spec.json"};
	static const char *const gpus[] = {"nope", "GPU-nope", "7", "", NOBODY};

	for (unsigned k = 0; k < sizeof(gpus) / sizeof(*gpus); k++)
		for (unsigned i = 0; i < sizeof(tools) / sizeof(*tools); i++)
			refused("", tools[i], gpus[k], "there is no GPU '%s'; the driver knows 2");
	/* Without a driver to ask, only a whole UUID is accepted. */
	for (unsigned k = 0; strcmp(gpus[k], NOBODY) != 0; k++) {
		refused("init", "gpuarb-node", gpus[k], "there is no GPU '%s': without a driver to ask");
		refused("init", "gpuarb-cdi", gpus[k], "there is no GPU '%s': without a driver to ask");
	}
	expect("", "gpuarb-set --gpu " NOBODY " window_ms=200", 1, "the driver knows none with this UUID");
	nothing_is_made("gpuarb-set");
	expect("init", "gpuarb-node --gpu " NOBODY, 0, NOBODY ": ready");
	/* A GPU with a segment may get a new one, wherever the GPU is now. */
	expect("", "gpuarb-node --replace --gpu " NOBODY, 0, NOBODY ": ready");
}

Test(nvml, a_gpu_is_found_by_number_and_beginning)
{
	expect("", "gpuarb-node --gpu 1", 0, SECOND " (GPU 1): ready");
	expect("", "gpuarb-node --gpu GPU-00000001", 0, FIRST " (GPU 0): ready");
	expect("", "gpuarb-cdi --percents 50 --gpu 1", 0, "\"CUDA_VISIBLE_DEVICES=" SECOND "\"");
	cr_assert(strstr(out, "\"1-50\"") && strstr(out, "\"" SECOND "-50\""), "%s", out);
	cr_assert_null(strstr(out, FIRST), "%s", out);
}

static struct gpuarb_client *client_on(const char *gpu, const char *account)
{
	struct gpuarb_options o = t_options(&dir, account);
	struct gpuarb_client *c;
	struct gpuarb_error err = {0};

	o.gpu = gpu;
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), 0, "%s", err.text);
	return c;
}

static void expect_core(const char *gpu, const char *account, const char *value)
{
	struct gpuarb_error err = {0};
	char text[64] = "";
	int r = gpuarb_control_get(dir.path, gpu, account, "core", text, sizeof(text), &err);

	cr_assert_eq(r, value ? 0 : -ENOENT, "%s of %s on %s: %d %s", text, account, gpu, r, err.text);
	if (value)
		cr_assert_str_eq(text, value);
}

#define BOTH FIRST " (GPU 0), " SECOND " (GPU 1)"

Test(nvml, an_account_is_found_on_whichever_gpu_it_is)
{
	struct gpuarb_client *small, *both[2];
	char arguments[64];

	small = client_on(SECOND, "small");
	both[0] = client_on(FIRST, "both");
	both[1] = client_on(SECOND, "both");
	expect("", "gpuarb-set --account small core=50", 0, "");
	expect_core(SECOND, "small", "50");
	expect_core(FIRST, "small", NULL);
	expect("", "gpuarb-set --account both core=50", 1,
		"the account 'both' is on 2 GPUs: " BOTH "; name one with --gpu, or all GPUs with --gpu all");
	expect_core(FIRST, "both", NULL);
	expect("", "gpuarb-set --account nosuch core=50", 1,
		"the account 'nosuch' is on none of the 2 GPUs that have a segment: " BOTH);
	expect("", "gpuarb-set window_ms=200", 1,
		"2 GPUs have a segment: " BOTH "; name one with --gpu, or all");
	snprintf(arguments, sizeof(arguments), "gpuarb-set --pid %d core=30", (int)getpid());
	expect("", arguments, 1, "is on 2 GPUs: " BOTH);
	/* After the client has ended, its limits still say where it was. */
	gpuarb_client_close(small);
	expect("", "gpuarb-set --account small core=40", 0, "");
	expect_core(SECOND, "small", "40");
	/* Without a driver, UUIDs are all that can be named. */
	expect("init", "gpuarb-set --account both core=50", 1, "on 2 GPUs: " FIRST ", " SECOND ";");
	gpuarb_client_close(both[0]);
	gpuarb_client_close(both[1]);
}

/* nvidia-smi counts the GPUs in another order than that of their UUIDs. */
Test(nvml, gpus_are_listed_in_the_order_of_their_numbers)
{
	static const char *const commands[] = {"gpuarb-set window_ms=200", "gpuarb-set --show",
		"gpuarb-top --once -i 100", "gpuarb-top --json"};

	expect("", "gpuarb-node", 0, FIRST " (GPU 0): ready");
	for (unsigned i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		expect("reversed", commands[i], i ? 0 : 1, SECOND);
		cr_assert(strstr(out, SECOND) < strstr(out, FIRST), "%s: %s", commands[i], out);
		expect("", commands[i], i ? 0 : 1, SECOND);
		cr_assert(strstr(out, FIRST) < strstr(out, SECOND), "%s: %s", commands[i], out);
	}
}

Test(nvml, all_gpus_are_changed_together_or_none)
{
	struct gpuarb_client *a = client_on(FIRST, "a"), *b = client_on(SECOND, "b");
	char command[64];

	expect("", "gpuarb-node --gpu all", 0, SECOND " (GPU 1): ready");
	expect("", "gpuarb-cdi --gpu all --percents 5", 0, "\"1-5\"");
	expect("", "gpuarb-watchdog --gpu all --once", 0, "");
	expect("", "gpuarb-top --gpu all --json", 0, SECOND);
	expect("", "gpuarb-set --gpu all --account web core=50", 0, "");
	expect_core(FIRST, "web", "50");
	expect_core(SECOND, "web", "50");
	expect("", "gpuarb-set --gpu all --all core=20", 0, "");
	expect_core(FIRST, "a", "20");
	expect_core(FIRST, "b", NULL);
	expect_core(SECOND, "b", "20");
	expect("", "gpuarb-set --gpu all --class asr priority=90", 0, "");
	expect("", "gpuarb-set --gpu all low_water=70 --save", 0, "");
	snprintf(command, sizeof(command), "gpuarb-set --gpu all --pid %d core=25", (int)getpid());
	expect("", command, 0, "");
	expect_core(FIRST, "a", "25");
	expect_core(SECOND, "b", "25");
	/* The second GPU refuses: the change on the first is taken back. */
	expect("", "gpuarb-set --gpu 1 high_water=95 low_water=90", 0, "");
	expect("", "gpuarb-set --gpu all high_water=80", 1,
		"low_water (90) must not be above high_water (80)");
	expect("", "gpuarb-set --gpu 0 --show", 0, "high_water = 85");
	expect("", "gpuarb-set --gpu 1 --no-class asr", 0, "");
	expect("", "gpuarb-set --gpu all --no-class asr", 1, "asr");
	expect("", "gpuarb-set --gpu 0 --show", 0, "class asr: priority=90");
	/* --show needs no name and shows all GPUs. */
	expect("", "gpuarb-set --show", 0, FIRST " (GPU 0)\n");
	cr_assert(strstr(out, SECOND " (GPU 1)\n"), "%s", out);
	expect("", "gpuarb-set --show --account web", 0, SECOND " (GPU 1)\n  account web: core=50\n");
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

Test(nvml, numbers_need_a_driver_that_answers)
{
	static const char *const commands[] = {"gpuarb-set --gpu 0 --show",
		"gpuarb-top --gpu 0 --once -i 100", "gpuarb-watchdog --gpu 0 --once"};

	for (unsigned i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		expect("init", commands[i], 1, "GPU 0: numbers are the driver's, and there is none to ask");
	expect("", "gpuarb-top --gpu 2 --once -i 100", 1,
		"there is no GPU 2; the driver knows 2, counted from 0\n");
	expect("", "gpuarb-node", 0, SECOND " (GPU 1): ready");
	expect("", "gpuarb-set --gpu 1 --show", 0, SECOND " (GPU 1)\n");
	expect("init", "gpuarb-set --gpu " SECOND " --show", 0, SECOND "\n");
}

/* The viewer can do without the GPU's name, and does not wait long for it. */
Test(nvml, the_viewer_works_without_it)
{
	static const char *const ways[] = {"init", "count", "none", "first", "name", "hangs"};

	expect("", "gpuarb-node --gpu " FIRST, 0, "ready");
	expect("", "gpuarb-top --once -i 100", 0, FIRST " (GPU 0)  Failing GPU ");
	for (unsigned i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		expect(ways[i], "gpuarb-top --once -i 100", 0, FIRST);
		cr_assert_null(strstr(out, "Failing GPU"), "%s: %s", ways[i], out);
		cr_assert(strstr(out, "0 processes"), "%s: %s", ways[i], out);
		expect(ways[i], "gpuarb-top --json", 0, "\"name\": null");
	}
}

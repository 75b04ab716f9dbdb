/* gpuarb-set, from outside: every option, every sentence; and the editor of arbiter.conf. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../tools/conf_edit.h"
#include "gpuarb/control.h"
#include "multi.h"

static struct t_dir dir;

static void make_dir(void)
{
	t_dir_make(&dir, NULL);
}

static void remove_dir(void)
{
	t_dir_remove(&dir);
}

TestSuite(set, .init = make_dir, .fini = remove_dir, .timeout = 60);

/* Runs it on this directory's GPU; returns the exit status and what it printed, both streams together. */
static int run(const char *arguments, char *output, size_t size)
{
	const char *build = getenv("T_BUILD");
	char command[1024];
	size_t n;
	FILE *pipe;

	snprintf(command, sizeof(command), "GPUARB_CONF=%s %s/gpuarb-set --dir %s --gpu " T_GPU " %s 2>&1",
		dir.conf, build ? build : "build", dir.path, arguments);
	pipe = popen(command, "r");
	cr_assert(pipe);
	n = fread(output, 1, size - 1, pipe);
	output[n] = '\0';
	return WEXITSTATUS(pclose(pipe));
}

static void expect(const char *arguments, int status, const char *sentence)
{
	char out[8192];

	cr_assert_eq(run(arguments, out, sizeof(out)), status, "%s: %s", arguments, out);
	cr_assert(strstr(out, sentence), "%s: %s", arguments, out);
}

static void expect_value(const char *account, const char *key, const char *value)
{
	struct gpuarb_error err = {0};
	char text[64];

	cr_assert_eq(gpuarb_control_get(dir.path, T_GPU, account, key, text, sizeof(text), &err), 0, "%s",
		err.text);
	cr_assert_str_eq(text, value);
}

Test(set, limits_and_settings_change_together)
{
	struct gpuarb_client_status status;
	struct gpuarb_client *c;

	cr_assert_eq(t_open(&dir, "web", &c), 0);
	expect("--account web core=30 mem=2Gi priority=7 window_ms=200", 0, "");
	expect_value("web", "core", "30");
	expect_value("web", "mem", "2Gi");
	expect_value("web", "priority", "7");
	expect_value(NULL, "window_ms", "200");
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 30, "and the client has it at once");
	expect("--account web core= mem=", 0, "");
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 100);
	gpuarb_client_close(c);
}

Test(set, a_mistake_changes_nothing)
{
	expect("--account web core=30 window_ms=200", 0, "");
	expect("--account web core=50 window_ms=5", 1, "window_ms cannot be '5'; allowed: 10 to 60000 ms");
	expect("--account web core=50 polcy=fair", 1, "there is no setting 'polcy'; did you mean 'policy'?");
	expect("--account web core=0", 1, "core cannot be '0'; allowed: 1 to 100 percent");
	expect("high_water=10", 1, "low_water (78) must not be above high_water (10)");
	expect("slots=12", 1, "slots counts when a segment is made");
	expect("core=5", 1, "say which one with --account, --pid or --all");
	expect("--account 'two words' core=5", 1, "cannot be an account's name");
	expect("core", 2, "'core' is not key=value");
	expect("", 2, "nothing to change");
	expect("--account a --all core=5", 2, "exclude each other");
	expect("--pid 0 core=5", 2, "--pid cannot be '0'");
	expect_value("web", "core", "30");
	expect_value(NULL, "window_ms", "200");
}

Test(set, accounts_are_found_by_process_and_all_at_once)
{
	struct gpuarb_client *a, *b;
	char arguments[64];

	cr_assert_eq(t_open(&dir, "first", &a), 0);
	cr_assert_eq(t_open(&dir, "second", &b), 0);
	expect("--all core=40", 0, "");
	expect_value("first", "core", "40");
	expect_value("second", "core", "40");
	gpuarb_client_close(a);
	snprintf(arguments, sizeof(arguments), "--pid %d core=60", (int)getpid());
	expect(arguments, 0, "");
	expect_value("second", "core", "60");
	expect_value("first", "core", "40");
	expect("--pid 4194304 core=60", 1, "has pid 4194304");
	gpuarb_client_close(b);
}

Test(set, what_is_in_force_is_shown)
{
	expect("--account web core=30 mem=1536Mi policy=fair", 0, "");
	expect("--show", 0, "policy = fair");
	expect("--show", 0, "window_ms = 100 # ms");
	expect("--show", 0, "account web: core=30 mem=1536Mi\n");
}

Test(set, what_is_saved_is_what_the_next_segment_begins_with)
{
	char path[PATH_MAX];

	expect("--account web core=30 window_ms=300 --save", 0, "");
	t_path(&dir, "control", path);
	cr_assert_eq(unlink(path), 0);
	expect("--account other core=10", 0, "");
	expect_value(NULL, "window_ms", "300");
	expect_value("web", "core", "30");
}

Test(set, who_may_not_write_is_told_so)
{
	char command[256];

	if (geteuid() != 0)
		t_skip_test(&dir, "who may not write is told so: needs root, to become somebody else");
	expect("--account web core=30", 0, "");
	snprintf(command, sizeof(command), "chmod 755 %s", dir.path);
	cr_assert_eq(system(command), 0);
	/* Root can come back, to remove the directory; the program that is run cannot. */
	if (setresuid(65534, 65534, 0) != 0)
		t_skip_test(&dir, "who may not write is told so: cannot become another user");
	expect("--account web core=90", 1, "only who may write");
	cr_assert_eq(setresuid(0, 0, 0), 0);
	expect_value("web", "core", "30");
}

static void edit(
	const char *text, const char *section, const char *key, const char *value, const char *expected)
{
	char *result = conf_edit(text, section, key, value);

	cr_assert_str_eq(result, expected);
	free(result);
}

Test(conf_edit, one_line_changes_and_the_rest_stays)
{
	edit("", "gpu", "window_ms", "5", "window_ms = 5\n");
	edit("# mine\nwindow_ms = 100\nx = 1\n", "gpu", "window_ms", "5", "# mine\nwindow_ms = 5\nx = 1\n");
	edit("#window_ms = 100\n", "gpu", "window_ms", "5", "#window_ms = 100\nwindow_ms = 5\n");
	edit("a = 1", "gpu", "b", "2", "a = 1\nb = 2\n");
	edit("a = 1\n\n[account x]\ncore = 5\n", "gpu", "b", "2", "a = 1\nb = 2\n\n[account x]\ncore = 5\n");
	edit("[gpu]\na = 1\n[account x]\ncore = 5\n", "account x", "core", "9",
		"[gpu]\na = 1\n[account x]\ncore = 9\n");
	edit("[account x]\ncore = 5\n", "account y", "core", "9",
		"[account x]\ncore = 5\n\n[account y]\ncore = 9\n");
	edit("[account x]\ncore = 5\nmem = 1\n", "account x", "core", NULL, "[account x]\nmem = 1\n");
	edit("[account x]\n", "account y", "core", NULL, "[account x]\n");
	edit("corexy = 3\n", "gpu", "core", "4", "corexy = 3\ncore = 4\n");
}

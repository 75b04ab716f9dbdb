/* gpuarb-set as a user runs it: every option, every sentence; and the editor of arbiter.conf. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/common/conf_edit.h"
#include "gpuarb/control.h"
#include "test/multi/multi.h"

static struct t_dir dir;

static void make_dir(void)
{
	struct gpuarb_client *c;

	/* There are segments, as after the first program: a GPU without one is a mistake. */
	t_dir_make(&dir, NULL);
	cr_assert_eq(t_open(&dir, "nobody", &c), 0);
	gpuarb_client_close(c);
}

static void remove_dir(void)
{
	t_dir_remove(&dir);
}

TestSuite(set, .init = make_dir, .fini = remove_dir);

/* Runs it on the GPU of this directory; returns the exit status and the output, both streams together. */
static int run(const char *arguments, char *output, size_t size)
{
	return t_shell(output, size, "GPUARB_CONF=%s %s/gpuarb-set --dir %s %s%s", dir.conf, t_build(),
		dir.path, strstr(arguments, "--gpu") ? "" : "--gpu " T_GPU " ", arguments);
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

Test(set, several_limits_or_settings_change_together)
{
	struct gpuarb_client_status status;
	struct gpuarb_client *c;

	cr_assert_eq(t_open(&dir, "web", &c), 0);
	expect("--account web core=30 mem=2Gi priority=7", 0, "");
	expect("window_ms=200 policy=fair", 0, "");
	expect_value("web", "core", "30");
	expect_value("web", "mem", "2Gi");
	expect_value("web", "priority", "7");
	expect_value(NULL, "window_ms", "200");
	expect_value(NULL, "policy", "fair");
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 30, "and the client has it at once");
	expect("--account web core= mem=", 0, "");
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 100);
	gpuarb_client_close(c);
}

Test(set, a_mistake_changes_nothing)
{
	expect("--account web core=30", 0, "");
	expect("window_ms=200", 0, "");
	expect("policy=fair window_ms=5", 2, "gpuarb-set: window_ms cannot be '5'; allowed: 10 to 60000 ms");
	expect("--account web core=50 polcy=fair", 2, "there is no setting 'polcy'; did you mean 'policy'?");
	expect("--account web core=0", 2, "core cannot be '0'; allowed: 1 to 100 percent");
	expect("high_water=10", 1, "low_water (78) must not be above high_water (10)");
	expect("slots=12", 2, "slots counts when a segment is made");
	expect("core=5", 2, "say which one with --account, --pid or --all");
	expect("--account 'two words' core=5", 2, "cannot be an account's name");
	expect("core", 2, "'core' is not key=value");
	expect("", 2, "nothing to change");
	expect("--account a --all core=5", 2, "exclude each other");
	expect("--pid 0 core=5", 2, "--pid cannot be '0'");
	expect_value("web", "core", "30");
	expect_value(NULL, "window_ms", "200");
}

/* Checks that a command does not change the output of --show, which has all settings. */
static void expect_unchanged_by(const char *arguments, int status, const char *sentence)
{
	char before[8192], after[8192];

	cr_assert_eq(run("--show", before, sizeof(before)), 0);
	expect(arguments, status, sentence);
	cr_assert_eq(run("--show", after, sizeof(after)), 0);
	cr_assert_str_eq(after, before, "after %s", arguments);
}

Test(set, an_account_s_name_is_never_cut)
{
	char longest[64] = "", name[80], arguments[160];

	memset(longest, 'n', 63);
	snprintf(arguments, sizeof(arguments), "--account %s core=30", longest);
	expect(arguments, 0, "");
	expect_value(longest, "core", "30");
	snprintf(name, sizeof(name), "%sx", longest);
	snprintf(arguments, sizeof(arguments), "--account %s core=40", name);
	expect_unchanged_by(arguments, 2,
		"--account: 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...' (64 bytes) cannot be an account's "
		"name; allowed: 1 to 63 bytes, no spaces or control characters");
	expect_unchanged_by("--account '' core=40", 2, "--account: '' (0 bytes) cannot be an account's name");
	expect_unchanged_by("--account '' --show", 2, "--account: '' (0 bytes) cannot be an account's name");
	expect_value(longest, "core", "30");
}

Test(set, a_setting_of_the_gpu_is_not_one_of_an_account)
{
	expect_unchanged_by("--account web core=50 window_ms=300", 2,
		"window_ms is a setting of the GPU and cannot go with --account; limits of an account are "
		"core, "
		"mem, priority, request, weight and members");
	expect_unchanged_by("--all window_ms=300", 2, "cannot go with --all");
	expect_unchanged_by("--pid 1 policy=fair --save", 2, "cannot go with --pid");
}

Test(set, an_account_is_shown_alone_and_a_missing_one_is_reported)
{
	struct gpuarb_client *c;
	char out[8192];

	expect("--account web core=30", 0, "");
	expect("--account other core=20", 0, "");
	cr_assert_eq(t_open(&dir, "runs", &c), 0);
	cr_assert_eq(run("--show --account web", out, sizeof(out)), 0);
	cr_assert_str_eq(out, "  account web: core=30\n");
	expect("--show --account runs", 0, "in force for runs: core=100 # 1 process\n");
	expect("--show --account nosuch", 1,
		"there is no account 'nosuch' on GPU-test: no limit is set for it and no process is in it");
	expect("--account other core= --show", 0, "");
	gpuarb_client_close(c);
}

Test(set, the_default_class_stays)
{
	expect("--class default priority=70", 0, "");
	expect_unchanged_by("--no-class default", 2,
		"the class 'default' cannot be taken away: tasks that name no class belong to it; an empty "
		"value, such as priority=, sets it back");
	expect_unchanged_by("--no-class default --save", 2, "the class 'default' cannot be taken away");
	expect("--class default priority=", 0, "");
	expect("--show", 0, "class default: priority=50");
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
	expect("--pid 4194304 core=60", 1, "process 4194304 is no client of GPU-test");
	gpuarb_client_close(b);
}

Test(set, what_is_in_force_is_shown)
{
	expect("--account web core=30 mem=1536Mi", 0, "");
	expect("policy=fair", 0, "");
	expect("--show", 0, "policy = fair");
	expect("--show", 0, "window_ms = 100 # ms");
	expect("--show", 0, "account web: core=30 mem=1536Mi\n");
	expect("--account web priority=7", 0, "");
	expect("--show", 0, "account web: core=30 mem=1536Mi priority=7\n");
}

Test(set, limits_that_a_program_brought_are_shown_too)
{
	struct gpuarb_options o = t_options(&dir, "own");
	struct gpuarb_client *c;

	o.core_pct = 15;
	o.mem_bytes = 3 << 20;
	cr_assert_eq(gpuarb_client_open(&o, &c, NULL), 0);
	expect("--show", 0, "in force for own: core=15 mem=3Mi # 1 process\n");
	gpuarb_client_close(c);
}

/* Also of accounts that have no client: all of them together. */
Test(set, requests_that_would_be_more_than_100_percent_are_refused)
{
	struct gpuarb_client *c;

	expect("--account web request=60", 0, "");
	expect_unchanged_by("--account batch request=50", 1,
		T_GPU " cannot promise 50 percent of its time to batch: 60 of 100 are promised (web has 60)");
	expect("--account batch request=40 --save", 0, "");
	expect_unchanged_by("--account web request=61", 1, "to web: 40 of 100 are promised (batch has 40)");
	expect("--account web request=59", 0, "");
	cr_assert_eq(t_open(&dir, "web", &c), 0);
	expect_unchanged_by("--all request=70", 1, "(batch has 40)");
	expect("--all request=60", 0, "");
	gpuarb_client_close(c);
	/* Those of the file hold on every GPU. */
	expect("--account web request=", 0, "");
	expect("--account other request=60", 0, "");
	expect("--account batch request=30", 0, "");
	expect_unchanged_by("--account other request=70 --save", 1, "add up to 110 percent");
	expect("--account other request=60 --save", 0, "");
}

Test(set, of_two_administrators_at_once_one_has_room)
{
	for (int i = 0; i < 10; i++) {
		char out[1024], left[8192];

		t_shell(out, sizeof(out),
			"export GPUARB_CONF=%s; for i in a b; do %s/gpuarb-set --dir %s --gpu " T_GPU
			" --account $i request=51 & done; wait",
			dir.conf, t_build(), dir.path);
		cr_assert(strstr(out, "51 of 100 are promised"), "%s", out);
		cr_assert_eq(run("--show", left, sizeof(left)), 0);
		cr_assert_neq(!strstr(left, "account a: request=51"), !strstr(left, "account b: request=51"),
			"%s %s", out, left);
		expect("--account a request=", 0, "");
		expect("--account b request=", 0, "");
	}
}

Test(set, requests_add_up_before_anybody_has_come)
{
	const char *gpu = "GPU-01234567-89ab-cdef-0123-456789abcdef";
	struct gpuarb_options o = t_options(&dir, "nobody");
	char arguments[128], path[PATH_MAX];
	struct gpuarb_client *c;

	snprintf(arguments, sizeof(arguments), "--gpu %s --account a request=60", gpu);
	expect(arguments, 0, "");
	cr_assert_eq(access((t_path(&dir, "state", path), path), F_OK), 0);
	snprintf(arguments, sizeof(arguments), "--gpu %s --account b request=41", gpu);
	expect(arguments, 1, "to b: 60 of 100 are promised (a has 60)");
	snprintf(arguments, sizeof(arguments), "--gpu %s --account b request=40", gpu);
	expect(arguments, 0, "");
	/* Taken back on the one GPU where the other has no room. */
	o.gpu = gpu;
	cr_assert_eq(gpuarb_client_open(&o, &c, NULL), 0);
	gpuarb_client_close(c);
	expect("--account c request=10", 0, "");
	expect("--gpu all --account c request=50", 1, "to c: 100 of 100 are promised (a has 60, b has 40)");
	expect_value("c", "request", "10");
}

Test(set, every_key_is_explained)
{
	expect("--keys", 0, "window_ms\n        10 to 60000 ms (default: 100)\n        length of the window");
	expect("--keys", 0,
		"policy\n        one of concurrent|exclusive|auto|fair|memory (default: concurrent)\n");
	expect("--keys", 0, "core (of an account)\n        1 to 100 percent\n");
	expect("--version", 0, "gpuarb-set 0.");
	expect("--help", 0, "together or not at all. Every client notices");
}

Test(set, what_cannot_be_shown_yet_is_said)
{
	expect("--dir /no/such --show", 1,
		"--dir /no/such: No such file or directory; allowed: a directory of segments");
	expect("--gpu GPU-00000000-0000-0000-0000-0000000000aa --show", 1,
		"GPU-00000000-0000-0000-0000-0000000000aa has no settings yet: 'sudo gpuarb-node' or the first program");
}

static void make_control_anew(void)
{
	char path[PATH_MAX];

	cr_assert_eq(unlink((t_path(&dir, "control", path), path)), 0);
	expect("--account other core=10", 0, "");
}

Test(set, what_is_saved_is_what_the_next_segment_begins_with)
{
	expect("--account web core=30 --save", 0, "");
	expect("window_ms=300 --save", 0, "");
	make_control_anew();
	expect_value(NULL, "window_ms", "300");
	expect_value("web", "core", "30");
}

/* Limits and file change together: after a mistake, or if the file cannot be written, both are as before. */
Test(set, what_cannot_be_saved_is_not_set)
{
	char text[256] = "";
	struct stat st;
	FILE *file;

	expect("--account web core=30 --save", 0, "");
	cr_assert_eq(chmod(dir.conf, 0640), 0);
	expect("--account web core=40 --save", 0, "");
	cr_assert_eq(stat(dir.conf, &st), 0);
	cr_assert_eq(st.st_mode & 0777, 0640, "its rights stay");
	expect("policy=fair high_water=20 --save", 1, "nothing was changed: what would be saved");
	expect("--account web core=50 core=500 --save", 2, "core cannot be '500'");
	expect("--account web core=50 polcy=fair --save", 2, "did you mean 'policy'?");
	expect("--account 'a]b' core=50 --save", 1, "core of 'a]b' cannot be written to an arbiter.conf");
	expect("--save --show", 2, "--save writes changes, and there are none");
	expect_value("web", "core", "40");
	file = fopen(dir.conf, "r");
	cr_assert(file && fread(text, 1, sizeof(text) - 1, file) > 0);
	fclose(file);
	cr_assert(strstr(text, "[account web]\ncore = 40\n"), "%s", text);
	/* The directory of the file does not exist and cannot be made. */
	strcpy(dir.conf, "/proc/none/such.conf");
	expect("--account web core=50 --save", 1, "/proc/none/such.conf cannot be written: No such file");
	expect_value("web", "core", "40");
}

static void expect_class(const char *name, const char *key, const char *value)
{
	char text[64] = "";
	struct gpuarb_error err = {0};
	int r = gpuarb_control_class(dir.path, T_GPU, name, key, text, sizeof(text), &err);

	cr_assert_eq(r, value ? 0 : -ENOENT, "%s", err.text);
	cr_assert(!value || strcmp(text, value) == 0, "%s of %s is %s", key, name, text);
}

static void expect_file(const char *what, bool there)
{
	char text[1024] = "";
	FILE *file = fopen(dir.conf, "r");

	cr_assert(file && fread(text, 1, sizeof(text) - 1, file) > 0);
	fclose(file);
	cr_assert_eq(strstr(text, what) != NULL, there, "%s", text);
}

Test(set, classes_are_saved_too)
{
	expect("--account web core=30 --class asr priority=90", 2, "do not go with --account");
	expect("--class asr priority=90 max_wait_ms=8000 --save", 0, "");
	expect("--class repair mode=skip --save", 0, "");
	/* It has only default values and is a class nevertheless. */
	expect("--class plain priority= --save", 0, "");
	expect_file("[class asr]\npriority = 90\nmax_wait_ms = 8000\n", true);
	make_control_anew();
	expect_class("asr", "priority", "90");
	expect_class("asr", "max_wait_ms", "8000");
	expect_class("repair", "mode", "skip");
	expect_class("plain", "priority", "50");
	/* A mistake, or one class too many, leaves limits and file as they were. */
	expect("--class asr priority=95 mode=sometimes --save", 2, "mode cannot be 'sometimes'");
	expect("--class 'a b' priority=95 --save", 2, "cannot be a class's name");
	expect("--class asr prority=95 --save", 2, "'prority' is not a setting of a class");
	expect("--no-class nonsense --save", 1, "");
	expect_class("asr", "priority", "90");
	expect_file("priority = 90\n", true);
	expect_file("95", false);
	/* The class is gone, and does not come back with the next segment. */
	expect("--no-class asr --save", 0, "");
	expect_file("asr", false);
	expect_file("[class repair]\nmode = skip\n", true);
	make_control_anew();
	expect_class("asr", "priority", NULL);
	expect_class("repair", "mode", "skip");
}

Test(set, a_section_goes_and_its_comments_stay)
{
	char *text = conf_drop(
		"# about\nwindow_ms = 5\n[class a]\n# why\npriority = 3\n\n[class ab]\nmode = skip\n"
		"[class a]\nmode = skip",
		"class a");

	cr_assert_str_eq(text, "# about\nwindow_ms = 5\n# why\n\n[class ab]\nmode = skip\n");
	free(text);
}

Test(set, a_link_to_the_file_stays_a_link)
{
	char link[200], original[200];
	struct stat st;

	strcpy(original, dir.conf);
	snprintf(link, sizeof(link), "%s.link", dir.conf);
	cr_assert_eq(symlink(original, link), 0);
	strcpy(dir.conf, link);
	expect("window_ms=300 --save", 0, "");
	cr_assert(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
	cr_assert(stat(original, &st) == 0 && st.st_size > 0);
	strcpy(dir.conf, original);
	unlink(link);
}

Test(set, a_gpu_is_named_by_its_uuid_or_the_beginning_of_it)
{
	const char *whole = "GPU-01234567-89ab-cdef-0123-456789abcdef";
	char arguments[128], path[PATH_MAX];

	expect("--gpu GPU-te --show", 0, "GPU-test\n");
	expect("--gpu nonsense --show", 1,
		"there is no GPU 'nonsense': a GPU is named by its number or UUID");
	expect("--gpu GPU-other --account a core=5", 1, "there is no GPU 'GPU-other'");
	expect("--gpu ../control/GPU-test --show", 1, "there is no GPU");
	expect("--gpu 77 --show", 1, "GPU 77");
	snprintf(arguments, sizeof(arguments), "--gpu %s --account a core=5 --show", whole);
	expect(arguments, 0, "account a: core=5");
	cr_assert_eq(unlink((t_path(&dir, "state", path), path)), 0);
	expect("--gpu GPU-test --show", 0, "GPU-test\n");
	expect("--show --gpu GPU-tes", 1, "there is no GPU 'GPU-tes'");
}

Test(set, a_user_who_may_not_write_is_told_so)
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

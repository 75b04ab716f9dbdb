/* The watchdog as a user runs it: what it prints, what it frees, how it exits. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuarb/control.h"
#include "test/harness.h"

#define TOOL "gpuarb-watchdog"

static struct t_dir dir;

static void make_dir(void)
{
	t_dir_make(&dir, NULL);
}

static void remove_dir(void)
{
	t_dir_remove(&dir);
}

TestSuite(watchdog, .init = make_dir, .fini = remove_dir);

/* Runs the tool; returns its exit status and what it printed, both streams together. */
static int run(const char *arguments, char *output, size_t size)
{
	return t_shell(output, size, "%s/%s --dir %s %s", t_build(), TOOL, dir.path, arguments);
}

/* Holds memory and the lease until it is killed. */
static int hold(void *argument)
{
	struct gpuarb_client *c;
	int *ready = argument;

	if (t_open(&dir, "web", &c) < 0 || gpuarb_client_mem_reserve(c, 3u << 20) < 0 ||
		gpuarb_client_enter(c, NULL) < 0)
		return 1;
	*ready = 1;
	pause();
	return 0;
}

static pid_t holder(void)
{
	volatile int *ready = t_shared(sizeof(int));
	pid_t pid = t_spawn(hold, (void *)ready, 50);

	while (!*ready)
		t_sleep_us(1000);
	return pid;
}

Test(watchdog, a_dead_client_is_reclaimed_and_reported)
{
	char out[4096], expected[64];
	pid_t pid = holder();

	cr_assert_eq(run("--once", out, sizeof(out)), 0);
	cr_assert_str_empty(out, "the living are left alone");
	kill(pid, SIGKILL);
	t_wait(pid);
	cr_assert_eq(run("--once", out, sizeof(out)), 0);
	snprintf(expected, sizeof(expected), "slot 0 reclaimed: pid %d (", (int)pid);
	cr_assert(strstr(out, expected), "%s", out);
	cr_assert(strstr(out, "of account web, while it ran; it had used "), "%s", out);
	cr_assert(strstr(out, "freed 3.0 MiB\n"), "%s", out);
	cr_assert_eq(run("--once", out, sizeof(out)), 0);
	cr_assert_str_empty(out, "once is enough");
}

Test(watchdog, a_dead_client_is_shown_as_gone_until_it_is_cleaned_up)
{
	static struct gpuarb_picture picture;
	struct gpuarb_view *view;
	struct gpuarb_error err;
	char out[8192];
	pid_t pid = holder();

	cr_assert_eq(gpuarb_view_open(dir.path, T_GPU, &view, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_view_read(view, &picture), 0);
	cr_assert_eq(picture.nclients, 1);
	cr_assert_eq(picture.ndead, 0);
	kill(pid, SIGKILL);
	t_wait(pid);
	t_sleep_us(110000); /* a viewer asks the kernel ten times a second */
	cr_assert_eq(gpuarb_view_read(view, &picture), 0);
	cr_assert_eq(picture.nclients, 1);
	cr_assert(picture.clients[0].dead && picture.ndead == 1);
	gpuarb_view_close(view);
	cr_assert_eq(t_shell(out, sizeof(out), "%s/gpuarb-top --once --dir %s", t_build(), dir.path), 0);
	cr_assert(strstr(out, "0 processes") && strstr(out, "gone"), "%s", out);
}

/* Becomes the tool, in a loop; its error messages go into a pipe if there is one. */
static int loop(void *argument)
{
	int *ends = argument;
	char path[256];

	if (ends)
		dup2(ends[1], STDERR_FILENO);
	snprintf(path, sizeof(path), "%s/%s", t_build(), TOOL);
	execl(path, TOOL, "--dir", dir.path, "--interval", "10", "--quiet", (char *)NULL);
	return 1;
}

Test(watchdog, a_loop_ends_with_a_signal)
{
	static struct gpuarb_picture picture;
	struct gpuarb_view *view;
	struct gpuarb_error err;
	pid_t pid = holder(), tool;

	cr_assert_eq(gpuarb_view_open(dir.path, T_GPU, &view, &err), 0, "%s", err.text);
	kill(pid, SIGKILL);
	t_wait(pid);
	tool = t_spawn(loop, NULL, 50);
	do {
		t_sleep_us(1000);
		cr_assert_eq(gpuarb_view_read(view, &picture), 0);
	} while (!picture.reclaimed);
	cr_assert_eq(kill(tool, SIGTERM), 0);
	cr_assert_eq(t_wait(tool), 0);
	gpuarb_view_close(view);
}

Test(watchdog, a_violated_invariant_is_said_and_shown_in_the_exit_status)
{
	struct gpuarb_client *c;
	struct arb_segment seg;
	char out[4096];

	cr_assert_eq(t_open(&dir, "web", &c), 0);
	cr_assert_eq(arb_segment_open(&seg, dir.path, T_GPU, true, NULL, NULL), 0);
	seg.slots[5].total.v += 1000; /* a bill that nobody worked for */
	cr_assert_eq(run("--once", out, sizeof(out)), 3);
	cr_assert(strstr(out, "invariant violated: the law: "), "%s", out);
	seg.slots[5].total.v -= 1000;
	cr_assert_eq(run("--once", out, sizeof(out)), 0);
	arb_segment_close(&seg);
	gpuarb_client_close(c);
}

/* No client is there that would repair it at its next step. */
Test(watchdog, garbage_is_repaired_and_said)
{
	struct gpuarb_client *c;
	struct arb_segment seg;
	char out[4096];

	cr_assert_eq(t_open(&dir, "web", &c), 0);
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	cr_assert_eq(arb_segment_open(&seg, dir.path, T_GPU, true, NULL, NULL), 0);
	seg.header->head.v = ~0ull;
	cr_assert_eq(run("--once", out, sizeof(out)), 0, "%s", out);
	cr_assert_str_eq(out,
		"GPU-test: repaired: the record of the running set was garbage; the law holds again "
		"from here on\n");
	seg.accounts[0].head.v = 7ull << ARB_HEAD_SEQ_SHIFT | 1500u << 1; /* there is no slot 1500 */
	cr_assert_eq(run("--once", out, sizeof(out)), 0, "%s", out);
	cr_assert_str_eq(
		out, "GPU-test: repaired: the record of account 'web' was garbage; its window begins anew\n");
	cr_assert_eq(run("--once", out, sizeof(out)), 0);
	cr_assert_str_empty(out);
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0, "and everybody goes on");
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	arb_segment_close(&seg);
	gpuarb_client_close(c);
}

Test(watchdog, what_is_wrong_is_said_when_it_begins_and_when_it_is_over)
{
	struct gpuarb_client *c;
	struct arb_segment seg;
	int ends[2];
	char line[512];
	FILE *said;
	pid_t tool;

	cr_assert_eq(t_open(&dir, "web", &c), 0);
	cr_assert_eq(arb_segment_open(&seg, dir.path, T_GPU, true, NULL, NULL), 0);
	seg.slots[5].total.v += 1000;
	cr_assert_eq(pipe(ends), 0);
	tool = t_spawn(loop, ends, 50);
	close(ends[1]);
	said = fdopen(ends[0], "r");
	cr_assert(said && fgets(line, sizeof(line), said));
	cr_assert(strstr(line, "GPU-test: invariant violated: the law: "), "%s", line);
	t_sleep_us(200000);
	seg.slots[5].total.v -= 1000;
	cr_assert(fgets(line, sizeof(line), said));
	cr_assert_str_eq(line, "gpuarb-watchdog: all is well again\n", "and nothing in between");
	cr_assert_eq(kill(tool, SIGTERM), 0);
	cr_assert_eq(t_wait(tool), 3, "something was wrong in the meantime");
	fclose(said);
	arb_segment_close(&seg);
	gpuarb_client_close(c);
}

Test(watchdog, a_directory_that_is_not_there_is_not_looked_after)
{
	char out[4096];

	/* If it is given twice, the last one counts. */
	cr_assert_eq(run("--once --dir /no/such/place", out, sizeof(out)), 1);
	cr_assert_str_eq(out, "gpuarb-watchdog: --dir /no/such/place: No such file or directory; allowed: a "
			      "directory of segments, as gpuarb-node or the first client makes it\n");
	cr_assert_eq(run("--dir /dev/null", out, sizeof(out)), 1, "and it ends, although in a loop");
	cr_assert(strstr(out, "--dir /dev/null: Not a directory"), "%s", out);
	cr_assert_eq(run("--once --dir ''", out, sizeof(out)), 2);
	cr_assert(strstr(out, "--dir cannot be empty"), "%s", out);
}

Test(watchdog, mistakes_get_a_sentence)
{
	char out[4096];

	cr_assert_eq(run("--once --gpu GPU-none", out, sizeof(out)), 1);
	cr_assert(strstr(out, "there is no GPU 'GPU-none'"), "%s", out);
	cr_assert_eq(run("--once --gpu GPU-01234567-89ab-cdef-0123-456789abcdef", out, sizeof(out)), 1);
	cr_assert(strstr(out, "cannot open ") && strstr(out, "456789abcdef: No such file"), "%s", out);
	cr_assert_eq(run("--version", out, sizeof(out)), 0);
	cr_assert(strstr(out, "gpuarb-watchdog 0."), "%s", out);
	cr_assert_eq(run("--interval 5", out, sizeof(out)), 2);
	cr_assert(strstr(out, "--interval cannot be '5'; allowed: 10 to 3600000"), "%s", out);
	cr_assert_eq(run("nonsense", out, sizeof(out)), 2);
	cr_assert_eq(run("--once", out, sizeof(out)), 0);
	cr_assert_str_empty(out, "no segments: nothing to do");
	cr_assert_eq(run("--help", out, sizeof(out)), 0);
	cr_assert(strstr(out, "Exit status"), "%s", out);
}

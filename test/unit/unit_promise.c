/* Promises of memory: what is added up, which request is refused and with which words, which is served first, what
 * ends a promise. */
#include "test/unit/unit.h"

#include "gpuarb/control.h"
#include "gpuarb/promise.h"
#include "units.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void begin(void)
{
	t_dir_make(&u_dir, NULL);
	setenv("GPUARB_CONF", u_dir.conf, 1);
	unsetenv("GPUARB_DIR");
}

static void end(void)
{
	t_dir_remove(&u_dir);
}

TestSuite(promise, .init = begin, .fini = end);

static struct gpuarb_promiser *promiser(uint64_t physical)
{
	struct gpuarb_promiser *p;
	struct gpuarb_error err = {0};

	cr_assert_eq(gpuarb_promiser_open(u_dir.path, T_GPU, physical, &p, &err), 0, "%s", err.text);
	return p;
}

static int take(
	struct gpuarb_promiser *p, const char *account, uint64_t bytes, bool queue, int *fd, char *said)
{
	struct gpuarb_promise promise = {account, bytes, 0, 0};
	struct gpuarb_error err = {0};
	int r;

	cr_assert_eq(gpuarb_promiser_lock(p, &err), 0, "%s", err.text);
	r = gpuarb_promiser_take(p, &promise, queue, fd, &err);
	gpuarb_promiser_unlock(p);
	if (said)
		strcpy(said, err.text);
	return r;
}

/* Makes a promise with a promiser of its own, and keeps it. */
static int kept(const char *account, uint64_t bytes)
{
	struct gpuarb_promiser *p = promiser(16 * GIB);
	int fd = -1;

	cr_assert_eq(take(p, account, bytes, false, &fd, NULL), 0);
	gpuarb_promiser_close(p);
	return fd;
}

static int refused(const char *account, uint64_t bytes, char *said)
{
	struct gpuarb_promiser *p = promiser(16 * GIB);
	int fd = -1, r = take(p, account, bytes, false, &fd, said);

	gpuarb_promiser_close(p);
	if (fd >= 0)
		close(fd);
	return r;
}

static void set(const char *account, const char *key, const char *value)
{
	struct gpuarb_change change = {account, key, value};
	struct gpuarb_error err = {0};

	cr_assert_eq(gpuarb_control_change(u_dir.path, T_GPU, &change, 1, &err), 0, "%s", err.text);
}

Test(promise, a_promise_beyond_the_gpu_is_refused_and_the_sentence_lists_the_others)
{
	char said[512];
	int a = kept("training", 10 * GIB), b = kept("web", 2 * GIB);

	cr_assert_eq(refused("late", 4 * GIB + 1, said), -ENOSPC);
	cr_assert(strstr(said, "training has 10Gi"), "%s", said);
	cr_assert(strstr(said, "web has 2Gi"), "%s", said);
	cr_assert(strstr(said, "12Gi of 16Gi is promised"), "%s", said);
	cr_assert_eq(refused("late", 4 * GIB, NULL), 0);
	cr_assert_eq(refused("late", 16 * GIB + 1, said), -E2BIG);
	cr_assert(strstr(said, "more than the 16Gi it may promise"), "%s", said);
	close(a);
	cr_assert_eq(refused("late", 14 * GIB, NULL), 0);
	close(b);
}

Test(promise, the_ratio_and_the_size_are_settings)
{
	set(NULL, "oversub_ratio", "1.5");
	cr_assert_eq(refused("a", 24 * GIB, NULL), 0);
	cr_assert_eq(refused("a", 24 * GIB + 1, NULL), -E2BIG);
	set(NULL, "physical_memory_mb", "1024");
	cr_assert_eq(refused("a", 3 * GIB / 2, NULL), 0);
	cr_assert_eq(refused("a", 2 * GIB, NULL), -E2BIG);
}

Test(promise, an_account_has_one_quota_however_often_it_is_started)
{
	int a = kept("team", 10 * GIB), b = kept("team", 12 * GIB);

	cr_assert_eq(refused("other", 4 * GIB, NULL), 0);
	cr_assert_eq(refused("other", 5 * GIB, NULL), -ENOSPC);
	close(b);
	cr_assert_eq(refused("other", 6 * GIB, NULL), 0);
	close(a);
}

Test(promise, what_an_administrator_set_counts_before_what_was_asked)
{
	int a;

	set("team", "mem", "3Gi");
	a = kept("team", 15 * GIB);
	cr_assert_eq(refused("other", 13 * GIB, NULL), 0);
	cr_assert_eq(refused("other", 14 * GIB, NULL), -ENOSPC);
	close(a);
}

Test(promise, a_client_with_a_quota_but_no_promise_counts_as_well)
{
	struct gpuarb_options o = t_options(&u_dir, "container");
	struct gpuarb_client *c;
	struct gpuarb_error err;

	o.mem_bytes = 9 * GIB;
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), 0);
	cr_assert_eq(refused("other", 8 * GIB, NULL), -ENOSPC);
	cr_assert_eq(refused("container", 9 * GIB, NULL), 0);
	gpuarb_client_close(c);
	cr_assert_eq(refused("other", 8 * GIB, NULL), 0);
}

Test(promise, what_a_container_is_promised_counts_once)
{
	struct gpuarb_options o = t_options(&u_dir, "@container");
	struct gpuarb_client *c;
	struct gpuarb_error err;
	int fd = kept("@container", 9 * GIB);

	o.mem_bytes = 9 * GIB;
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), 0);
	cr_assert_eq(refused("other", 7 * GIB, NULL), 0);
	cr_assert_eq(refused("other", 8 * GIB, NULL), -ENOSPC);
	gpuarb_client_close(c);
	close(fd);
}

Test(promise, a_waiter_is_not_passed_by_later_ones)
{
	struct gpuarb_promiser *big = promiser(16 * GIB), *small = promiser(16 * GIB);
	int held = kept("first", 10 * GIB), b = -1, s = -1;
	char said[512];

	cr_assert_eq(take(big, "big", 12 * GIB, true, &b, NULL), -ENOSPC);
	cr_assert_eq(take(small, "small", 1 * GIB, true, &s, said), -ENOSPC);
	cr_assert(strstr(said, "big waits for 12Gi"), "%s", said);
	cr_assert_eq(take(small, "small", 1 * GIB, true, &s, NULL), -ENOSPC);
	close(held);
	cr_assert_eq(take(big, "big", 12 * GIB, true, &b, NULL), 0);
	cr_assert_eq(take(small, "small", 1 * GIB, true, &s, NULL), 0);
	gpuarb_promiser_drop(big, &b);
	gpuarb_promiser_drop(small, &s);
	gpuarb_promiser_close(big);
	gpuarb_promiser_close(small);
}

Test(promise, a_waiter_that_died_is_in_nobodys_way)
{
	struct gpuarb_promiser *p = promiser(16 * GIB);
	int held = kept("first", 10 * GIB), fd = -1;

	if (fork() == 0) {
		struct gpuarb_promiser *q = promiser(16 * GIB);

		take(q, "big", 12 * GIB, true, &fd, NULL);
		raise(SIGKILL);
	}
	wait(NULL);
	cr_assert_eq(take(p, "small", 6 * GIB, false, &fd, NULL), 0);
	close(fd);
	close(held);
	gpuarb_promiser_close(p);
}

/* The parent of the tree ends; what it started goes on, and so does the promise. */
Test(promise, a_promise_lives_as_long_as_the_process_tree)
{
	int fd = kept("tree", 10 * GIB), pipes[2];
	pid_t pid;

	cr_assert_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	cr_assert_eq(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		char byte;

		close(pipes[1]);
		while (read(pipes[0], &byte, 1) > 0)
			;
		_exit(0);
	}
	close(fd);
	cr_assert_eq(refused("other", 7 * GIB, NULL), -ENOSPC);
	close(pipes[1]);
	waitpid(pid, NULL, 0);
	cr_assert_eq(refused("other", 7 * GIB, NULL), 0);
}

/* A process is killed while it holds the lock, or after it locked a byte and before it wrote what for. */
Test(promise, a_death_on_the_way_leaves_nothing)
{
	struct gpuarb_error err;
	int fd;

	if (fork() == 0) {
		struct gpuarb_promiser *p = promiser(16 * GIB);

		fd = -1;
		take(p, "dead", 16 * GIB, false, &fd, NULL);
		gpuarb_promiser_lock(p, &err);
		raise(SIGKILL);
	}
	wait(NULL);
	fd = kept("next", 16 * GIB);
	close(fd);
}

Test(promise, of_many_that_come_at_once_no_more_are_promised_memory_than_fit)
{
	int got = 0, pipes[2], status;

	cr_assert_eq(pipe(pipes), 0);
	for (int i = 0; i < 12; i++)
		if (fork() == 0) {
			char name[32], byte;

			snprintf(name, sizeof(name), "client%d", i);
			close(pipes[1]);
			struct gpuarb_promiser *p = promiser(16 * GIB);
			int fd = -1, r = take(p, name, 3 * GIB, false, &fd, NULL);

			/* It is kept until all have tried. */
			alarm(30);
			if (r == 0)
				while (read(pipes[0], &byte, 1) > 0)
					;
			_exit(r == 0 ? 1 : 0);
		}
	close(pipes[0]);
	for (int i = 0; i < 7; i++) {
		cr_assert(wait(&status) > 0 && WIFEXITED(status));
		cr_assert_eq(WEXITSTATUS(status), 0);
	}
	close(pipes[1]);
	while (wait(&status) > 0)
		got += WIFEXITED(status) && WEXITSTATUS(status) == 1;
	cr_assert_eq(got, 5);
}

Test(promise, promises_and_waiters_are_shown)
{
	static struct gpuarb_picture picture;
	struct gpuarb_promiser *p = promiser(16 * GIB);
	struct gpuarb_view *view;
	struct gpuarb_error err;
	int held = kept("a", 10 * GIB), fd = -1;

	cr_assert_eq(take(p, "b", 8 * GIB, true, &fd, NULL), -ENOSPC);
	cr_assert_eq(gpuarb_view_open(u_dir.path, T_GPU, &view, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_view_read(view, &picture), 0);
	cr_assert_eq(picture.mem_physical, 16 * GIB);
	cr_assert_eq(picture.mem_promise_most, 16 * GIB);
	cr_assert_eq(picture.mem_promised, 10 * GIB);
	cr_assert_eq(picture.npromises_waiting, 1);
	gpuarb_view_close(view);
	gpuarb_promiser_drop(p, &fd);
	gpuarb_promiser_close(p);
	close(held);
}

Test(promise, who_waits_for_time_is_shown_as_who_waits_for_memory)
{
	static struct gpuarb_picture picture;
	struct gpuarb_promise has = {"a", 0, 0, 60}, wants = {"b", 0, 0, 50};
	struct gpuarb_promiser *p = promiser(16 * GIB), *q = promiser(16 * GIB);
	struct gpuarb_view *view;
	struct gpuarb_error err;
	int held = -1, fd = -1;

	cr_assert_eq(gpuarb_promiser_lock(p, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_promiser_take(p, &has, false, &held, &err), 0, "%s", err.text);
	gpuarb_promiser_unlock(p);
	cr_assert_eq(gpuarb_promiser_lock(q, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_promiser_take(q, &wants, true, &fd, &err), -ENOSPC);
	gpuarb_promiser_unlock(q);
	cr_assert_eq(gpuarb_view_open(u_dir.path, T_GPU, &view, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_view_read(view, &picture), 0);
	cr_assert_eq(picture.requests_pct, 60);
	cr_assert_eq(picture.npromises_waiting, 1);
	cr_assert_str_eq(picture.starts[0].account, "b");
	cr_assert_eq(picture.starts[0].bytes, 0);
	cr_assert_eq(picture.starts[0].request_pct, 50);
	gpuarb_view_close(view);
	gpuarb_promiser_drop(q, &fd);
	gpuarb_promiser_drop(p, &held);
	gpuarb_promiser_close(q);
	gpuarb_promiser_close(p);
}

/* Whatever the entries hold, nothing crashes or spins, and names can be printed. */
Test(promise, garbage_in_the_entries_hurts_nobody)
{
	struct arb_segment seg;
	struct t_random random = t_seeded(7);
	int held = kept("a", GIB);

	cr_assert_eq(arb_segment_open(&seg, u_dir.path, T_GPU, true, NULL, NULL), 0);
	for (int i = 0; i < 200; i++) {
		uint64_t *words = (uint64_t *)seg.promises;

		for (int k = 0; k < 4; k++)
			words[t_below(&random, 2 * sizeof(struct arb_promise) / 8)] =
				t_below(&random, 2) ? t_next(&random) : UINT64_MAX;
		(void)refused("b", GIB, NULL);
	}
	arb_segment_close(&seg);
	close(held);
	cr_assert_eq(refused("b", 16 * GIB, NULL), 0);
}

/* Quotas of clients, however they were started: together they stay within oversub_ratio when a client joins, when it
 * asks for more, and when an administrator gives more. */
#include "test/unit/unit_clients.h"

#include "gpuarb/promise.h"
#include "units.h"

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

TestSuite(promise_clients, .init = begin, .fini = end);

static int try_on(
	uint64_t physical, const char *account, uint64_t bytes, struct gpuarb_client **c, char *said)
{
	struct gpuarb_options o = t_options(&u_dir, account);
	struct gpuarb_error err = {0};
	int r;

	o.mem_bytes = bytes;
	o.physical = physical;
	r = gpuarb_client_open(&o, c, &err);
	if (said)
		strcpy(said, err.text);
	return r;
}

static int try_join(const char *account, uint64_t bytes, struct gpuarb_client **c, char *said)
{
	return try_on(16 * GIB, account, bytes, c, said);
}

static struct gpuarb_client *joined(const char *account, uint64_t bytes)
{
	struct gpuarb_client *c;
	char said[512];

	cr_assert_eq(try_join(account, bytes, &c, said), 0, "%s", said);
	return c;
}

static void denied(const char *account, uint64_t bytes, char *said)
{
	struct gpuarb_client *c;

	cr_assert_eq(try_join(account, bytes, &c, said), -EDQUOT);
	cr_assert_null(c);
}

/* Promises memory as gpuarb-run does. */
static int promise(const char *account, uint64_t bytes, bool queue, int *fd)
{
	struct gpuarb_promise p = {account, bytes, 0, 0};
	struct gpuarb_promiser *promiser;
	struct gpuarb_error err = {0};
	int r;

	cr_assert_eq(gpuarb_promiser_open(u_dir.path, T_GPU, 16 * GIB, &promiser, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_promiser_lock(promiser, &err), 0, "%s", err.text);
	*fd = -1;
	r = gpuarb_promiser_take(promiser, &p, queue, fd, &err);
	gpuarb_promiser_close(promiser);
	return r;
}

static int change(const char *account, const char *key, const char *value, char *said)
{
	struct gpuarb_change change = {account, key, value};
	struct gpuarb_error err = {0};
	int r = gpuarb_control_change(u_dir.path, T_GPU, &change, 1, &err);

	if (said)
		strcpy(said, err.text);
	return r;
}

static uint64_t quota(struct gpuarb_client *c)
{
	uint64_t used, limit;

	cr_assert_eq(gpuarb_client_mem_read(c, &used, &limit), 0);
	return limit;
}

Test(promise_clients, a_quota_that_does_not_fit_is_denied_and_the_sentence_says_who_has_what)
{
	struct gpuarb_client *a = joined("training", 10 * GIB), *b = joined("web", 2 * GIB), *c;
	char said[512];

	denied("late", 4 * GIB + 1, said);
	cr_assert(strstr(said, "cannot promise"), "%s", said);
	cr_assert(strstr(said, "12Gi of 16Gi is promised"), "%s", said);
	cr_assert(strstr(said, "training has 10Gi"), "%s", said);
	cr_assert(strstr(said, "web has 2Gi"), "%s", said);
	denied("late", 17 * GIB, said);
	cr_assert(strstr(said, "more than the 16Gi it may promise"), "%s", said);
	c = joined("late", 4 * GIB);
	gpuarb_client_close(a);
	gpuarb_client_close(c);
	c = joined("late", 14 * GIB);
	gpuarb_client_close(b);
	gpuarb_client_close(c);
}

Test(promise_clients, a_client_without_a_quota_is_promised_nothing_and_always_joins)
{
	struct gpuarb_client *a = joined("a", 16 * GIB), *b = joined("b", 0);

	cr_assert_eq(quota(b), 0);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

Test(promise_clients, nothing_is_denied_while_the_size_of_the_gpu_is_unknown)
{
	struct gpuarb_client *a, *b;

	cr_assert_eq(try_on(0, "a", 100 * GIB, &a, NULL), 0);
	cr_assert_eq(try_on(0, "b", 100 * GIB, &b, NULL), 0);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

/* A program that takes a lease before it makes a context joins without asking the driver. */
Test(promise_clients, a_client_that_joined_before_the_size_was_known_is_denied_when_it_is)
{
	struct gpuarb_client *a, *b;

	cr_assert_eq(try_on(0, "a", 10 * GIB, &a, NULL), 0);
	cr_assert_eq(try_on(0, "b", 10 * GIB, &b, NULL), 0);
	cr_assert_eq(gpuarb_client_set_physical(a, 16 * GIB), -EDQUOT, "the other asks for it as well");
	cr_assert(strstr(gpuarb_client_denied(a), "b has 10Gi"), "%s", gpuarb_client_denied(a));
	cr_assert_eq(gpuarb_client_set_physical(b, 16 * GIB), 0, "one of the two gets it");
	cr_assert_eq(gpuarb_client_set_physical(a, 16 * GIB), -EDQUOT);
	cr_assert_eq(quota(b), 10 * GIB);
	gpuarb_client_close(b);
	cr_assert_eq(gpuarb_client_set_physical(a, 16 * GIB), 0);
	cr_assert_eq(quota(a), 10 * GIB);
	cr_assert_eq(gpuarb_client_set_physical(a, 8 * GIB), 0, "what was promised stays");
	gpuarb_client_close(a);
}

Test(promise_clients, a_denial_leaves_nothing_behind)
{
	static struct gpuarb_picture picture;
	struct gpuarb_client *a = joined("a", 10 * GIB);
	struct gpuarb_view *view;
	struct gpuarb_error err;

	for (int i = 0; i < 10; i++)
		denied("b", 10 * GIB, NULL);
	cr_assert_eq(gpuarb_view_open(u_dir.path, T_GPU, &view, &err), 0);
	cr_assert_eq(gpuarb_view_read(view, &picture), 0);
	cr_assert_eq(picture.nclients, 1);
	cr_assert_eq(picture.mem_promised, 10 * GIB);
	gpuarb_view_close(view);
	gpuarb_client_close(a);
}

Test(promise_clients, what_gpuarb_run_promised_is_not_counted_twice)
{
	struct gpuarb_client *a, *b;
	int fd;

	cr_assert_eq(promise("a", 10 * GIB, false, &fd), 0);
	a = joined("a", 10 * GIB);
	b = joined("b", 6 * GIB);
	gpuarb_client_close(b);
	denied("b", 7 * GIB, NULL);
	/* The process tree's promise ends; the memory is now promised to the client of the account that is left. */
	close(fd);
	denied("b", 7 * GIB, NULL);
	gpuarb_client_close(a);
	b = joined("b", 16 * GIB);
	cr_assert_eq(promise("a", 1, false, &fd), -ENOSPC, "nor the other way round");
	gpuarb_client_close(b);
}

Test(promise_clients, a_second_process_of_an_account_is_no_new_promise)
{
	struct gpuarb_client *first = joined("job", 12 * GIB), *second = joined("job", 12 * GIB);
	int status;
	pid_t pid;

	/* That holds even if less may be promised by now. */
	cr_assert_eq(change(NULL, "oversub_ratio", "0.5", NULL), 0);
	pid = fork();
	if (pid == 0) {
		struct gpuarb_client *c;

		alarm(30);
		_exit(gpuarb_client_enter(first, NULL) == 0 && try_join("job", 12 * GIB, &c, NULL) == 0 ? 0
													: 1);
	}
	waitpid(pid, &status, 0);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	denied("other", 1, NULL);
	gpuarb_client_close(first);
	gpuarb_client_close(second);
}

/* The strictest quota is in force. When its client leaves, the account has what the other asked for. */
Test(promise_clients, of_several_quotas_of_an_account_the_largest_is_promised)
{
	struct gpuarb_client *wide = joined("job", 12 * GIB), *strict = joined("job", 4 * GIB), *other;

	cr_assert_eq(quota(wide), 4 * GIB);
	denied("other", 5 * GIB, NULL);
	gpuarb_client_close(wide);
	other = joined("other", 12 * GIB);
	gpuarb_client_close(strict);
	gpuarb_client_close(other);
}

Test(promise_clients, what_the_dead_were_promised_is_free)
{
	struct gpuarb_client *c;
	pid_t pid = fork();

	if (pid == 0) {
		try_join("dead", 16 * GIB, &c, NULL);
		raise(SIGKILL);
	}
	waitpid(pid, NULL, 0);
	c = joined("next", 16 * GIB);
	gpuarb_client_close(c);
}

/* The dead client may have been promised the memory that is asked for. Nobody can clean its slot while the directory
 * is locked. */
Test(promise_clients, nobody_is_denied_because_of_a_dead_client_whose_slot_cannot_be_cleaned_yet)
{
	struct gpuarb_client *a = joined("a", 4 * GIB), *c;
	struct arb_lock directory;
	pid_t pid = fork();

	if (pid == 0) {
		alarm(30);
		try_join("dead", 12 * GIB, &c, NULL);
		raise(SIGKILL);
	}
	waitpid(pid, NULL, 0);
	cr_assert_eq(arb_slot_directory(&a->seg, &directory), 0);
	cr_assert_eq(gpuarb_client_set_limits(a, 0, 16 * GIB, 0), -EBUSY);
	arb_slot_unlock(&directory);
	cr_assert_eq(quota(a), 4 * GIB);
	cr_assert_eq(gpuarb_client_set_limits(a, 0, 16 * GIB, 0), 0);
	cr_assert_eq(quota(a), 16 * GIB);
	gpuarb_client_close(a);
}

Test(promise_clients, a_client_that_died_while_it_added_up_is_in_nobodys_way)
{
	struct gpuarb_client *c = joined("first", GIB);
	struct arb_lock lock;
	pid_t pid = fork();

	if (pid == 0) {
		struct arb_segment seg;

		if (arb_segment_open(&seg, u_dir.path, T_GPU, true, NULL, NULL) == 0)
			arb_slot_lock(&seg, ARB_BYTE_PROMISES(seg.nslots), &lock);
		raise(SIGKILL);
	}
	waitpid(pid, NULL, 0);
	gpuarb_client_close(c);
	c = joined("next", 16 * GIB);
	gpuarb_client_close(c);
}

Test(promise_clients, a_waiting_tree_is_not_passed_by_clients)
{
	struct gpuarb_client *a = joined("a", 10 * GIB), *small;
	char said[512];
	int fd;

	cr_assert_eq(promise("big", 12 * GIB, true, &fd), -ENOSPC);
	denied("small", 1 * GIB, said);
	cr_assert(strstr(said, "big waits for 12Gi"), "%s", said);
	close(fd);
	small = joined("small", 1 * GIB);
	gpuarb_client_close(a);
	gpuarb_client_close(small);
}

Test(promise_clients, a_client_that_asks_for_too_much_keeps_what_it_has)
{
	struct gpuarb_client *a = joined("a", 4 * GIB), *b = joined("b", 8 * GIB);

	cr_assert_eq(gpuarb_client_set_limits(a, 30, 9 * GIB, 0), -EDQUOT);
	cr_assert_eq(quota(a), 4 * GIB);
	cr_assert_eq(a->quota.terms.limit_ppm, 300000u, "its other limit is changed");
	cr_assert_eq(gpuarb_client_set_limits(a, 0, 8 * GIB, 0), 0);
	cr_assert_eq(quota(a), 8 * GIB);
	denied("c", 1, NULL);
	/* What is given back can be promised to others, and may be gone when it is wanted again. */
	cr_assert_eq(gpuarb_client_set_limits(a, 0, 2 * GIB, 0), 0);
	cr_assert_eq(gpuarb_client_set_limits(b, 0, 14 * GIB, 0), 0);
	cr_assert_eq(gpuarb_client_set_limits(a, 0, 8 * GIB, 0), -EDQUOT);
	gpuarb_client_close(b);
	cr_assert_eq(gpuarb_client_set_limits(a, 0, 16 * GIB, 0), 0);
	cr_assert_eq(gpuarb_client_set_limits(a, 0, GPUARB_MEM_UNLIMITED, 0), 0);
	b = joined("b", 16 * GIB);
	cr_assert_eq(gpuarb_client_set_limits(a, 0, 1, 0), -EDQUOT);
	cr_assert_eq(quota(a), 0);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

static void write_limits(const char *path, const char *mem)
{
	char fresh[300];
	FILE *f;

	snprintf(fresh, sizeof(fresh), "%s.new", path);
	f = fopen(fresh, "w");
	cr_assert_not_null(f);
	fprintf(f, "gpuarb.dev/memory-limit=\"%s\"\n", mem);
	fclose(f);
	cr_assert_eq(rename(fresh, path), 0);
}

Test(promise_clients, a_limits_file_that_asks_for_too_much_is_reported_once_and_obeyed_when_there_is_room)
{
	struct gpuarb_options o = t_options(&u_dir, "pod");
	struct gpuarb_client *c, *b = joined("b", 10 * GIB);
	struct gpuarb_error err = {0};
	uint64_t next;
	char path[256];
	int said = 0;

	snprintf(path, sizeof(path), "%s/limits", u_dir.path);
	write_limits(path, "4Gi");
	o.limits_file = path;
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), 0, "%s", err.text);
	write_limits(path, "12Gi");
	for (int i = 0; i < 35; i++) {
		usleep(40000);
		if (gpuarb_client_follow(c, &next, &err) == -EDQUOT) {
			said++;
			cr_assert(strstr(err.text, "b has 10Gi"), "%s", err.text);
			cr_assert(strstr(err.text, "stays until there is room"), "%s", err.text);
		}
	}
	cr_assert_eq(said, 1);
	cr_assert_eq(quota(c), 4 * GIB);
	gpuarb_client_close(b);
	for (int i = 0; i < 100 && quota(c) == 4 * GIB; i++) {
		usleep(40000);
		gpuarb_client_follow(c, &next, &err);
	}
	cr_assert_eq(quota(c), 12 * GIB);
	gpuarb_client_close(c);
}

Test(promise_clients, a_quota_that_an_administrator_set_is_promised_to_a_client_that_asks_for_none)
{
	struct gpuarb_client *a, *b;

	cr_assert_eq(change("a", "mem", "10Gi", NULL), 0, "nobody is there: it is a rule, not a promise");
	cr_assert_eq(change("b", "mem", "10Gi", NULL), 0);
	a = joined("a", 0);
	denied("b", 0, NULL);
	denied("b", 1, NULL);
	denied("c", 7 * GIB, NULL);
	cr_assert_eq(change("b", "mem", "6Gi", NULL), 0);
	b = joined("b", 15 * GIB);
	cr_assert_eq(quota(b), 6 * GIB);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

Test(promise_clients, an_administrator_is_refused_what_would_promise_too_much)
{
	struct gpuarb_client *a = joined("a", 4 * GIB), *b = joined("b", 8 * GIB);
	char said[512];

	cr_assert_eq(change("a", "mem", "9Gi", said), -ENOSPC);
	cr_assert(strstr(said, "cannot promise 9Gi to a"), "%s", said);
	cr_assert(strstr(said, "b has 8Gi"), "%s", said);
	cr_assert_eq(quota(a), 4 * GIB, "nothing has changed");
	cr_assert_eq(change("a", "mem", "8Gi", said), 0, "%s", said);
	cr_assert_eq(quota(a), 8 * GIB);
	cr_assert_eq(change("a", "mem", "2Gi", NULL), 0);
	cr_assert_eq(gpuarb_client_set_limits(b, 0, 14 * GIB, 0), 0);
	/* Without the administrator's entry it would have the 4 GiB again that it asked for. */
	cr_assert_eq(change("a", "mem", NULL, said), -ENOSPC);
	cr_assert(strstr(said, "cannot promise 4Gi to a"), "%s", said);
	cr_assert_eq(quota(a), 2 * GIB);
	/* A smaller quota can always be set, even if too much is promised by now. */
	cr_assert_eq(change(NULL, "oversub_ratio", "0.5", NULL), 0);
	cr_assert_eq(change("b", "mem", "13Gi", NULL), 0);
	cr_assert_eq(change("b", "mem", "14Gi", NULL), -E2BIG);
	cr_assert_eq(change(NULL, "oversub_ratio", "1.5", NULL), 0);
	cr_assert_eq(change("a", "mem", NULL, NULL), 0);
	cr_assert_eq(quota(a), 4 * GIB);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

Test(promise_clients, an_administrator_is_not_refused_because_of_the_dead)
{
	struct gpuarb_client *a = joined("a", 4 * GIB), *c;
	pid_t pid = fork();

	if (pid == 0) {
		try_join("dead", 12 * GIB, &c, NULL);
		raise(SIGKILL);
	}
	waitpid(pid, NULL, 0);
	cr_assert_eq(change("a", "mem", "16Gi", NULL), 0);
	gpuarb_client_close(a);
}

/* It was promised the memory and has it: a client that came to the new segment earlier does not displace it. */
Test(promise_clients, a_client_that_moves_to_a_new_segment_takes_its_promise_along)
{
	struct gpuarb_client *a = joined("a", 12 * GIB), *b;
	struct gpuarb_error err = {0};
	char path[300];

	snprintf(path, sizeof(path), "%s/state/%s", u_dir.path, T_GPU);
	cr_assert_eq(unlink(path), 0);
	b = joined("b", 12 * GIB);
	cr_assert_eq(gpuarb_client_rejoin(a, false, &err), 0, "%s", err.text);
	cr_assert_eq(quota(a), 12 * GIB);
	denied("c", 1, NULL);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

/* Some are started by gpuarb-run, some by themselves, all at once; each lives until all have tried. */
Test(promise_clients, of_many_that_come_at_once_no_more_are_promised_memory_than_fit)
{
	int got = 0, pipes[2], status;

	cr_assert_eq(pipe(pipes), 0);
	for (int i = 0; i < 12; i++)
		if (fork() == 0) {
			struct gpuarb_client *c;
			char name[32], byte;
			int fd, r;

			alarm(30);
			close(pipes[1]);
			snprintf(name, sizeof(name), "client%d", i);
			r = i % 2 ? try_join(name, 3 * GIB, &c, NULL) : promise(name, 3 * GIB, false, &fd);
			if (r == 0)
				while (read(pipes[0], &byte, 1) > 0)
					;
			_exit(r == 0 ? 1 : r == -EDQUOT || r == -ENOSPC ? 0 : 2);
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

/* Whatever the slots claim to be promised, nothing crashes, and a client without a quota joins. */
Test(promise_clients, garbage_in_what_others_were_promised_stops_nobody_without_a_quota)
{
	struct gpuarb_client *a = joined("a", GIB), *b;

	arb_store64(&arb_client_slot(a)->asked_mem, UINT64_MAX);
	denied("b", GIB, NULL);
	b = joined("b", 0);
	gpuarb_client_close(b);
	gpuarb_client_close(a);
	b = joined("b", GIB);
	gpuarb_client_close(b);
}

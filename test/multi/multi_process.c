/* Several processes and one segment: forking, executing, threads, running out of slots. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "units.h"

#include "test/multi/multi.h"

#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/segment/slot.h"

static struct t_dir dir;

static void make(void)
{
	t_dir_make(&dir, "slots = 8\n");
}

static void clean(void)
{
	t_dir_remove(&dir);
}

TestSuite(multi, .init = make, .fini = clean);

static uint32_t slots_alive(void)
{
	struct arb_segment seg;
	uint32_t n = 0;

	cr_assert_eq(arb_segment_open(&seg, dir.path, T_GPU, false, NULL, NULL), 0);
	for (uint32_t i = 0; i < seg.nslots; i++)
		n += arb_slot_alive(&seg, i) == 1;
	arb_segment_close(&seg);
	return n;
}

/* Two pipes of one byte each: "I have got here" and "go on". */
struct steps {
	int up[2], down[2];
};

static struct steps steps_make(void)
{
	struct steps s;

	cr_assert(pipe(s.up) == 0 && pipe(s.down) == 0);
	return s;
}

static void here(const int *pipe_ends)
{
	if (write(pipe_ends[1], "x", 1) != 1)
		_exit(99);
}

static void await(const int *pipe_ends)
{
	char byte;

	while (read(pipe_ends[0], &byte, 1) != 1)
		if (errno != EINTR)
			_exit(98);
}

static void die_by(pid_t pid)
{
	kill(pid, SIGKILL);
	cr_assert_eq(t_wait(pid), -SIGKILL);
}

struct forked {
	struct gpuarb_client *client;
	struct steps steps;
	arb_u32 slot;
};

static int use_inherited(void *argument)
{
	struct forked *f = argument;
	struct gpuarb_client_status status;

	if (gpuarb_client_mem_reserve(f->client, 100) != 0 || gpuarb_client_status(f->client, &status) != 0)
		return 1;
	arb_store32(&f->slot, status.slot);
	here(f->steps.up);
	await(f->steps.down);
	if (f->slot.v == 77)
		gpuarb_client_close(f->client);
	return 0;
}

static void fork_with(bool close_it)
{
	struct forked *f = t_shared(sizeof(*f));
	struct gpuarb_client_status mine;
	pid_t pid;

	f->client = must_open(&dir, "family");
	f->steps = steps_make();
	cr_assert_eq(gpuarb_client_mem_reserve(f->client, 1000), 0);
	pid = t_spawn(use_inherited, f, 20);
	await(f->steps.up);
	cr_assert_eq(gpuarb_client_status(f->client, &mine), 0);
	cr_assert_neq(mine.slot, arb_load32(&f->slot), "the child has a slot of its own");
	cr_assert_eq(mine.mem_used, 1100, "in the same account");
	cr_assert_eq(slots_alive(), 2);
	if (close_it)
		arb_store32(&f->slot, 77);
	here(f->steps.down);
	cr_assert_eq(t_wait(pid), 0);
	cr_assert_eq(slots_alive(), 1, "the parent's slot survives its child");
	cr_assert_eq(gpuarb_client_enter(f->client, NULL), 0);
	cr_assert_eq(gpuarb_client_leave(f->client, 0), 0);
	gpuarb_client_close(f->client);
	cr_assert_eq(slots_alive(), 0);
}

Test(multi, a_forked_child_joins_for_itself_and_leaves_by_exiting)
{
	fork_with(false);
}

Test(multi, a_forked_child_joins_for_itself_and_leaves_by_closing)
{
	fork_with(true);
	must_hold(&dir);
}

static int grandchild(void *argument)
{
	struct forked *f = argument;

	here(f->steps.up);
	await(f->steps.down);
	if (gpuarb_client_enter(f->client, NULL) != 0)
		return 1;
	here(f->steps.up);
	await(f->steps.down);
	return 0;
}

static int parent_with_child(void *argument)
{
	struct forked *f = argument;
	pid_t pid;

	if (t_open(&dir, NULL, &f->client) != 0 || gpuarb_client_enter(f->client, NULL) != 0)
		return 1;
	pid = fork();
	if (pid == 0) {
		alarm(20);
		_exit(grandchild(f));
	}
	pause();
	return 0;
}

Test(multi, a_dead_parents_slot_is_free_while_its_child_lives)
{
	struct forked *f = t_shared(sizeof(*f));
	struct gpuarb_client *next;
	pid_t pid;

	next = must_open(&dir, NULL);
	cr_assert_eq(t_set(&dir, ARB_KEY_POLICY, ARB_POLICY_EXCLUSIVE), 0);
	cr_assert_eq(t_set(&dir, ARB_KEY_GRACE_MS, 600000), 0);
	f->steps = steps_make();
	pid = t_spawn(parent_with_child, f, 20);
	await(f->steps.up);
	cr_assert_eq(gpuarb_client_enter(next, NULL), -EAGAIN);
	cr_assert_eq(slots_alive(), 2);
	die_by(pid);
	cr_assert_eq(slots_alive(), 1, "the child did not inherit the lock");
	cr_assert_eq(gpuarb_client_wait(next, NULL, 10000 * MS), 0);
	cr_assert_eq(gpuarb_client_leave(next, 0), 0);
	here(f->steps.down);
	await(f->steps.up);
	cr_assert_eq(gpuarb_client_enter(next, NULL), -EAGAIN, "the orphan runs as a client of its own");
	here(f->steps.down);
	cr_assert_eq(gpuarb_client_wait(next, NULL, 10000 * MS), 0);
	gpuarb_client_close(next);
	must_hold(&dir);
}

static int run_then_exec(void *argument)
{
	struct steps *s = argument;
	struct gpuarb_client *c;

	if (t_open(&dir, NULL, &c) != 0 || gpuarb_client_enter(c, NULL) != 0)
		return 1;
	here(s->up);
	execl("/bin/sleep", "sleep", "15", (char *)NULL);
	return 2;
}

Test(multi, executing_another_program_frees_the_slot)
{
	struct gpuarb_client *next = must_open(&dir, NULL);
	struct steps s = steps_make();
	pid_t pid;

	cr_assert_eq(t_set(&dir, ARB_KEY_POLICY, ARB_POLICY_EXCLUSIVE), 0);
	cr_assert_eq(t_set(&dir, ARB_KEY_GRACE_MS, 600000), 0);
	pid = t_spawn(run_then_exec, &s, 20);
	await(s.up);
	cr_assert_eq(gpuarb_client_wait(next, NULL, 10000 * MS), 0, "while the other program runs");
	die_by(pid);
	gpuarb_client_close(next);
	must_hold(&dir);
}

static int close_everything(void *argument)
{
	struct steps *s = argument;
	struct gpuarb_client *c;

	if (t_open(&dir, NULL, &c) != 0)
		return 1;
	/* Closes all descriptors as daemons do; only the pipes of the test stay open. */
	for (int fd = 3; fd < 1024; fd++)
		if (fd != s->up[1] && fd != s->down[0])
			close(fd);
	if (gpuarb_client_enter(c, NULL) != 0)
		return 2;
	here(s->up);
	await(s->down);
	return gpuarb_client_leave(c, 0) == 0 ? 0 : 3;
}

Test(multi, closing_every_descriptor_does_not_lose_the_slot)
{
	struct gpuarb_client *other = must_open(&dir, NULL);
	struct steps s = steps_make();
	pid_t pid;

	cr_assert_eq(t_set(&dir, ARB_KEY_POLICY, ARB_POLICY_EXCLUSIVE), 0);
	cr_assert_eq(t_set(&dir, ARB_KEY_GRACE_MS, 600000), 0);
	pid = t_spawn(close_everything, &s, 20);
	await(s.up);
	cr_assert_eq(slots_alive(), 2);
	cr_assert_eq(gpuarb_client_wait(other, NULL, 100 * MS), -ETIMEDOUT);
	here(s.down);
	cr_assert_eq(t_wait(pid), 0);
	cr_assert_eq(gpuarb_client_wait(other, NULL, 10000 * MS), 0);
	gpuarb_client_close(other);
	must_hold(&dir);
}

static int join_and_stay(void *argument)
{
	struct steps *s = argument;
	struct gpuarb_client *c;
	int r = t_open(&dir, NULL, &c);

	if (r < 0)
		return -r;
	here(s->up);
	await(s->down);
	return 0;
}

static void fill_all(unsigned slots)
{
	struct steps s = steps_make();
	struct gpuarb_options o = t_options(&dir, NULL);
	struct gpuarb_error err = {0};
	struct gpuarb_client *c;
	pid_t pid[16];

	for (unsigned i = 0; i < slots; i++) {
		pid[i] = t_spawn(join_and_stay, &s, 40);
		await(s.up);
	}
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), -EUSERS);
	cr_assert(strstr(err.text, "slots are taken"), "%s", err.text);
	die_by(pid[slots / 2]);
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	gpuarb_client_close(c);
	for (unsigned i = 0; i < slots; i++)
		if (i != slots / 2)
			die_by(pid[i]);
}

Test(multi, when_all_slots_are_taken_a_client_is_told_and_a_death_makes_room)
{
	fill_all(8);
}

Test(multi, a_segment_of_1024_slots_works_up_to_its_last_one)
{
	struct gpuarb_client *c[1024], *another;
	struct gpuarb_client_status status;
	char account[32];

	t_dir_remove(&dir);
	t_dir_make(&dir, "slots = 1024\n");
	for (unsigned i = 0; i < 1024; i++) {
		snprintf(account, sizeof(account), "account-%u", i % 10);
		c[i] = must_open(&dir, account);
	}
	cr_assert_eq(t_open(&dir, NULL, &another), -EUSERS);
	for (unsigned i = 1; i < 1024; i += 31)
		cr_assert_eq(gpuarb_client_enter(c[i], NULL), 0);
	cr_assert_eq(gpuarb_client_enter(c[1023], NULL), 0);
	cr_assert_eq(gpuarb_client_status(c[1023], &status), 0);
	cr_assert_eq(status.slot, 1023);
	cr_assert(status.running);
	must_hold(&dir);
	for (unsigned i = 0; i < 1024; i++)
		gpuarb_client_close(c[i]);
	must_hold(&dir);
}

static void *thread(void *argument)
{
	struct gpuarb_client *c = argument;

	for (int i = 0; i < 500; i++) {
		int r = gpuarb_client_wait(c, NULL, 1000 * MS);

		cr_assert_eq(r, 0, "%d", r);
		cr_assert_eq(gpuarb_client_mem_reserve(c, 10), 0);
		gpuarb_client_tick(c);
		cr_assert_eq(gpuarb_client_leave(c, 0), 0);
		cr_assert_eq(gpuarb_client_mem_release(c, 10), 0);
	}
	return NULL;
}

/* A cancelled thread goes on until it has left the library, because others want the locks that it holds. */
static void *tick_cancelled(void *argument)
{
	pthread_cancel(pthread_self());
	for (int i = 0; i < 3; i++) {
		gpuarb_client_tick(argument);
	}
	pthread_testcancel();
	return NULL;
}

static void *join_cancelled(void *argument)
{
	pthread_cancel(pthread_self());
	gpuarb_client_enter(argument, NULL);
	pthread_testcancel();
	return NULL;
}

static int cancelled_child(void *argument)
{
	pthread_t thread;
	void *end;

	T_CHECK(pthread_create(&thread, NULL, join_cancelled, argument) == 0, "a thread");
	pthread_join(thread, &end);
	T_CHECK(gpuarb_client_enter(argument, NULL) == 0, "the lock is free in the child");
	T_CHECK(fork() >= 0, "and it may fork");
	return 0;
}

static int cancelled(void *argument)
{
	struct gpuarb_client *c;
	pthread_t thread;
	void *end;

	(void)argument;
	T_CHECK(t_open(&dir, NULL, &c) == 0, "joining");
	T_CHECK(pthread_create(&thread, NULL, tick_cancelled, c) == 0, "a thread");
	pthread_join(thread, &end);
	T_CHECK(end == PTHREAD_CANCELED, "it was cancelled");
	T_CHECK(gpuarb_client_tick(c) == 0, "the lock is free");
	return t_run(cancelled_child, c, 10);
}

Test(multi, a_cancelled_thread_leaves_no_lock_behind)
{
	cr_assert_eq(t_run(cancelled, NULL, 20), 0);
}

Test(multi, eight_threads_share_one_client)
{
	struct gpuarb_client *c = must_open(&dir, NULL);
	struct gpuarb_client_status status;
	pthread_t t[8];

	for (int i = 0; i < 8; i++)
		cr_assert_eq(pthread_create(&t[i], NULL, thread, c), 0);
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.mem_used, 0);
	cr_assert_not(status.running);
	gpuarb_client_close(c);
	must_hold(&dir);
}

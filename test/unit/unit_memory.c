/* Turns at the GPU's memory, with a clock and a futex that the test moves: which clients fit, how long the others
 * wait, which must leave. */
#include "test/unit/unit_clients.h"

#include "shm/policy/memory_fit.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "units.h"

static void open_dir(void)
{
	u_begin("policy = memory\nphysical_memory_mb = 16384\ngrace_ms = 600000\nswitch_idle_ms = 200\n");
}

static struct gpuarb_client *opened[16];
static int nopened;

static void close_dir(void)
{
	u_futex.while_asleep = NULL;
	while (nopened)
		gpuarb_client_close(opened[--nopened]);
	u_end();
}

TestSuite(memory, .init = open_dir, .fini = close_dir);

static struct gpuarb_client *client(uint64_t bytes)
{
	char name[16];
	struct gpuarb_client *c;

	snprintf(name, sizeof(name), "client%d", nopened);
	cr_assert_eq(t_open(&u_dir, name, &c), 0);
	opened[nopened++] = c;
	if (bytes)
		cr_assert_eq(gpuarb_client_mem_reserve(c, bytes), 0);
	return c;
}

/* Clients that run all the time until they are told to leave. */
static struct gpuarb_client *busy[8];
static int nbusy;

static void work_on(void)
{
	for (int i = 0; i < nbusy; i++)
		if (busy[i]->running) {
			int r = gpuarb_client_tick(busy[i]);

			cr_assert(r == 0 || r == -EAGAIN, "%d", r);
			if (r == -EAGAIN)
				gpuarb_client_leave(busy[i], 0);
		}
}

static struct gpuarb_client *runs(uint64_t bytes)
{
	struct gpuarb_client *c = client(bytes);

	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	busy[nbusy++] = c;
	u_futex.while_asleep = work_on;
	return c;
}

/* Returns how long `c` has to wait while the others work on. */
static uint64_t waits(struct gpuarb_client *c)
{
	uint64_t began = u_clock_ns;

	cr_assert_eq(gpuarb_client_wait(c, NULL, 36000 * SECOND), 0);
	return u_clock_ns - began;
}

static uint32_t refused(struct gpuarb_client *c)
{
	cr_assert_eq(gpuarb_client_enter(c, NULL), -EAGAIN);
	return c->move.reason;
}

Test(memory, room_is_what_is_left_beside_what_is_set_aside)
{
	struct arb_memory_rules r = {.physical = 16 * GIB, .fixed = 500 * MIB, .per_client = 300 * MIB};

	cr_assert_eq(arb_memory_room(&r, 2), 16384 * MIB - 1100 * MIB);
	cr_assert(arb_memory_fits(&r, 15284 * MIB, 2));
	cr_assert_not(arb_memory_fits(&r, 15284 * MIB + 1, 2));
	r.percent = 10;
	cr_assert_eq(arb_memory_room(&r, 0), 16384 * MIB - 500 * MIB - 16 * GIB / 100 * 10);
	cr_assert_not(arb_memory_fits(&r, GIB, 1000000));
	cr_assert_not(arb_memory_fits(&r, UINT64_MAX, 1));
	r.physical = 0;
	cr_assert(arb_memory_fits(&r, UINT64_MAX, 1), "an unknown size forbids nothing");
}

Test(memory, a_turn_is_as_long_as_its_memory_is_large)
{
	struct arb_memory_rules r = {
		.bytes_per_s = GIB, .multiplier = 5, .least_ns = 10 * SECOND, .most_ns = 300 * SECOND};

	cr_assert_eq(arb_memory_turn_ns(&r, 12 * GIB), 60 * SECOND);
	cr_assert_eq(arb_memory_turn_ns(&r, GIB), 10 * SECOND);
	cr_assert_eq(arb_memory_turn_ns(&r, 80 * GIB), 300 * SECOND);
	cr_assert_eq(arb_memory_turn_ns(&r, UINT64_MAX), 300 * SECOND);
	r.turn_ns = 7;
	cr_assert_eq(arb_memory_turn_ns(&r, 12 * GIB), 7);
}

Test(memory, those_that_fit_run_together)
{
	struct gpuarb_client *late;

	for (int i = 0; i < 3; i++)
		runs(4 * GIB);
	late = client(4 * GIB);
	cr_assert_eq(refused(late), ARB_REASON_MEMORY);
	/* 12 of 14 GiB are in use. All five contexts take memory, whichever clients run. */
	late = client(2 * GIB);
	cr_assert_eq(gpuarb_client_enter(late, NULL), 0);
}

Test(memory, those_that_do_not_fit_take_turns_of_the_length_that_moving_takes)
{
	struct gpuarb_client *a = runs(12 * GIB), *b = client(12 * GIB);
	uint64_t ns = waits(b);

	cr_assert(ns >= 60 * SECOND && ns < 60 * SECOND + 100 * MS, "%llu", (unsigned long long)ns);
	cr_assert_not(a->running);
	cr_assert_eq(refused(a), ARB_REASON_MEMORY);
	busy[nbusy++] = b;
	ns = waits(a);
	cr_assert(ns >= 60 * SECOND && ns < 60 * SECOND + 100 * MS, "%llu", (unsigned long long)ns);
}

Test(memory, nobody_waits_in_vain_while_the_gpu_is_idle)
{
	struct gpuarb_client *a = runs(12 * GIB), *b = client(12 * GIB);
	uint64_t ns;

	/* The holder has no work for a moment: nobody else is let in. */
	nbusy = 0;
	gpuarb_client_leave(a, 0);
	cr_assert_eq(refused(b), ARB_REASON_MEMORY);
	u_clock_ns += 199 * MS;
	cr_assert_eq(refused(b), ARB_REASON_MEMORY);
	cr_assert_eq(gpuarb_client_enter(a, NULL), 0);
	gpuarb_client_leave(a, 0);
	/* It has no work for longer: its turn is over. */
	ns = waits(b);
	cr_assert(ns >= 200 * MS && ns < 300 * MS, "%llu", (unsigned long long)ns);
	cr_assert_eq(refused(a), ARB_REASON_MEMORY);
}

Test(memory, pauses_do_not_make_a_turn_longer)
{
	struct gpuarb_client *a = runs(12 * GIB), *b = client(12 * GIB);
	uint64_t began = u_clock_ns, ns;

	u_futex.while_asleep = NULL;
	/* Nobody waits yet, so it is let in again and again. */
	for (int i = 0; i < 700; i++) {
		gpuarb_client_leave(a, 0);
		u_clock_ns += 100 * MS;
		cr_assert_eq(gpuarb_client_enter(a, NULL), 0);
	}
	cr_assert(u_clock_ns - began >= 70 * SECOND);
	u_futex.while_asleep = work_on;
	ns = waits(b);
	cr_assert(ns < 100 * MS, "%llu", (unsigned long long)ns);
}

Test(memory, a_client_that_frees_memory_lets_the_next_in_at_once)
{
	struct gpuarb_client *a = runs(12 * GIB), *b = client(12 * GIB);

	cr_assert_eq(refused(b), ARB_REASON_MEMORY);
	cr_assert_eq(gpuarb_client_mem_release(a, 10 * GIB), 0);
	cr_assert_eq(gpuarb_client_enter(b, NULL), 0);
	cr_assert(a->running);
}

static void frees(void)
{
	int before = u_futex.nwoken;

	if (u_futex.nslept != 3)
		return;
	cr_assert_eq(gpuarb_client_mem_release(busy[0], 10 * GIB), 0);
	cr_assert_gt(u_futex.nwoken, before, "nobody was woken");
}

Test(memory, a_waiter_is_woken_by_a_client_that_frees_memory)
{
	struct gpuarb_client *b;

	runs(12 * GIB);
	b = client(12 * GIB);
	u_futex.while_asleep = frees;
	waits(b);
	cr_assert_leq(u_futex.nslept, 4);
}

Test(memory, the_last_to_come_leaves_if_it_allocates_until_all_do_not_fit)
{
	struct gpuarb_client *a = runs(8 * GIB), *b;

	u_clock_ns += MS;
	b = runs(4 * GIB);
	cr_assert_eq(gpuarb_client_tick(a), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(a, 4 * GIB), 0);
	cr_assert_eq(gpuarb_client_tick(a), 0);
	cr_assert_eq(gpuarb_client_tick(b), -EAGAIN);
	gpuarb_client_leave(b, 0);
	cr_assert_eq(refused(b), ARB_REASON_MEMORY);
	cr_assert_eq(gpuarb_client_tick(a), 0);
}

Test(memory, a_client_that_is_too_large_runs_alone)
{
	struct gpuarb_client *a = client(20 * GIB), *b = client(GIB);

	cr_assert_eq(gpuarb_client_enter(a, NULL), 0);
	busy[nbusy++] = a;
	u_futex.while_asleep = work_on;
	cr_assert_eq(refused(b), ARB_REASON_MEMORY);
	waits(b);
	busy[0] = b;
	/* It comes back when the small one has had its turn. */
	waits(a);
	cr_assert_not(b->running);
}

/* A large client waits: small clients that would keep it out do not pass it, others do. */
static struct gpuarb_client *large, *small, *tiny;

static void try_to_pass(void)
{
	if (u_futex.nslept == 100) {
		cr_assert_eq(refused(small), ARB_REASON_MEMORY);
		cr_assert_eq(gpuarb_client_enter(tiny, NULL), 0);
	}
	work_on();
}

Test(memory, a_large_client_is_not_kept_out_by_small_ones)
{
	for (int i = 0; i < 2; i++)
		runs(5 * GIB);
	large = client(12 * GIB);
	small = client(3 * GIB);
	tiny = client(GIB);
	u_futex.while_asleep = try_to_pass;
	cr_assert_lt(waits(large), 51 * SECOND);
	cr_assert(tiny->running, "it was in nobody's way");
	cr_assert_not(busy[0]->running);
	cr_assert_not(busy[1]->running);
}

Test(memory, no_more_clients_leave_than_must)
{
	struct gpuarb_client *a = runs(4 * GIB), *b, *c, *d;

	u_clock_ns += MS;
	b = runs(4 * GIB);
	u_clock_ns += MS;
	c = runs(4 * GIB);
	d = client(4 * GIB);
	waits(d);
	cr_assert_not(a->running, "its turn is the oldest");
	cr_assert(b->running && c->running);
}

static void never_ends(void)
{
	/* Its kernel does not end, so it never gets to leave. */
	gpuarb_client_tick(busy[0]);
}

Test(memory, no_wait_is_for_ever)
{
	struct gpuarb_client *b;

	runs(12 * GIB);
	b = client(12 * GIB);
	u_futex.while_asleep = never_ends;
	cr_assert_lt(waits(b), 4000 * SECOND);
}

Test(memory, a_wait_that_is_repeated_is_one_wait)
{
	struct gpuarb_client *a = runs(12 * GIB), *b = client(12 * GIB), *c;
	uint64_t since = u_clock_ns;

	cr_assert_eq(gpuarb_client_wait(b, NULL, 200 * MS), -ETIMEDOUT);
	cr_assert_eq(gpuarb_client_wait(b, NULL, 200 * MS), -ETIMEDOUT);
	cr_assert_eq(b->wait.from, since);
	u_clock_ns += SECOND;
	c = client(GIB);
	cr_assert_eq(gpuarb_client_wait(b, NULL, 200 * MS), -ETIMEDOUT);
	cr_assert_eq(b->wait.from, since + 1400 * MS, "it had stopped");
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	cr_assert(a->running);
}

Test(memory, nobody_waits_for_a_client_that_died_during_its_turn)
{
	struct gpuarb_client *b;
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct gpuarb_client *a = client(12 * GIB);

		if (gpuarb_client_enter(a, NULL) == 0)
			gpuarb_client_leave(a, 0);
		raise(SIGKILL);
	}
	waitpid(pid, &status, 0);
	b = client(12 * GIB);
	cr_assert_eq(gpuarb_client_enter(b, NULL), 0);
}

Test(memory, a_turn_begins_once)
{
	struct gpuarb_client *a = runs(12 * GIB);

	cr_assert(gpuarb_client_turn_began(a));
	cr_assert_not(gpuarb_client_turn_began(a));
	gpuarb_client_leave(a, 0);
	u_clock_ns += 10 * MS;
	cr_assert_eq(gpuarb_client_enter(a, NULL), 0);
	cr_assert_not(gpuarb_client_turn_began(a), "it had never ended");
	gpuarb_client_leave(a, 0);
	u_clock_ns += SECOND;
	cr_assert_eq(gpuarb_client_enter(a, NULL), 0);
	cr_assert(gpuarb_client_turn_began(a));
}

Test(memory, one_client_may_exceed_the_gpu_only_if_it_is_allowed_to)
{
	struct gpuarb_client *a;
	struct gpuarb_client_memory m;

	cr_assert_eq(t_set(&u_dir, ARB_KEY_OVERSUBSCRIBE, 1), -ENOENT);
	a = client(0);
	cr_assert_eq(gpuarb_client_mem_reserve(a, 20 * GIB), 0);
	cr_assert_eq(gpuarb_client_mem_release(a, 20 * GIB), 0);
	cr_assert_eq(t_set(&u_dir, ARB_KEY_OVERSUBSCRIBE, 1), 0);
	cr_assert_eq(gpuarb_client_memory(a, &m), 0);
	cr_assert_eq(m.limit, 15584 * MIB);
	cr_assert_eq(m.left, 15584 * MIB);
	cr_assert_eq(gpuarb_client_mem_reserve(a, 15584 * MIB + 1), -ENOMEM);
	/* It asks while a call of its own is under way that may give back what it has reserved. */
	cr_assert_eq(gpuarb_client_mem_try(a, 600 * MIB, true), 0);
	cr_assert_eq(gpuarb_client_mem_try(a, 15584 * MIB, false), -EAGAIN);
	cr_assert_eq(
		gpuarb_client_mem_try(a, 15584 * MIB + 1, false), -ENOMEM, "nothing makes room for that");
	cr_assert_eq(gpuarb_client_mem_release(a, 600 * MIB), 0);
	gpuarb_client_mem_settled(a);
	cr_assert_eq(gpuarb_client_mem_reserve(a, 15584 * MIB), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(a, 1), -ENOMEM);
	cr_assert_eq(gpuarb_client_memory(a, &m), 0);
	cr_assert_eq(m.left, 0);
	cr_assert_eq(t_set(&u_dir, ARB_KEY_SINGLE_OVERSUB, 1), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(a, 20 * GIB), 0);
	cr_assert_eq(gpuarb_client_memory(a, &m), 0);
	cr_assert_eq(m.limit, 16 * GIB);
	cr_assert_eq(m.left, 0);
}

/* What a client keeps although others come before it, with a clock that the test moves. */
#include "test/unit/unit_clients.h"

#include "shm/client/reclaim.h"
#include "shm/segment/snapshot.h"

/* How long a client that has not agreed to it is held up at most. */
#define LONGEST (SECOND)

static struct gpuarb_client *plain, *loud;

static struct gpuarb_client *with(const char *account, unsigned priority)
{
	struct gpuarb_options o = t_options(&u_dir, account);
	struct gpuarb_client *c;
	struct gpuarb_error err = {0};

	o.priority = priority;
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), 0, "%s", err.text);
	return c;
}

static void open_two(void)
{
	u_begin(NULL);
	plain = with("plain", 0);
	loud = with("loud", 100);
}

static void close_two(void)
{
	cr_assert_eq(arb_check(&plain->seg, t_say, NULL), 0);
	gpuarb_client_close(plain);
	gpuarb_client_close(loud);
	u_end();
}

TestSuite(floor, .init = open_two, .fini = close_two);

/* Returns for how long `c` cannot enter while `loud` runs, which heeds nothing; `most` if it never can. */
static uint64_t held_up(struct gpuarb_client *c, uint64_t most)
{
	uint64_t began = u_clock_ns;

	while (u_clock_ns - began < most) {
		int r = gpuarb_client_wait(c, NULL, 0);

		gpuarb_client_tick(loud);
		if (r == 0)
			return u_clock_ns - began;
		cr_assert(r == -ETIMEDOUT, "%d", r);
		u_clock_ns += 4 * MS;
	}
	return most;
}

/* Both run for so long. Returns how often `c` was told to stop. */
static int told_to_stop(struct gpuarb_client *c, uint64_t ns)
{
	int times = 0;

	for (uint64_t until = u_clock_ns + ns; u_clock_ns < until; u_clock_ns += 4 * MS) {
		gpuarb_client_tick(loud);
		times += gpuarb_client_tick(c) == -EAGAIN;
	}
	return times;
}

Test(floor, a_client_that_did_not_ask_for_less_is_not_held_up_for_good)
{
	uint64_t ns;

	cr_assert_eq(gpuarb_client_enter(loud, NULL), 0);
	ns = held_up(plain, 10 * SECOND);
	cr_assert(ns > 100 * MS && ns <= LONGEST, "%llu", (unsigned long long)ns);
	cr_assert_eq(told_to_stop(plain, 3 * SECOND), 0, "both run from now on");
}

Test(floor, a_client_with_a_low_priority_of_its_own_has_agreed)
{
	struct gpuarb_client *low = with("low", 10);

	cr_assert_eq(gpuarb_client_enter(loud, NULL), 0);
	cr_assert_eq(held_up(low, 5 * SECOND), 5 * SECOND);
	gpuarb_client_close(low);
}

Test(floor, what_an_administrator_has_set_holds)
{
	u_limit("loud", "priority", "90");
	cr_assert_eq(gpuarb_client_enter(loud, NULL), 0);
	cr_assert_eq(held_up(plain, 5 * SECOND), 5 * SECOND);
}

Test(floor, a_low_priority_that_an_administrator_has_set_holds)
{
	u_limit("plain", "priority", "10");
	cr_assert_eq(gpuarb_client_enter(loud, NULL), 0);
	cr_assert_eq(held_up(plain, 5 * SECOND), 5 * SECOND);
}

/* Requests that come now and then take nothing from a client that has the rest. */
Test(floor, one_that_leaves_enough_keeps_its_priority)
{
	cr_assert_eq(gpuarb_client_enter(plain, NULL), 0);
	for (int i = 0; i < 200; i++) {
		u_clock_ns += 16 * MS;
		if (gpuarb_client_enter(loud, NULL) == 0) {
			cr_assert_eq(gpuarb_client_tick(plain), -EAGAIN, "it stops, %d", i);
			cr_assert_eq(gpuarb_client_leave(plain, 0), 0);
			u_clock_ns += 4 * MS;
			cr_assert_eq(gpuarb_client_tick(loud), 0);
			cr_assert_eq(gpuarb_client_leave(loud, 0), 0);
		}
		cr_assert_eq(gpuarb_client_wait(plain, NULL, 0), 0);
		cr_assert_eq(gpuarb_client_tick(plain), 0);
	}
}

Test(floor, one_that_was_quiet_is_heeded_again)
{
	cr_assert_eq(gpuarb_client_enter(loud, NULL), 0);
	cr_assert(held_up(plain, 10 * SECOND) <= LONGEST);
	cr_assert_eq(gpuarb_client_leave(loud, 0), 0);
	for (int i = 0; i < 3000; i++) {
		u_clock_ns += 4 * MS;
		cr_assert_eq(gpuarb_client_tick(plain), 0);
	}
	cr_assert_eq(gpuarb_client_enter(loud, NULL), 0);
	cr_assert_eq(gpuarb_client_tick(plain), -EAGAIN);
}

static void take_turns(void)
{
	u_begin(NULL);
	plain = with("plain", 0);
	loud = with("loud", 100);
	u_set("policy", "fair");
}

TestSuite(floor_turns, .init = take_turns, .fini = close_two);

Test(floor_turns, a_client_does_not_wait_for_one_that_never_ends_its_turn)
{
	cr_assert_eq(gpuarb_client_enter(loud, NULL), 0);
	cr_assert(held_up(plain, 10 * SECOND) <= LONGEST);
	cr_assert_eq(told_to_stop(plain, 3 * SECOND), 0);
}

Test(floor_turns, one_that_takes_no_turns_waits_for_whoever_an_administrator_puts_above_it)
{
	cr_assert_eq(gpuarb_client_enter(loud, NULL), 0);
	cr_assert(held_up(plain, 10 * SECOND) <= LONGEST);
	cr_assert_eq(gpuarb_client_leave(plain, 0), 0);
	u_limit("loud", "priority", "90");
	cr_assert_eq(gpuarb_client_tick(loud), 0);
	cr_assert_eq(held_up(plain, 3 * SECOND), 3 * SECOND);
}

/* Its heartbeats are never young enough for a client that runs, and never old enough for one that is evicted. */
Test(floor_turns, a_client_waits_for_a_silent_one_no_longer_than_until_it_is_evicted)
{
	uint64_t began;
	int r = -ETIMEDOUT;

	cr_assert_eq(gpuarb_client_enter(loud, NULL), 0);
	for (began = u_clock_ns; r == -ETIMEDOUT && u_clock_ns - began < 10 * SECOND; u_clock_ns += 4 * MS) {
		arb_store64(&loud->seg.slots[loud->me.slot].heartbeat_ns, u_clock_ns - 30 * MS);
		r = gpuarb_client_wait(plain, NULL, 0);
	}
	cr_assert_eq(r, 0);
	cr_assert(u_clock_ns - began > plain->rules.grace_ns);
	cr_assert(u_clock_ns - began <= LONGEST + 100 * MS, "%llu", (unsigned long long)(u_clock_ns - began));
	gpuarb_client_leave(plain, 0);
}

/* `loud` lets `plain` in for a moment every 24 ms, and wants the GPU back. Returns what a tick then says to `plain`. */
static int let_in_for_a_moment(bool in_request)
{
	int r;

	for (int i = 0; i < 5; i++) {
		gpuarb_client_tick(loud);
		if (gpuarb_client_wait(plain, NULL, 0) == 0)
			return 1;
		u_clock_ns += 4 * MS;
	}
	cr_assert_eq(gpuarb_client_leave(loud, 0), 0);
	cr_assert_eq(gpuarb_client_enter(plain, NULL), 0);
	arb_client_ensure(loud);
	if (in_request)
		arb_store32(&loud->seg.slots[loud->me.slot].level, ARB_LEVEL_MOST);
	loud->move.queue = true;
	arb_running_enter(&loud->me, arb_client_move(loud, 0), &(struct arb_snap){0});
	u_clock_ns += 1 * MS;
	r = gpuarb_client_tick(plain);
	if (r == -EAGAIN) {
		cr_assert_eq(gpuarb_client_leave(plain, 0), 0);
		cr_assert_eq(gpuarb_client_enter(loud, NULL), 0);
	}
	return r;
}

Test(floor_turns, turns_that_are_cut_short_again_and_again_become_whole_turns_alone)
{
	uint64_t began = u_clock_ns;
	int r;

	cr_assert_eq(gpuarb_client_enter(loud, NULL), 0);
	do
		r = let_in_for_a_moment(false);
	while (r == -EAGAIN && u_clock_ns - began < 10 * SECOND);
	cr_assert_eq(r, 0, "%d: it never runs beside the other", r);
	cr_assert(u_clock_ns - began <= LONGEST, "%llu", (unsigned long long)(u_clock_ns - began));
	cr_assert_eq(gpuarb_client_enter(loud, NULL), -EAGAIN);
	cr_assert_eq(arb_load32(&plain->seg.slots[plain->me.slot].priority), 100);
	cr_assert_eq(plain->move.level, 100, "it waits like one of priority 100, and stops nobody by it");
}

Test(floor_turns, turns_that_are_cut_short_all_the_same_are_no_turns)
{
	uint64_t began = u_clock_ns;
	int r;

	arb_store32(&plain->seg.header->ranks, 1);
	cr_assert_eq(gpuarb_client_enter(loud, NULL), 0);
	do
		r = let_in_for_a_moment(true);
	while (r == -EAGAIN && u_clock_ns - began < 10 * SECOND);
	cr_assert_eq(r, 1);
	cr_assert(u_clock_ns - began <= 3 * LONGEST / 2, "%llu", (unsigned long long)(u_clock_ns - began));
}

/* A priority that no client can have is none. */
Test(floor_turns, a_waiter_with_an_impossible_priority_ends_no_turn)
{
	cr_assert_eq(gpuarb_client_enter(plain, NULL), 0);
	arb_client_ensure(loud);
	loud->move.queue = true;
	arb_running_enter(&loud->me, arb_client_move(loud, 0), &(struct arb_snap){0});
	arb_store32(&loud->seg.slots[loud->me.slot].priority, 200);
	u_clock_ns += 1 * MS;
	cr_assert_eq(gpuarb_client_tick(plain), 0);
}

Test(floor_turns, no_client_waits_for_one_that_takes_no_turns)
{
	struct gpuarb_client *third = with("third", 0);

	cr_assert_eq(gpuarb_client_enter(loud, NULL), 0);
	cr_assert(held_up(plain, 10 * SECOND) <= LONGEST);
	gpuarb_client_leave(loud, 0);
	cr_assert_eq(gpuarb_client_enter(third, NULL), 0, "beside the one that does not take turns");
	cr_assert_eq(gpuarb_client_tick(third), 0);
	gpuarb_client_close(third);
}

Test(floor_turns, a_place_that_is_kept_again_and_again_for_nobody_is_not_waited_for)
{
	uint64_t began = u_clock_ns;
	int r = -EAGAIN;

	/* A slot that no client has had stands in the queue, and the place is kept for it. */
	for (; r != 0 && u_clock_ns - began < 10 * SECOND; u_clock_ns += 2 * MS) {
		struct arb_record *record = snap_record_of(&plain->seg, arb_load64(&plain->seg.header->head));
		struct arb_slot *s = &plain->seg.slots[40];

		arb_store32(&s->state, ARB_SLOT_LIVE);
		arb_store32(&s->priority, 100);
		arb_store64(&s->wait_since_ns, 1);
		arb_store64(&s->heartbeat_ns, u_clock_ns);
		arb_store64(&record->waiting[0], arb_load64(&record->waiting[0]) | 1ull << 40);
		arb_store64(&record->reserved, 41 | (uint64_t)arb_load32(&s->generation) << 32);
		arb_store64(&record->reserved_until, u_clock_ns + 5 * MS);
		arb_store64(
			&record->shape, arb_load64(&record->shape) | ARB_SHAPE_WAITING | ARB_SHAPE_RESERVED);
		r = gpuarb_client_wait(plain, NULL, 0);
	}
	cr_assert_eq(r, 0);
	cr_assert(u_clock_ns - began <= LONGEST, "%llu", (unsigned long long)(u_clock_ns - began));
	gpuarb_client_leave(plain, 0);
	arb_reclaim_look(&plain->seg, plain->me.slot, 40, false, &plain->rules);
}

/* An administrator has said that one client runs at a time, and a task has a lease. */
Test(floor_turns, a_task_with_a_lease_keeps_the_whole_gpu)
{
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(loud, NULL), 0);
	for (int i = 0; i < 750; i++) {
		gpuarb_client_tick(loud);
		/* Set here, because its own tick takes back a bit that it knows nothing of. */
		arb_store64(&loud->seg.header->adm_leased[0], 1ull << loud->me.slot);
		cr_assert_eq(gpuarb_client_wait(plain, NULL, 0), -ETIMEDOUT, "%d", i);
		u_clock_ns += 4 * MS;
	}
	arb_store64(&loud->seg.header->adm_leased[0], 0);
}

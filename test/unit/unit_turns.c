/* Taking turns, with a clock that the test moves: when a turn ends, what a waiter saves, what a client learns about
 * others while it is in the set. */
#include "test/unit/unit_clients.h"

#include "shm/policy/policy.h"

static struct gpuarb_client *holder, *waiter;

static void open_two(void)
{
	u_begin(NULL);
	holder = u_client("holder", 0);
	waiter = u_client("waiter", 50);
	u_set("grace_ms", "600000");
}

static void close_two(void)
{
	cr_assert_eq(arb_check(&holder->seg, t_say, NULL), 0);
	gpuarb_client_close(holder);
	gpuarb_client_close(waiter);
	u_end();
}

TestSuite(turns, .init = open_two, .fini = close_two);

/* Puts the client into the queue without letting it sleep. */
static void queue_up(struct gpuarb_client *c)
{
	struct arb_snap s;

	gpuarb_client_tick(c);
	c->wait.since = u_clock_ns;
	arb_store64(&c->seg.slots[c->me.slot].wait_since_ns, u_clock_ns);
	c->move.queue = true;
	cr_assert_eq(arb_running_enter(&c->me, arb_client_move(c, 0), &s), -EAGAIN);
}

static uint64_t left(struct gpuarb_client *c)
{
	struct gpuarb_client_status status;

	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	return status.left_ns;
}

Test(turns, a_turn_ends_when_others_wait_and_not_before)
{
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	u_clock_ns += 250 * MS;
	cr_assert_eq(gpuarb_client_tick(holder), 0, "nobody waits");
	cr_assert_eq(gpuarb_client_leave(holder, 0), 0);
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	u_clock_ns += 90 * MS;
	cr_assert_eq(gpuarb_client_tick(holder), 0, "it has not lasted a window");
	u_clock_ns += 11 * MS;
	cr_assert_eq(gpuarb_client_tick(holder), -EAGAIN);
	cr_assert_eq(gpuarb_client_leave(holder, 0), 0);
	cr_assert_eq(gpuarb_client_enter(holder, NULL), -EAGAIN, "the place is the waiter's");
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
}

Test(turns, a_turn_is_a_slice_under_fair)
{
	u_set("policy", "fair");
	u_set("slice_ms", "10");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	u_clock_ns += 9 * MS;
	cr_assert_eq(gpuarb_client_tick(holder), 0);
	u_clock_ns += 2 * MS;
	cr_assert_eq(gpuarb_client_tick(holder), -EAGAIN);
}

Test(turns, a_turn_ends_at_once_for_a_higher_priority)
{
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	u_clock_ns += 1 * MS;
	cr_assert_eq(gpuarb_client_tick(holder), 0, "the same priority");
	cr_assert_eq(gpuarb_client_set_limits(waiter, 0, 0, 90), 0);
	cr_assert_eq(gpuarb_client_tick(holder), -EAGAIN);
	cr_assert_eq(gpuarb_client_set_limits(waiter, 0, 0, 10), 0);
	cr_assert_eq(gpuarb_client_tick(holder), 0, "less");
}

/* A program that waits for each piece of its work has none in between, and is back at once. */
Test(turns, a_client_that_is_back_soon_keeps_its_turn)
{
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	cr_assert_eq(gpuarb_client_pause(holder, 0, MS), 0, "nobody waits: there is nothing to keep");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	for (int i = 0; i < 100; i++) {
		cr_assert_eq(gpuarb_client_pause(holder, 0, 2 * MS), 1);
		cr_assert_eq(gpuarb_client_enter(waiter, NULL), -EAGAIN, "the place is kept");
		queue_up(waiter);
		u_clock_ns += MS;
		cr_assert_eq(arb_check(&holder->seg, t_say, NULL), 0);
		cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	}
	u_clock_ns += MS;
	cr_assert_eq(gpuarb_client_tick(holder), -EAGAIN, "pauses do not make it longer");
	cr_assert_eq(gpuarb_client_pause(holder, 0, 2 * MS), 0, "it is over");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), -EAGAIN);
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
}

/* It leaves and enters with another weight: no other client comes in between, and its turn goes on. */
Test(turns, a_client_that_changes_its_weight_keeps_its_turn)
{
	struct gpuarb_work light = {.weight = 3};

	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, &light), 0);
	queue_up(waiter);
	u_clock_ns += 90 * MS;
	u_futex.nwoken = 0;
	cr_assert_eq(gpuarb_client_pause(holder, 0, MS), 1);
	cr_assert_eq(gpuarb_client_resume(holder), 0);
	cr_assert_eq(u_futex.nwoken, 0);
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), -EAGAIN);
	queue_up(waiter);
	u_clock_ns += 10 * MS;
	cr_assert_eq(gpuarb_client_tick(holder), -EAGAIN);
}

Test(turns, nobody_waits_for_a_client_that_does_not_come_back)
{
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	cr_assert_eq(gpuarb_client_pause(holder, 0, 2 * MS), 1);
	u_clock_ns += 2 * MS;
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0, "without a word of the other");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), -EAGAIN);
	cr_assert_eq(gpuarb_client_leave(waiter, 0), 0);

	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	cr_assert_eq(gpuarb_client_pause(holder, 0, 2 * MS), 1);
	cr_assert_eq(gpuarb_client_leave(holder, 0), 0, "it gives its place away");
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
	cr_assert_eq(gpuarb_client_leave(waiter, 0), 0);
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0, "and is not in the queue");
}

Test(turns, a_place_is_not_kept_beyond_the_quota)
{
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
	queue_up(holder);
	u_clock_ns += 60 * MS;
	cr_assert_eq(gpuarb_client_pause(waiter, 0, MS), 0);
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
}

/* If it comes late and nobody has taken the place, its old turn goes on. With a new turn each time, it could hold the
 * GPU for ever. */
Test(turns, a_client_that_comes_late_gets_no_new_turn)
{
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	for (int i = 0; i < 25; i++) {
		cr_assert_eq(gpuarb_client_pause(holder, 0, 2 * MS), 1, "%d", i);
		u_clock_ns += 4 * MS;
		cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	}
	cr_assert_eq(gpuarb_client_tick(holder), -EAGAIN);
	cr_assert_eq(gpuarb_client_pause(holder, 0, 2 * MS), 0);
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);

	/* This time another client has had the place meanwhile. */
	queue_up(holder);
	u_clock_ns += MS;
	cr_assert_eq(gpuarb_client_pause(waiter, 0, 2 * MS), 1);
	u_clock_ns += 2 * MS;
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	u_clock_ns += 40 * MS;
	cr_assert_eq(gpuarb_client_leave(holder, 0), 0);
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
	queue_up(holder);
	u_clock_ns += 40 * MS;
	cr_assert_eq(gpuarb_client_pause(waiter, 0, 2 * MS), 1, "a turn of its own");
}

/* A client that gives its place away after it became another's takes nothing from that one. */
Test(turns, a_client_that_gives_way_late_ends_nobodys_turn)
{
	struct gpuarb_client *third = u_client("third", 0);

	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	cr_assert_eq(gpuarb_client_pause(holder, 0, 2 * MS), 1);
	u_clock_ns += 2 * MS;
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
	queue_up(third);
	u_futex.nwoken = 0;
	cr_assert_eq(gpuarb_client_leave(holder, 0), 0);
	cr_assert_eq(u_futex.nwoken, 0, "there is no place for anybody");
	cr_assert_eq(gpuarb_client_pause(waiter, 0, 2 * MS), 1);
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
	gpuarb_client_close(third);
}

/* The place is reserved for a client that does not come. Others ask in vain until the reservation has lapsed, and
 * then get it. */
Test(turns, a_reservation_gets_no_longer_because_others_give_up)
{
	struct gpuarb_client *third = u_client("third", 0);
	int tries = 0;

	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	cr_assert_eq(gpuarb_client_leave(holder, 0), 0);
	while (gpuarb_client_wait(third, NULL, MS) == -ETIMEDOUT)
		cr_assert(++tries < 10);
	cr_assert_eq(gpuarb_client_leave(third, 0), 0);

	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
	queue_up(holder);
	cr_assert_eq(gpuarb_client_pause(waiter, 0, 2 * MS), 1);
	cr_assert_eq(gpuarb_client_wait(third, NULL, MS), -ETIMEDOUT);
	u_clock_ns += MS;
	cr_assert_eq(gpuarb_client_wait(third, NULL, MS), 0);
	gpuarb_client_close(third);
}

Test(turns, a_place_is_not_kept_beyond_the_turn)
{
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	u_clock_ns += 99 * MS;
	cr_assert_eq(gpuarb_client_pause(holder, 0, 50 * MS), 1);
	u_clock_ns += MS;
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
}

Test(turns, a_client_that_pauses_twice_does_not_stay_in_the_queue)
{
	struct arb_snap s;

	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	cr_assert_eq(gpuarb_client_pause(holder, 0, 2 * MS), 1);
	cr_assert_eq(gpuarb_client_pause(holder, 0, 2 * MS), 0, "it was out already");
	cr_assert_eq(arb_running_read(&holder->seg, &s), 0);
	cr_assert_not(arb_bit_test(s.waiting, holder->me.slot));
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
}

/* A client of higher priority does not wait for one that is absent, nor for one that has just been woken. */
Test(turns, no_place_is_kept_from_a_higher_priority)
{
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	cr_assert_eq(gpuarb_client_pause(holder, 0, 2 * MS), 1);
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), -EAGAIN);
	queue_up(waiter);
	cr_assert_eq(gpuarb_client_set_limits(waiter, 0, 0, 90), 0);
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(holder, NULL), -EAGAIN);
}

/* A client that idled in between was not kept from using its quota, so it saves nothing. */
Test(turns, a_client_that_pauses_saves_nothing)
{
	struct gpuarb_client_status status;

	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	cr_assert_eq(gpuarb_client_leave(holder, 0), 0);
	for (int i = 0; i < 5; i++) {
		cr_assert_eq(gpuarb_client_status(waiter, &status), 0);
		u_clock_ns = status.window_end_ns - 10 * MS;
		cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
		queue_up(holder);
		u_clock_ns += 9 * MS;
		cr_assert_eq(gpuarb_client_pause(waiter, 0, 2 * MS), 1);
		u_clock_ns += 2 * MS;
		cr_assert_eq(left(waiter), 50 * MS, "%lu", (unsigned long)left(waiter));
		cr_assert_eq(gpuarb_client_leave(waiter, 0), 0);
	}
}

/* A waiter that looks while a place is kept sleeps no longer than until that has lapsed. */
static void nobody_acts(void)
{
	cr_assert(u_futex.nslept < 3, "%d", u_futex.nslept);
}

Test(turns, a_waiter_wakes_when_a_kept_place_lapses)
{
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	cr_assert_eq(gpuarb_client_pause(holder, 0, 2 * MS), 1);
	u_futex.nslept = 0;
	u_futex.while_asleep = nobody_acts;
	cr_assert_eq(gpuarb_client_wait(waiter, NULL, 1000 * MS), 0);
	cr_assert(u_futex.slept_ns <= 2 * MS + MS / 10, "%lu", (unsigned long)u_futex.slept_ns);
}

/* From the holder's end until the waiter comes nobody runs. A client that pauses and keeps its place loses nothing. */
Test(turns, what_a_hand_over_loses_is_counted)
{
	const arb_u32 *lost = &holder->seg.header->lost_ns;

	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	u_clock_ns += MS;
	cr_assert_eq(gpuarb_client_pause(holder, 0, 2 * MS), 1);
	u_clock_ns += MS;
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	cr_assert_eq(arb_load32(lost), 0, "a pause");
	u_clock_ns += MS;
	cr_assert_eq(gpuarb_client_leave(holder, u_clock_ns - MS / 10), 0);
	u_clock_ns += MS / 10;
	queue_up(holder);
	cr_assert_eq(arb_load32(lost), 2 * MS / 10, "%u: until another looks", arb_load32(lost));
	u_clock_ns += MS / 10;
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
	cr_assert_eq(arb_load32(lost), 3 * MS / 10, "%u: until the next one runs", arb_load32(lost));
	u_clock_ns += MS;
	cr_assert_eq(gpuarb_client_leave(waiter, 0), 0);
	cr_assert_eq(arb_load32(lost), 3 * MS / 10, "%u", arb_load32(lost));
}

Test(turns, what_hand_overs_lose_is_lost_by_all_in_proportion)
{
	struct gpuarb_client_status status;
	struct gpuarb_client *runs = holder, *next = waiter, *was;

	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_set_limits(holder, 50, 0, 50), 0);
	cr_assert_eq(gpuarb_client_enter(runs, NULL), 0);
	for (int i = 0; i < 160; i++) {
		queue_up(next);
		u_clock_ns += 49 * MS;
		gpuarb_client_tick(runs);
		cr_assert_eq(gpuarb_client_leave(runs, 0), 0);
		u_clock_ns += MS; /* until the next one is awake */
		cr_assert_eq(gpuarb_client_enter(next, NULL), 0);
		was = runs, runs = next, next = was;
	}
	cr_assert_eq(gpuarb_client_leave(runs, 0), 0);
	cr_assert_eq(gpuarb_client_status(waiter, &status), 0);
	cr_assert_eq(status.core_pct, 50);
	cr_assert(waiter->quota.terms.quota_ppm > 489900 && waiter->quota.terms.quota_ppm < 490100, "%u",
		waiter->quota.terms.quota_ppm);
	cr_assert_eq(holder->quota.terms.quota_ppm, waiter->quota.terms.quota_ppm, "%u",
		holder->quota.terms.quota_ppm);
}

Test(turns, under_concurrent_there_are_none)
{
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
	u_clock_ns += 150 * MS;
	cr_assert_eq(gpuarb_client_tick(holder), 0);
}

Test(turns, a_waiter_keeps_what_it_could_not_use)
{
	uint64_t first;

	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	queue_up(waiter);
	first = left(waiter);
	cr_assert(first <= 50 * MS, "%lu", (unsigned long)first);
	u_clock_ns += 200 * MS;
	cr_assert_eq(left(waiter), first + 100 * MS, "two windows went by");
	u_clock_ns += 100000 * MS;
	cr_assert_eq(left(waiter), (1 + ARB_SAVED_WINDOWS) * 50 * MS, "but not for ever");
}

Test(turns, a_client_that_does_not_wait_saves_nothing)
{
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	gpuarb_client_tick(waiter);
	u_clock_ns += 1000 * MS;
	cr_assert_eq(left(waiter), 50 * MS);
}

Test(turns, a_client_that_enters_or_leaves_knows_whether_others_run)
{
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	cr_assert_eq(gpuarb_client_beside(holder), 0);
	u_clock_ns += 1 * MS;
	cr_assert_eq(gpuarb_client_leave(holder, 0), 0);
	cr_assert_eq(gpuarb_client_beside(holder), 0);

	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(waiter, NULL), 0);
	cr_assert_eq(gpuarb_client_beside(waiter), ARB_WEIGHT_ONE);
	u_clock_ns += 1 * MS;
	cr_assert_eq(gpuarb_client_leave(holder, 0), 0);
	cr_assert_eq(gpuarb_client_beside(holder), ARB_WEIGHT_ONE);
	cr_assert_eq(gpuarb_client_leave(waiter, 0), 0);
	cr_assert_eq(gpuarb_client_beside(waiter), 0);
}

/* Another process wakes it again as soon as it listens, and each time it looks for 10 us. */
Test(turns, wake_ups_that_lead_to_nothing_cost_a_fiftieth_of_a_core)
{
	struct arb_wakeups w = {0};
	uint64_t now = 5 * SECOND, began = now, spent = 0, deaf, longest = 0;

	for (int i = 0; i < 100; i++, now += 100 * US)
		cr_assert_eq(arb_wakeups_count(&w, 10 * US, now), 0, "some may come at once, %d", i);
	while (now - began < 10 * SECOND) {
		now += 10 * US;
		spent += 10 * US;
		deaf = arb_wakeups_count(&w, 10 * US, now);
		longest = deaf > longest ? deaf : longest;
		now += deaf;
	}
	cr_assert(spent <= 10 * SECOND / 50 + 6 * MS, "%llu", (unsigned long long)spent);
	cr_assert(longest <= MS, "%llu", (unsigned long long)longest);
	cr_assert_eq(arb_wakeups_count(&w, 10 * US, now + SECOND), 0, "after a while without any it listens");
}

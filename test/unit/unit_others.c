/* What the book does because of other clients: who is watched, who waits for the end of whose work, turns. */
#include "test/unit/book_events.h"

static struct book_event entered_beside(uint32_t weight)
{
	struct book_event e = event(EVENT_ENTERED);

	e.status.others = weight;
	return e;
}

/* A client with a limit, or in turns, that has a kernel of this length queued, and others beside it if `others`. */
static void run_beside(uint32_t others, uint64_t kernel_ns)
{
	struct book_status s;

	begin(true);
	durations_learn(&b.durations, KERNEL, 1, kernel_ns, true);
	enter_and_launch(0);
	s = limited(0, 20 * MS);
	s.others = others;
	status(s);
	b.others.late_ns = 20 * US;
}

static struct book_action drain(uint32_t others, bool turns)
{
	struct book_status s = limited(turns ? -EAGAIN : -EDQUOT, 0);

	s.others = others;
	s.turns = turns;
	status(s);
	cr_assert_eq(b.state, BOOK_DRAINING);
	return ask(CALL_ENTERED | STEP_SETTLED);
}

/* A program that waits for each of its short kernels begins a new interval each time, sooner than the segment is asked. */
Test(others, a_client_that_enters_beside_another_is_watched_at_once)
{
	begin(false);
	calls++;
	ask(0);
	tell(entered_beside(256));
	cr_assert(b.others.watched);
	cr_assert(others_contended(&b, now));
	ask(CALL_ENTERED);
	cr_assert_eq(launch(0).n, 0, "each launch has a fence");

	begin(false);
	calls++;
	ask(0);
	tell(entered_beside(0));
	cr_assert_not(b.others.watched, "alone it is not");
}

Test(others, a_client_that_leaves_beside_another_gets_no_credit_next_time)
{
	struct book_event e;

	begin(false);
	enter_and_launch(0);
	b.open = true;
	now += MS;
	pass(0, now);
	cr_assert_eq(tell(event(EVENT_SETTLE)).what, ACT_LEAVE);
	e = event(EVENT_LEFT);
	e.status.others = 256;
	tell(e);
	cr_assert_not(b.open);
	cr_assert(b.others.watched);
}

/* Sleeps end late. Others wait for this end, or have paid for less than they used by the time at which it is seen. */
Test(others, the_end_that_others_wait_for_is_not_slept_through)
{
	struct book_action act;

	run_beside(1, 200 * US);
	act = drain(1, false);
	cr_assert_eq(act.what, ACT_WAIT);
	cr_assert_lt(act.ns, 180 * US, "no longer than until sleeps would end too late");
	now += 190 * US;
	act = ask(CALL_ENTERED | CALL_AWAKE | STEP_SETTLED);
	cr_assert_eq(act.what, ACT_WAIT);
	cr_assert_eq(act.ns, 0, "it looks again and again");
	act = ask(CALL_ENTERED | STEP_SETTLED);
	cr_assert_gt(act.ns, 0, "one thread that looks is enough");
	now += QUEUE_BELOW_MOST_NS;
	ask(CALL_ENTERED | CALL_AWAKE | STEP_SETTLED);
	act = ask(CALL_ENTERED | CALL_AWAKE | STEP_SETTLED);
	cr_assert_gt(act.ns, 0, "but not for ever");

	run_beside(0, 200 * US);
	drain(0, false);
	now += 190 * US;
	cr_assert_gt(
		ask(CALL_ENTERED | CALL_AWAKE | STEP_SETTLED).ns, 0, "alone nobody pays for a late look");

	run_beside(0, 200 * US);
	drain(0, true);
	now += 190 * US;
	cr_assert_eq(ask(CALL_ENTERED | CALL_AWAKE | STEP_SETTLED).ns, 0, "in turns another waits");
}

/* Where nothing more may be queued, the end of all that is queued counts. */
Test(others, the_place_is_handed_over_when_all_has_ended)
{
	struct book_action act;

	run_beside(1, 200 * US);
	b.queue.window = 4;
	cr_assert_eq(ask(CALL_ENTERED).what, ACT_PASS);
	launch(1);
	act = drain(1, false);
	now += 190 * US;
	act = ask(CALL_ENTERED | CALL_AWAKE | STEP_SETTLED);
	cr_assert_gt(act.ns, 0, "another kernel is queued behind the first");
}

Test(others, how_late_sleeps_are_is_learned_within_bounds)
{
	struct book_event e;

	run_beside(1, MS);
	for (unsigned i = 0; i < 100; i++) {
		e = event(EVENT_ASKED);
		e.call = CALL_ENTERED | CALL_AWAKE | STEP_LOOKED;
		e.took_ns = 10 * MS;
		tell(e);
	}
	cr_assert_eq(b.others.late_ns, QUEUE_BELOW_MOST_NS / 2);
	for (unsigned i = 0; i < 1000; i++) {
		e.took_ns = 1;
		tell(e);
	}
	cr_assert_eq(b.others.late_ns, QUEUE_BELOW_MOST_NS / 64);
}

/* Returns whether the tracker's check finds that others need not wait for the work on the GPU. */
static bool outlasts_after(uint64_t ns)
{
	struct book_status s;

	now += ns;
	s = limited(-EAGAIN, 20 * MS);
	s.turns = true;
	status(s);
	return b.others.outlasts;
}

Test(others, work_that_outlasts_its_turn_lets_others_in)
{
	run_beside(0, 20 * US);
	cr_assert_not(outlasts_after(0));
	cr_assert_not(outlasts_after(OUTLAST_NS));
	cr_assert(outlasts_after(US * 100));
	cr_assert_eq(b.state, BOOK_RUNNING, "launches go on");
	/* It ends as soon as others are in: it has waited for them, so the next time they come in sooner. */
	now += MS;
	pass(0, now);
	cr_assert_eq(tell(event(EVENT_SETTLE)).what, ACT_LEAVE);
	tell(event(EVENT_LEFT));
	cr_assert_not(b.others.outlasts);
	cr_assert_eq(b.others.outlast_shift, 1);
}

Test(others, a_turn_that_the_queued_work_fills_is_over)
{
	struct book_event e;

	run_beside(0, 200 * US);
	e = event(EVENT_STATUS);
	e.status = limited(0, 20 * MS);
	e.status.tail_pct = -1;
	e.status.turns = true;
	e.status.turn_left_ns = 300 * US;
	tell(e);
	cr_assert_eq(b.state, BOOK_RUNNING);
	e.status.turn_left_ns = 100 * US;
	tell(e);
	cr_assert_eq(b.state, BOOK_DRAINING);
}

/* Where queued work cannot end because others pay: the time of what stalls is not the account's debt. */
Test(others, work_that_does_not_end_without_quota_stalls)
{
	run_beside(0, 20 * US);
	status(limited(-EDQUOT, 0));
	cr_assert_not(b.others.stalls);
	now += OUTLAST_NS + MS;
	status(limited(-EDQUOT, 0));
	cr_assert(b.others.stalls);
	pass(0, now);
	status(limited(0, 20 * MS));
	cr_assert_not(b.others.stalls);
}

/* The GPU stands still while a thread that waits for room wakes up: the queue was too short for this machine. */
Test(others, a_queue_that_ran_dry_while_a_thread_slept_grows)
{
	uint64_t bound;

	run_beside(0, 100 * US);
	bound = b.queue.bound_ns;
	cr_assert_eq(ask(CALL_ENTERED).what, ACT_PASS);
	launch(1);
	cr_assert_eq(ask(CALL_ENTERED | STEP_SETTLED).what, ACT_WAIT);
	now += 5 * MS;
	pass(0, now - 4 * MS);
	pass(1, now - 4 * MS);
	/* The tracker sees it first, and leaves the set. */
	cr_assert_eq(tell(event(EVENT_SETTLE)).what, ACT_LEAVE);
	tell(event(EVENT_LEFT));
	cr_assert_gt(b.queue.bound_ns, bound);

	run_beside(0, 100 * US);
	bound = b.queue.bound_ns;
	drain(0, false);
	now += 5 * MS;
	pass(0, now - 4 * MS);
	cr_assert_eq(tell(event(EVENT_SETTLE)).what, ACT_LEAVE);
	tell(event(EVENT_LEFT));
	cr_assert_eq(b.queue.bound_ns, bound, "without quota it is meant to run dry");
}

/* Launches a kernel that takes took_ns, beside another client if `beside`. Returns what its end tells. */
static uint8_t kernel_beside(bool beside, bool turns, uint64_t took_ns)
{
	struct book_status s = limited(0, 20 * MS);
	struct book_event e;
	uint8_t alternates;

	s.others = beside;
	s.turns = turns;
	enter_and_launch(0);
	status(s);
	now += took_ns;
	e = event(EVENT_PASSED);
	e.fence = 0;
	e.at_ns = now;
	alternates = tell(e).alternates;
	tell(event(EVENT_SETTLE));
	tell(event(EVENT_LEFT));
	return alternates;
}

/* Each wait is shorter than a slice. */
Test(others, many_short_waits_show_that_the_gpu_alternates)
{
	unsigned n = 0;

	begin(true);
	for (unsigned i = 0; i < 8; i++)
		kernel_beside(false, false, 100 * US);
	while (kernel_beside(true, false, 1100 * US) != ALTERNATES_SEEN)
		cr_assert_lt(++n, 20);
	cr_assert_gt(n, 2, "a few are no evidence");

	begin(true);
	for (unsigned i = 0; i < 8; i++)
		kernel_beside(false, false, 100 * US);
	for (n = 0; n < 1000; n++)
		cr_assert_eq(kernel_beside(true, false, 205 * US), ALTERNATES_UNSEEN, "an equal part");
}

Test(others, a_kernel_that_was_never_alone_is_measured_under_turns)
{
	unsigned n = 0;

	begin(true);
	while (kernel_beside(true, false, 1100 * US) != ALTERNATES_TRIAL)
		cr_assert_lt(++n, 20);
	for (n = 0; n < 100; n++)
		cr_assert_neq(kernel_beside(true, false, 1100 * US), ALTERNATES_TRIAL, "not again at once");
	for (n = 0; n < 8; n++)
		kernel_beside(false, true, 100 * US);
	for (n = 0; kernel_beside(true, false, 1100 * US) != ALTERNATES_SEEN; n++)
		cr_assert_lt(n, 20);
}

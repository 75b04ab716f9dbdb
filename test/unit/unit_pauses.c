/* The tracking core: a program whose GPU is idle between its launches is not billed for these pauses. */
#include "test/unit/book_events.h"

/* A fence stands behind `covers` launches that passed with credit. */
static void fence(uint8_t at, uint32_t covers, uint64_t begun_ns)
{
	struct book_event e = event(EVENT_FENCED);

	e.fence = at;
	e.covers = covers;
	e.at_ns = begun_ns;
	tell(e);
}

/* The same, while other threads have `unfenced` launches that no fence covers. */
static void fence_beside(uint8_t at, uint32_t covers, uint64_t begun_ns, uint64_t unfenced)
{
	struct book_event e = event(EVENT_FENCED);

	e.fence = at;
	e.covers = covers;
	e.at_ns = begun_ns;
	e.unfenced = unfenced;
	tell(e);
}

/* All work has ended. Returns the time as of which the set is left. */
static uint64_t left_as_of(void)
{
	struct book_event e = event(EVENT_SETTLE);
	struct book_action act;

	e.call = STEP_LOOKED;
	act = tell(e);
	if (act.what == ACT_STREAMS)
		act = tell(event(EVENT_IDLE));
	cr_assert_eq(act.what, ACT_LEAVE);
	return act.at_ns;
}

/* A kernel of 20 us, then ten more within a millisecond, with a fence behind the last. */
static uint64_t eleven_with_pauses(void)
{
	uint64_t begun;

	begin(false);
	enter_and_launch(0);
	begun = now;
	now += 30 * US;
	pass(0, begun + 20 * US);
	now = begun + MS;
	calls += 10;
	fence(1, 10, begun);
	now += 30 * US;
	pass(1, now - 10 * US);
	return b.interval.begin_ns;
}

Test(pauses, between_launches_with_credit_are_not_billed)
{
	uint64_t from = eleven_with_pauses();

	cr_assert_eq(left_as_of(), from + 11 * 20 * US);
}

Test(pauses, in_which_other_threads_may_have_had_work_are_billed_once)
{
	uint64_t begun;

	begin(false);
	enter_and_launch(0);
	begun = now;
	now += 30 * US;
	pass(0, begun + 20 * US);
	/* Ten launches within a millisecond; meanwhile another thread has made fifteen. */
	now = begun + MS;
	calls += 25;
	fence_beside(1, 10, begun, 15);
	now += 30 * US;
	pass(1, now - 10 * US);
	/* Ten more. Those fifteen have no fence yet, but they are accounted for. */
	begun = now;
	now += MS;
	calls += 10;
	fence_beside(1, 10, begun, 15);
	now += 30 * US;
	pass(1, now - 10 * US);
	cr_assert_eq(left_as_of(), b.interval.begin_ns + (1 + 10 + 15 + 10) * 20 * US);
}

Test(pauses, before_a_launch_are_billed_as_far_as_other_threads_had_work)
{
	uint64_t begun;

	begin(false);
	enter_and_launch(0);
	begun = now;
	now += 30 * US;
	pass(0, begun + 20 * US);
	now = begun + MS;
	calls += 6;
	fence_beside(1, 1, now, 5);
	now += 30 * US;
	pass(1, now - 10 * US);
	cr_assert_eq(left_as_of(), b.interval.begin_ns + (1 + 5 + 1) * 20 * US);
}

Test(pauses, a_queue_that_never_ran_dry_is_billed_whole)
{
	uint64_t begun;

	begin(false);
	enter_and_launch(0);
	begun = now;
	now += 100 * US;
	calls += 10;
	fence(1, 10, begun);
	now += MS;
	pass(0, begun + 500 * US);
	pass(1, begun + 800 * US);
	cr_assert_eq(left_as_of(), b.interval.begin_ns + 800 * US);
}

Test(pauses, several_launches_that_did_not_wait_for_each_other_say_no_more_than_a_bound)
{
	eleven_with_pauses();
	cr_assert_eq(b.durations.mean_ns, 20 * US);
	cr_assert_eq(b.durations.each_ns, 20 * US);
}

Test(pauses, behind_a_piece_with_pauses_one_launch_is_fenced_by_itself)
{
	eleven_with_pauses();
	cr_assert_eq(book_piece(&b), 0);
	calls++;
	fence(2, 1, now);
	cr_assert_gt(book_piece(&b), 0);
}

Test(pauses, between_two_fenced_launches_are_not_billed)
{
	uint64_t begun;

	begin(false);
	enter_and_launch(0);
	begun = now;
	now += 100 * US;
	calls++;
	fence(1, 1, now);
	now += 50 * US;
	pass(0, begun + 20 * US);
	pass(1, begun + 120 * US);
	cr_assert_eq(left_as_of(), b.interval.begin_ns + 40 * US);
}

Test(pauses, of_one_stream_are_not_pauses_while_another_has_work)
{
	uint64_t begun;
	struct book_event e;

	begin(false);
	enter_and_launch(0);
	begun = now;
	now += 100 * US;
	calls++;
	e = event(EVENT_FENCED);
	e.fence = 1;
	e.stream = STREAM + 1;
	e.at_ns = now;
	tell(e);
	now += 500 * US;
	pass(1, begun + 120 * US);
	pass(0, begun + 400 * US);
	cr_assert_eq(left_as_of(), b.interval.begin_ns + 400 * US);
}

Test(pauses, a_gpu_that_is_seen_busy_by_chance_may_have_paused)
{
	struct book_event e = {0};
	uint64_t from = eleven_with_pauses();

	b.interval.unfenced = true;
	calls += 5;
	now += MS;
	e = event(EVENT_SETTLE);
	e.call = STEP_LOOKED;
	cr_assert_eq(tell(e).what, ACT_STREAMS);
	e = event(EVENT_UNFINISHED);
	e.at_ns = now;
	tell(e);
	now += MS;
	calls++;
	e = event(EVENT_SETTLE);
	e.call = STEP_LOOKED;
	cr_assert_eq(tell(e).what, ACT_STREAMS);
	e = event(EVENT_IDLE);
	e.unfenced = 6;
	cr_assert_eq(tell(e).at_ns, from + 17 * 20 * US);
}

Test(pauses, a_gpu_that_is_seen_busy_twice_without_a_call_between_has_not_paused)
{
	struct book_event e = {0};
	uint64_t seen = 0;

	eleven_with_pauses();
	b.interval.unfenced = true;
	calls++;
	for (int i = 0; i < 3; i++) {
		now += MS;
		e = event(EVENT_SETTLE);
		e.call = STEP_LOOKED;
		cr_assert_eq(tell(e).what, ACT_STREAMS);
		if (i == 2)
			break;
		seen = now;
		e = event(EVENT_UNFINISHED);
		e.at_ns = seen;
		tell(e);
	}
	e = event(EVENT_IDLE);
	e.unfenced = 1;
	cr_assert_eq(tell(e).at_ns, seen - b.interval.lead_ns - b.interval.idle_ns);
}

Test(pauses, are_taken_off_before_a_window_is_rolled)
{
	struct book_event e = {0};
	struct book_action act;

	eleven_with_pauses();
	b.interval.unfenced = true;
	b.others.window_end_ns = now;
	b.others.check_ns = now;
	e = event(EVENT_TIMER);
	act = tell(e);
	cr_assert_eq(act.what, ACT_STREAMS);
	e = event(EVENT_UNFINISHED);
	e.at_ns = now;
	tell(e);
	e = event(EVENT_TIMER);
	e.call = act.step;
	cr_assert_eq(tell(e).what, ACT_LOOK);
	now += PIECE_NS;
	e = event(EVENT_TIMER);
	e.call = act.step;
	cr_assert_eq(tell(e).what, ACT_CHECK);
}

Test(pauses, uncounted_launches_end_when_the_program_had_waited_for_them)
{
	struct book_event e;
	uint64_t from;

	begin(false);
	enter_and_launch(0);
	from = b.interval.begin_ns;
	pass(0, now + 20 * US);
	e = event(EVENT_FENCED);
	e.facts = FACT_FAILED;
	tell(e);
	now += 5 * MS;
	e = event(EVENT_WAITED);
	e.call = STEP_LOOKED;
	e.calls = 2;
	e.at_ns = now;
	e.took_ns = 4 * MS;
	cr_assert_eq(tell(e).what, ACT_STREAMS);
	now += US;
	e = event(EVENT_IDLE);
	e.calls = 2;
	cr_assert_gt(tell(e).at_ns, from + 4 * MS);
}

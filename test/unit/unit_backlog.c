/* How much of a process's work may be queued, with credit and without, and what is done if that work does not end. */
#include "test/unit/book_events.h"

Test(backlog, a_limited_queue_is_bounded_by_measured_time)
{
	begin(true);
	enter_and_launch(0);
	now += MS;
	pass(0, now);
	for (uint8_t i = 1; i < 4; i++) {
		if (ask(CALL_ENTERED).what == ACT_WAIT)
			break;
		launch(i);
	}
	cr_assert_leq(b.queue.ns, QUEUE_NS);
	cr_assert_eq(ask(CALL_ENTERED).what, ACT_WAIT);
}

Test(backlog, credit_is_given_only_behind_fenced_work_that_has_not_ended)
{
	begin(true);
	enter_and_launch(0);
	cr_assert_not(b.open, "a limited client that has just begun gets none");
	begin(false);
	calls++;
	ask(0);
	entered(0);
	ask(CALL_ENTERED);
	/* It is in the middle of many launches. */
	b.interval.apart_ns = 0;
	cr_assert_gt(launch(0).n, 0, "an unlimited one alone does");
	cr_assert(b.open);
	/* No credit while a stream captures: what is captured would be counted as work. */
	begin(false);
	calls++;
	ask(0);
	entered(0);
	ask(CALL_ENTERED);
	/* It is in the middle of many launches. */
	b.interval.apart_ns = 0;
	struct book_event e = event(EVENT_FENCED);
	e.facts = FACT_CAPTURES;
	e.fence = 0;
	cr_assert_eq(tell(e).n, 0);
}

Test(backlog, what_is_queued_and_never_ends_is_let_past)
{
	struct book_action act = {0};

	begin(true);
	enter_and_launch(0);
	b.durations.mean_ns = MS;
	status(limited(0, 20 * MS));
	ask(CALL_ENTERED);
	launch(1);
	now += MS;
	cr_assert_eq(ask(CALL_ENTERED).what, ACT_WAIT);
	now += 20 * STUCK_SOON_NS + MS;
	status(limited(0, 20 * MS));
	act = ask(CALL_ENTERED | CALL_AWAKE);
	cr_assert_eq(b.queue.parked, 2);
	if (act.what == ACT_WAIT)
		act = ask(CALL_ENTERED | CALL_AWAKE);
	cr_assert_eq(act.what, ACT_PASS);
}

/* Its busy interval ends and begins again meanwhile, as while a partner is waited for, and each time the queue looks
 * new. */
Test(backlog, what_is_stuck_stays_stuck_when_the_interval_begins_anew)
{
	struct book_action act = {0};
	struct book_event e;

	begin(true);
	enter_and_launch(0);
	b.durations.mean_ns = MS;
	status(limited(0, 20 * MS));
	ask(CALL_ENTERED);
	launch(1);
	for (uint64_t waited = 0; waited < 2 * 20 * STUCK_SOON_NS && act.what != ACT_PASS;
		waited += 90 * MS) {
		tell(event(EVENT_LEFT));
		now += 90 * MS;
		cr_assert_eq(ask(0).what, ACT_ENTER);
		entered(0);
		status(limited(0, 20 * MS));
		e = event(EVENT_ASKED);
		e.call = CALL_ENTERED | STEP_LOOKED | STEP_SETTLED;
		act = tell(e);
		if (act.what == ACT_WAIT) {
			e.call |= CALL_AWAKE;
			act = tell(e);
		}
		if (act.what == ACT_WAIT)
			b.waiters--;
	}
	cr_assert_eq(act.what, ACT_PASS, "held up for ever");
}

/* If its wait were learned as its length, what waits for it would be held up for longer each time. */
Test(backlog, what_ends_right_after_another_was_let_past_without_quota_teaches_nothing)
{
	uint64_t usual;

	begin(true);
	enter_and_launch(0);
	now += MS;
	pass(0, now);
	usual = b.durations.mean_ns;
	ask(CALL_ENTERED);
	launch(1);
	status(limited(-EDQUOT, 0));
	cr_assert_eq(b.state, BOOK_DRAINING);
	now += 2 * 20 * STUCK_SOON_NS + MS;
	/* It is without quota: the first is let past at once, the second half a minute later, when the limit allows
	 * it. */
	b.queue.pace_ns = now + 30000 * MS;
	status(limited(-EDQUOT, 0));
	cr_assert_eq(ask(STEP_SETTLED).what, ACT_WAIT);
	cr_assert_eq(b.queue.parked, 1);
	now += 30000 * MS;
	status(limited(-EDQUOT, 0));
	cr_assert_eq(ask(CALL_AWAKE | STEP_SETTLED).what, ACT_PASS);
	launch(2);
	now += MS;
	pass(1, now);
	cr_assert_eq(b.durations.mean_ns, usual);
}

Test(backlog, what_once_waited_for_later_work_queues_no_more_than_a_window_of_it)
{
	uint8_t n = 0;

	begin(true);
	enter_and_launch(n++);
	b.queue.least = 20;
	status(limited(0, 20 * MS));
	durations_learn(&b.durations, KERNEL, 1, MS, true);
	while (n < 20 && ask(CALL_ENTERED).what == ACT_PASS)
		launch(n++);
	cr_assert_eq(n, 20, "short kernels: as many as had to be queued once");

	begin(true);
	enter_and_launch(n = 0);
	n++;
	b.queue.least = 20;
	status(limited(0, 20 * MS));
	durations_learn(&b.durations, KERNEL, 1, 30 * MS, true);
	while (n < 20 && ask(CALL_ENTERED).what == ACT_PASS)
		launch(n++);
	cr_assert_leq(b.queue.ns, 100 * MS);
	cr_assert_leq(n, 5, "%u kernels of 30 ms are queued", n);
}

Test(backlog, below_a_higher_priority_the_queue_is_short_and_each_launch_looks_at_the_gate)
{
	struct book_status s;
	struct book_event e;

	begin(true);
	enter_and_launch(0);
	s = limited(0, 20 * MS);
	s.above_present = s.gated = true;
	status(s);
	cr_assert_eq(b.others.below_ns, QUEUE_BELOW_NS);
	e = event(EVENT_ASKED);
	e.facts = FACT_CLOSED;
	e.call = STEP_LOOKED;
	cr_assert_eq(tell(e).what, ACT_CHECK);
	s.verdict = -EAGAIN;
	status(s);
	cr_assert_eq(b.state, BOOK_DRAINING);
}

/* What comes above waits for what is left of the kernel that runs, and for one that is queued behind it: that one is queued
 * as late as it can be. */
Test(backlog, below_a_higher_priority_the_next_kernel_is_queued_shortly_before_this_one_ends)
{
	struct book_action act;
	struct book_status s;

	begin(true);
	durations_learn(&b.durations, KERNEL, 1, 20 * US, true);
	enter_and_launch(0);
	s = limited(0, 20 * MS);
	s.core_pct = 100;
	s.above_present = true;
	status(s);
	b.others.below_ns = 25 * US;
	b.others.late_ns = 5 * US;
	b.queue.window = 2;
	act = ask(CALL_ENTERED);
	cr_assert_eq(act.what, ACT_WAIT, "two of them are 40 us");
	cr_assert_eq(act.ns, 10 * US, "there is room in 15 us, and sleeps are late");
	now += 14 * US;
	act = ask(CALL_ENTERED | CALL_AWAKE);
	cr_assert_eq(act.what, ACT_WAIT);
	cr_assert_eq(act.ns, 0, "it looks again at once");
	now += US;
	cr_assert_eq(ask(CALL_ENTERED | CALL_AWAKE).what, ACT_PASS, "5 us are left of the first");
	launch(1);
	now += 10 * US;
	cr_assert_eq(ask(CALL_ENTERED).what, ACT_WAIT,
		"what is over though nobody has seen it does not make room twice");
}

/* Where one runs at a time, whoever is above waits until this one has left: so its end is not slept through. */
Test(backlog, who_must_stop_for_a_higher_priority_sees_the_end_without_sleeping)
{
	struct book_action act;
	struct book_status s;

	begin(true);
	durations_learn(&b.durations, KERNEL, 1, 20 * US, true);
	enter_and_launch(0);
	s = limited(-EAGAIN, 20 * MS);
	s.core_pct = 100;
	s.above_present = true;
	status(s);
	cr_assert_eq(b.state, BOOK_DRAINING);
	b.others.below_ns = 25 * US;
	b.others.late_ns = 5 * US;
	act = ask(CALL_ENTERED | STEP_SETTLED);
	cr_assert_eq(act.what, ACT_WAIT);
	cr_assert_eq(act.ns, 15 * US, "as late as sleeps are before the end");
	now += 15 * US;
	act = ask(CALL_ENTERED | CALL_AWAKE | STEP_SETTLED);
	cr_assert_eq(act.what, ACT_WAIT);
	cr_assert_eq(act.ns, 0);
	now += QUEUE_BELOW_MOST_NS;
	cr_assert_gt(ask(CALL_ENTERED | CALL_AWAKE | STEP_SETTLED).ns, 0, "but not for ever");
}

/* On a GPU that alternates, one graph at a time takes a slice more than two in a row, and does so each time. That is
 * no reason to queue only one. */
Test(backlog, when_contended_a_second_launch_is_queued_by_what_it_takes_of_the_gpu)
{
	struct book_status s;

	begin(true);
	enter_and_launch(0);
	s = limited(0, 20 * MS);
	s.others = 1;
	s.request_present = true;
	status(s);
	durations_learn(&b.durations, KERNEL, 1, 6 * MS, false);
	cr_assert_eq(ask(CALL_ENTERED).what, ACT_PASS, "it is 3 ms of work");
	launch(1);
	cr_assert_eq(ask(CALL_ENTERED).what, ACT_WAIT, "a third would be too much");

	begin(true);
	enter_and_launch(0);
	s.others = 0;
	status(s);
	durations_learn(&b.durations, KERNEL, 1, 6 * MS, true);
	cr_assert_eq(ask(CALL_ENTERED).what, ACT_WAIT, "alone it is 6 ms");
}

Test(backlog, a_far_end_is_looked_at_seldom_where_many_share_the_gpu)
{
	begin(true);
	durations_learn(&b.durations, KERNEL, 1, 64 * MS, true);
	enter_and_launch(0);
	b.others.others = 1;
	cr_assert_eq(queue_patience(&b, 64 * MS, b.queue.fence[0].begun_ns), LONG_NS,
		"a kernel that is long may end sooner");
	b.others.others = 63;
	cr_assert_eq(queue_patience(&b, 64 * MS, b.queue.fence[0].begun_ns), 8 * MS);
	cr_assert_eq(queue_patience(&b, 64 * MS, b.queue.fence[0].begun_ns + 63 * MS), LONG_NS);
}

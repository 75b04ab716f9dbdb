/* The tracking core, told nothing but events: what it decides in every state. */
#include "test/unit/book_events.h"

Test(book, the_first_launch_enters_and_the_end_of_the_last_leaves)
{
	struct book_action act;

	begin(true);
	enter_and_launch(0);
	cr_assert_eq(b.state, BOOK_RUNNING);
	now += 900 * US;
	act = tell(event(EVENT_SETTLE));
	cr_assert_eq(act.what, ACT_FENCES, "the fences are looked at first");
	pass(0, now - 100 * US);
	act = tell(event(EVENT_SETTLE));
	cr_assert_eq(act.what, ACT_LEAVE);
	/* The interval begins at the submission, not when the call entered the driver. */
	cr_assert_eq(act.at_ns - b.interval.begin_ns, 800 * US);
	tell(event(EVENT_LEFT));
	cr_assert_eq(b.state, BOOK_OUT);
	cr_assert_eq(b.durations.mean_ns, 800 * US);
}

Test(book, a_launch_that_is_refused_waits_and_one_that_entered_runs)
{
	begin(true);
	calls++;
	cr_assert_eq(ask(0).what, ACT_ENTER);
	entered(-EAGAIN);
	cr_assert_eq(b.state, BOOK_WAITING);
	entered(0);
	cr_assert_eq(b.state, BOOK_RUNNING);
}

Test(book, without_quota_it_drains_and_launches_wait_for_the_end)
{
	struct book_action act;

	begin(true);
	enter_and_launch(0);
	now += MS;
	status(limited(-EDQUOT, 0));
	cr_assert_eq(b.state, BOOK_DRAINING);
	cr_assert_not(b.open);
	act = ask(0);
	cr_assert_eq(act.what, ACT_WAIT);
	cr_assert_eq(b.waiters, 1);
	pass(0, now);
	act = ask(CALL_AWAKE);
	cr_assert_eq(b.waiters, 0);
	cr_assert_eq(act.what, ACT_LEAVE);
	tell(event(EVENT_LEFT));
	cr_assert_eq(ask(0).what, ACT_ENTER);
}

Test(book, quota_that_comes_back_ends_draining)
{
	begin(true);
	enter_and_launch(0);
	status(limited(-EDQUOT, 0));
	cr_assert_eq(b.state, BOOK_DRAINING);
	status(limited(0, 20 * MS));
	cr_assert_eq(b.state, BOOK_RUNNING);
}

Test(book, time_in_the_driver_is_not_gpu_time)
{
	struct book_event e;

	begin(true);
	calls++;
	ask(0);
	entered(0);
	ask(CALL_ENTERED);
	tell(event(EVENT_LET));
	/* The driver loads a module for 30 ms, then a kernel of 1 ms runs. */
	now += 30 * MS;
	e = event(EVENT_RETURNED);
	e.at_ns = now - 30 * MS;
	cr_assert_eq(tell(e).what, ACT_FENCE);
	e = event(EVENT_FENCED);
	e.fence = 3;
	e.at_ns = now;
	tell(e);
	now += MS;
	pass(3, now);
	cr_assert_eq(b.durations.mean_ns, MS, "nothing is learned from the loading");
	cr_assert_eq(tell(event(EVENT_SETTLE)).at_ns - b.interval.begin_ns, MS);
}

Test(book, a_call_that_is_in_the_driver_for_long_does_not_keep_the_interval)
{
	begin(true);
	calls++;
	ask(0);
	entered(0);
	ask(CALL_ENTERED);
	tell(event(EVENT_LET));
	now += IN_DRIVER_NS / 2;
	cr_assert_eq(tell(event(EVENT_SETTLE)).what, ACT_NONE);
	now += IN_DRIVER_NS;
	cr_assert_eq(tell(event(EVENT_SETTLE)).what, ACT_LEAVE);
	tell(event(EVENT_LEFT));
	/* When the call comes back, there is work. */
	cr_assert_eq(tell(event(EVENT_RETURNED)).what, ACT_RESUME);
}

Test(book, no_fence_stands_between_the_two_kernels_of_a_programmatic_dependent_launch)
{
	struct book_event e;
	struct book_action act;

	begin(true);
	enter_and_launch(0);
	/* At the first launch it is not known that another depends on it. */
	e = event(EVENT_ASKED);
	e.call = CALL_ENTERED | CALL_DEPENDENT | STEP_LOOKED;
	e.work = KERNEL + 1;
	calls++;
	cr_assert_eq(tell(e).what, ACT_PASS);
	tell(event(EVENT_LET));
	e.kind = EVENT_RETURNED;
	cr_assert_eq(tell(e).what, ACT_FENCE);
	e.kind = EVENT_FENCED;
	e.fence = 1;
	tell(e);
	/* Later the first of the two is never fenced, whatever is queued, and the second passes even while the client
	 * drains. */
	status(limited(0, 20 * MS));
	calls++;
	tell(event(EVENT_LET));
	act = tell(event(EVENT_RETURNED));
	cr_assert_eq(act.what, ACT_CREDIT);
	cr_assert(act.carry);
	status(limited(-EDQUOT, 0));
	e = event(EVENT_ASKED);
	e.call = CALL_DEPENDENT | STEP_LOOKED;
	e.covers = 2;
	cr_assert_eq(tell(e).what, ACT_PASS);
}

Test(book, a_wait_for_others_is_not_a_kernels_length_and_shows_that_the_gpu_alternates)
{
	struct book_status s;
	struct book_event e;

	begin(true);
	enter_and_launch(0);
	now += MS;
	pass(0, now);
	s = limited(0, 20 * MS);
	s.others = 1;
	status(s);
	for (uint8_t i = 1; i <= 2; i++) {
		ask(CALL_ENTERED);
		launch(i);
		now += 30 * MS;
		status(s);
		e = event(EVENT_PASSED);
		e.fence = i;
		e.at_ns = now;
		cr_assert_eq(tell(e).alternates, i == 2, "twice is no accident");
	}
	cr_assert_eq(b.durations.mean_ns, MS);
}

/* A program that comes to a GPU that alternates, while another has it, has never seen how long its kernels take
 * alone. */
Test(book, a_kernel_that_was_never_alone_is_measured_behind_another_before_its_length_is_believed)
{
	struct book_status s;
	struct book_event e;

	begin(true);
	s = limited(0, 20 * MS);
	s.others = 1;
	status(s);
	enter_and_launch(0);
	status(s);
	/* It waited for the other program's slice. */
	now += 30 * MS;
	pass(0, now);
	status(s);
	cr_assert_eq(durations_expect(&b.durations, KERNEL, 1), 30 * MS);
	cr_assert_eq(ask(CALL_ENTERED).what, ACT_PASS);
	launch(1);
	cr_assert_eq(ask(0).what, ACT_PASS, "a second one is queued behind it");
	launch(2);
	cr_assert_eq(ask(0).what, ACT_WAIT, "but no more");
	now += 30 * MS;
	status(s);
	pass(1, now - 20 * US);
	pass(2, now);
	cr_assert_eq(durations_expect(&b.durations, KERNEL, 1), 20 * US);
	/* From here on the book knows what a wait for others looks like. */
	for (uint8_t i = 3; i <= 4; i++) {
		ask(CALL_ENTERED);
		launch(i);
		now += 30 * MS;
		status(s);
		e = event(EVENT_PASSED);
		e.fence = i;
		e.at_ns = now;
		cr_assert_eq(tell(e).alternates, 1);
	}
}

/* Nothing is ever queued behind a kernel that is waited for. */
Test(book, kernels_that_are_waited_for_show_that_the_gpu_alternates_though_they_were_never_alone)
{
	struct book_status s;
	struct book_event e;

	begin(true);
	s = limited(0, 90 * MS);
	s.others = 1;
	for (uint8_t i = 0; i < 3; i++) {
		b.state = BOOK_OUT;
		enter_and_launch(i);
		status(s);
		now += 30 * MS;
		status(s);
		e = event(EVENT_PASSED);
		e.fence = i;
		e.at_ns = now;
		cr_assert_eq(tell(e).alternates, i == 2, "a length that may be a wait says nothing");
	}
	durations_learn(&b.durations, KERNEL, 1, 30 * MS, true);
	b.others.waits = 0;
	b.state = BOOK_OUT;
	enter_and_launch(3);
	status(s);
	now += 30 * MS;
	pass(3, now);
	cr_assert_eq(b.others.waits, 0, "alone it took as long");
	b.state = BOOK_OUT;
	durations_learn(&b.durations, KERNEL + 1, 1, OUTLAST_NS, false);
	b.queue.fence[4].launches = 0;
	enter_and_launch(4);
	b.queue.fence[4].work = KERNEL + 1;
	b.queue.fence[4].expected_ns = OUTLAST_NS;
	status(s);
	now += OUTLAST_NS;
	pass(4, now);
	cr_assert_eq(b.others.waits, 0, "no slice is as long");
}

Test(book, a_kernel_that_is_as_long_behind_another_is_long_and_queued_alone)
{
	struct book_status s;

	begin(true);
	s = limited(0, 90 * MS);
	s.others = 1;
	status(s);
	enter_and_launch(0);
	now += 30 * MS;
	status(s);
	pass(0, now);
	ask(CALL_ENTERED);
	launch(1);
	cr_assert_eq(ask(0).what, ACT_PASS);
	launch(2);
	now += 30 * MS;
	pass(1, now);
	now += 30 * MS;
	status(s);
	pass(2, now);
	cr_assert_geq(durations_expect(&b.durations, KERNEL, 1), 30 * MS);
	ask(CALL_ENTERED);
	launch(3);
	cr_assert_eq(ask(0).what, ACT_WAIT, "it was tried once");
}

Test(book, after_unfenced_launches_streams_are_asked_and_the_time_is_estimated)
{
	struct book_action act;
	struct book_event e;

	begin(false);
	enter_and_launch(0);
	b.interval.unfenced = true;
	calls += 3;
	now += MS;
	pass(0, now);
	e = event(EVENT_SETTLE);
	e.unfenced = 3;
	act = tell(e);
	cr_assert_eq(act.what, ACT_STREAMS);
	now += 10 * MS;
	e = event(EVENT_IDLE);
	e.unfenced = 3;
	act = tell(e);
	cr_assert_eq(act.what, ACT_LEAVE);
	tell(event(EVENT_LEFT));
	cr_assert_gt(b.interval.estimated_ns, 0);
	cr_assert_gt(b.interval.again_ns, now, "the streams are looked at again");
}

Test(book, the_tracker_sleeps_until_the_expected_end)
{
	struct book_event e;
	struct book_action act;

	begin(true);
	b.durations.mean_ns = MS;
	durations_learn(&b.durations, KERNEL, 1, MS, true);
	enter_and_launch(0);
	status(limited(0, 20 * MS));
	e = event(EVENT_TIMER);
	e.call = STEP_CHECKED;
	act = tell(e);
	cr_assert_eq(act.what, ACT_LOOK);
	cr_assert_leq(act.ns, MS + LOOK_NS);
	now += MS + 2 * LOOK_NS;
	e = event(EVENT_TIMER);
	e.call = STEP_CHECKED;
	cr_assert_eq(tell(e).what, ACT_FENCES);
}

/* The tracker is stopped between a look at the fences and a look at the quota. That look would roll the window and
 * bill all the time of the stop. */
Test(book, a_tracker_that_was_held_up_looks_at_the_fences_again_before_the_quota)
{
	struct book_event e;
	struct book_action act;

	begin(true);
	b.durations.mean_ns = MS;
	enter_and_launch(0);
	status(limited(0, 20 * MS));
	now += MS + 2 * LOOK_NS;
	b.others.check_ns = now + 10 * MS;
	act = tell(event(EVENT_TIMER));
	cr_assert_eq(act.what, ACT_FENCES);
	e = event(EVENT_TIMER);
	e.call = act.step | STEP_SETTLED | STEP_CALLBACK;
	now += 300 * MS;
	e.now_ns = now;
	act = tell(e);
	cr_assert_eq(act.what, ACT_FENCES, "not the quota");
	pass(0, now - 290 * MS);
	e.call |= act.step;
	act = tell(e);
	cr_assert_eq(act.what, ACT_LEAVE);
	cr_assert_leq(act.at_ns, now - 290 * MS);
	/* A driver that takes as long for every answer does not keep the tracker in this loop. */
	e.call |= act.step;
	e.now_ns = now += 300 * MS;
	cr_assert_eq(tell(e).what, ACT_CHECK);
}

Test(book, a_client_that_is_back_at_once_keeps_its_turn)
{
	struct book_status s;
	struct book_action act;
	struct book_event e;

	begin(true);
	for (int i = 0; i < 3; i++) {
		enter_and_launch(0);
		s = limited(0, 20 * MS);
		s.turns = true;
		s.others = 0;
		status(s);
		now += MS;
		pass(0, now);
		act = tell(event(EVENT_SETTLE));
		cr_assert_eq(act.what, ACT_LEAVE);
		e = event(EVENT_LEFT);
		e.result = act.ns > 0;
		tell(e);
		now += 20 * US;
	}
	cr_assert_gt(act.ns, 0);
	cr_assert_eq(b.state, BOOK_KEPT);
	now += 10 * MS;
	cr_assert_eq(tell(event(EVENT_TIMER)).what, ACT_GIVE_WAY);
	cr_assert_eq(b.state, BOOK_OUT);
}

Test(book, when_two_threads_ask_at_once_the_older_answer_does_not_undo_the_newer)
{
	struct book_event e;

	begin(true);
	enter_and_launch(0);
	e = event(EVENT_UNFINISHED);
	e.fence = 0;
	e.at_ns = now + 5 * MS;
	tell(e);
	e.at_ns = now + MS;
	tell(e);
	cr_assert_eq(b.queue.busy_ns, now + 5 * MS);
	/* The offset to the GPU's clock is not known well yet, but work cannot have ended before it was seen
	 * unfinished. */
	now += 6 * MS;
	pass(0, now - 3 * MS);
	cr_assert_eq(b.queue.last_end_ns, now - MS);
}

Test(book, a_context_that_goes_takes_its_fences_along)
{
	begin(true);
	enter_and_launch(0);
	tell(event(EVENT_FORGOTTEN));
	cr_assert_eq(b.queue.count, 0);
	cr_assert_eq(b.queue.launches, 0);
	cr_assert_eq(b.queue.ns, 0);
}

/* A driver that locks a process has let all of its work end before. Nobody saw when. */
Test(book, a_frozen_process_leaves_as_of_when_its_work_should_have_ended)
{
	struct book_event e;
	struct book_action act;

	begin(true);
	enter_and_launch(0);
	now += MS;
	pass(0, now);
	tell(event(EVENT_SETTLE));
	tell(event(EVENT_LEFT));
	/* A kernel of known length; the tracker's next question comes back when the process is let go. */
	now += 10 * MS;
	enter_and_launch(0);
	now += 500 * MS;
	act = tell(event(EVENT_FROZEN));
	cr_assert_eq(act.what, ACT_LEAVE);
	cr_assert_eq(act.ns, 0, "its place is not kept");
	cr_assert_leq(act.at_ns - b.interval.begin_ns, 2 * MS);
	cr_assert_geq(act.at_ns - b.interval.begin_ns, MS / 2);
	tell(event(EVENT_LEFT));
	cr_assert_eq(b.state, BOOK_OUT);
	cr_assert_gt(b.interval.estimated_ns, 0);
	/* Again: there is nothing to leave. */
	cr_assert_eq(tell(event(EVENT_FROZEN)).what, ACT_NONE);
	/* What was seen afterwards teaches nothing wrong, and the next launch begins anew. */
	pass(0, now);
	cr_assert_eq(b.queue.count, 0);
	calls++;
	cr_assert_eq(ask(0).what, ACT_ENTER);
	entered(0);
	/* One that was not locked yet 3 ms ago had work until then. */
	ask(CALL_ENTERED);
	launch(0);
	now += 500 * MS;
	e = event(EVENT_FROZEN);
	e.at_ns = now - 3 * MS;
	cr_assert_eq(tell(e).at_ns, now - 3 * MS);
}

Test(book, without_a_segment_everything_passes)
{
	struct book_event e;

	begin(true);
	e = event(EVENT_LOST);
	e.result = -1;
	tell(e);
	cr_assert(b.broken);
	cr_assert(b.open);
	cr_assert_eq(ask(0).what, ACT_PASS);
}

/* Counts the neighbours among the fences that belong to different streams. */
static unsigned mixed(void)
{
	unsigned n = 0;

	for (unsigned i = 1; i < b.queue.count; i++)
		n += fence_of(&b, i - 1)->stream != fence_of(&b, i)->stream;
	return n;
}

Test(book, it_is_known_whether_all_fences_are_of_one_stream)
{
	const uint8_t order[] = {1, 0, 3, 2, 4};
	struct book_event e;

	begin(true);
	enter_and_launch(0);
	for (uint8_t i = 1; i < 5; i++) {
		e = event(EVENT_FENCED);
		e.fence = i;
		e.stream = STREAM + (i == 1 || i == 3);
		tell(e);
		cr_assert_eq(b.queue.mixed, mixed());
	}
	cr_assert_eq(b.queue.mixed, 4);
	for (unsigned i = 0; i < 5; i++) {
		pass(order[i], now);
		cr_assert_eq(b.queue.mixed, mixed(), "after %u of 5: %u", i + 1, b.queue.mixed);
	}
	cr_assert_eq(b.queue.count, 0);
}

/* Tells it any events in any order: no count may go below zero, no state may be unknown. */
Test(book, no_order_of_events_breaks_the_book)
{
	uint32_t seed = 1;

	for (int world = 0; world < 200; world++) {
		begin(world & 1);
		for (int i = 0; i < 500; i++) {
			struct book_event e;

			seed = seed * 1664525 + 1013904223;
			now += seed >> 22;
			calls += seed >> 31;
			e = event((seed >> 8) % EVENT_KINDS);
			e.fence = (uint8_t)((seed >> 13) % 66);
			e.facts = (uint16_t)((seed >> 5) & 63);
			e.call = seed & 0x1f03ff;
			if (!b.waiters)
				e.call &= ~(uint32_t)CALL_AWAKE;
			e.covers = 1 + (seed >> 29);
			e.stream = STREAM + (seed >> 27 & 1);
			e.at_ns = now - (seed >> 24);
			e.result = (seed >> 20) % 5 ? 0 : -EAGAIN;
			e.status = limited((seed >> 16) % 3 ? 0 : -EDQUOT, MS);
			if (e.kind == EVENT_LOST)
				e.result = 0;
			tell(e);
			cr_assert_lt(b.state, BOOK_STATES);
			cr_assert_leq(b.queue.count, BOOK_FENCES);
			cr_assert_eq(b.queue.mixed, mixed());
			cr_assert_lt(b.queue.launches, 1000);
			cr_assert_lt(b.waiters, 1000);
			cr_assert_lt(b.inside, 1000);
		}
	}
}

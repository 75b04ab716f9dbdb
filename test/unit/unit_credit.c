/* How many launches may pass without a fence. */
#include "test/unit/book_events.h"

/* A client in the middle of many launches of kernels of this length, with so many of them queued. */
static void launch_many(bool limited_client, uint64_t kernel_ns, uint32_t queued)
{
	begin(limited_client);
	durations_learn(&b.durations, KERNEL, 1, kernel_ns, true);
	enter_and_launch(0);
	if (limited_client)
		status(limited(0, 20 * MS));
	b.interval.apart_ns = 0;
	b.interval.regular = false;
	b.queue.launches = queued;
	b.queue.ns = queued * kernel_ns;
	b.queue.window = 64;
	now += MS;
	calls += 100;
}

/* Returns the credit behind a call with a fence of its own. */
static uint32_t credit(uint32_t call, uint16_t facts)
{
	struct book_event e = event(EVENT_FENCED);

	e.call = call;
	e.facts = facts;
	e.fence = BOOK_NO_FENCE;
	return tell(e).n;
}

Test(credit, a_watched_client_gets_a_quarter_of_what_is_queued)
{
	launch_many(true, 20 * US, 40);
	cr_assert_eq(credit(0, 0), 10);
	launch_many(true, 20 * US, CREDIT_LEAST - 1);
	cr_assert_eq(credit(0, 0), 0, "with so few queued each end is dated");
}

Test(credit, an_unwatched_client_gets_a_millisecond_of_work)
{
	launch_many(false, 20 * US, 1);
	cr_assert_eq(credit(0, 0), PIECE_NS / (20 * US));
	launch_many(false, PIECE_NS / 2, 1);
	cr_assert_eq(credit(0, 0), 0, "long kernels are fenced one by one");
	launch_many(false, 1, 1);
	cr_assert_eq(credit(0, 0), PIECE_NS / SHORTEST_NS, "no launch is taken to be shorter than that");
}

Test(credit, there_is_none_for_calls_whose_end_must_be_seen)
{
	launch_many(true, 20 * US, 40);
	cr_assert_eq(credit(CALL_WAITS, 0), 0, "it waits in the driver");
	cr_assert_eq(credit(0, FACT_CAPTURES), 0, "captured launches would use it up");
	cr_assert_eq(credit(CALL_PEER, 0), 0, "what follows may be another GPU's");
	cr_assert_eq(credit(CALL_LATE, 0), 0, "the GPU may stand still before the next one");
	b.others.above = true;
	cr_assert_eq(credit(0, 0), 0, "below another client each launch asks the gate");
	b.others.above = false;
	cr_assert_gt(credit(0, 0), 0);
}

/* A fence would take as long as the kernel. */
Test(credit, rows_of_very_short_kernels_pass_together)
{
	launch_many(true, 5 * US, 4);
	b.program.unwaited = 4 * (uint32_t)CREDIT_LEAST;
	cr_assert_eq(credit(0, 0), SHORT_CREDIT_NS / (5 * US));
	launch_many(true, 5 * US, 4);
	b.program.unwaited = b.program.run = 2;
	cr_assert_eq(credit(0, 0), 0, "not where the program waits for each");
}

Test(credit, the_last_call_of_a_regular_interval_has_a_fence)
{
	launch_many(false, 20 * US, 1);
	b.interval.regular = true;
	b.interval.calls = 10;
	b.interval.calls_before = calls - 4;
	cr_assert_eq(credit(0, 0), 5, "the tenth comes to the gate");
	b.interval.calls_before = calls - 10;
	cr_assert_eq(credit(0, 0), 0, "this is the tenth");
}

Test(credit, a_program_that_makes_a_few_calls_now_and_then_gets_none)
{
	launch_many(false, 20 * US, 1);
	b.interval.apart_ns = (int64_t)(20 * MS);
	b.interval.calls_before = calls - CREDIT_LEAST;
	cr_assert_eq(credit(0, 0), 0);
	b.interval.calls_before = calls - CREDIT_LEAST - 1;
	cr_assert_gt(credit(0, 0), 0);
}

Test(credit, of_unknown_work_each_credit_is_as_large_as_all_before_it)
{
	begin(false);
	cr_assert_eq(book_piece(&b), CREDIT_LEAST);
	b.program.unwaited = 100;
	cr_assert_eq(book_piece(&b), 100);
	b.program.unwaited = 1000000;
	cr_assert_eq(book_piece(&b), PIECE_NS / SHORTEST_NS);
	b.program.sample = true;
	cr_assert_eq(book_piece(&b), 0, "the next launch is measured alone");
}

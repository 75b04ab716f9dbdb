/* Drivers that run kernels within the calls that launch them. */
#include "test/unit/book_events.h"

#include "preload/book/thresholds.h"

static void run(void)
{
	begin(true);
	tell(event(EVENT_ASKED));
	tell(event(EVENT_ENTERED));
}

/* A launch that is in the driver for took_ns. Its event passes `late_ns` after it was recorded. */
static void submit(uint64_t took_ns, uint64_t late_ns)
{
	uint64_t let = now;
	struct book_event e;

	calls++;
	tell(event(EVENT_LET));
	now += took_ns;
	e = event(EVENT_RETURNED);
	e.work = KERNEL;
	e.at_ns = let;
	e.call = took_ns > 2 * CALL_NS ? CALL_LONG : 0;
	cr_assert_eq(tell(e).what, ACT_FENCE);
	e.kind = EVENT_FENCED;
	e.fence = 0;
	e.at_ns = now;
	tell(e);
	if (late_ns > CALL_NS) {
		e = event(EVENT_UNFINISHED);
		e.fence = 0;
		e.now_ns = e.at_ns = now + late_ns - 1;
		tell(e);
	}
	now += late_ns;
	e = event(EVENT_PASSED);
	e.fence = 0;
	e.at_ns = now;
	tell(e);
	now += 5 * US;
}

Test(within, is_seen_after_a_few_launches)
{
	run();
	for (unsigned i = 0; i < WITHIN_LEAST; i++) {
		submit(300 * US, 2 * US);
		cr_assert_not(book_runs_within(&b), "after %u launches", i + 1);
	}
	/* The first launch did not count, because the kernel was new. */
	submit(300 * US, 2 * US);
	cr_assert(book_runs_within(&b));
}

Test(within, a_thread_that_is_held_up_now_and_then_proves_nothing)
{
	run();
	for (unsigned i = 0; i < 100; i++)
		submit(i % WITHIN_LEAST ? 300 * US : 4 * US, 2 * US);
	cr_assert_not(book_runs_within(&b));
}

Test(within, one_launch_that_runs_afterwards_proves_the_opposite)
{
	run();
	submit(4 * US, 500 * US);
	for (unsigned i = 0; i < 3 * WITHIN_LEAST; i++)
		submit(300 * US, 2 * US);
	cr_assert_not(book_runs_within(&b));
	run();
	for (unsigned i = 0; i < 3 * WITHIN_LEAST; i++)
		submit(300 * US, 2 * US);
	cr_assert(book_runs_within(&b));
	submit(300 * US, 500 * US);
	cr_assert_not(book_runs_within(&b));
}

/* Launches behind a host function in their stream: they begin later than they were submitted. */
#include "test/unit/book_events.h"

#include "preload/book/thresholds.h"

#define SUBMIT_NS (2 * US)

static uint64_t run(void)
{
	begin(true);
	cr_assert_eq(tell(event(EVENT_ASKED)).what, ACT_ENTER);
	tell(event(EVENT_ENTERED));
	cr_assert_eq(b.state, BOOK_RUNNING);
	return now;
}

static void submit(uint8_t fence, uint64_t stream, uint32_t call)
{
	struct book_event e;

	calls++;
	tell(event(EVENT_LET));
	e = event(EVENT_RETURNED);
	e.call = call;
	e.stream = stream;
	e.at_ns = now;
	cr_assert_eq(tell(e).what, ACT_FENCE);
	now += SUBMIT_NS;
	e = event(EVENT_FENCED);
	e.call = call;
	e.fence = fence;
	e.stream = stream;
	e.at_ns = now - SUBMIT_NS;
	cr_assert_eq(tell(e).n, 0);
}

/* The kernel has ended; it took took_ns, or 0: no event was recorded before it. */
static void ended(uint8_t fence, uint64_t took_ns)
{
	struct book_event e = event(EVENT_PASSED);

	e.fence = fence;
	e.at_ns = now;
	e.took_ns = took_ns;
	tell(e);
}

/* Returns until when the interval is billed. */
static uint64_t billed_until(void)
{
	struct book_action act = tell(event(EVENT_SETTLE));

	cr_assert_eq(act.what, ACT_LEAVE);
	return act.at_ns;
}

Test(late, the_time_of_a_host_function_is_not_billed)
{
	uint64_t began = run();

	submit(0, 1, 0);
	submit(1, 1, CALL_LATE);
	now = began + 3 * MS;
	ended(0, 0);
	now += 1 * MS + 4 * MS;
	ended(1, 4 * MS);
	cr_assert_eq(billed_until(), began + 7 * MS);
}

Test(late, it_is_billed_if_another_stream_may_have_worked)
{
	uint64_t began = run();

	submit(0, 1, 0);
	submit(1, 1, CALL_LATE);
	submit(2, 2, 0);
	now = began + 3 * MS;
	ended(0, 0);
	now += 1 * MS + 4 * MS;
	ended(1, 4 * MS);
	ended(2, 0);
	cr_assert_eq(billed_until(), began + 8 * MS);
}

Test(late, it_is_billed_if_a_launch_without_a_fence_may_have_worked)
{
	uint64_t began = run();

	submit(0, 1, 0);
	submit(1, 1, CALL_LATE);
	b.interval.unfenced = true;
	now = began + 3 * MS;
	ended(0, 0);
	now += 1 * MS + 4 * MS;
	ended(1, 4 * MS);
	cr_assert_eq(b.interval.idle_ns, 0);
}

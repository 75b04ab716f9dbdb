/* Copies between GPUs, as seen by the book of the GPU that the stream does not belong to. */
#include "test/unit/book_events.h"

#include "preload/book/thresholds.h"

static void run(void)
{
	begin(true);
	cr_assert_eq(tell(event(EVENT_ASKED)).what, ACT_ENTER);
	tell(event(EVENT_ENTERED));
	cr_assert_eq(b.state, BOOK_RUNNING);
}

/* A kernel in a stream of this GPU. */
static void submit(uint8_t fence)
{
	struct book_event e;

	calls++;
	tell(event(EVENT_LET));
	e = event(EVENT_RETURNED);
	e.at_ns = now;
	cr_assert_eq(tell(e).what, ACT_FENCE);
	e = event(EVENT_FENCED);
	e.fence = fence;
	e.at_ns = now;
	tell(e);
}

/* A copy in another GPU's stream, fenced on this one. */
static void copy_of_another(uint8_t fence)
{
	struct book_event e;

	calls++;
	e = event(EVENT_LET);
	e.call = CALL_INSIDE | CALL_PEER;
	tell(e);
	e = event(EVENT_RETURNED);
	e.call = CALL_INSIDE | CALL_PEER;
	e.at_ns = now;
	cr_assert_eq(tell(e).what, ACT_FENCE);
	e = event(EVENT_FENCED);
	e.call = CALL_PEER;
	e.fence = fence;
	e.at_ns = now;
	/* Only the other GPU's book could give credit. */
	cr_assert_eq(tell(e).n, 0);
}

/* The copy has ended; the copying itself took `took_ns`. */
static void copied(uint8_t fence, uint64_t took_ns)
{
	struct book_event e = event(EVENT_PASSED);

	e.fence = fence;
	e.at_ns = now;
	e.took_ns = took_ns;
	tell(e);
}

Test(peers, a_copy_that_waits_for_another_gpu_is_billed_for_itself)
{
	struct book_action act;
	uint64_t began;

	run();
	began = now;
	copy_of_another(0);
	copy_of_another(1);
	now += 40 * MS;
	copied(0, 3 * MS);
	now += 10 * MS;
	copied(1, 4 * MS);
	act = tell(event(EVENT_SETTLE));
	cr_assert_eq(act.what, ACT_LEAVE);
	cr_assert_eq(act.at_ns, began + 7 * MS, "%llu", (unsigned long long)(act.at_ns - began));
}

Test(peers, work_beside_a_copy_that_waits_is_billed_in_full)
{
	struct book_action act;
	uint64_t end;

	run();
	submit(0);
	copy_of_another(1);
	now += 40 * MS;
	copied(1, 3 * MS);
	now += 10 * MS;
	end = now;
	copied(0, 0);
	act = tell(event(EVENT_SETTLE));
	cr_assert_eq(act.what, ACT_LEAVE);
	cr_assert_eq(act.at_ns, end);
}

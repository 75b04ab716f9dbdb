/* What the book does because of other clients: who is watched, who waits for the end of whose work, turns. */
#include "test/unit/book_events.h"

static struct book_event entered_beside(uint32_t weight)
{
	struct book_event e = event(EVENT_ENTERED);

	e.status.others = weight;
	return e;
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

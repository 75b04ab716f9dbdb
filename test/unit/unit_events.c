/* The event ring: it wraps around, entries may be half written or mixed from two writers. */
#include "test/unit/unit.h"

#include "shm/segment/events.h"

static void open_small(void)
{
	u_open(2);
}

TestSuite(events, .init = open_small, .fini = u_close);

Test(events, the_last_events_are_there_in_order)
{
	struct arb_event_copy e;
	uint64_t first, end;

	for (uint64_t i = 0; i < ARB_EVENTS + 100; i++)
		arb_events_write(&u_seg, ARB_EVENT_WINDOW, 1, 7, i, ~i);
	arb_events_range(&u_seg, &first, &end);
	cr_assert_eq(first, 100);
	cr_assert_eq(end, ARB_EVENTS + 100);
	for (uint64_t p = first; p < end; p++) {
		cr_assert_eq(arb_events_read(&u_seg, p, &e), 0);
		cr_assert_eq(e.a, p);
		cr_assert_eq(e.b, ~p);
		cr_assert_eq(e.account, 7);
		cr_assert_eq(e.slot, 1);
		cr_assert_eq(e.kind, ARB_EVENT_WINDOW);
	}
	cr_assert_eq(arb_events_read(&u_seg, first - 1, &e), -ENOENT, "overwritten");
	cr_assert_eq(arb_events_read(&u_seg, end, &e), -ENOENT, "not yet written");
}

Test(events, what_a_dead_writer_left_is_skipped)
{
	struct arb_event_copy e;
	struct arb_event *entry = &u_seg.events[0];

	arb_events_write(&u_seg, ARB_EVENT_WINDOW, 0, 0, 1, 2);
	arb_events_write(&u_seg, ARB_EVENT_WINDOW, 0, 0, 3, 4);
	arb_store64(&entry->seq, 1); /* died while writing */
	cr_assert_eq(arb_events_read(&u_seg, 0, &e), -ENOENT);
	cr_assert_eq(arb_events_read(&u_seg, 1, &e), 0);
	arb_store64(&entry->seq, 2);
	cr_assert_eq(arb_events_read(&u_seg, 0, &e), 0);
	arb_store64(&entry->b, 5); /* a second writer, a lap later, in the same place */
	cr_assert_eq(arb_events_read(&u_seg, 0, &e), -ENOENT);
}

Test(events, a_counter_set_to_anything_is_survived)
{
	uint64_t first, end;
	struct arb_event_copy e;

	arb_store64(&u_seg.header->event_next, ~0ull - 2);
	for (int i = 0; i < 10; i++)
		arb_events_write(&u_seg, ARB_EVENT_WINDOW, 1000000, 0, 0, 0);
	arb_events_range(&u_seg, &first, &end);
	for (uint64_t p = first; p != end && p - first < 2 * ARB_EVENTS; p++)
		arb_events_read(&u_seg, p, &e);
	cr_assert_str_eq(arb_events_name(ARB_EVENT_WINDOW), "window");
	cr_assert_str_eq(arb_events_name(ARB_EVENT_COUNT), "unknown");
}

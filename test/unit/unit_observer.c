/* How the end of the work is seen: by a timer, by the driver's callback, by looks as rare as the budget demands. */
#include "test/unit/book_events.h"

/* Begins an interval of a client that has this many kernels of 5 ms behind it, which took longer or shorter by off_ns. */
static void run_kernel(bool limited_client, uint64_t off_ns)
{
	begin(limited_client);
	durations_learn(&b.durations, KERNEL, 1, 5 * MS, true);
	for (unsigned i = 0; off_ns && i < 64; i++)
		durations_learn(&b.durations, KERNEL, 1, i % 2 ? 5 * MS + off_ns : 5 * MS - off_ns, true);
	enter_and_launch(0);
	if (limited_client)
		status(limited(0, 20 * MS));
	/* Only ends are looked for here, not the quota. */
	b.others.check_ns = now + 1000 * MS;
}

static struct book_event timer(uint32_t call)
{
	struct book_event e = event(EVENT_TIMER);

	e.call = call;
	e.work = e.stream = e.ctx = 0;
	return e;
}

/* Tells the tracker's look and all that it asks for, with the fence unfinished, and returns how long it then sleeps. */
static uint64_t look(uint32_t call, bool *callback)
{
	struct book_event e = timer(call), seen;
	struct book_action act;

	for (unsigned i = 0; i < 10; i++) {
		act = tell(e);
		if (act.what == ACT_LOOK)
			return act.ns;
		if (act.what == ACT_FENCES) {
			seen = event(EVENT_UNFINISHED);
			seen.fence = 0;
			seen.at_ns = now;
			tell(seen);
		}
		if (act.what == ACT_CALLBACK) {
			*callback = true;
			tell(event(EVENT_CALLBACK));
		}
		e.call |= act.step;
	}
	cr_assert_fail("the tracker never sleeps");
	return 0;
}

Test(observer, an_end_that_can_be_foreseen_is_looked_for_when_it_is_due)
{
	bool callback = false;
	uint64_t ns;

	run_kernel(true, 0);
	ns = look(0, &callback);
	cr_assert_geq(ns, 5 * MS);
	cr_assert_leq(ns, 5 * MS + 2 * LOOK_NS);
	cr_assert_not(callback);
}

Test(observer, the_later_an_end_is_the_longer_are_the_pauses)
{
	bool callback = false;
	uint64_t first, later;

	run_kernel(true, 0);
	now += 5 * MS + 2 * LOOK_NS;
	first = look(0, &callback);
	now += first;
	now += 2 * MS;
	later = look(0, &callback);
	cr_assert_geq(first, 2 * LOOK_NS);
	cr_assert_gt(later, first);
}

Test(observer, an_end_that_cannot_be_foreseen_is_left_to_the_driver)
{
	bool callback = false;
	uint64_t ns;

	run_kernel(true, 2 * MS);
	cr_assert_gt(b.queue.unsure_ns, UNSURE_NS);
	look(0, &callback);
	cr_assert_not(callback, "not in the first part of an interval");
	now += LONG_NS;
	ns = look(0, &callback);
	cr_assert(callback);
	cr_assert_geq(ns, ALONE_NS / 2, "it sleeps until the driver calls");
	callback = false;
	look(0, &callback);
	cr_assert_not(callback, "one is enough");
}

Test(observer, no_callback_is_asked_for_where_it_may_wait_for_the_program)
{
	struct book_event e;

	run_kernel(true, 2 * MS);
	now += LONG_NS;
	e = timer(STEP_LOOKED | STEP_SETTLED);
	e.facts = FACT_NO_CALLBACK;
	cr_assert_eq(tell(e).what, ACT_LOOK);
	e.facts = FACT_CAPTURES;
	cr_assert_eq(tell(e).what, ACT_LOOK);
	e.facts = 0;
	b.waiters = 1;
	cr_assert_eq(tell(e).what, ACT_LOOK, "a thread at the gate looks itself");
	b.waiters = 0;
	cr_assert_eq(tell(e).what, ACT_CALLBACK);
}

Test(observer, callbacks_in_vain_are_asked_for_ever_more_rarely)
{
	bool callback = false;

	run_kernel(true, 2 * MS);
	now += LONG_NS;
	look(0, &callback);
	for (unsigned i = 0; i < 4; i++) {
		cr_assert(b.observer.set);
		now += 10 * US;
		callback = false;
		look(CALL_RANG, &callback);
		cr_assert_eq(callback, i < 2, "callback %u", i);
		if (!callback)
			break;
	}
	cr_assert_eq(b.observer.next_ns, now + IN_DRIVER_NS);
	now += IN_DRIVER_NS;
	look(0, &callback);
	cr_assert(callback, "after a pause it is asked for again");
	now += 10 * US;
	callback = false;
	look(CALL_RANG, &callback);
	cr_assert_eq(b.observer.next_ns, now + 2 * IN_DRIVER_NS);
}

Test(observer, without_budget_looks_are_rare)
{
	struct book_event e;
	struct book_action act;

	run_kernel(true, 0);
	b.interval.apart_ns = 0;
	now += 5 * MS + 2 * LOOK_NS;
	e = timer(STEP_LOOKED | STEP_SETTLED);
	e.budget_ns = -1;
	act = tell(e);
	cr_assert_eq(act.what, ACT_LOOK);
	cr_assert_geq(act.ns, e.look_ns - 3 * LOOK_NS, "it looks later by a usual pause");
	now += act.ns;
	e.now_ns = now;
	act = tell(e);
	cr_assert_eq(act.what, ACT_LOOK);
	cr_assert_geq(act.ns, e.look_ns);
}

/* It goes on launching, and sees its ends itself. */
Test(observer, an_unlimited_program_that_launches_is_looked_at_only_when_the_quota_is)
{
	struct book_event e;
	struct book_action act;

	run_kernel(false, 0);
	b.others.check_ns = now + 40 * MS;
	now += 6 * MS;
	calls++;
	act = tell(timer(0));
	cr_assert_eq(act.what, ACT_LOOK);
	cr_assert_geq(act.ns, 33 * MS);
	/* There was no call since: it has paused. */
	now += MS;
	e = timer(0);
	cr_assert_eq(tell(e).what, ACT_FENCES);
}

Test(observer, a_place_that_is_kept_is_given_up_in_time)
{
	struct book_action act;

	run_kernel(true, 0);
	b.state = BOOK_KEPT;
	b.interval.kept_ns = now + 300 * US;
	act = tell(timer(0));
	cr_assert_eq(act.what, ACT_LOOK);
	cr_assert_eq(act.ns, 300 * US);
	now += 300 * US;
	cr_assert_eq(tell(timer(0)).what, ACT_GIVE_WAY);
	cr_assert_eq(tell(timer(0)).ns, 0, "then it sleeps until there is work");
}

/* A GPU that serves its processes one after the other, with a clock that the test moves. */
#include "test/unit/unit_clients.h"

#include "shm/segment/alternation.h"
#include "shm/segment/events.h"
#include "shm/policy/policy.h"

static struct gpuarb_client *one, *other;

static void open_two(void)
{
	u_begin(NULL);
	one = u_client("one", 0);
	other = u_client("other", 50);
	u_set("grace_ms", "600000");
}

static void close_two(void)
{
	cr_assert_eq(arb_check(&one->seg, t_say, NULL), 0);
	gpuarb_client_close(one);
	gpuarb_client_close(other);
	u_end();
}

TestSuite(alternation, .init = open_two, .fini = close_two);

static unsigned events(enum arb_event_kind kind)
{
	struct arb_event_copy e;
	uint64_t position, end;
	unsigned found = 0;

	arb_events_range(&one->seg, &position, &end);
	for (; position < end; position++)
		found += arb_events_read(&one->seg, position, &e) == 0 && e.kind == kind;
	return found;
}

Test(alternation, what_one_client_has_seen_counts_for_all)
{
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(other, NULL), 0, "they run together");
	cr_assert_eq(gpuarb_client_leave(other, 0), 0);
	gpuarb_client_alternates(other, false);
	gpuarb_client_alternates(one, false);
	cr_assert_eq(events(ARB_EVENT_ALTERNATES), 1, "it is said once");
	u_clock_ns += 100 * MS;
	cr_assert_eq(gpuarb_client_tick(one), 0);
	cr_assert_eq(gpuarb_client_enter(other, NULL), -EAGAIN, "one at a time");
}

Test(alternation, clients_that_ran_together_stop_when_alternation_is_seen)
{
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(other, NULL), 0);
	gpuarb_client_alternates(other, false);
	u_clock_ns += 100 * MS;
	gpuarb_client_tick(other); /* its sign of life */
	cr_assert_eq(gpuarb_client_tick(one), -EAGAIN, "although nobody waits");
	cr_assert_eq(gpuarb_client_leave(one, 0), 0);
	cr_assert_eq(gpuarb_client_tick(other), 0, "it is alone now");
}

Test(alternation, alternation_has_to_be_seen_anew_from_time_to_time)
{
	gpuarb_client_alternates(one, false);
	cr_assert(arb_alternates(&one->seg, u_clock_ns + ARB_ALTERNATES_NS - 1));
	cr_assert_not(arb_alternates(&one->seg, u_clock_ns + ARB_ALTERNATES_NS));
	arb_store64(&one->seg.header->alternates_until_ns, UINT64_MAX);
	cr_assert_not(arb_alternates(&one->seg, u_clock_ns), "garbage");
}

Test(alternation, a_trial_ends_soon_and_takes_nothing_back)
{
	gpuarb_client_alternates(one, true);
	cr_assert(arb_alternates(&one->seg, u_clock_ns + ARB_TRIAL_NS - 1));
	cr_assert_not(arb_alternates(&one->seg, u_clock_ns + ARB_TRIAL_NS));
	gpuarb_client_alternates(one, false);
	gpuarb_client_alternates(other, true);
	cr_assert(arb_alternates(&one->seg, u_clock_ns + ARB_ALTERNATES_NS - 1));
}

Test(alternation, the_setting_stands_above_what_is_seen)
{
	u_set("alternation", "off");
	gpuarb_client_alternates(one, false);
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(other, NULL), 0);
}

Test(alternation, nobody_waits_for_a_client_whose_work_outlasts_its_turn)
{
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(other, NULL), -EAGAIN);
	gpuarb_client_outlasts(one, true);
	cr_assert_eq(gpuarb_client_enter(other, NULL), 0, "it runs at the same time");
	u_clock_ns += 500 * MS;
	cr_assert_eq(gpuarb_client_tick(one), 0, "its own turn does not end either");
	gpuarb_client_outlasts(one, false);
	cr_assert_eq(gpuarb_client_tick(one), -EAGAIN, "until its work has ended");
}

Test(alternation, a_stopped_client_keeps_nobody_out_for_longer_than_20_ms)
{
	gpuarb_client_alternates(one, false);
	u_clock_ns += 100 * MS;
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(other, NULL), -EAGAIN);
	u_clock_ns += 21 * MS;
	cr_assert_eq(gpuarb_client_enter(other, NULL), 0);
	u_clock_ns += MS;
	cr_assert_eq(gpuarb_client_tick(other), 0, "its turn goes on beside the stopped one");
	cr_assert_eq(gpuarb_client_tick(one), -EAGAIN, "which goes on, and finds its turn over");
}

Test(alternation, turns_that_an_administrator_has_chosen_wait_for_a_stopped_client)
{
	u_set("policy", "fair");
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	u_clock_ns += 21 * MS;
	cr_assert_eq(gpuarb_client_enter(other, NULL), -EAGAIN);
}

/* Runs `other`, whose limit is 50 percent, for `ms`, in steps of a millisecond as a client's tracker does. */
static void run_other(unsigned ms)
{
	for (unsigned i = 0; i < ms; i++) {
		u_clock_ns += MS;
		gpuarb_client_tick(other);
	}
}

static uint64_t debt_of_other(void)
{
	struct gpuarb_client_status status;

	cr_assert_eq(gpuarb_client_status(other, &status), 0);
	return status.debt_ns;
}

Test(alternation, work_that_stalls_is_not_owed_and_other_work_is)
{
	cr_assert_eq(gpuarb_client_enter(other, NULL), 0);
	run_other(1000);
	cr_assert(debt_of_other() > 300 * MS, "a kernel of a second at 50 percent");
	gpuarb_client_stalls(other, true);
	run_other(1000);
	cr_assert(debt_of_other() <= 100 * MS, "no more than what has run since the window began");
	gpuarb_client_stalls(other, false);
	cr_assert_eq(debt_of_other(), 0, "nothing, once it has ended");
	run_other(1000);
	cr_assert(debt_of_other() > 300 * MS, "from then on as before");
	gpuarb_client_leave(other, 0);
}

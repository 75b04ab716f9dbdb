/* The GPU's clock against ours, from events that the test makes. */
#include <criterion/criterion.h>

#include "units.h"

#include "preload/book/gputime.h"

/* How much later than our clock the GPU's clock began. */
#define OFFSET (700 * MS)

static uint64_t gpu(uint64_t host_ns)
{
	return host_ns - OFFSET;
}

Test(gputime, without_an_event_the_time_of_noticing_counts)
{
	struct gputime t = {0};

	cr_assert_eq(gputime_host(&t, 5, 1234), 1234);
	cr_assert(gputime_is_old(&t, 1234));
}

Test(gputime, an_event_that_did_not_wait_gives_the_offset)
{
	struct gputime t = {0};
	uint64_t now = 1000 * MS;

	gputime_recorded(&t, gpu(now), US, now, true);
	cr_assert_eq(gputime_host(&t, gpu(now + 3 * MS), now + 4 * MS), now + 3 * MS);
	cr_assert_not(gputime_is_old(&t, now + 99 * MS));
	cr_assert(gputime_is_old(&t, now + 101 * MS));
}

Test(gputime, an_event_that_waits_for_a_slice_moves_nothing)
{
	struct gputime t = {0};
	uint64_t now = 1000 * MS;

	gputime_recorded(&t, gpu(now), US, now, true);
	/* It is recorded now and takes place 30 ms later. */
	gputime_recorded(&t, gpu(now + 40 * MS), US, now + 10 * MS, false);
	cr_assert_eq(gputime_host(&t, gpu(now + 50 * MS), now + 60 * MS), now + 50 * MS);
}

Test(gputime, a_record_call_that_was_held_up_is_not_believed)
{
	struct gputime t = {0};
	uint64_t now = 1000 * MS;

	gputime_recorded(&t, gpu(now), US, now, true);
	gputime_recorded(&t, gpu(now + MS), 5 * MS, now + 6 * MS, true);
	cr_assert_eq(gputime_host(&t, gpu(now + 8 * MS), now + 20 * MS), now + 8 * MS);
	/* The same goes for a call that was held up by less, if somebody noticed an end sooner than that delay
	 * allows. */
	gputime_recorded(&t, gpu(now + 10 * MS), 15 * US, now + 10 * MS + 15 * US, true);
	gputime_noticed(&t, gpu(now + 11 * MS), now + 11 * MS + 2 * US);
	cr_assert_eq(gputime_host(&t, gpu(now + 12 * MS), now + 20 * MS), now + 12 * MS + 2 * US);
}

Test(gputime, the_soonest_notice_is_believed_where_every_event_waits)
{
	struct gputime t = {0};
	uint64_t now = 1000 * MS;

	gputime_recorded(&t, gpu(now + 2 * MS), US, now, false);
	gputime_noticed(&t, gpu(now + 2 * MS), now + 3 * MS);
	gputime_noticed(&t, gpu(now + 4 * MS), now + 4 * MS + 30 * US);
	cr_assert_eq(gputime_host(&t, gpu(now + 6 * MS), now + 9 * MS), now + 6 * MS + 30 * US);
}

Test(gputime, an_end_is_never_later_than_it_was_noticed)
{
	struct gputime t = {0};
	uint64_t now = 1000 * MS;

	gputime_recorded(&t, gpu(now), US, now + 8 * US, true);
	cr_assert_eq(gputime_host(&t, gpu(now + MS), now + MS + US), now + MS + US);
}

Test(gputime, clocks_that_drift_are_followed)
{
	struct gputime t = {0};
	uint64_t now = 1000 * MS;

	/* The GPU's clock is fast by 40 millionths, and the tracker finds an idle stream ten times a second. */
	for (unsigned i = 0; i < 600; i++, now += 100 * MS) {
		uint64_t at = gpu(now) + i * 4 * US;

		gputime_recorded(&t, at, US, now, true);
		gputime_noticed(&t, at, now + 20 * US);
		cr_assert_leq(now - gputime_host(&t, at, now + MS) + 5 * US, 10 * US);
	}
}

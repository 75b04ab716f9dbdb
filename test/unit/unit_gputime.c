/* The GPU's clock against ours, from events by hand. */
#include <criterion/criterion.h>

#include "units.h"

#include "preload/book/gputime.h"

/* The GPU's clock began so much after ours. */
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
	/* Recorded now, and it takes place 30 ms later. */
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
	/* Nor one that was held up by less, where somebody noticed an end sooner than that allows. */
	gputime_recorded(&t, gpu(now + 10 * MS), 15 * US, now + 10 * MS + 15 * US, true);
	gputime_noticed(&t, gpu(now + 11 * MS), now + 11 * MS + 2 * US);
	cr_assert_eq(gputime_host(&t, gpu(now + 12 * MS), now + 20 * MS), now + 12 * MS + 2 * US);
}

Test(gputime, whoever_noticed_soonest_is_believed_where_every_event_waits)
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

	/* The GPU's clock is fast by 40 millionths, and an idle stream is met ten times a second. */
	for (unsigned i = 0; i < 600; i++, now += 100 * MS) {
		uint64_t at = gpu(now) + i * 4 * US;

		gputime_recorded(&t, at, US, now, true);
		gputime_noticed(&t, at, now + 20 * US);
		cr_assert_leq(now - gputime_host(&t, at, now + MS) + 5 * US, 10 * US);
	}
}

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

	gputime_recorded(&t, gpu(now), US, now, GPUTIME_FREE);
	cr_assert_eq(gputime_host(&t, gpu(now + 3 * MS), now + 4 * MS), now + 3 * MS);
	cr_assert_not(gputime_is_old(&t, now + 49 * MS));
	cr_assert(gputime_is_old(&t, now + 51 * MS));
}

Test(gputime, an_event_that_waits_for_a_slice_moves_nothing)
{
	struct gputime t = {0};
	uint64_t now = 1000 * MS;

	gputime_recorded(&t, gpu(now), US, now, GPUTIME_FREE);
	/* It is recorded now and takes place 30 ms later. */
	gputime_recorded(&t, gpu(now + 40 * MS), US, now + 10 * MS, GPUTIME_WORK);
	cr_assert_eq(gputime_host(&t, gpu(now + 50 * MS), now + 60 * MS), now + 50 * MS);
}

Test(gputime, a_record_call_that_was_held_up_is_not_believed)
{
	struct gputime t = {0};
	uint64_t now = 1000 * MS;

	gputime_recorded(&t, gpu(now), US, now, GPUTIME_FREE);
	gputime_recorded(&t, gpu(now + MS), 5 * MS, now + 6 * MS, GPUTIME_FREE);
	cr_assert_eq(gputime_host(&t, gpu(now + 8 * MS), now + 20 * MS), now + 8 * MS);
	/* The same goes for a call that was held up by less, if somebody noticed an end sooner than that delay
	 * allows. */
	gputime_recorded(&t, gpu(now + 10 * MS), 15 * US, now + 10 * MS + 15 * US, GPUTIME_FREE);
	gputime_noticed(&t, gpu(now + 11 * MS), now + 11 * MS + 2 * US);
	cr_assert_eq(gputime_host(&t, gpu(now + 12 * MS), now + 20 * MS), now + 12 * MS + 2 * US);
}

Test(gputime, the_soonest_notice_is_believed_where_every_event_waits)
{
	struct gputime t = {0};
	uint64_t now = 1000 * MS;

	gputime_recorded(&t, gpu(now + 2 * MS), US, now, GPUTIME_WORK);
	gputime_noticed(&t, gpu(now + 2 * MS), now + 3 * MS);
	gputime_noticed(&t, gpu(now + 4 * MS), now + 4 * MS + 30 * US);
	cr_assert_eq(gputime_host(&t, gpu(now + 6 * MS), now + 9 * MS), now + 6 * MS + 30 * US);
}

Test(gputime, an_end_is_never_later_than_it_was_noticed)
{
	struct gputime t = {0};
	uint64_t now = 1000 * MS;

	gputime_recorded(&t, gpu(now), US, now + 8 * US, GPUTIME_FREE);
	cr_assert_eq(gputime_host(&t, gpu(now + MS), now + MS + US), now + MS + US);
}

/* Beside others an event in an idle stream may have waited for them, but not if it is seen soon after its record call. */
Test(gputime, bounds_that_all_but_meet_are_believed_beside_others)
{
	struct gputime t = {0};
	uint64_t now = 1000 * MS;

	gputime_recorded(&t, gpu(now), US, now, GPUTIME_OTHERS);
	gputime_noticed(&t, gpu(now), now + 2 * US);
	cr_assert_eq(gputime_host(&t, gpu(now + MS), now + 2 * MS), now + MS + 2 * US,
		"only the notice is believed");
	now += MS;
	gputime_recorded(&t, gpu(now + 20 * MS), US, now, GPUTIME_OTHERS);
	cr_assert_eq(gputime_host(&t, gpu(now + MS), now + 2 * MS), now + MS + 2 * US,
		"this one waits for a slice");
	gputime_recorded(&t, gpu(now), US, now, GPUTIME_OTHERS);
	cr_assert_eq(gputime_host(&t, gpu(now + MS), now + 2 * MS), now + MS);
	/* A record call that returned late makes the bound too high, but not for ever. */
	gputime_recorded(&t, gpu(now), 9 * US, now + 8 * US, GPUTIME_OTHERS);
	for (unsigned i = 0; i < 10; i++) {
		now += 10 * MS;
		gputime_recorded(&t, gpu(now), US, now, GPUTIME_OTHERS);
	}
	cr_assert_eq(gputime_host(&t, gpu(now + MS), now + 2 * MS), now + MS);
}

/* The offset of a GPU whose clock is fast by so many millionths, `since` after the beginning. */
static uint64_t gpu_by(uint64_t host_ns, int64_t since_ns, int64_t millionths)
{
	return gpu(host_ns) + (uint64_t)(since_ns / 1000 * millionths / 1000);
}

/*
 * The tracker finds an idle stream now and then, and each end is noticed late. While the drift is not known, an end is dated to
 * 10 us; when it has been measured over two seconds, to 1 us. A clock that is slow makes ends seem too early, and the work
 * before them free: this must not add up.
 */
Test(gputime, clocks_that_drift_are_followed)
{
	static const int64_t drifts[] = {50, 40, 7, 0, -7, -40, -50};

	for (unsigned d = 0; d < sizeof(drifts) / sizeof(drifts[0]); d++) {
		struct gputime t = {0};
		uint64_t begin = 1000 * MS, now = begin;

		for (unsigned i = 0; i < 60000; i++, now += MS) {
			uint64_t at = gpu_by(now, (int64_t)(now - begin), drifts[d]), host;

			if (gputime_is_old(&t, now))
				gputime_recorded(&t, at, US, now, GPUTIME_FREE);
			host = gputime_host(&t, at, now + 20 * US);
			gputime_noticed(&t, at, now + 20 * US);
			cr_assert_leq(now - host + 10 * US, 20 * US, "drift %d, ms %u", (int)drifts[d], i);
			if (i > 2100)
				cr_assert_leq(now - host + US, 2 * US, "drift %d, ms %u", (int)drifts[d], i);
		}
	}
}

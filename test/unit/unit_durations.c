/* How long launches take: what is learned of them, and what is expected. */
#include <criterion/criterion.h>

#include "units.h"

#include "preload/book/durations.h"
#include "preload/book/thresholds.h"

#define KERNEL 77

Test(durations, hundreds_of_kernels_keep_their_own_lengths)
{
	struct durations d = {0};

	for (int round = 0; round < 4; round++)
		for (uint64_t k = 1; k <= 300; k++)
			durations_learn(&d, durations_key(0x7f0000000000 + k * 4096, 128), 1, k * US, true);
	for (uint64_t k = 1; k <= 300; k++)
		cr_assert_eq(durations_expect(&d, durations_key(0x7f0000000000 + k * 4096, 128), 1), k * US);
}

Test(durations, one_kernel_with_two_grids_has_two_lengths)
{
	struct durations d = {0};
	uint64_t small = durations_key(4096, 8), large = durations_key(4096, 8000);

	for (int i = 0; i < 8; i++) {
		durations_learn(&d, small, 1, 10 * US, true);
		durations_learn(&d, large, 1, 5 * MS, false);
	}
	cr_assert_eq(durations_expect(&d, small, 1), 10 * US);
	cr_assert_eq(durations_expect(&d, large, 1), 5 * MS);
	cr_assert_eq(durations_find(&d, small)->alone_ns, 10 * US);
	cr_assert_eq(durations_find(&d, large)->alone_ns, 0, "never seen alone");
}

/* The first end is dated by when it was noticed. Pauses are billed by this mean. */
Test(durations, a_first_length_that_is_much_too_long_is_soon_outweighed)
{
	struct durations d = {0};

	durations_learn(&d, KERNEL, 1, 2 * MS, true);
	for (int i = 0; i < 15; i++)
		durations_learn(&d, KERNEL, 1, 20 * US, true);
	cr_assert_lt(d.each_ns, 150 * US);
	cr_assert_gt(d.each_ns, 140 * US);
}

Test(durations, lengths_are_learned_when_their_number_has_wrapped)
{
	struct durations d = {.mean_ns = 20 * US, .each_ns = 20 * US, .lessons = UINT32_MAX};

	durations_learn(&d, KERNEL, 1, 36 * US, true);
	cr_assert_eq(d.lessons, 0);
	cr_assert_eq(d.each_ns, 21 * US);
}

Test(durations, what_is_unknown_takes_as_long_as_the_mean)
{
	struct durations d = {0};

	cr_assert_eq(durations_expect(&d, KERNEL, 1), 0, "nothing is known yet");
	durations_learn(&d, KERNEL, 1, 40 * US, true);
	cr_assert_eq(durations_expect(&d, KERNEL + 1, 1), 40 * US);
	cr_assert_eq(durations_unsure(&d, KERNEL, 1), 0);
	cr_assert_eq(durations_unsure(&d, KERNEL + 1, 1), 20 * US, "it may be half of the mean off");
	cr_assert_eq(durations_expect(&d, KERNEL, 10), 400 * US, "of several launches the mean counts");
	cr_assert_eq(durations_key(0, 128), 0, "work without a handle has no key");
	cr_assert_null(durations_find(&d, 0));
}

Test(durations, a_bound_lowers_the_mean_and_never_raises_it)
{
	struct durations d = {0};

	durations_learn(&d, KERNEL, 1, 100 * US, true);
	durations_bound(&d, 10, 4 * MS);
	cr_assert_eq(d.mean_ns, 100 * US);
	durations_bound(&d, 10, 200 * US);
	cr_assert_eq(d.mean_ns, 80 * US, "by a quarter of the difference");
	for (int i = 0; i < 100; i++)
		durations_bound(&d, 10, 0);
	cr_assert_eq(d.mean_ns, SHORTEST_NS);
}

Test(durations, work_that_waited_is_at_least_so_long)
{
	struct durations d = {0};

	durations_learn(&d, KERNEL, 1, MS, true);
	durations_raise(&d, KERNEL, 2 * MS);
	cr_assert_eq(durations_expect(&d, KERNEL, 1), 2 * MS);
	durations_raise(&d, KERNEL, MS);
	cr_assert_eq(durations_expect(&d, KERNEL, 1), 2 * MS, "it is not lowered");
}

Test(durations, a_length_measured_beside_others_may_be_a_wait_until_it_is_measured_behind_other_work)
{
	struct durations d = {0};

	durations_learn(&d, KERNEL, 1, 30 * MS, false);
	cr_assert(durations_may_be_wait(&d, KERNEL));
	durations_behind(&d, KERNEL, 20 * US);
	cr_assert_not(durations_may_be_wait(&d, KERNEL));
	cr_assert_eq(durations_expect(&d, KERNEL, 1), 20 * US, "it had waited");
	durations_learn(&d, KERNEL + 1, 1, 30 * MS, false);
	durations_learn(&d, KERNEL + 1, 1, 30 * MS, true);
	cr_assert_not(durations_may_be_wait(&d, KERNEL + 1), "alone it is as long");
}

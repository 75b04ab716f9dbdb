/* The decisions of the policies, by tables of numbers. */
#include <criterion/criterion.h>

#include "shm/policy/policy.h"

Test(policy, concurrent_always_lets_in)
{
	struct arb_policy_case c = {.policy = ARB_POLICY_CONCURRENT,
		.running = 7,
		.reserved_for_other = true,
		.quota_sum_ppm = 5 * ARB_PPM};

	cr_assert(arb_policy_admit(&c));
}

Test(policy, exclusive_and_fair_let_in_one_at_a_time)
{
	for (int fair = 0; fair < 2; fair++) {
		struct arb_policy_case c = {.policy = fair ? ARB_POLICY_FAIR : ARB_POLICY_EXCLUSIVE};

		cr_assert(arb_policy_admit(&c));
		c.reserved_for_other = true;
		cr_assert_not(arb_policy_admit(&c));
		c.reserved_for_other = false;
		c.running = 1;
		cr_assert_not(arb_policy_admit(&c));
	}
}

Test(policy, auto_takes_turns_only_above_a_hundred_percent)
{
	struct arb_policy_case c = {.policy = ARB_POLICY_AUTO, .running = 1, .quota_sum_ppm = ARB_PPM};

	cr_assert(arb_policy_admit(&c));
	c.quota_sum_ppm = ARB_PPM + 1;
	cr_assert_not(arb_policy_admit(&c));
	cr_assert_not(arb_policy_takes_turns(ARB_POLICY_AUTO, ARB_PPM));
	cr_assert(arb_policy_takes_turns(ARB_POLICY_AUTO, ARB_PPM + 1));
}

Test(policy, where_the_gpu_alternates_clients_that_would_run_together_take_turns)
{
	enum arb_alternation detect = ARB_ALTERNATION_DETECT, off = ARB_ALTERNATION_OFF,
			     on = ARB_ALTERNATION_ON;

	cr_assert_eq(arb_policy_in_force(ARB_POLICY_CONCURRENT, detect, false, 0), ARB_POLICY_CONCURRENT);
	cr_assert_eq(arb_policy_in_force(ARB_POLICY_CONCURRENT, detect, true, 0), ARB_POLICY_FAIR);
	cr_assert_eq(arb_policy_in_force(ARB_POLICY_CONCURRENT, off, true, 0), ARB_POLICY_CONCURRENT);
	cr_assert_eq(arb_policy_in_force(ARB_POLICY_CONCURRENT, on, false, 0), ARB_POLICY_FAIR);
	cr_assert_eq(arb_policy_in_force(ARB_POLICY_AUTO, detect, true, ARB_PPM), ARB_POLICY_FAIR);
	cr_assert_eq(arb_policy_in_force(ARB_POLICY_AUTO, detect, true, ARB_PPM + 1), ARB_POLICY_AUTO);
	cr_assert_eq(arb_policy_in_force(ARB_POLICY_EXCLUSIVE, detect, true, 0), ARB_POLICY_EXCLUSIVE);
	cr_assert_eq(arb_policy_in_force(ARB_POLICY_MEMORY, on, true, 0), ARB_POLICY_MEMORY);
}

Test(policy, limits_above_a_hundred_are_scaled_in_proportion)
{
	cr_assert_eq(arb_policy_scale(500000, 1100000, 0), 454545);
	cr_assert_eq(arb_policy_scale(600000, 1100000, 0), 545454);
	cr_assert_eq(arb_policy_scale(800000, 1600000, 0), 500000);
	cr_assert_eq(arb_policy_scale(300000, 900000, 0), 300000, "nothing to scale");
	cr_assert_eq(arb_policy_scale(1000000, 2000000, 0), 1000000, "no limit is not scaled");
}

Test(policy, what_is_lost_at_hand_overs_is_taken_from_all_in_proportion)
{
	cr_assert_eq(arb_policy_scale(500000, 1100000, 20000), 445454);
	cr_assert_eq(arb_policy_scale(600000, 1100000, 20000), 534545);
	cr_assert_eq(arb_policy_scale(500000, 990000, 20000), 494949, "they leave less than is lost");
	cr_assert_eq(arb_policy_scale(300000, 900000, 20000), 300000, "there is enough for all");
	cr_assert_eq(arb_policy_scale(500000, 1000000, UINT32_MAX), 475000, "garbage costs a twentieth");
}

Test(policy, what_is_lost_is_an_average_of_windows)
{
	const uint64_t window = 100ull * 1000000 * 16;
	uint32_t lost = 0;

	lost = arb_policy_lost(lost, window / 50, window - window / 50, window, 1);
	cr_assert_eq(lost, 20000 / ARB_LOST_WINDOWS, "%u", lost);
	for (int i = 0; i < 60; i++)
		lost = arb_policy_lost(lost, window / 50, window - window / 50, window, 1);
	cr_assert(lost > 19900 && lost <= 20000, "%u", lost);
	cr_assert_eq(arb_policy_lost(lost, window, 0, window, 1),
		(lost * (ARB_LOST_WINDOWS - 1) + ARB_LOST_PPM_MOST) / ARB_LOST_WINDOWS,
		"no window counts for more");
	cr_assert_eq(arb_policy_lost(lost, 0, 0, 1000 * window, 1000), 0, "long ago");
	cr_assert_eq(arb_policy_lost(lost, window, 0, 1000, 1), lost, "a window of nothing says nothing");
}

Test(policy, no_more_is_lost_than_the_gpu_was_idle_and_time_to_spare_is_taken_off)
{
	const uint64_t window = 100ull * 1000000 * 16, part = window / 50;

	cr_assert_eq(
		arb_policy_lost(0, window, window, window, 8), 0, "forged: the GPU was busy all the time");
	cr_assert_eq(arb_policy_lost(0, window, window - part, window, 8), 20000, "all of its idle time");
	cr_assert_eq(arb_policy_lost(0, part, window - part - part / 2, window, 8), 10000,
		"half of that to spare");
	cr_assert_eq(arb_policy_lost(0, part, window - 2 * part, window, 8), 0, "as much to spare");
	cr_assert_eq(arb_policy_lost(0, part, 0, window, 8), 0, "it was next to never busy");
	cr_assert_eq(arb_policy_lost(0, part, UINT64_MAX, window, 8), 0, "a clock that went back");
}

Test(policy, a_grant_is_exact_for_any_window)
{
	uint64_t minute = 60000ull * 1000000 * 16;

	cr_assert_eq(arb_policy_grant(250000, minute), minute / 4);
	cr_assert_eq(arb_policy_grant(1, 1000000), 1);
	cr_assert_eq(arb_policy_grant(1000000, UINT64_MAX / 2), UINT64_MAX / 2);
}

Test(policy, what_was_not_used_is_not_saved)
{
	/* usage 40 of a cap of 100, grant 100 */
	cr_assert_eq(arb_policy_next_cap(40, 100, 100, 100, 1), 140);
	cr_assert_eq(arb_policy_next_cap(40, 100, 100, 100, 50), 140, "not in fifty windows either");
}

Test(policy, what_was_used_too_much_is_a_debt)
{
	cr_assert_eq(arb_policy_next_cap(130, 100, 100, 100, 1), 200, "70 left of 100");
	cr_assert_eq(arb_policy_next_cap(130, 100, 100, 0, 1), 230, "nothing carried over");
	cr_assert_eq(arb_policy_next_cap(130, 100, 100, 50, 1), 215, "half of 30");
}

Test(policy, windows_that_pass_unused_pay_a_debt)
{
	/* debt 250, each window pays 100 */
	cr_assert_eq(arb_policy_next_cap(350, 100, 100, 100, 1), 200);
	cr_assert_eq(arb_policy_next_cap(350, 100, 100, 100, 2), 300);
	cr_assert_eq(arb_policy_next_cap(350, 100, 100, 100, 3), 400);
	cr_assert_eq(arb_policy_next_cap(350, 100, 100, 100, 4), 450, "paid: a full grant");
	cr_assert_eq(arb_policy_next_cap(350, 100, 100, 100, 1000000000ull), 450);
	cr_assert_eq(arb_policy_next_cap(350, 100, 0, 100, 5), 350,
		"a grant of nothing pays nothing, and does not hang");
}

Test(policy, several_rolls_at_once_are_the_same_as_one_by_one)
{
	for (unsigned carry = 0; carry <= 100; carry += 25)
		for (uint64_t usage = 0; usage < 1000; usage += 37) {
			uint64_t step = arb_policy_next_cap(usage, 100, 90, carry, 1);

			for (int n = 2; n < 12; n++) {
				step = arb_policy_next_cap(usage, step, 90, carry, 1);
				cr_assert_eq(arb_policy_next_cap(usage, 100, 90, carry, n), step,
					"carry-over %u, usage %lu, %d windows", carry, (unsigned long)usage,
					n);
			}
		}
}

Test(policy, counters_may_wrap)
{
	uint64_t usage = (uint64_t)-20, cap = (uint64_t)-50;

	cr_assert_eq(arb_policy_next_cap(usage, cap, 100, 100, 1), cap + 100);
	cr_assert(arb_policy_below(usage, 0, 5));
	cr_assert_not(arb_policy_below(usage, 30, 5));
}

Test(policy, changing_a_limit_back_and_forth_gains_nothing)
{
	uint64_t cap = 1000, before = cap;

	/* 20 -> 80 with 500 to go, back with 500 to go: nothing; back with 400 to go: 60 % of the 100
	 * between. */
	cap = arb_policy_move_cap(cap, 200000, 800000, 500);
	cr_assert_eq(cap, before + 300);
	cr_assert_eq(arb_policy_move_cap(cap, 800000, 200000, 500), before);
	cr_assert_eq(arb_policy_move_cap(cap, 800000, 200000, 400), before + 60);
}

Test(policy, priority_then_share_then_waiting_time_decide_who_is_next)
{
	struct arb_candidate a = {50, 1000, 100, false}, b = {50, 1000, 200, false};

	cr_assert(arb_policy_goes_first(&a, &b, 300, 10000), "waited longer");
	b.rank_ppm = 10;
	cr_assert(arb_policy_goes_first(&b, &a, 300, 10000), "used less of its quota");
	a.priority = 60;
	cr_assert(arb_policy_goes_first(&a, &b, 300, 10000), "higher priority");
	cr_assert(arb_policy_goes_first(&a, &b, 20000, 10000), "both late: the longer wait");
	b.since_ns = 50;
	cr_assert(arb_policy_goes_first(&b, &a, 20000, 10000));
	a.since_ns = 15000;
	cr_assert(arb_policy_goes_first(&b, &a, 20000, 10000),
		"nobody starves: too long a wait beats priority");
	b.silent = true;
	cr_assert(
		arb_policy_goes_first(&a, &b, 20000, 10000), "but a stopped program would not take its turn");
	cr_assert_not(arb_policy_goes_first(&b, &a, 20000, 10000));
	b = (struct arb_candidate){90, 0, 0, false};
	cr_assert(arb_policy_goes_first(&a, &b, 20000, 10000), "nor one that does not wait for it");
	cr_assert_not(arb_policy_goes_first(&b, &a, 20000, 10000));
}

Test(policy, a_client_in_the_queue_keeps_the_quota_that_it_could_not_use)
{
	/* Nothing was used of a cap of 50: half a window is saved, and a new grant is added. */
	cr_assert_eq(arb_policy_saved_cap(100, 150, 50, 1), 200);
	cr_assert_eq(arb_policy_saved_cap(100, 150, 50, 3), 300);
	/* Savings are bounded. */
	cr_assert_eq(arb_policy_saved_cap(100, 150, 50, 100), 100 + 50 * (1 + ARB_SAVED_WINDOWS));
	cr_assert_eq(arb_policy_saved_cap(100, 150, 50, UINT64_MAX), 100 + 50 * (1 + ARB_SAVED_WINDOWS));
	/* A debt is paid first. */
	cr_assert_eq(arb_policy_saved_cap(300, 200, 50, 1), 250);
}

Test(policy, a_turn_is_a_slice_where_it_is_fair_and_a_window_elsewhere)
{
	cr_assert_eq(arb_policy_turn(ARB_POLICY_FAIR, 10, 100), 10);
	cr_assert_eq(arb_policy_turn(ARB_POLICY_EXCLUSIVE, 10, 100), 100);
	cr_assert_eq(arb_policy_turn(ARB_POLICY_AUTO, 10, 100), 100);
}

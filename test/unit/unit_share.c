/* Quotas that follow from requests and weights: what must hold for any set of accounts. */
#include <criterion/criterion.h>
#include <string.h>

#include "shm/policy/share.h"
#include "gpuarb/abi.h"
#include "test/harness.h"

#define WHOLE 1000000u
#define MOST  40

static struct arb_share any(struct t_random *random)
{
	struct arb_share s = {0};

	if (t_below(random, 2))
		s.request_ppm = (uint32_t)t_below(random, 101) * 10000;
	s.limit_ppm = t_below(random, 3) ? WHOLE : (uint32_t)(1 + t_below(random, 100)) * 10000;
	s.weight = t_below(random, 2) ? 0 : (uint32_t)(1 + t_below(random, ARB_SHARE_WEIGHT_MOST));
	return s;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t requests(const struct arb_share *all, unsigned n)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += least(all[i].request_ppm, all[i].limit_ppm);
	return sum;
}

Test(share, nothing_is_lost_and_nobody_gets_less_than_its_request)
{
	struct t_random random = {1};

	for (int round = 0; round < 200000; round++) {
		struct arb_share all[MOST];
		unsigned n = 1 + (unsigned)t_below(&random, MOST);
		uint32_t lost = t_below(&random, 2) ? 0 : (uint32_t)t_below(&random, ARB_LOST_PPM_MOST);
		uint64_t sum = 0, limits = 0, asked, whole = WHOLE - lost;

		for (unsigned i = 0; i < n; i++)
			all[i] = any(&random);
		asked = requests(all, n);
		arb_share_fill(all, n, lost);
		for (unsigned i = 0; i < n; i++) {
			sum += all[i].quota_ppm;
			limits += all[i].limit_ppm;
			cr_assert_leq(all[i].quota_ppm, all[i].limit_ppm, "round %d", round);
			if (asked <= whole)
				cr_assert_geq(all[i].quota_ppm, least(all[i].request_ppm, all[i].limit_ppm),
					"round %d", round);
		}
		/* Requests that add up to too much are cut, with a rounding error below a millionth for each. */
		if (asked <= whole)
			cr_assert_eq(sum, least(limits, whole), "round %d: %lu", round, sum);
		else
			cr_assert(sum <= whole && sum + n >= whole, "round %d: %lu", round, sum);
	}
}

/* More of a request, a limit or a weight never gives less, but for rounding. */
Test(share, an_account_that_asks_for_more_does_not_get_less)
{
	struct t_random random = {2};

	for (int round = 0; round < 100000; round++) {
		struct arb_share all[MOST], more[MOST];
		unsigned n = 1 + (unsigned)t_below(&random, MOST), i, what;

		for (i = 0; i < n; i++) {
			all[i] = any(&random);
			all[i].request_ppm /= n;
		}
		memcpy(more, all, sizeof(all));
		i = (unsigned)t_below(&random, n);
		what = (unsigned)t_below(&random, 3);
		if (what == 0)
			more[i].request_ppm += (uint32_t)t_below(&random, WHOLE / n);
		else if (what == 1)
			more[i].limit_ppm = least(WHOLE, more[i].limit_ppm + t_below(&random, WHOLE));
		else
			more[i].weight = (more[i].weight ? more[i].weight : ARB_SHARE_WEIGHT) +
					 (uint32_t)t_below(&random, 1000);
		if (requests(more, n) > WHOLE)
			continue;
		arb_share_fill(all, n, 0);
		arb_share_fill(more, n, 0);
		cr_assert_geq(more[i].quota_ppm + n, all[i].quota_ppm, "round %d", round);
		for (unsigned k = 0; k < n; k++)
			if (k != i)
				cr_assert_leq(more[k].quota_ppm, all[k].quota_ppm + n, "round %d", round);
	}
}

Test(share, the_rest_goes_by_weight_to_accounts_below_their_limit)
{
	struct arb_share greedy[8] = {{.request_ppm = 250000, .limit_ppm = WHOLE}};
	struct arb_share three[] = {{0, WHOLE, 100, 0}, {0, WHOLE, 200, 0}, {0, WHOLE, 300, 0}};
	struct arb_share capped[] = {{250000, 300000, 0, 0}, {0, WHOLE, 0, 0}, {0, 100000, 0, 0}};

	for (int i = 1; i < 8; i++)
		greedy[i].limit_ppm = WHOLE;
	arb_share_fill(greedy, 8, 0);
	cr_assert_eq(greedy[0].quota_ppm, 343750);
	cr_assert_eq(greedy[7].quota_ppm, 93750);
	arb_share_fill(three, 3, 0);
	cr_assert_eq(three[0].quota_ppm, 166666);
	cr_assert(three[2].quota_ppm == 500000 || three[2].quota_ppm == 500001,
		"what is rounded off is not lost");
	arb_share_fill(capped, 3, 0);
	cr_assert_eq(capped[0].quota_ppm, 300000);
	cr_assert_eq(capped[1].quota_ppm, 600000);
	cr_assert_eq(capped[2].quota_ppm, 100000);
}

/* Where clients take turns, some time is lost at each hand-over. Without a request it is lost by all, by weight; it is not
 * taken from what was requested. */
Test(share, what_hand_overs_lose_is_lost_by_weight_and_not_out_of_requests)
{
	struct arb_share three[] = {{0, WHOLE, 100, 0}, {0, WHOLE, 200, 0}, {0, WHOLE, 300, 0}};
	struct arb_share asks[] = {{400000, WHOLE, 0, 0}, {0, WHOLE, 0, 0}};
	struct arb_share all[] = {{600000, WHOLE, 0, 0}, {400000, WHOLE, 0, 0}};

	arb_share_fill(three, 3, 6000);
	cr_assert_eq(three[0].quota_ppm, 165666);
	cr_assert_eq(three[1].quota_ppm, 331333);
	cr_assert_eq(three[2].quota_ppm, 497001);
	arb_share_fill(asks, 2, 6000);
	cr_assert_eq(asks[0].quota_ppm, 697000);
	cr_assert_eq(asks[1].quota_ppm, 297000);
	arb_share_fill(all, 2, 10000);
	cr_assert_eq(all[0].quota_ppm, 594000, "requests for more than there is are cut alike");
	cr_assert_eq(all[1].quota_ppm, 396000);
	arb_share_fill(all, 2, 1000000);
	cr_assert_eq(all[1].quota_ppm, 380000, "five percent at most, whatever the segment says");
}

Test(share, without_requests_and_weights_nothing_is_changed)
{
	struct arb_share all[] = {{0, WHOLE, 0, 0}, {0, 300000, ARB_SHARE_WEIGHT, 0}, {0, 0, 0, 0}};

	cr_assert_not(arb_share_in_force(all, 3));
	all[2].weight = ARB_SHARE_WEIGHT + 1;
	cr_assert(arb_share_in_force(all, 3));
	all[2].weight = 0;
	all[0].request_ppm = 1;
	cr_assert(arb_share_in_force(all, 3));
}

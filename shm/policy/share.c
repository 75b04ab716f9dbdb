#include "shm/policy/share.h"

#include "gpuarb/abi.h"

#define WHOLE 1000000u /* parts per million */

static uint64_t weight_of(const struct arb_share *s)
{
	return s->weight ? s->weight : ARB_SHARE_WEIGHT;
}

static uint32_t limit_of(const struct arb_share *s)
{
	return s->limit_ppm < WHOLE ? s->limit_ppm : WHOLE;
}

static uint32_t request_of(const struct arb_share *s)
{
	return s->request_ppm < limit_of(s) ? s->request_ppm : limit_of(s);
}

bool arb_share_in_force(const struct arb_share *all, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (all[i].request_ppm || weight_of(&all[i]) != ARB_SHARE_WEIGHT)
			return true;
	return false;
}

/* Accounts whose limit is less than their part of the rest get their whole limit, and leave more for the others. */
static void fill_the_limited(struct arb_share *all, unsigned n, uint64_t *rest, uint64_t *weights)
{
	for (bool again = true; again;) {
		again = false;
		for (unsigned i = 0; i < n; i++) {
			uint64_t room = limit_of(&all[i]) - all[i].quota_ppm;

			if (room && room * *weights <= *rest * weight_of(&all[i])) {
				all[i].quota_ppm += (uint32_t)room;
				*rest -= room;
				*weights -= weight_of(&all[i]);
				again = true;
			}
		}
	}
}

void arb_share_fill(struct arb_share *all, unsigned n, uint32_t lost_ppm)
{
	uint64_t requests = 0, weights = 0, rest;
	uint64_t whole = WHOLE - (lost_ppm < ARB_LOST_PPM_MOST ? lost_ppm : ARB_LOST_PPM_MOST);

	for (unsigned i = 0; i < n; i++)
		requests += request_of(&all[i]);
	rest = requests < whole ? whole - requests : 0;
	for (unsigned i = 0; i < n; i++) {
		uint64_t request = request_of(&all[i]);

		all[i].quota_ppm = (uint32_t)(requests > whole ? request * whole / requests : request);
		if (all[i].quota_ppm < limit_of(&all[i]))
			weights += weight_of(&all[i]);
	}
	if (!rest)
		return;
	fill_the_limited(all, n, &rest, &weights);
	for (unsigned i = 0; i < n; i++) {
		uint64_t part;

		if (all[i].quota_ppm >= limit_of(&all[i]))
			continue;
		/* What one account loses by rounding goes to those that come later, so nothing is lost. */
		part = rest * weight_of(&all[i]) / weights;
		all[i].quota_ppm += (uint32_t)part;
		rest -= part;
		weights -= weight_of(&all[i]);
	}
}

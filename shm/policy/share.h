/*
 * What each account gets where requests or weights are in force: first its request, then the rest by weight,
 * up to its limit. Numbers in, numbers out.
 */
#ifndef ARB_SHARE_H
#define ARB_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/* An account that is active. Parts per million of the GPU's time. */
struct arb_share {
	uint32_t request_ppm;
	uint32_t limit_ppm;
	uint32_t weight;    /* 0: the default */
	uint32_t quota_ppm; /* out */
};

/* Do the shares count? They do as soon as one account has a request, or a weight that is not the default. */
bool arb_share_in_force(const struct arb_share *all, unsigned n);

/*
 * Fills in quota_ppm of each. Their sum is the whole GPU less what is lost where clients take turns, or the sum of the
 * limits if that is less. No account gets less than its request (its limit, if that is less) unless the requests add up
 * to more than that: then each gets a part in proportion to its request.
 */
void arb_share_fill(struct arb_share *all, unsigned n, uint32_t lost_ppm);

#endif

/* Who is next, and how long a waiter may sleep before it looks for itself. */
#ifndef ARB_WAIT_H
#define ARB_WAIT_H

#include <stdint.h>

#include "running.h"

/* The waiter that goes first, or ARB_NONE. */
uint32_t arb_wait_choose(
	const struct arb_segment *seg, const struct arb_snap *snap, uint64_t now_ns, uint64_t max_wait_ns);

/* How many waiters go before slot `me`. */
uint32_t arb_wait_rank(const struct arb_segment *seg, const struct arb_snap *snap, uint32_t me,
	uint64_t now_ns, uint64_t max_wait_ns);

/* A wake-up can be lost only with the death of whoever owed it; sleeps are bounded by the place in the queue.
 */
uint64_t arb_wait_sleep_ns(uint32_t rank);

#endif

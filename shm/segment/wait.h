/* Which waiter is next, and how long a waiter may sleep before it looks by itself. */
#ifndef ARB_WAIT_H
#define ARB_WAIT_H

#include <stdint.h>

#include "shm/segment/running.h"

/* What orders the waiters: see the settings with these names. */
struct arb_order {
	uint64_t now_ns;
	uint64_t max_wait_ns;
	uint64_t grace_ns; /* UINT64_MAX: nobody is silent */
};

/* The waiter that goes first, or ARB_NONE: nobody waits, or only such as do not look. */
uint32_t arb_wait_choose(
	const struct arb_segment *seg, const struct arb_snap *snap, const struct arb_order *order);

/* How many waiters go before slot `me`. */
uint32_t arb_wait_rank(const struct arb_segment *seg, const struct arb_snap *snap, uint32_t me,
	const struct arb_order *order);

/* Returns whether the first counts for so much more than the second that no place is kept from it. */
bool arb_wait_counts_for_more(
	const struct arb_segment *seg, uint32_t slot, uint32_t other, const struct arb_order *order);

/* A wake-up can be lost only if the process that owes it dies; sleeps are bounded by the place in the queue. */
uint64_t arb_wait_sleep_ns(uint32_t rank);

/* The order of waiters: by priority; but a waiter that has not had its request in this window comes before all that
 * have, because no client may keep it from its request. */
#define ARB_ORDER_IN_REQUEST 1000u /* above every priority */
uint32_t arb_wait_order(const struct arb_segment *seg, uint32_t i);

#endif

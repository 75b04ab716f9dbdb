/* Which waiter is next, and how long a waiter may sleep before it looks by itself. */
#ifndef ARB_WAIT_H
#define ARB_WAIT_H

#include <stdint.h>

#include "shm/segment/running.h"

/* What the order of the waiters depends on: see the settings with these names. */
struct arb_order {
	uint64_t now_ns;
	uint64_t max_wait_ns;
	uint64_t grace_ns; /* UINT64_MAX: no waiter counts as silent */
};

/* Returns the waiter that goes first, or ARB_NONE: none waits, or all that wait are silent. */
uint32_t arb_wait_choose(
	const struct arb_segment *seg, const struct arb_snap *snap, const struct arb_order *order);

/* Returns how many waiters go before slot `me`. */
uint32_t arb_wait_rank(const struct arb_segment *seg, const struct arb_snap *snap, uint32_t me,
	const struct arb_order *order);

/* Returns whether the first client's order is so far above that of the second that a place kept for the second is
 * given to the first. */
bool arb_wait_counts_for_more(
	const struct arb_segment *seg, uint32_t slot, uint32_t other, const struct arb_order *order);

/* Returns for how long a waiter at this place in the queue sleeps. A wake-up can be lost only if the process that
 * owes it dies; this bound is for that. */
uint64_t arb_wait_sleep_ns(uint32_t rank);

/* The order of waiters: by priority; but a waiter that has not had its request in this window comes before all that
 * have, because no client may keep it from its request. */
#define ARB_ORDER_IN_REQUEST 1000u /* above every priority */
uint32_t arb_wait_order(const struct arb_segment *seg, uint32_t i);

#endif

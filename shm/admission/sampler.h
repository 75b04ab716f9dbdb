/* The sampler of the GPU's utilisation: one process at a time, which holds the sampler's byte. There are no threads
 * and no NVML here: the caller has them, asks arb_sampler_due() and hands what it measured to arb_sampler_put(). */
#ifndef ARB_SAMPLER_H
#define ARB_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/segment/segment.h"
#include "shm/segment/usage.h"

struct arb_sampler {
	void *page;          /* holds the byte; NULL: we are not the sampler */
	bool fresh;          /* just elected: its first sample is due at once */
	bool for_node;       /* this is the watchdog: clients leave the sampling to it */
	uint64_t claimed_ns; /* when we last tried to take the byte */
	struct arb_busy busy;
};

/*
 * Is a sample due, and are we to take it? Makes us the sampler where there is none. *next_ns: after how long to ask
 * again. win_ms: the length of a window by the settings, for counting on.
 */
bool arb_sampler_due(struct arb_sampler *s, struct arb_segment *seg, const struct arb_usage_rules *rules,
	uint64_t now_ns, uint64_t *next_ns);

/* Publishes a sample. What NVML said is in hundredths of a percent; -1: it said nothing, and the busy clock is read.
 * Returns false if that clock says nothing yet either: the caller comes again in a few milliseconds. */
bool arb_sampler_put(struct arb_sampler *s, struct arb_segment *seg, const struct arb_usage_rules *rules,
	uint32_t win_ms, int hundredths, uint64_t now_ns);

/* For a client that ticks anyway: takes a sample by the busy clock where no other process samples. */
void arb_sampler_tick(struct arb_sampler *s, struct arb_segment *seg, const struct arb_usage_rules *rules,
	uint32_t win_ms, uint64_t now_ns);

void arb_sampler_stop(struct arb_sampler *s);

/* Wakes all waiters to look again, because the pressure is over or the lines have moved. */
void arb_sampler_wake_waiters(struct arb_segment *seg);

#endif

/* The sampler of the GPU's utilisation: one process at a time, which holds the sampler's byte. There are no threads
 * and no NVML here: the caller has them, asks arb_sampler_due() and hands what it measured to arb_sampler_put(). */
#ifndef ARB_SAMPLER_H
#define ARB_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/segment/segment.h"
#include "shm/segment/usage.h"

struct arb_sampler {
	void *page;          /* holds the byte; NULL: we are not the one */
	bool fresh;          /* just elected: its first sample is due at once */
	bool for_node;       /* the watchdog: clients leave it to us */
	uint64_t claimed_ns; /* when we last tried */
	struct arb_busy busy;
};

/*
 * Is a sample due, and are we to take it? Elects us where nobody samples. *next_ns: after how long to ask
 * again. win_ms: of the settings, to count on with.
 */
bool arb_sampler_due(struct arb_sampler *s, struct arb_segment *seg, const struct arb_usage_rules *rules,
	uint64_t now_ns, uint64_t *next_ns);

/* What NVML said, in hundredths of a percent; -1: nothing, then the busy clock is read. False: nor does that
 * say anything yet, come again in a few milliseconds. */
bool arb_sampler_put(struct arb_sampler *s, struct arb_segment *seg, const struct arb_usage_rules *rules,
	uint32_t win_ms, int hundredths, uint64_t now_ns);

/* For a client that ticks anyway: a sample by the busy clock where nobody else takes any. */
void arb_sampler_tick(struct arb_sampler *s, struct arb_segment *seg, const struct arb_usage_rules *rules,
	uint32_t win_ms, uint64_t now_ns);

void arb_sampler_stop(struct arb_sampler *s);

/* The pressure is over, or the lines have moved: wakes all waiters to look again. */
void arb_sampler_wake_waiters(struct arb_segment *seg);

#endif

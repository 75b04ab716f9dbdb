/*
 * The GPU's utilisation: one cached sample, the water lines, and the machine with two states between them. The
 * machine is a pure function of the state, a sample and the lines, so any process may run it: a change of the lines,
 * or the end of a boost, takes effect at the next look and not only with the next sample.
 */
#ifndef ARB_USAGE_H
#define ARB_USAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpuarb/abi.h"

#define ARB_USAGE_FULL 10000u /* hundredths of a percent */

struct arb_segment;
struct arb_snap;

struct arb_usage_rules {
	uint64_t sample_ns, ttl_ns;
	unsigned high_pct, low_pct, high_boost_pct, low_boost_pct;
	uint64_t long_task_ms, boost_ttl_ns;
};

/* In hundredths of a percent, like the usage. */
struct arb_usage_lines {
	unsigned high, low;
};

struct arb_usage {
	bool sampled; /* there is a sample */
	bool fresh;   /* and it is not too old */
	bool high;    /* the state after it, by the lines in force now; the last state if it is not fresh */
	unsigned hundredths;
	unsigned source; /* enum arb_sample_source */
	uint64_t age_ns;
	uint64_t boost_until_ns; /* 0: no boost */
	struct arb_usage_lines lines;
	uint64_t word; /* what was read */
};

/* Returns whether there is a boost. A boost that lasts longer than any that can be given does not count. */
bool arb_usage_boosted(const struct arb_usage_rules *rules, uint64_t until_ns, uint64_t now_ns);
struct arb_usage_lines arb_usage_lines(const struct arb_usage_rules *rules, bool boosted);
/* Returns the next state: HIGH_PRESSURE from the high line on, NORMAL again from the low line down. */
bool arb_usage_pressure(bool high, unsigned hundredths, struct arb_usage_lines lines);

uint64_t arb_usage_pack(unsigned hundredths, unsigned source, bool high, uint64_t now_ns);
/* Returns what these two words say at this time. Pure. A sample from the future counts as none. */
struct arb_usage arb_usage_judge(
	const struct arb_usage_rules *rules, uint64_t sample, uint64_t boost_until_ns, uint64_t now_ns);

struct arb_usage arb_usage_read(
	const struct arb_segment *seg, const struct arb_usage_rules *rules, uint64_t now_ns);
/* Notes the state that `u` came to, so that the next look starts from it. True if the state was another before. */
bool arb_usage_settle(struct arb_segment *seg, const struct arb_usage *u, uint64_t now_ns);

/* Publishes a sample; called by the holder of the sampler's byte. True if the pressure is over by this sample. */
bool arb_usage_publish(struct arb_segment *seg, const struct arb_usage_rules *rules, unsigned hundredths,
	unsigned source, uint64_t now_ns);
/* Raises the lines from now on for boost_ttl_ms. Returns whether that may let a task in. */
bool arb_usage_boost(struct arb_segment *seg, const struct arb_usage_rules *rules, uint64_t now_ns);

/* Where the busy clock stood, in this process's own memory. */
struct arb_busy {
	uint64_t busy, at; /* ticks; at 0: never looked */
};

/*
 * Returns the usage since `base`, by a snapshot that was counted on to now, in hundredths of a percent; -1: the time
 * is too short to tell. Without a base: the usage since the window began. The base is set to now if the caller asks
 * for that.
 */
int arb_usage_busy(const struct arb_snap *now, struct arb_busy *base, uint64_t least_ns, bool move_on);

#endif

/*
 * Members of the running set that have not been heard of. The clock of the set is not counted on over such a silence
 * before the kernel was asked: otherwise a dead member would be billed for all the time in which no client
 * looked.
 */
#ifndef ARB_SILENCE_H
#define ARB_SILENCE_H

#include <stdint.h>

#include "shm/segment/running.h"
#include "shm/segment/segment.h"

/* The members to consider. */
struct arb_silence {
	uint64_t now_ns;
	uint64_t before_ns;         /* only members whose last sign of life is before this time */
	uint32_t except;            /* leaves out this slot; ARB_NONE: none */
	uint64_t looked[ARB_WORDS]; /* leaves out these slots, which have been dealt with */
};

/* Returns the member that has been silent for longest, and for ARB_HEARD_NS at least, or ARB_NONE. */
uint32_t arb_silence_longest(
	const struct arb_segment *seg, const struct arb_snap *snap, const struct arb_silence *silence);

/*
 * Returns when the work of a dead member ended, in ns, and no later than now. 0: its last sign of life cannot be
 * right. Then the record's own time counts, because no transition is dated before it.
 */
uint64_t arb_silence_death(const struct arb_segment *seg, uint32_t slot, uint64_t now_ns);

/* Advances a copy to now as arb_running_advance does, for observers: dead members whose slots nobody has cleaned yet
 * count until their death. */
void arb_silence_advance(
	const struct arb_segment *seg, struct arb_snap *snap, uint64_t now_ns, uint32_t win_ms);

#endif

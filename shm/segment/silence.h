/*
 * Members of the running set that have not been heard of. The clock of the set is not counted on over such a
 * silence unasked: a dead member would be billed for it, for as long as nobody looked.
 */
#ifndef ARB_SILENCE_H
#define ARB_SILENCE_H

#include <stdint.h>

#include "shm/segment/running.h"
#include "shm/segment/segment.h"

/* Which of the members to consider. */
struct arb_silence {
	uint64_t now_ns;
	uint64_t before_ns;         /* only members whose last sign of life is before this time */
	uint32_t except;            /* not this slot; ARB_NONE: all */
	uint64_t looked[ARB_WORDS]; /* nor these: they have been dealt with */
};

/* The member that has been silent for longest, ARB_HEARD_NS at least, or ARB_NONE. */
uint32_t arb_silence_longest(
	const struct arb_segment *seg, const struct arb_snap *snap, const struct arb_silence *silence);

/*
 * When the work of a dead member ended, in ns. Not beyond now; 0 if its last sign of life cannot be right: the
 * record's own time then counts, because no transition is dated before it.
 */
uint64_t arb_silence_death(const struct arb_segment *seg, uint32_t slot, uint64_t now_ns);

/* Advances a copy to now as arb_running_advance does, for observers: dead members whose slots nobody has cleaned yet
 * count until their death. */
void arb_silence_advance(
	const struct arb_segment *seg, struct arb_snap *snap, uint64_t now_ns, uint32_t win_ms);

#endif

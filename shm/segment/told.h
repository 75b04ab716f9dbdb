/* Changes of the GPU as a whole. Every client notices them, and one client writes each into the event ring: the
 * client that changes the word of the header which says what was last written. */
#ifndef ARB_TOLD_H
#define ARB_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/segment/segment.h"

/* The length of the windows has changed. `slot`: the caller; ARB_NONE: it is no client. */
void arb_told_window(struct arb_segment *seg, uint32_t slot, uint32_t win_ms);

/* The policy auto: whether clients run one at a time, because the limits of the active accounts add up to more than
 * 100. Under another policy the word is set back. */
void arb_told_auto(struct arb_segment *seg, uint32_t slot, bool is_auto, uint64_t sum_ppm);

/*
 * Admission: HIGH_PRESSURE or NORMAL, as of a sample of the utilisation. There is at most one event a second. A state
 * that lasted for less may be left out, but the last state never, because this is called for each sample.
 */
#define ARB_TOLD_PRESSURE_NS 1000000000u
void arb_told_pressure(
	struct arb_segment *seg, bool high, unsigned hundredths, unsigned line_hundredths, uint64_t now_ns);

#endif

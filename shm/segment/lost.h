/* Time that is lost when a GPU is handed over from one client to the next: no client runs, though a client waits for its
 * turn. */
#ifndef ARB_LOST_H
#define ARB_LOST_H

#include "shm/segment/running.h"

/* Does the GPU stand still by this record, which has not been counted on yet, because it is being handed over? */
bool arb_lost_begins(const struct arb_segment *seg, const struct arb_move *move, const struct arb_snap *s);

/* The record that counts `ticks` of it is published. */
void arb_lost_add(struct arb_segment *seg, uint64_t ticks);

#endif

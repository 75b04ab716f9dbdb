/* Time that is lost when a GPU is handed over from one client to the next: nobody runs, though somebody waits for its turn. */
#ifndef ARB_LOST_H
#define ARB_LOST_H

#include "shm/segment/running.h"

/* A record that has not been counted on yet: does the GPU stand still in it while it is handed over? */
bool arb_lost_begins(const struct arb_segment *seg, const struct arb_move *move, const struct arb_snap *s);

/* The record that counts `ticks` of it is published. */
void arb_lost_add(struct arb_segment *seg, uint64_t ticks);

#endif

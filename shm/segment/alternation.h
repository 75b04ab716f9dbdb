/*
 * Whether the GPU serves its processes one after the other: in time slices, or out of one queue. A client that
 * measures it says so in one word of the header, and it counts for all clients for a while. The word only
 * decides whether clients take turns: a wrong one costs some of the work that could have run side by side.
 */
#ifndef ARB_ALTERNATION_H
#define ARB_ALTERNATION_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/segment/segment.h"
#include "shm/segment/snapshot.h"

/* How long the word counts. Clients that take turns cannot see whether the GPU still alternates, so it must be seen
 * anew from time to time; that costs some tenths of a second in which limits are less exact. */
#define ARB_ALTERNATES_NS 60000000000u

bool arb_alternates(const struct arb_segment *seg, uint64_t now_ns);
/* Turns for a trial, in which a client measures its work alone: two windows and the rest of the one that runs. */
#define ARB_TRIAL_NS 300000000u

/* The owner of this slot has just seen that the GPU alternates, or wants to find out. */
void arb_alternates_note(struct arb_segment *seg, uint32_t slot, uint64_t now_ns, bool trial);

#endif

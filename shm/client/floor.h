/*
 * What a client gets although others come before it. The words that say so can be written by any process that may join.
 * So a client believes them for a while only: it measures, by its own books, what it gets while it is held up, and if that
 * is too little it goes on (shm/README.md, "What a client keeps"). All of these functions are called with the client's
 * lock.
 */
#ifndef ARB_FLOOR_H
#define ARB_FLOOR_H

#include "shm/client/client_state.h"

/*
 * Called when the client must stop for others, or has no quota left because the quotas of others make its own smaller.
 * Returns whether it goes on in spite of that.
 */
bool arb_floor_keeps(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns);
/* Called when the client must wait for its turn. Returns whether it goes on without one. */
bool arb_floor_keeps_turn(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns);
/* Called when another client ends the client's turn before its time. */
void arb_floor_cut(struct gpuarb_client *c, const struct arb_snap *snap);
/* Called when the client has waited for nothing: the client that had the place, or for which it was kept, was dead; or
 * another client runs in its turn. */
void arb_floor_in_vain(struct gpuarb_client *c, uint64_t now_ns);
/* Called at each roll. */
void arb_floor_lapse(struct gpuarb_client *c, uint64_t now_ns);
/* Called at each tick while the client runs: it is not held up now. */
void arb_floor_goes_on(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns);
/* Has an administrator given the account of this slot a priority above that of the client? */
bool arb_floor_put_above(const struct gpuarb_client *c, uint32_t i);

#endif

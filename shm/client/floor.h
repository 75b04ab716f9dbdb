/*
 * What a client keeps although others come before it. That another client comes before it is said by words that any
 * process can write that may join. So a client measures, by its own books, what it gets while it is held up, and does
 * not stop for good (shm/README.md, "What a client keeps"). All of this is called with the client's lock.
 */
#ifndef ARB_FLOOR_H
#define ARB_FLOOR_H

#include "shm/client/client_state.h"

/*
 * Called when the client must stop for others, or has no quota left because theirs make its own smaller. Returns
 * whether it goes on in spite of that.
 */
bool arb_floor_keeps(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns);
/* Called when the client must wait for its turn; returns the same. */
bool arb_floor_keeps_turn(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns);
/* Called when its turn ends before its time because of another client. */
void arb_floor_cut(struct gpuarb_client *c, const struct arb_snap *snap);
/* Called when the client has cleaned up behind a dead one that had the place, or that the place was kept for; and when
 * its turn ends early because another runs beside it. */
void arb_floor_in_vain(struct gpuarb_client *c, uint64_t now_ns);
/* Called at each roll. */
void arb_floor_lapse(struct gpuarb_client *c, uint64_t now_ns);
/* Called at each tick while the client runs: it is not held up now. */
void arb_floor_goes_on(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns);
/* Has an administrator given the account of this slot a priority above that of the client? */
bool arb_floor_put_above(const struct gpuarb_client *c, uint32_t i);

#endif

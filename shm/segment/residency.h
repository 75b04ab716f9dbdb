/*
 * Which clients may have their memory on the GPU. A client that gets into the running set under the policy `memory`
 * has a turn: its memory counts while it runs, and while it keeps its turn although it has no work (turn_hold_ns).
 * Clients that fit together have their turns together; the others wait.
 */
#ifndef ARB_RESIDENCY_H
#define ARB_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/segment/running.h"
#include "shm/segment/settings.h"
#include "shm/segment/wait.h"

/* What a decision is about. */
struct arb_residency {
	const struct arb_segment *seg;
	const struct arb_rules *rules;
	const struct arb_snap *snap;
	uint64_t now_ns;
};

/* May slot `me` run as of this snapshot? 0, or a positive enum arb_reason. */
uint32_t arb_residency_admit(const struct arb_residency *r, uint32_t me);

/* The waiting slot that has room now and goes first, or ARB_NONE. */
uint32_t arb_residency_choose(const struct arb_residency *r);

/* Gives the order of waiters. A turn may well be longer than max_wait_ms, so a waiter goes before those of higher
 * priority only after it has waited for two rounds: twice the sum of the turns of all that run or wait. */
struct arb_order arb_residency_order(const struct arb_residency *r);

/* Must slot `me` end its turn, because it is over and others wait, or because all do not fit any more? */
bool arb_residency_over(const struct arb_residency *r, uint32_t me);

/* Has slot `me` a turn? It need not be running. */
bool arb_residency_holds(const struct arb_residency *r, uint32_t me);

/*
 * Called by the holder of byte `me`. Enter: called once the client is in the set; true if a turn begins, false if it
 * goes on. Leave: called before it leaves; with `keep` it may come back at once.
 */
bool arb_residency_enter(const struct arb_residency *r, uint32_t me);
void arb_residency_leave(const struct arb_residency *r, uint32_t me, bool keep);

#endif

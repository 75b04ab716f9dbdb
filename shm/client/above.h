/*
 * Precedence: a client of a lower level stops while a client of a higher level has work (shm/README.md). All of these
 * functions are called with the client's lock, and not on a GPU where no client has a priority, a request or a weight
 * of its own.
 */
#ifndef ARB_ABOVE_H
#define ARB_ABOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/client/client_state.h"

/* A member that has given no sign of life for this long is stopped or dead: no client stops for it. More than twice
 * the longest time between two heartbeats (8 ms). */
#define ARB_ABOVE_HEARD_NS 20000000u
/* For this long a lease keeps clients below from launching although its holder has launched nothing yet. */
#define ARB_ABOVE_LEASE_NS 20000000u
/* A client that was heard of within this time is present: clients below it keep little work queued. */
#define ARB_ABOVE_PRESENT_NS 1000000000u

/* Returns whether clients of this GPU look at levels. */
static inline bool arb_above_matters(const struct gpuarb_client *c)
{
	return arb_hint32(&c->seg.header->ranks) != 0;
}

/* Returns whether levels decide who launches. Where one client runs at a time, the queue decides, by priority. Under
 * `memory` several run together, and turns are about memory alone. */
static inline bool arb_above_decides(const struct gpuarb_client *c)
{
	return !c->turn.taken || c->rules.policy == ARB_POLICY_MEMORY;
}

/* Finds the level that the client has now; stores it in its slot, where others see it. */
uint32_t arb_above_level(struct gpuarb_client *c);

/* Must the client stop, as of this snapshot? */
bool arb_above_me(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns);

/* Clients that use this GPU now and then, and may come before this client. */
struct arb_above_seen {
	bool priority; /* a client of a higher priority */
	bool request;  /* a member of another account that has a request */
};
struct arb_above_seen arb_above_present(const struct gpuarb_client *c, uint64_t now_ns);

/* Called after the client has entered: closes the gates of clients of lower levels, and its own if a client of a
 * higher level has come. */
void arb_above_entered(struct gpuarb_client *c);

/* Closes the gates of all members that must stop while a client of this level has work. */
void arb_above_close(struct arb_segment *seg, const struct arb_snap *snap, uint32_t me, uint32_t level);

/* Called after the client got a lease: clients of lower levels stop launching before its work comes. */
void arb_above_leased(struct gpuarb_client *c);

/* Wakes the waiters that may go on, as of the present record. */
void arb_above_release(struct arb_segment *seg);

/* Called while the client runs: if its level has changed, it tells the others. */
int arb_above_tick(struct gpuarb_client *c);

#endif

/* Cleans up after a client that left or died. The holder of its byte does this, alone, any number of times. */
#ifndef ARB_RECLAIM_H
#define ARB_RECLAIM_H

#include <stdint.h>

#include "shm/segment/segment.h"
#include "shm/segment/settings.h"

/* What was found and freed. */
struct arb_reclaimed {
	uint32_t slot;
	uint32_t pid;
	uint64_t pid_ns;
	char command[ARB_COMMAND_BYTES];
	char account[ARB_NAME_BYTES];
	uint64_t used_ticks;  /* billed to it while it lived */
	uint64_t freed_bytes; /* memory it still had */
	bool was_running;
};

/* How its owner went. */
enum arb_gone {
	ARB_GONE_LEFT, /* it is billed to now */
	ARB_GONE_DIED, /* to its last sign of life, or little later; more than a window's debt is not left behind */
};

/*
 * Takes `slot`, whose byte the caller holds, out of every bitmap, bills it, gives its place to the next client, and
 * detaches it from its account. Never sleeps. -EBUSY: another process holds the directory; the slot's place is free
 * all the same, and the next client that looks does the rest.
 */
int arb_reclaim_clean(struct arb_segment *seg, uint32_t slot, enum arb_gone gone,
	const struct arb_rules *rules, struct arb_reclaimed *what);

/* Takes the byte if its owner is dead, and cleans: 1 reclaimed, 0 alive or already clean, or -errno. Tries again for
 * a while if another process holds the directory, so the caller must hold no process lock. */
int arb_reclaim_slot(
	struct arb_segment *seg, uint32_t slot, const struct arb_rules *rules, struct arb_reclaimed *what);

/* Takes the place of a client that lives but is silent: 1 evicted, 0 not. */
int arb_reclaim_evict(struct arb_segment *seg, uint32_t me, uint32_t victim, const struct arb_rules *rules);

/*
 * After -EOWNERDEAD from a transition of slot `me`: looks at every member of the running set that is silent,
 * the longest silent first, so that each is billed to its own end. *asked (ticks) is for the next attempt.
 */
int arb_reclaim_silent(struct arb_segment *seg, uint32_t me, const struct arb_rules *rules, uint64_t *asked);

/* Looks at one slot: reclaims it if dead, evicts it if it runs and is silent. As slot `me`. Never
 * sleeps: -EBUSY as above. */
int arb_reclaim_look(
	struct arb_segment *seg, uint32_t me, uint32_t slot, bool runs, const struct arb_rules *rules);

#endif

/* Cleans up after a client that left or died. Only the holder of the slot's byte does this; it may be repeated any
 * number of times. */
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
	uint64_t freed_bytes; /* memory that it still held */
	bool was_running;
};

/* How the slot's owner went. */
enum arb_gone {
	ARB_GONE_LEFT, /* it is billed up to now */
	ARB_GONE_DIED, /* it is billed to shortly after its last sign of life; it leaves a window's debt at most */
};

/*
 * Takes `slot`, whose byte the caller holds, out of every bitmap, bills it, gives its place to the next client, and
 * detaches it from its account. Never sleeps. -EBUSY: another process holds the directory; the slot's place is free
 * all the same, and the next client that looks does the rest.
 */
int arb_reclaim_clean(struct arb_segment *seg, uint32_t slot, enum arb_gone gone,
	const struct arb_rules *rules, struct arb_reclaimed *what);

/* Does that behind an owner that is gone, counts it and writes the event: it died, or a tree of processes has ended. */
int arb_reclaim_held(
	struct arb_segment *seg, uint32_t slot, const struct arb_rules *rules, struct arb_reclaimed *what);

/* Takes the byte if its owner is dead, and cleans: 1 reclaimed, 0 alive or already clean, or -errno. Tries again for
 * a while if another process holds the directory, so the caller must hold no process lock. */
int arb_reclaim_slot(
	struct arb_segment *seg, uint32_t slot, const struct arb_rules *rules, struct arb_reclaimed *what);

/* Takes the place of a client that lives but is silent: 1 evicted, 0 not. */
int arb_reclaim_evict(struct arb_segment *seg, uint32_t me, uint32_t victim, const struct arb_rules *rules);

/*
 * After -EOWNERDEAD from a transition of slot `me`: probes every silent member of the running set, the one that has
 * been silent for longest first, so that each is billed to its own end. *asked (ticks) is for the next attempt.
 */
int arb_reclaim_silent(struct arb_segment *seg, uint32_t me, const struct arb_rules *rules, uint64_t *asked);

/* Looks at one slot, as slot `me`: reclaims it if its owner is dead, evicts it if it runs and is silent. Never
 * sleeps: -EBUSY as above. */
int arb_reclaim_look(
	struct arb_segment *seg, uint32_t me, uint32_t slot, bool runs, const struct arb_rules *rules);

#endif

/* Who owns a slot: the kernel says so, through the lock on its byte. */
#ifndef ARB_SLOT_H
#define ARB_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "os.h"
#include "segment.h"

/* A lock held for a moment: a descriptor of its own, so that threads exclude each other as well. */
struct arb_lock {
	int fd;
	uint64_t byte;
};

/* -EAGAIN: taken; -ESTALE: the file was removed or replaced. */
int arb_slot_lock(const struct arb_segment *seg, uint64_t byte, struct arb_lock *lock);
/* The same, trying again for up to patience_ns. */
int arb_slot_lock_wait(
	const struct arb_segment *seg, uint64_t byte, uint64_t patience_ns, struct arb_lock *lock);
/* From here on this thread tries no longer than until then, whatever the patience; 0: no such bound. Returns
 * the bound that there was. A byte may be held by one that is stopped, and somebody waits for our answer. */
uint64_t arb_slot_wait_bound(uint64_t until_ns);
void arb_slot_unlock(struct arb_lock *lock);

/* 1: its owner lives, 0: nobody holds the byte, or -errno: cannot tell. */
int arb_slot_alive(const struct arb_segment *seg, uint32_t i);

/*
 * Takes the lowest free byte for good: *page holds the lock until it is unmapped. -EUSERS: all are taken.
 * What a dead predecessor left in the slot is the caller's to clean. With `kept` not NULL the descriptor stays
 * open as well, for one who lets a program inherit it: the lock lasts until all of them are gone.
 */
int arb_slot_claim(struct arb_segment *seg, uint32_t *slot, void **page, int *kept);
/* Takes one byte for good, in the same way: -EAGAIN if it is taken. Unmapping the page gives it back. */
int arb_slot_hold(const struct arb_segment *seg, uint64_t byte, void **page);
/* Between these, fork() of another thread waits: what it copies is whole. */
void arb_slot_hold_forks(void);
void arb_slot_let_fork(void);
void arb_slot_release(struct arb_segment *seg, uint32_t slot, void *page);

/* Fills in a slot whose byte is held, and shows it (SLOT_PUBLISH). */
void arb_slot_fill(
	struct arb_segment *seg, uint32_t slot, const struct arb_os_identity *id, uint32_t priority);
void arb_slot_show(struct arb_segment *seg, uint32_t slot);

#endif

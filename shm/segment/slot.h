/* Who owns a slot: the kernel says so, through the lock on its byte. */
#ifndef ARB_SLOT_H
#define ARB_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/base/os.h"
#include "shm/segment/segment.h"

/* How long somebody tries again: for length_ns from the first pause on, and not beyond until_ns (0: no such
 * bound). The rest is filled in by the pauses. */
struct arb_patience {
	uint64_t length_ns, until_ns;
	uint64_t end_ns, pause_ns;
};

/* A sleep, longer each time, by one who holds no process lock. False: the time is over, and it has not slept.
 */
bool arb_patience_pause(struct arb_patience *p);

/* A lock held for a moment: a descriptor of its own, so that threads exclude each other as well. */
struct arb_lock {
	int fd;
	uint64_t byte;
};

/* -EAGAIN: taken; -ESTALE: the file was removed or replaced. */
int arb_slot_lock(const struct arb_segment *seg, uint64_t byte, struct arb_lock *lock);
/* Tries again for up to patience_ns while the byte is taken: for threads that hold no lock of the process. */
int arb_slot_lock_wait(
	const struct arb_segment *seg, uint64_t byte, uint64_t patience_ns, struct arb_lock *lock);
/* The directory's byte, a few tries one right behind the other and no sleep: -EBUSY if it is taken. Who wants
 * it for longer lets go of its locks, pauses and comes again. */
int arb_slot_directory(const struct arb_segment *seg, struct arb_lock *lock);
void arb_slot_unlock(struct arb_lock *lock);

/* 1: its owner lives, 0: nobody holds the byte, or -errno: cannot tell. Who may only look, and so not open the locks, is
 * told by the process's number where it means something to the caller; else 1. */
int arb_slot_alive(const struct arb_segment *seg, uint32_t i);

/*
 * Takes the lowest free byte for good: *page holds the lock until it is unmapped. -EUSERS: all are taken;
 * -EBUSY: a fork() is under way.
 * What a dead predecessor left in the slot is the caller's to clean. With `kept` not NULL the descriptor
 * stays open as well, for one who lets a program inherit it: the lock lasts until all of them are gone.
 */
int arb_slot_claim(struct arb_segment *seg, uint32_t *slot, void **page, int *kept);
/* Takes one byte for good, in the same way: -EAGAIN if it is taken, or a fork() is under way. Unmapping the
 * page gives it back. */
int arb_slot_hold(const struct arb_segment *seg, uint64_t byte, void **page);
/* Forks wait for claims from now on. */
void arb_slot_watch(void);
/* Between these, fork() of another thread waits: what it copies is whole. A fork() may take long where there
 * is much to copy, so who holds a process lock tries only: false if one is under way. */
void arb_slot_hold_forks(void);
bool arb_slot_try_hold_forks(void);
void arb_slot_let_fork(void);
void arb_slot_release(struct arb_segment *seg, uint32_t slot, void *page);

/* Fills in a slot whose byte is held, and shows it (SLOT_PUBLISH). */
void arb_slot_fill(
	struct arb_segment *seg, uint32_t slot, const struct arb_os_identity *id, uint32_t priority);
void arb_slot_show(struct arb_segment *seg, uint32_t slot);

#endif

/* The owner of a slot: the lock on the slot's byte tells whether it lives. */
#ifndef ARB_SLOT_H
#define ARB_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/base/os.h"
#include "shm/segment/segment.h"

/* How long a caller tries again: for length_ns from the first pause on, and not beyond until_ns (0: no such bound).
 * The pauses fill in the rest. */
struct arb_patience {
	uint64_t length_ns, until_ns;
	uint64_t end_ns, pause_ns;
};

/* Sleeps, longer each time; the caller holds no process lock. Returns false without a sleep if the time is over. */
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
/* Tries a few times to take the directory's byte, without a sleep: -EBUSY if it is taken. A caller that needs it for
 * sure releases its locks, pauses and tries again. */
int arb_slot_directory(const struct arb_segment *seg, struct arb_lock *lock);
void arb_slot_unlock(struct arb_lock *lock);

/* Returns 1: the slot's owner lives; 0: no process holds the byte; or -errno: it cannot be told. A user who may only
 * look cannot open the locks; then the process's number decides, if it means something in the caller's PID namespace.
 * Otherwise the result is 1. */
int arb_slot_alive(const struct arb_segment *seg, uint32_t i);

/*
 * Takes the lowest free byte for good: *page holds the lock until it is unmapped. -EUSERS: all are taken; -EBUSY: a
 * fork() is under way. The caller cleans what a dead predecessor left in the slot. If `kept` is not NULL the
 * descriptor stays open as well, for a caller that lets a program inherit it: the lock lasts until all copies are
 * closed.
 */
int arb_slot_claim(struct arb_segment *seg, uint32_t *slot, void **page, int *kept);
/* Takes one byte for good, as arb_slot_claim does: -EAGAIN if it is taken, or a fork() is under way. Unmapping the
 * page releases it. */
int arb_slot_hold(const struct arb_segment *seg, uint64_t byte, void **page);
/* Makes forks wait for claims from now on. */
void arb_slot_watch(void);
/* Between these two calls a fork() in another thread waits, so that what it copies is whole. A fork() of a large
 * process may take long, so a caller that holds a process lock only tries: false if a fork() is under way. */
void arb_slot_hold_forks(void);
bool arb_slot_try_hold_forks(void);
void arb_slot_let_fork(void);
void arb_slot_release(struct arb_segment *seg, uint32_t slot, void *page);

/* Fills in a slot whose byte is held, and shows it (SLOT_PUBLISH). */
void arb_slot_fill(
	struct arb_segment *seg, uint32_t slot, const struct arb_os_identity *id, uint32_t priority);
void arb_slot_show(struct arb_segment *seg, uint32_t slot);

#endif

/*
 * The lock of one process over its own slot. Nearly always one thread takes it, so the lock belongs to that thread,
 * for which taking it is a store and a load. When another thread comes, this bias is revoked for good, and all
 * threads pay for an atomic operation. The other thread's membarrier() orders the owner's store and load, because the
 * owner itself does not (LOCK_BIAS).
 *
 * All zeros means free, and owned by no thread, so it may live in a page that is wiped on fork.
 */
#ifndef ARB_LOCK_H
#define ARB_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/base/atomic.h"
#include "shm/base/fault.h"
#include "shm/base/self.h"

struct arb_process_lock {
	arb_u64 owner;   /* the thread that the lock belongs to; 0: nobody yet */
	arb_u32 inside;  /* written by the owner alone */
	arb_u32 revoked; /* 1: the bias is over */
	arb_u32 word;    /* the ordinary lock */
	bool biased;     /* how it was taken; written by the holder */
};

/* Makes the calling thread the owner. Without membarrier() there is no bias. */
void arb_lock_bias(struct arb_process_lock *lock);

/* No thread may sleep while it has one of these locks, because other threads that have to answer in time may want it.
 * In debug builds a thread that is about to sleep asks this function, and stops there if it has one. */
#ifdef ARB_DEBUG
extern __thread unsigned arb_locks_held __attribute__((tls_model("initial-exec")));
void arb_lock_none_held(void);
#define ARB_LOCK_COUNT(by) (arb_locks_held += (by))
#else
static inline void arb_lock_none_held(void)
{
}
#define ARB_LOCK_COUNT(by) ((void)0)
#endif

void arb_lock_take_slow(struct arb_process_lock *lock);

/* For a thread that may have been interrupted while it held the lock itself, and will not return to that place: a
 * program that ends in a signal handler. Returns false if a thread holds the lock and goes on holding it. */
bool arb_lock_free(const struct arb_process_lock *lock);

static inline void arb_lock_take(struct arb_process_lock *lock)
{
	ARB_LOCK_COUNT(1);
	if (__builtin_expect(arb_load64(&lock->owner) == arb_self_thread(), 1)) {
		arb_store32(&lock->inside, 1);
		arb_fence_compiler(); /* LOCK_BIAS: the processor is held by the other side's membarrier() */
		if (__builtin_expect(!arb_load32_acquire(&lock->revoked), 1)) {
			lock->biased = true;
			return;
		}
		arb_store32_release(&lock->inside, 0);
	}
	arb_lock_take_slow(lock);
}

static inline void arb_lock_give(struct arb_process_lock *lock)
{
	ARB_LOCK_COUNT(-1u);
	if (__builtin_expect(lock->biased, 1)) {
		arb_store32_release(&lock->inside, 0);
	} else {
		arb_store32_release(&lock->word, 0);
		arb_fault_disallow();
	}
}

#endif

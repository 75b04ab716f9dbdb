#include "shm/base/lock.h"

#include <stdio.h>
#include <stdlib.h>

#include "shm/base/fault.h"
#include "shm/base/os.h"

/* The sections under the lock take microseconds; a busy machine may hold up a thread inside. */
#define FREE_WAIT_NS 100000000ull

#ifdef ARB_DEBUG
__thread unsigned arb_locks_held;

void arb_lock_none_held(void)
{
	if (arb_locks_held) {
		fprintf(stderr, "gpuarb: about to sleep with a lock of the process in hand\n");
		abort();
	}
}
#endif

/* The sections under this lock are short, and no thread sleeps in them. So: spin, then yield, then sleep shortly
 * between looks. */
static void relax(unsigned tries)
{
	if (tries < 100)
		arb_pause();
	else if (tries < 200)
		arb_os_yield();
	else
		arb_os_sleep_ns(50000);
}

void arb_lock_bias(struct arb_process_lock *lock)
{
	arb_fault_allow();
	arb_fault_disallow();
	/* A thread whose signal mask has to be changed around each access takes the ordinary lock, which changes
	 * it. */
	if (arb_fault_blocks < 0 && arb_os_barrier(true) == 0)
		arb_store64(&lock->owner, arb_self_thread());
	else
		arb_store32(&lock->revoked, 1);
}

bool arb_lock_free(const struct arb_process_lock *lock)
{
	uint64_t end = arb_os_now_ns() + FREE_WAIT_NS;

	for (unsigned i = 0; arb_load32_acquire(&lock->inside) || arb_load32_acquire(&lock->word); i++) {
		if (arb_os_now_ns() > end)
			return false;
		relax(i);
	}
	return true;
}

void arb_lock_take_slow(struct arb_process_lock *lock)
{
	arb_fault_allow();
	for (unsigned i = 0; !arb_cas32_full(&lock->word, 0, 1); i++)
		relax(i);
	if (arb_load64(&lock->owner) && !arb_load32(&lock->revoked)) {
		arb_store32_release(&lock->revoked, 1);
		/* LOCK_BIAS: after this the owner has seen `revoked`, or we see it inside. A filter of system
		 * calls that the program put on since may refuse it; but no store waits that long. */
		if (arb_os_barrier(false) != 0)
			arb_os_sleep_ns(1000000);
	}
	/* The owner may have come in before that, and is waited for; afterwards it takes the ordinary lock. */
	for (unsigned i = 0; arb_load32_acquire(&lock->inside); i++)
		relax(i);
	lock->biased = false;
}

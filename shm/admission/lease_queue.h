/*
 * The queue for leases, as one process sees it: its own threads that wait, and the first waiter of each other
 * process. All of it is under the process's admission lock.
 */
#ifndef ARB_QUEUE_H
#define ARB_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpuarb/abi.h"
#include "gpuarb/classes.h"

#include "shm/admission/decide.h"
#include "shm/segment/usage.h"

struct gpuarb_client;

/* No waiter sleeps for longer than this without looking. */
#define ARB_QUEUE_SLEEP_NS 50000000u

/* A thread that waits: on its own stack, in the list of its process. */
struct arb_waiter {
	struct arb_waiter *next;
	uint32_t want;
	uint64_t since_ns;
};

/* A gpuarb_acquire, from the call to its answer. */
struct arb_task {
	struct gpuarb_client *c;
	const char *name;
	struct gpuarb_class_rules rules;
	struct arb_usage_rules usage;
	unsigned highest;
	uint64_t grace_ns;
	uint32_t win_ms;
	uint64_t began_ns, now_ns, until_ns;
	struct arb_waiter me;
	bool listed;
	bool queued_inside; /* refused by the running set, after the class and the pressure let it pass */
	uint32_t ahead;     /* the slot that goes first, or ARB_NONE */
	uint32_t rank;
	bool high;   /* the pressure as it was found */
	bool leases; /* a lease is held */
	bool turns;  /* clients take turns, so a waiter may have to wait for its own */
	uint64_t
		woken_cpu_ns; /* the thread's CPU time before the sleep from which it was woken; 0: it was not */
};

static inline unsigned arb_want_priority(uint32_t want)
{
	return want >> ARB_WANT_PRIORITY_SHIFT & 127;
}

/* Higher classes come before lower ones; within a class, the longer wait comes first. */
static inline bool arb_want_before(uint32_t want, uint64_t since_ns, const struct arb_waiter *than)
{
	if (arb_want_priority(want) != arb_want_priority(than->want))
		return arb_want_priority(want) > arb_want_priority(than->want);
	return since_ns < than->since_ns;
}

/* Shows other processes the first of our threads that wait; its class is our priority in the queue of the running set.
 */
void arb_queue_show(struct gpuarb_client *c);
/* Shows other processes that we hold a lease, or are about to take one. */
void arb_queue_show_lease(struct gpuarb_client *c, bool on);
void arb_queue_join(struct arb_task *t);
void arb_queue_leave(struct arb_task *t);
/* Do as many processes wait with the task's class as its queue_limit allows? To be asked after the task itself can be
 * seen, so that never too many wait. */
bool arb_queue_full(const struct arb_task *t);
/* Returns whether a lease is held, not counting the bit that we may have set for a try. */
bool arb_queue_leases(const struct gpuarb_client *c);
/* Returns the situation of a task with this want, by the task's look at pressure and leases. */
struct arb_decide_case arb_queue_case(const struct arb_task *t, uint32_t want);
/* Returns how many waiters go before us and would fit. Fills in `ahead` and `rank`. */
uint32_t arb_queue_ahead(struct arb_task *t);
/* Wakes the first waiter that is not blocked, because something is free or because a waiter before it has gone. */
void arb_queue_wake(struct gpuarb_client *c);
/* Wakes that waiter unless it belongs to our own process: it may have waited because of our lease bit, which was set
 * for an attempt only. */
void arb_queue_wake_other(struct gpuarb_client *c);
/* Do our two bits still say what we wrote last? If another process has written garbage over them, others may wait for
 * a process that does not wait. Without the admission lock the answer is a guess. */
bool arb_queue_bits_agree(const struct gpuarb_client *c);
/* Writes our two bits again where they do not agree. The caller holds no lock. */
void arb_queue_tidy(struct gpuarb_client *c);
/* Probes whether the waiter before us still lives or, if there is none, the holders of leases. */
void arb_queue_patrol(struct arb_task *t);

#endif

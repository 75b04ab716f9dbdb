/*
 * What wake-ups by other processes may cost. Any process that may write a segment can wake the threads that sleep on its
 * words, without end. So what a thread does because it was woken, and that led to nothing, is counted in its CPU time, and
 * is bounded: where too much has been spent the thread sleeps for a while without listening to such words.
 */
#ifndef ARB_WAKEUPS_H
#define ARB_WAKEUPS_H

#include <stdint.h>

/* The part of a core that such wake-ups may cost: one in this many. */
#define ARB_WAKEUPS_PART 50
/* What may be saved up, in ns of CPU time. One wake-up costs some 10 us, so some hundred may come at once, as where many
 * clients come or go together; and after a quarter of a second it is saved up again. */
#define ARB_WAKEUPS_SAVED_NS 5000000

/* All zeros at first: everything is saved up. */
struct arb_wakeups {
	uint64_t at_ns;   /* when it was counted last */
	int64_t spent_ns; /* of what may be saved up; more than that is a debt */
};

/* Counts what a wake-up cost. Returns for how many ns the thread is not to listen; 0: it may. */
static inline uint64_t arb_wakeups_count(struct arb_wakeups *w, uint64_t cost_ns, uint64_t now_ns)
{
	uint64_t gone = w->at_ns && now_ns > w->at_ns ? (now_ns - w->at_ns) / ARB_WAKEUPS_PART : 0;

	w->at_ns = now_ns;
	w->spent_ns -= gone < (uint64_t)w->spent_ns ? (int64_t)gone : w->spent_ns;
	w->spent_ns += (int64_t)(cost_ns < ARB_WAKEUPS_SAVED_NS ? cost_ns : ARB_WAKEUPS_SAVED_NS);
	return w->spent_ns > ARB_WAKEUPS_SAVED_NS
		       ? (uint64_t)(w->spent_ns - ARB_WAKEUPS_SAVED_NS) * ARB_WAKEUPS_PART
		       : 0;
}

#endif

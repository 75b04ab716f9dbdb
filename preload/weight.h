/*
 * What a client pays beside others. One that keeps the device backlogged has the full weight. One that waits
 * for each piece of its work gets less than its part where the device gives time slices: it is out of work
 * for most of its slice. So its weight is what makes its bill equal to what it got:
 *
 *	got = work / stay,   bill = w / (w + others)   =>   w = others * work / (stay - work)
 *
 * where `work` is how long the same calls take when nobody else runs; where that was never seen, how long the
 * GPU took from reaching the call to its end.
 */
#ifndef PRELOAD_WEIGHT_H
#define PRELOAD_WEIGHT_H

#include <stdbool.h>
#include <stdint.h>

#define WEIGHT_ONE     256
#define WEIGHT_HANDLES 64

struct weight {
	struct {
		uint64_t handle, ns;
	} alone[WEIGHT_HANDLES];   /* by handle: how long a call takes alone */
	uint64_t call_ns;          /* the same of any call, on average; 0: not known */
	uint64_t work_ns, stay_ns; /* of the last stays beside others */
	uint64_t others_ns;        /* others' weight times stay */
	uint32_t now;              /* 1..WEIGHT_ONE; 0 counts as WEIGHT_ONE */
};

/* A stay in the running set that has ended. */
struct weight_stay {
	uint64_t ns;
	uint64_t calls;    /* that gave it work */
	uint64_t handle;   /* of the first */
	uint64_t timed_ns; /* by events on both sides of the first; 0: not known */
	uint32_t others;   /* weight of the others in the set */
	bool steady;       /* they did not change */
	bool held;         /* there was more work than could be queued */
};

/* How long a call takes alone; 0: not known. */
uint64_t weight_alone(const struct weight *w, uint64_t handle);
void weight_learn(struct weight *w, const struct weight_stay *stay);

#endif

/* The loads of bench_tracker: what a program launches, and how it learns of the end of its work. */
#ifndef BENCH_TRACKER_CASES_H
#define BENCH_TRACKER_CASES_H

#include <stdbool.h>
#include <stdint.h>

#include "units.h"

/* How the program learns of the end of its work. */
enum waiting { NOTHING, SYNCS, POLLS, IS_CALLED };

struct way {
	const char *name;
	uint64_t least_ns, most_ns; /* of a kernel */
	unsigned limit;
	bool anew;        /* each kernel is one that was never launched before */
	bool contended;   /* another program runs all the time */
	unsigned streams; /* a kernel in each stream at once; 0: only the default stream */
	bool contexts;    /* each stream is in another context */
	unsigned kernels; /* kernels behind each other */
	bool irregular;   /* or fewer */
	enum waiting waits;
};

static const struct way ways[] = {
	{"300us", 300 * US, 300 * US, 90, false, false, 0, false, 1, false, NOTHING},
	{"1ms", 1 * MS, 1 * MS, 90, false, false, 0, false, 1, false, NOTHING},
	{"10ms", 10 * MS, 10 * MS, 90, false, false, 0, false, 1, false, NOTHING},
	{"unlimited", 1 * MS, 1 * MS, 100, false, false, 0, false, 1, false, NOTHING},
	{"unlimited-burst", 300 * US, 2 * MS, 100, false, false, 0, false, 10, false, NOTHING},
	{"varied", 300 * US, 20 * MS, 90, false, false, 0, false, 1, false, NOTHING},
	{"new", 300 * US, 20 * MS, 90, true, false, 0, false, 1, false, NOTHING},
	{"streams", 300 * US, 2 * MS, 90, false, false, 10, false, 1, false, NOTHING},
	{"streams-40", 100 * US, 500 * US, 90, false, false, 40, false, 1, false, NOTHING},
	{"contexts-4", 300 * US, 2 * MS, 90, false, false, 4, true, 1, false, NOTHING},
	{"burst", 300 * US, 2 * MS, 90, false, false, 0, false, 10, false, NOTHING},
	{"irregular", 300 * US, 2 * MS, 90, false, false, 0, false, 10, true, NOTHING},
	{"synced", 300 * US, 20 * MS, 90, false, false, 0, false, 1, false, SYNCS},
	{"polled", 300 * US, 20 * MS, 90, false, false, 0, false, 1, false, POLLS},
	{"callback", 300 * US, 20 * MS, 90, false, false, 0, false, 1, false, IS_CALLED},
	{"contended-1ms", 1 * MS, 1 * MS, 45, false, true, 0, false, 1, false, NOTHING},
	{"contended-10ms", 10 * MS, 10 * MS, 45, false, true, 0, false, 1, false, NOTHING},
};

#endif

/* Requests of a client beside a greedy one: how long they take, and how much the greedy client keeps. build/world
 * --cases 'latency-*' and build/bench_latency run them. */
#ifndef BENCH_LATENCY_CASES_H
#define BENCH_LATENCY_CASES_H

#include <stdbool.h>
#include <stddef.h>

#include "bench/devices.h"

#define LATENCY_HIGH "90"
#define LATENCY_LOW  "10"
/* The class of the leases that requests take, in ways with leases; its priority is LATENCY_HIGH. */
#define LATENCY_CLASS "urgent"
/* Requests arrive at random, on average at this distance. */
#define LATENCY_APART_US 10000
/* slice_ms, by default. */
#define LATENCY_SLICE_US 10000

struct latency_case {
	const char *name, *settings;
	const char *request; /* arguments of the load that makes the requests */
	double kernel_us;    /* length of the greedy client's kernels */
	bool equal;          /* both have the same priority */
};

/* A way in which a case is run. */
struct latency_way {
	const char *name, *policy;
	bool alone;  /* without the greedy client */
	bool bare;   /* without gpuarb */
	bool lease;  /* each request takes a lease first */
	bool median; /* the median, and what the greedy client keeps, are judged too */
	double p99;  /* a multiple of the time alone; a kernel of the other client is added; 0: not judged */
};

static const struct latency_way latency_ways[] = {
	{"alone", NULL, true, true, false, false, 0},
	{"bare", NULL, false, true, false, false, 0},
	{"concurrent", NULL, false, false, false, true, 1.07},
	{"lease", NULL, false, false, true, true, 1.02},
	{"auto", "auto", false, false, false, true, 1.07},
	{"fair", "fair", false, false, false, false, 1.07},
	{"exclusive", "exclusive", false, false, false, false, 1.07},
	{"memory", "memory", false, false, false, true, 1.07},
};
#define LATENCY_WAYS (sizeof(latency_ways) / sizeof(latency_ways[0]))

#define LATENCY_SHARED "GPUSIM_MODE=share GPUSIM_SLICE_US=2000"
#define LATENCY_ONE    "--pattern=request --every=1 --kernel-us=500"
#define LATENCY_MANY   "--pattern=request --every=20 --kernel-us=50"
/* A request that may have to wait for a slice does not have to wait for the request before it as well. */
#define LATENCY_EQUAL LATENCY_ONE " --closed"
#define LATENCY_ON(suffix, settings)                                                                         \
	{"latency-one-20us" suffix, settings, LATENCY_ONE, 20, false},                                       \
		{"latency-one-1ms" suffix, settings, LATENCY_ONE, 1000, false},                              \
		{"latency-many-20us" suffix, settings, LATENCY_MANY, 20, false},                             \
		{"latency-many-1ms" suffix, settings, LATENCY_MANY, 1000, false},                            \
		{"latency-equal-20us" suffix, settings, LATENCY_EQUAL, 20, true},                            \
	{                                                                                                    \
		"latency-equal-1ms" suffix, settings, LATENCY_EQUAL, 1000, true                              \
	}

static const struct latency_case latency_cases[] = {
	LATENCY_ON("", LATENCY_SHARED),
	LATENCY_ON("-slices", SLICES(2000)),
};
#define LATENCY_CASES (sizeof(latency_cases) / sizeof(latency_cases[0]))

/* The percent that the greedy client keeps, of the time that the requests leave. */
#define LATENCY_KEEPS 90.0

/*
 * The median is at most 1.10 times that alone. No kernel is interrupted, so a request that comes at random waits for
 * what is left of the running kernel. That is half of it on average, with any arbiter (README.md, "Inference beside
 * training"). If it is more than a twentieth of the request, it is added.
 */
static inline double latency_median_us(double alone_us, double kernel_us)
{
	double tenth = 1.10 * alone_us, half = 1.05 * alone_us + kernel_us / 2;

	return half > tenth ? half : tenth;
}

/* Returns whether this way of the case is judged. Among equals it is only where turns are taken; there a slice is
 * added. */
static inline bool latency_judged(const struct latency_case *c, const struct latency_way *way)
{
	return way->p99 > 0 && !(c->equal && way->median);
}

/* Among equals the place is handed over at the end of a slice: the client that had it notices the end of its work 50 us after
 * the expected end, and wakes the other, whose thread is as late as threads of this machine are. Whoever must stop for a
 * higher priority waits for that end without sleeping. */
#define LATENCY_HAND_OVER_US 150

static inline double latency_p99_us(
	const struct latency_case *c, const struct latency_way *way, double alone_us)
{
	return way->p99 * alone_us + c->kernel_us + (c->equal ? LATENCY_SLICE_US + LATENCY_HAND_OVER_US : 0);
}

/* Returns whether a measured time is within its bound. */
static inline bool latency_holds(const struct latency_case *c, const struct latency_way *way,
	double alone_median_us, double alone_p99_us, double median_us, double p99_us, double keeps)
{
	if (!latency_judged(c, way))
		return true;
	if (p99_us > latency_p99_us(c, way, alone_p99_us))
		return false;
	return !way->median ||
	       (median_us <= latency_median_us(alone_median_us, c->kernel_us) && keeps >= LATENCY_KEEPS);
}

#endif

/* The loads of bench_limits and their targets. */
#ifndef BENCH_LIMITS_CASES_H
#define BENCH_LIMITS_CASES_H

#include <stdbool.h>

#define CLIENTS 8
/* The client gets as much as it can use; this is not compared. */
#define WHATEVER (-1.0)

struct client {
	unsigned limit; /* 0: none */
	double kernel_us;
	const char *more; /* arguments of the load, separated by blanks */
	double target;    /* percent of the GPU */
};

struct limits_case {
	const char *name;
	double allowed; /* points by which a client may be off if the processes share the GPU; three times as much with time slices */
	double utilisation; /* at least; 0: whatever it is */
	struct client clients[CLIENTS];
	const char *policy; /* NULL: the default */
	double bill;        /* points that each bill may be away from what was attained; 0: not looked at */
	unsigned other;     /* the first client's limit goes to this and back every second; 0: it stays */
};

#define ALONE(limit, kernel, us, allowed)                                                                    \
	{                                                                                                    \
		"alone-" #limit "-" kernel, allowed, 0, {{limit, us, 0, limit}}, 0, 0, 0                     \
	}
#define ALONE5(kernel, us, allowed)                                                                          \
	ALONE(10, kernel, us, allowed), ALONE(25, kernel, us, allowed), ALONE(50, kernel, us, allowed),      \
		ALONE(75, kernel, us, allowed), ALONE(90, kernel, us, allowed)
#define KIND(name, us, more, target)                                                                         \
	{                                                                                                    \
		name "-25", 0.5, 0, {{25, us, more, target}}, 0, 0, 0                                        \
	}
#define TWO(a, b, ta, tb, utilisation)                                                                       \
	{                                                                                                    \
#a "+" #b, 0.5, utilisation, {{a, 20, 0, ta }, {b, 20, 0, tb } }, 0, 0, 0                    \
	}
#define MIXED(policy)                                                                                        \
	{                                                                                                    \
		"50+50-mixed-" policy, 1.0, 0, {{50, 20, 0, 50}, {50, 100000, 0, 50}}, policy, 0, 0          \
	}

static const struct limits_case cases[] = {
	ALONE5("20us", 20, 0.5),
	ALONE5("1ms", 1000, 0.5),
	ALONE5("100ms", 100000, 1.0),
	ALONE(50, "200ms", 200000, 1.0),
	/* A marker behind each kernel would take longer than the kernel. */
	ALONE(50, "5us", 5, 0.5),
	KIND("graphs", 20, "--graph=100", 25),
	KIND("ptsz", 20, "--variant=ptsz --default-stream", 25),
	KIND("ex", 20, "--variant=ex", 25),
	KIND("coop", 20, "--variant=coop", 25),
	KIND("threads", 20, "--threads=4", 25),
	KIND("streams", 20, "--streams=8", 25),
	KIND("sync", 20, "--pattern=sync", 25),
	KIND("poll", 20, "--pattern=sync --wait=poll", 25),
	/* A callback takes longer than such a kernel: four at a time, so that it could use more than a
	   quarter. */
	KIND("callback", 20, "--pattern=sync --wait=callback --every=4", 25),
	KIND("burst", 1000, "--pattern=burst --burst=20:80", 20),
	/* It never asks whether its work has ended, and is billed for its work only. */
	{"unwaited", 0.5, 0, {{60, 20, "--pattern=burst --burst=1:4 --wait=none", 20}}, 0, 1, 0},
	/* Without a limit and alone it is never held up, and is billed all the same. */
	{"free-burst", 0.5, 0, {{0, 1000, "--pattern=burst --burst=50:50", 50}}, 0, 1, 0},
	{"free-unwaited", 0.5, 0, {{0, 1000, "--pattern=burst --burst=20:20 --wait=none", 50}}, 0, 1, 0},
	{"free-unwaited-short", 0.5, 0, {{0, 50, "--pattern=burst --burst=20:20 --wait=none", 50}}, 0, 1, 0},
	TWO(50, 60, 45.4545, 54.5455, 99),
	TWO(80, 80, 50, 50, 99),
	TWO(50, 50, 50, 50, 99),
	TWO(75, 75, 50, 50, 99),
	TWO(30, 60, 30, 60, 0),
	TWO(25, 75, 25, 75, 0),
	{"30+30+30", 0.5, 0, {{30, 20, 0, 30}, {30, 20, 0, 30}, {30, 20, 0, 30}}, 0, 0, 0},
	{"10+20+30+40", 0.5, 0, {{10, 20, 0, 10}, {20, 20, 0, 20}, {30, 20, 0, 30}, {40, 20, 0, 40}}, 0, 0,
		0},
	{"80+idle", 0.5, 0, {{80, 20, 0, 80}, {80, 20, "--pattern=burst --burst=1:3600000", 0}}, 0, 0, 0},
	{"25+unlimited", 0.5, 99, {{25, 20, 0, 25}, {0, 20, 0, 75}}, 0, 0, 0},
	{"25+sync", 0.5, 0, {{25, 20, 0, 25}, {0, 20, "--pattern=sync", WHATEVER}}, 0, 2, 0},
	{"4x40+60", 0.5, 0, {{40, 20, "--processes=4", 40}, {60, 20, 0, 60}}, 0, 0, 0},
	{"40+4x60", 0.5, 0, {{40, 20, 0, 40}, {60, 20, "--processes=4", 60}}, 0, 0, 0},
	/* Each waits for every kernel, so that a GPU that serves one after the other gives them parts as their kernels are long. */
	{"30+50-lengths", 1.0, 0, {{30, 100, "--pattern=sync", 30}, {50, 1000, "--pattern=sync", 50}}, 0, 0,
		0},
	{"50+50-sync", 1.0, 0, {{50, 20, 0, 50}, {50, 20, "--pattern=sync", WHATEVER}}, 0, 2, 0},
	{"80+burst", 0.7, 99, {{80, 20, 0, 80}, {25, 1000, "--pattern=burst --burst=20:80", 20}}, 0, 0, 0},
	MIXED("concurrent"),
	MIXED("exclusive"),
	MIXED("auto"),
	MIXED("fair"),
	{"change-20-80", 1.0, 0, {{20, 20, 0, 50}}, 0, 0, 80},
};

#endif

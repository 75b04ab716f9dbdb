/* Requests and weights: the loads and their targets. GPUARB_NAME=VALUE among the arguments of a load is a variable of
 * its environment. If a client has a request and a target of at least that, it must get the request in every second.
 */
#ifndef BENCH_SHARE_CASES_H
#define BENCH_SHARE_CASES_H

#include "bench/limits_cases.h"

#define GREEDY(target)                                                                                       \
	{                                                                                                    \
		0, 20, 0, target                                                                             \
	}
#define WANTS(request, more, target)                                                                         \
	{                                                                                                    \
		0, 20, "GPUARB_REQUEST=" #request more, target                                               \
	}
#define WEIGHS(weight, target)                                                                               \
	{                                                                                                    \
		0, 20, "GPUARB_WEIGHT=" #weight, target                                                      \
	}

static const struct limits_case share_cases[] = {
	/* 75 percent are left for eight clients of the same weight. */
	{"request-25+7", 0.5, 99,
		{WANTS(25, "", 34.375), GREEDY(9.375), GREEDY(9.375), GREEDY(9.375), GREEDY(9.375),
			GREEDY(9.375), GREEDY(9.375), GREEDY(9.375)},
		0, 0, 0},
	{"request-20+30+40+2", 0.5, 99,
		{WANTS(20, "", 22), WANTS(30, "", 32), WANTS(40, "", 42), GREEDY(2), GREEDY(2)}, 0, 0, 0},
	/* What is not used is lent, all of it. */
	{"request-50-idle", 0.5, 99,
		{WANTS(50, " --pattern=burst --burst=1:3600000", 0), GREEDY(50), GREEDY(50)}, 0, 0, 0},
	/* It launches for 20 ms in 100, and gets its share during that time. */
	{"request-25-burst+80", 0.5, 99,
		{{80, 20, 0, 80}, {0, 500, "GPUARB_REQUEST=25 --pattern=timed --burst=20:80 --every=8", 20}},
		0, 0, 0},
	/* It gets its limit, and no more. */
	{"request-25-core-30+2", 0.5, 99, {{30, 20, "GPUARB_REQUEST=25", 30}, GREEDY(35), GREEDY(35)}, 0, 0,
		0},
	{"request-weights-8", 0.5, 99,
		{WEIGHS(200, 12.5), WEIGHS(200, 12.5), WEIGHS(200, 12.5), WEIGHS(200, 12.5),
			WEIGHS(200, 12.5), WEIGHS(200, 12.5), WEIGHS(200, 12.5), WEIGHS(200, 12.5)},
		0, 0, 0},
	{"request-weights-123", 0.5, 99, {WEIGHS(100, 16.6667), WEIGHS(200, 33.3333), WEIGHS(300, 50)}, 0, 0,
		0},
	/* A window holds one of the long kernels: what the kernel takes too much of a window is owed in the next. */
	{"request-50-mixed", 1.0, 99, {WANTS(50, "", 75), {0, 100000, 0, 25}}, 0, 0, 0},
	{"request-40-graphs", 0.5, 99, {WANTS(40, " --graph=100", 70), {0, 20, "--graph=100", 30}}, 0, 0, 0},
	{"request-40-4", 0.5, 99, {WANTS(40, " --processes=4", 70), GREEDY(30)}, 0, 0, 0},
};

#endif

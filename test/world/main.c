/* build/world: runs worlds, says what was found. */
#include "world.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "segment.h"

int __real_clock_gettime(clockid_t clock, struct timespec *ts);

static struct {
	uint64_t first, last;
	unsigned clients;
	double minutes;
	bool verbose, hash;
} opt = {.first = 1, .last = 1};

enum { OPT_SEED = 256, OPT_SEEDS, OPT_TRACE, OPT_CLIENTS, OPT_MINUTES, OPT_HASH };

static const struct argp_option options[] = {
	{"seed", OPT_SEED, "N", 0, "run the world of this seed", 0},
	{"seeds", OPT_SEEDS, "A..B", 0, "run those of all these", 0},
	{"minutes", OPT_MINUTES, "M", 0, "stop after so long", 0},
	{"clients", OPT_CLIENTS, "N", 0, "so many (default: as the seed says)", 0},
	{"trace", OPT_TRACE, "FILE", 0, "write down every decision", 0},
	{"hash", OPT_HASH, NULL, 0, "print a hash of all decisions", 0},
	{0},
};

static double now_s(void)
{
	struct timespec ts;

	__real_clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	char *end;

	switch (key) {
	case OPT_SEED:
		opt.first = opt.last = strtoull(arg, &end, 0);
		if (*end || !*arg)
			argp_error(state, "a seed is a number, not '%s'", arg);
		break;
	case OPT_SEEDS:
		if (sscanf(arg, "%lu..%lu", &opt.first, &opt.last) != 2 || opt.last < opt.first)
			argp_error(state, "seeds are given as 1..1000, not '%s'", arg);
		break;
	case OPT_MINUTES:
		opt.minutes = atof(arg);
		break;
	case OPT_CLIENTS:
		opt.clients = (unsigned)atoi(arg);
		break;
	case OPT_TRACE:
		world_trace_to(arg);
		break;
	case OPT_HASH:
		opt.hash = true;
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {options, parse, NULL, "The arbiter in virtual time, by seed.", NULL,
		NULL, NULL};
	double began, told;
	uint64_t steps = 0, n = 0;

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	began = told = now_s();
	for (uint64_t seed = opt.first; seed <= opt.last; seed++) {
		segment_world(seed, opt.clients);
		steps += world.step;
		n++;
		if (opt.hash)
			printf("seed %llu: %llu steps, hash %016llx\n", (unsigned long long)seed,
				(unsigned long long)world.step, (unsigned long long)world.hash);
		if (world.failed) {
			world_tell();
			return 1;
		}
		world_end();
		if (opt.minutes > 0 && now_s() - began > opt.minutes * 60)
			break;
	}
	printf("world: %llu seeds, %llu steps in %.1f s, nothing found\n", (unsigned long long)n,
		(unsigned long long)steps, now_s() - began);
	return 0;
}

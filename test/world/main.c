/* build/world: runs worlds, says what was found. */
#include "world.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cases.h"
#include "random.h"
#include "segment.h"

int __real_clock_gettime(clockid_t clock, struct timespec *ts);

static struct {
	uint64_t first, last;
	unsigned clients;
	double minutes;
	bool hash, json, segments, programs;
	struct case_options cases;
} opt = {.first = 1, .last = 1, .cases = {.seconds = 20}};

enum { OPT_SEED = 256, OPT_SEEDS, OPT_TRACE, OPT_CLIENTS, OPT_MINUTES, OPT_HASH, OPT_CASE, OPT_SECONDS, OPT_ROBBED, OPT_JSON, OPT_SEGMENTS, OPT_PROGRAMS };

static const struct argp_option options[] = {
	{"seed", OPT_SEED, "N", 0, "run the world of this seed", 0},
	{"seeds", OPT_SEEDS, "A..B", 0, "run those of all these", 0},
	{"minutes", OPT_MINUTES, "M", 0, "stop after so long", 0},
	{"clients", OPT_CLIENTS, "N", 0, "so many (default: as the seed says)", 0},
	{"trace", OPT_TRACE, "FILE", 0, "write down every decision", 0},
	{"segments", OPT_SEGMENTS, NULL, 0, "only worlds of bare clients", 0},
	{"programs", OPT_PROGRAMS, NULL, 0, "only worlds of programs on a GPU", 0},
	{"case", OPT_CASE, "NAME", 0, "run these cases of bench_limits (a pattern; all)", 0},
	{"cases", OPT_CASE, "NAME", OPTION_ALIAS, NULL, 0},
	{"seconds", OPT_SECONDS, "S", 0, "so long each, of the world's time (default 20)", 0},
	{"robbed", OPT_ROBBED, NULL, 0, "on a machine whose host takes its time away", 0},
	{"json", OPT_JSON, NULL, 0, "print JSON", 0},
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
	case OPT_CASE:
		opt.cases.pattern = arg;
		break;
	case OPT_SECONDS:
		opt.cases.seconds = atof(arg);
		if (!(opt.cases.seconds > 0))
			argp_error(state, "seconds are a number above 0, not '%s'", arg);
		break;
	case OPT_ROBBED:
		opt.cases.robbed = true;
		break;
	case OPT_JSON:
		opt.json = true;
		break;
	case OPT_SEGMENTS:
		opt.segments = true;
		break;
	case OPT_PROGRAMS:
		opt.programs = true;
		break;
	case OPT_HASH:
		opt.hash = true;
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static int run_cases(void)
{
	int bad;

	opt.cases.seed = opt.first;
	if (opt.json)
		opt.cases.json = json_array();
	bad = cases_run(&opt.cases);
	if (opt.json) {
		json_dumpf(opt.cases.json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(8));
		printf("\n");
	}
	if (bad < 0)
		fprintf(stderr, "world: there is no case %s\n", opt.cases.pattern);
	return bad != 0;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {options, parse, NULL, "The arbiter in virtual time, by seed.", NULL,
		NULL, NULL};
	double began;
	uint64_t steps = 0, n = 0;

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	if (opt.cases.pattern)
		return run_cases();
	began = now_s();
	for (uint64_t seed = opt.first; seed <= opt.last; seed++) {
		/* One in four has programs; they take longer. */
		if (opt.programs || (!opt.segments && seed % 4 == 0))
			random_world(seed, opt.clients, opt.first == opt.last);
		else
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

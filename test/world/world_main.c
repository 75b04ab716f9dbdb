/* build/world: runs worlds and prints the faults that they find. */
#include "test/world/world.h"

#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "test/world/cases.h"
#include "test/world/day.h"
#include "test/world/random.h"
#include "test/world/script.h"
#include "test/world/world_segment.h"
#include "test/world/smaller.h"
#include "test/world/world_thresholds.h"
#include "test/world/traces.h"

#define PROGRESS_S 5

int __real_clock_gettime(clockid_t clock, struct timespec *ts);

static struct {
	uint64_t first, last, until_step, bytes;
	unsigned clients;
	double minutes, hours;
	bool json, segments, programs, shrink, day;
	struct case_options cases;
	const char *lines[SCRIPT_PROGRAMS];
	unsigned nlines;
} opt = {.first = 1, .last = 1, .bytes = 64u << 20, .hours = 24, .cases = {.seconds = 20, .wake_us = 5}};

enum {
	OPT_SEED = 256,
	OPT_SEEDS,
	OPT_TRACE,
	OPT_CLIENTS,
	OPT_MINUTES,
	OPT_HASH,
	OPT_CASE,
	OPT_SECONDS,
	OPT_ROBBED,
	OPT_WAKE,
	OPT_THRESHOLD,
	OPT_JSON,
	OPT_SEGMENTS,
	OPT_PROGRAMS,
	OPT_STEP,
	OPT_SHRINK,
	OPT_DAY,
	OPT_HOURS,
	OPT_BRIEF,
	OPT_PROGRAM,
	OPT_KEEP,
	OPT_PERCENT,
	OPT_WITHOUT,
	OPT_RECORD,
	OPT_BYTES
};

static const struct argp_option options[] = {
	{NULL, 0, NULL, 0, "Random worlds:", 1},
	{"seed", OPT_SEED, "N", 0, "run the world of this seed", 1},
	{"seeds", OPT_SEEDS, "A..B", 0, "run those of all these, until one fails (a case: with each)", 1},
	{"minutes", OPT_MINUTES, "M", 0, "stop after so long", 1},
	{"segments", OPT_SEGMENTS, NULL, 0, "only worlds of bare clients", 1},
	{"programs", OPT_PROGRAMS, NULL, 0, "only worlds of programs on a GPU", 1},
	{"random", OPT_PROGRAMS, NULL, OPTION_ALIAS, NULL, 1},
	{"clients", OPT_CLIENTS, "N", 0, "so many, up to 1024, or 250 programs (default: as the seed says)",
		1},
	{"shrink", OPT_SHRINK, NULL, 0, "of a seed that fails: as little of its world as still does", 1},
	{"keep", OPT_KEEP, "N", 0, "of the clients that the seed draws only the first N", 1},
	{"percent", OPT_PERCENT, "P", 0, "for so much of its time only", 1},
	{"without", OPT_WITHOUT, "LIST", 0,
		"leave out faults (kills,stops,changes,replaces,garbles,fails,forks,swaps,abandons,holds), "
		"interruptions, lateness, or options of programs (streams,threads,graph,copy,memory,variant,every)",
		1},
	{NULL, 0, NULL, 0, "Cases of bench_limits, and programs of your own:", 2},
	{"case", OPT_CASE, "NAME", 0,
		"run these (a pattern; all; shared: those on a GPU that processes share; tracker; memory)",
		2},
	{"cases", OPT_CASE, NULL, OPTION_ALIAS, NULL, 2},
	{"program", OPT_PROGRAM, "LINE", 0,
		"run this program: its limit in percent (0: none), then options of simload; up to 64 times",
		2},
	{"seconds", OPT_SECONDS, "S", 0, "so long each, of the world's time (default 20)", 2},
	{"robbed", OPT_ROBBED, NULL, 0, "on a machine whose host takes its time away", 2},
	{"wake-us", OPT_WAKE, "US", 0,
		"the processor's time that a sleep costs a thread, in the cases of bench_tracker (default 5)",
		2},
	{"threshold", OPT_THRESHOLD, "NAME=F", 0,
		"multiply a threshold of the tracking core (preload/book/thresholds.def); list: print them",
		2},
	{NULL, 0, NULL, 0, "A long time:", 3},
	{"day", OPT_DAY, NULL, 0, "eight tenants that come, go, are killed and get other limits, for a day",
		3},
	{"hours", OPT_HOURS, "H", 0, "for so many hours instead (default 24)", 3},
	{NULL, 0, NULL, 0, "What is told:", 4},
	{"trace", OPT_TRACE, "FILE", 0, "write down every decision", 4},
	{"record", OPT_RECORD, "FILE", 0,
		"write what the first process's tracking core decides, for gpuarb-replay (--bytes before it: so many)",
		4},
	{"bytes", OPT_BYTES, "N", 0, "of a recorded trace at most (default 67108864)", 4},
	{"step", OPT_STEP, "N", 0, "stop at this step", 4},
	{"hash", OPT_HASH, NULL, 0, "print a hash of all decisions", 4},
	{"brief", OPT_BRIEF, NULL, 0, "of cases only those that failed", 4},
	{"json", OPT_JSON, NULL, 0, "print JSON", 4},
	{0},
};

static double now_s(void)
{
	struct timespec ts;

	__real_clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static uint64_t number(struct argp_state *state, const char *what, const char *text, uint64_t most)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	if (*end || *text < '0' || *text > '9' || n > most)
		argp_error(
			state, "%s is a number up to %llu, not '%s'", what, (unsigned long long)most, text);
	return n;
}

static double amount(struct argp_state *state, const char *what, const char *text)
{
	char *end;
	double n = strtod(text, &end);

	if (*end || end == text || !(n > 0 && n < 1e9))
		argp_error(state, "%s are a number above 0, not '%s'", what, text);
	return n;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case OPT_SEED:
		opt.first = opt.last = number(state, "a seed", arg, UINT64_MAX);
		break;
	case OPT_SEEDS:
		if (sscanf(arg, "%lu..%lu", &opt.first, &opt.last) != 2 || opt.last < opt.first)
			argp_error(state, "seeds are given as 1..1000, not '%s'", arg);
		break;
	case OPT_MINUTES:
		/* 0: no bound. */
		opt.minutes = strcmp(arg, "0") ? amount(state, "minutes", arg) : 0;
		break;
	case OPT_CLIENTS:
		opt.clients = (unsigned)number(state, "the number of clients", arg, 1024);
		break;
	case OPT_TRACE:
		world_trace_to(arg);
		break;
	case OPT_BYTES:
		opt.bytes = number(state, "the size of a trace", arg, 64u << 20);
		break;
	case OPT_RECORD:
		if (!world_traces_to(arg, opt.bytes))
			argp_error(state, "the folder of %s is not there", arg);
		break;
	case OPT_STEP:
		opt.until_step = number(state, "a step", arg, UINT64_MAX);
		break;
	case OPT_CASE:
		opt.cases.pattern = arg;
		break;
	case OPT_PROGRAM:
		if (opt.nlines == SCRIPT_PROGRAMS)
			argp_error(state, "there can be %d programs", SCRIPT_PROGRAMS);
		if (*arg < '0' || *arg > '9')
			argp_error(state,
				"a program begins with its limit in percent, as in '25 --kernel-us=100', "
				"not '%s'",
				arg);
		opt.lines[opt.nlines++] = arg;
		break;
	case OPT_SECONDS:
		opt.cases.seconds = amount(state, "seconds", arg);
		break;
	case OPT_WAKE:
		opt.cases.wake_us = amount(state, "microseconds", arg);
		break;
	case OPT_HOURS:
		opt.hours = amount(state, "hours", arg);
		break;
	case OPT_THRESHOLD:
		if (!world_threshold(arg))
			argp_error(state, "there is no threshold '%s'", arg);
		break;
	case OPT_ROBBED:
		opt.cases.robbed = true;
		break;
	case OPT_BRIEF:
		opt.cases.brief = true;
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
	case OPT_KEEP:
		smaller.keep = (unsigned)number(state, "the number of clients", arg, 1024);
		break;
	case OPT_PERCENT:
		smaller.percent = (unsigned)number(state, "a percentage", arg, 100);
		break;
	case OPT_WITHOUT:
		if (!smaller_parse(arg))
			argp_error(state, "one of '%s' cannot be left out", arg);
		break;
	case OPT_SHRINK:
		opt.shrink = true;
		break;
	case OPT_DAY:
		opt.day = true;
		break;
	case OPT_HASH:
		world_hashes = true;
		break;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is no option", arg);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static int run_cases(void)
{
	int bad = 0;

	if (opt.json)
		opt.cases.json = json_array();
	for (opt.cases.seed = opt.first; opt.cases.seed <= opt.last && bad >= 0; opt.cases.seed++) {
		int found = cases_run(&opt.cases);

		bad = found < 0 ? found : bad + found;
	}
	if (opt.json) {
		json_dumpf(opt.cases.json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(8));
		printf("\n");
	}
	if (bad < 0)
		fprintf(stderr, "world: there is no case %s\n", opt.cases.pattern);
	return bad != 0;
}

static void run_seed(uint64_t seed, unsigned clients, bool say)
{
	world.until_step = opt.until_step;
	/* One seed in four makes a world of programs, which takes longer than one of bare clients. */
	if (opt.programs || (!opt.segments && seed % 4 == 0))
		random_world(seed, clients, say);
	else
		segment_world(seed, clients);
}

/* Shows on a terminal how many seeds were run and how long the rest will take. */
static void progress(double began, uint64_t seed)
{
	static double told;
	double now = now_s(), gone = now - began, part;

	if (!isatty(STDERR_FILENO) || now - told < PROGRESS_S)
		return;
	told = now;
	part = (double)(seed - opt.first + 1) / (double)(opt.last - opt.first + 1);
	if (opt.minutes > 0 && gone / (opt.minutes * 60) > part)
		part = gone / (opt.minutes * 60);
	fprintf(stderr, "world: seed %llu, %.0f s so far, about %.0f s left\n", (unsigned long long)seed,
		gone, gone / part - gone);
}

static void run_again(uint64_t seed)
{
	run_seed(seed, opt.clients, false);
}

/* Searches for a smaller world of this seed, whose last run failed after `steps`. */
static int shrink(uint64_t seed, uint64_t steps)
{
	uint64_t left = smaller_search(seed, run_again, steps);
	char text[512];

	smaller_say(text, sizeof(text));
	if (left)
		printf("world: --seed %llu%s fails after %llu steps instead of %llu\n",
			(unsigned long long)seed, text, (unsigned long long)left, (unsigned long long)steps);
	else
		printf("world: no smaller world of seed %llu fails\n", (unsigned long long)seed);
	run_seed(seed, opt.clients, true);
	world_tell();
	return 1;
}

static void tell_seeds(uint64_t n, uint64_t steps, double took)
{
	json_t *object;

	if (!opt.json) {
		if (!world.failed)
			printf("world: %llu seeds, %llu steps in %.1f s, nothing found\n",
				(unsigned long long)n, (unsigned long long)steps, took);
		return;
	}
	object = json_pack("{s:I,s:I,s:f,s:b,s:I,s:s,s:s}", "seeds", (json_int_t)n, "steps",
		(json_int_t)steps, "seconds", took, "failed", world.failed, "seed", (json_int_t)world.seed,
		"failure", world.failure, "hash", "");
	json_dumpf(object, stdout, JSON_INDENT(1));
	printf("\n");
	json_decref(object);
}

static int run_seeds(void)
{
	double began = now_s();
	uint64_t steps = 0, n = 0;

	for (uint64_t seed = opt.first; seed <= opt.last; seed++) {
		run_seed(seed, opt.clients, opt.first == opt.last && !opt.json);
		steps += world.step;
		n++;
		if (world.failed) {
			tell_seeds(n, steps, now_s() - began);
			world_tell();
			if (!opt.shrink)
				return 1;
			steps = world.step;
			world_end();
			return shrink(seed, steps);
		}
		if (opt.until_step)
			world_tell();
		world_end();
		progress(began, seed);
		if (opt.minutes > 0 && now_s() - began > opt.minutes * 60)
			break;
	}
	tell_seeds(n, steps, now_s() - began);
	return 0;
}

/* The product has crashed in the world: prints which world it was. */
static void crashed(int signal)
{
	world_fail("signal %d in process %u", signal, world.current ? world.current->process->number : 0);
	world_tell();
	_exit(3);
}

static void catch_crashes(void)
{
	static char stack[65536];
	const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
	struct sigaction action = {.sa_handler = crashed, .sa_flags = SA_ONSTACK | SA_RESETHAND};

	sigaltstack(&alternate, NULL);
	for (unsigned i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		sigaction(signals[i], &action, NULL);
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		options, parse, NULL, "The arbiter in virtual time, by seed.", NULL, NULL, NULL};

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	/* By lines, so that the reader of a pipe sees how far a run got that never ends. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	catch_crashes();
	if (opt.cases.pattern)
		return run_cases();
	opt.cases.seed = opt.first;
	if (opt.nlines)
		return script_run(opt.lines, opt.nlines, &opt.cases);
	if (opt.day)
		return day_run(opt.first, opt.hours);
	return run_seeds();
}

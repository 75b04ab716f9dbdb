/* What a benchmark prints: a result, its baseline measured in the same run, and the ratio. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct bench {
	const char *name;
	const char *only; /* --case NAME or shell pattern, or NULL */
	bool json, headed;
	int failed;
};

/* Takes `word VALUE` out of a benchmark's arguments, before bench_begin reads the others. Returns VALUE, or NULL if the word is
 * not there. */
const char *bench_option(int *argc, char **argv, const char *word);
/* Reads --json, --case NAME and --help, and prints the header. */
void bench_begin(struct bench *b, const char *name, const char *about, int argc, char **argv);
bool bench_wants(const struct bench *b, const char *name);

/* Prints a result; `allowed` is the largest good ratio of value to baseline. */
void bench_ratio(
	struct bench *b, const char *name, double value, const char *unit, double baseline, double allowed);
/* Prints a result that has no limit of its own: allowed is null, ok is true. */
void bench_show(struct bench *b, const char *name, double value, const char *unit, double baseline);
/* Returns the process's exit status. */
int bench_end(const struct bench *b);

/* Times two loops in short turns, so that what disturbs the machine disturbs both, and keeps the fastest turn of
 * each: ns per iteration. */
typedef void bench_loop(void *argument, unsigned iterations);
void bench_duel(bench_loop *thing, void *thing_argument, bench_loop *baseline, void *baseline_argument,
	unsigned iterations, unsigned turns, double *thing_ns, double *baseline_ns);

uint64_t bench_now_ns(void);

/* Returns the CPU time of the threads with that name in that process. */
double bench_thread_s(pid_t pid, const char *called);
/* Returns the CPU time of the preload's thread; 0 if there is none. */
double bench_tracker_s(pid_t pid);

#endif

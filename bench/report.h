/* What a benchmark prints: the thing, its baseline measured in the same run, and the ratio. */
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

/* Understands --json, --case NAME and --help; prints the header. */
void bench_begin(struct bench *b, const char *name, const char *about, int argc, char **argv);
bool bench_wants(const struct bench *b, const char *name);

/* allowed: the largest ratio value / baseline that is good. */
void bench_ratio(
	struct bench *b, const char *name, double value, const char *unit, double baseline, double allowed);
/* A result that has no limit of its own: allowed is null, ok is true. */
void bench_show(struct bench *b, const char *name, double value, const char *unit, double baseline);
/* The process's exit status. */
int bench_end(const struct bench *b);

/*
 * Times two loops against each other in short turns, so that what disturbs the machine disturbs both, and
 * keeps the fastest turn of each: ns per iteration.
 */
typedef void bench_loop(void *argument, unsigned iterations);
void bench_duel(bench_loop *thing, void *thing_argument, bench_loop *baseline, void *baseline_argument,
	unsigned iterations, unsigned turns, double *thing_ns, double *baseline_ns);

uint64_t bench_now_ns(void);

/* CPU time of the threads of that name in that process. */
double bench_thread_s(pid_t pid, const char *called);
/* Of the preload's; 0 if it has none. */
double bench_tracker_s(pid_t pid);

#endif

/* The cases of bench_limits, under their names, in virtual time. */
#ifndef WORLD_CASES_H
#define WORLD_CASES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct case_options {
	const char *pattern; /* which names, as for fnmatch(), or "all" */
	double seconds;
	uint64_t seed;
	bool robbed;    /* world_robbed() instead of world_quiet() */
	double wake_us; /* processor time that a sleep costs a thread (cases of bench_tracker) */
	bool brief;     /* prints only what failed, and a line at the end */
	json_t *json;   /* the array that gets the results, or NULL */
};

/* Begins the world of a case. Its terms can be changed afterwards. */
void case_begin(const struct case_options *o);

/* Runs the cases whose names match. Returns how many missed their target; -1: no name matches. */
int cases_run(const struct case_options *o);

#endif

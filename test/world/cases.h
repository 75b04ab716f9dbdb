/* The cases of bench_limits by the same names, in virtual time. */
#ifndef WORLD_CASES_H
#define WORLD_CASES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct case_options {
	const char *pattern; /* of names, as fnmatch() has them; "all" */
	double seconds;
	uint64_t seed;
	bool robbed;    /* a machine that is robbed of its time, not a quiet one */
	double wake_us; /* the processor's time that a sleep costs a thread (cases of bench_tracker) */
	bool brief;     /* only what failed, and a line at the end */
	json_t *json;   /* an array, or NULL */
};

/* How many cases missed their target; -1: there is none of that name. */
int cases_run(const struct case_options *o);

#endif

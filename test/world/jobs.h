/* Jobs whose ranks wait for each other on several GPUs, under every policy, with ranks that are killed. */
#ifndef WORLD_JOBS_H
#define WORLD_JOBS_H

#include "test/world/cases.h"

/* How many cases had a job that stood still; *n: how many the pattern named, added up. */
int jobs_run(const struct case_options *o, int *n);

#endif

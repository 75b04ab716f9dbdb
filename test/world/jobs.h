/* Jobs whose ranks wait for each other on several GPUs, under every policy, with ranks that are killed. */
#ifndef WORLD_JOBS_H
#define WORLD_JOBS_H

#include "test/world/cases.h"

/* Runs the cases whose names match. Adds their number to *n; returns in how many of them a job stood still. */
int jobs_run(const struct case_options *o, int *n);

#endif

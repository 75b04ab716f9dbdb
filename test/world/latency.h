/* Requests with a high priority beside a greedy client with a low one, in virtual time. */
#ifndef WORLD_LATENCY_H
#define WORLD_LATENCY_H

#include "test/world/cases.h"

/* Runs the cases whose names match. Adds their number to *n; returns how many failed. */
int latency_run(const struct case_options *o, int *n);

#endif

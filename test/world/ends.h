/* The cases of bench_tracker: how late gpuarb notices that work has ended. */
#ifndef WORLD_ENDS_H
#define WORLD_ENDS_H

#include "test/world/cases.h"

/* Runs the cases whose names match, or all by the name "tracker". Adds their number to *n; returns how many failed.
 */
int ends_run(const struct case_options *o, int *n);

#endif

/* The cases of bench_tracker: how late the end of work is noticed. */
#ifndef WORLD_ENDS_H
#define WORLD_ENDS_H

#include "test/world/cases.h"

/* Those whose names match, or all by the name "tracker". Adds to *n how many; returns how many failed. */
int ends_run(const struct case_options *o, int *n);

#endif

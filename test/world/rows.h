/* The rows of bench_device by their names, in virtual time. */
#ifndef WORLD_ROWS_H
#define WORLD_ROWS_H

#include "test/world/cases.h"

/* How many missed their goals; *n: how many the pattern named. */
int device_rows_run(const struct case_options *o, int *n);

#endif

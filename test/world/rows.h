/* The rows of bench_device, under their names, in virtual time. */
#ifndef WORLD_ROWS_H
#define WORLD_ROWS_H

#include "test/world/cases.h"

/* Runs the rows whose names match. Adds their number to *n; returns how many missed their goals. */
int device_rows_run(const struct case_options *o, int *n);

#endif

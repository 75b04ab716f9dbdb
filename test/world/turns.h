/* The cases of bench_memory: programs that fit into the GPU's memory together, and programs that must take turns. */
#ifndef WORLD_TURNS_H
#define WORLD_TURNS_H

#include "test/world/cases.h"

/* Runs the cases whose names match, or all by the name "memory". Adds their number to *n; returns how many failed. */
int turns_run(const struct case_options *o, int *n);

#endif

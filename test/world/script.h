/* Programs that are given on the command line, one line each. */
#ifndef WORLD_SCRIPT_H
#define WORLD_SCRIPT_H

#include "test/world/cases.h"

#define SCRIPT_PROGRAMS 64

/* Runs one program for each line: a limit in percent (0: none), then options of simload. Returns 0 if no fault was
 * found. */
int script_run(const char *const *lines, unsigned n, const struct case_options *o);

#endif

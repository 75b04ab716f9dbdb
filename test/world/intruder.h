/* An intruder writes over words of others in the segment: how soon do all programs have their own share again? */
#ifndef WORLD_INTRUDER_H
#define WORLD_INTRUDER_H

#include "test/world/cases.h"

/* Runs the intruder-* cases whose names match. Adds their number to *n; returns how many failed. */
int intruder_run(const struct case_options *o, int *n);

#endif

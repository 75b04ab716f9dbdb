/* An intruder writes over words of the segment that are not its own: how soon all have their own share again. */
#ifndef WORLD_INTRUDER_H
#define WORLD_INTRUDER_H

#include "test/world/cases.h"

/* Those of the intruder-* cases whose names match. As latency_run(). */
int intruder_run(const struct case_options *o, int *n);

#endif

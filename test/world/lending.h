/* A request that comes back to its owner, and requests whose owner is killed or stopped: how soon, in virtual time.
 */
#ifndef WORLD_LENDING_H
#define WORLD_LENDING_H

#include "test/world/cases.h"

/* Those of request-back, request-killed and request-stopped whose names match. As latency_run(). */
int lending_run(const struct case_options *o, int *n);

#endif

/* How soon an owner has its requested share back from a borrower, and how soon the borrower has the whole GPU when the
 * owner is killed or stopped. */
#ifndef WORLD_LENDING_H
#define WORLD_LENDING_H

#include "test/world/cases.h"

/* Runs those of request-back, request-killed and request-stopped whose names match. Adds their number to *n; returns
 * how many failed. */
int lending_run(const struct case_options *o, int *n);

#endif

/* A day of tenants that come and go. */
#ifndef WORLD_DAY_H
#define WORLD_DAY_H

#include <stdint.h>

/* Returns 0 if the law held to the last tick and every tenant got its share. */
int day_run(uint64_t seed, double hours);

#endif

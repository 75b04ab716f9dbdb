/* A day of tenants that come and go. */
#ifndef WORLD_DAY_H
#define WORLD_DAY_H

#include <stdint.h>

/* 0: the law held to the last tick, and nobody's share is off. */
int day_run(uint64_t seed, double hours);

#endif

/* The thresholds of the book as constants. thresholds.def has the unit of each and its reason. */
#ifndef PRELOAD_TRACK_THRESHOLDS_H
#define PRELOAD_TRACK_THRESHOLDS_H

#include <stdint.h>

#include "units.h"

/* In the world they are variables, so that a test can scale each of them. */
#ifdef ARB_WORLD
#define THRESHOLD(name, value, unit, reason) extern uint64_t name;
#else
#define THRESHOLD(name, value, unit, reason) static const uint64_t name __attribute__((unused)) = value;
#endif
#include "preload/book/thresholds.def"
#undef THRESHOLD

#endif

/* The counts of calls, shown in the segment, so that viewers need not ask the process. */
#ifndef PRELOAD_COVERAGE_H
#define PRELOAD_COVERAGE_H

#include <stdint.h>

/* Shows the counts, at most every 100 ms. `now_ns`: CLOCK_MONOTONIC. */
void coverage_tick(uint64_t now_ns);
/* Shows the counts now: called before a time in which coverage_tick() will not be called. */
void coverage_show(void);

#endif

/* What the library saw, shown in the segment: viewers need not ask the process. */
#ifndef PRELOAD_COVERAGE_H
#define PRELOAD_COVERAGE_H

#include <stdint.h>

/* At most every 100 ms, from whoever looks after the process; `now_ns` by CLOCK_MONOTONIC. */
void coverage_tick(uint64_t now_ns);
/* Now: before nobody looks for a while. */
void coverage_show(void);

#endif

/*
 * How much of the time after a deadline is the library's own doing, and how much the machine's. Exact,
 * whatever else the machine has to do: between two sleeps the time that the thread was ready and did not run
 * is taken away, and of a sleep only what the library asked for counts, not how late the kernel ended it.
 */
#ifndef TEST_LATENESS_H
#define TEST_LATENESS_H

#include <stdbool.h>
#include <stdint.h>

/* Every sleep on a futex with an end goes through here from now on, in all threads. */
void lateness_watch(void);

/* By a thread, around what has to be over by until_ns. */
void lateness_begin(uint64_t until_ns);
/* What it took beyond that, by its own doing: running, or asleep without need. */
uint64_t lateness_end(void);

#endif

/*
 * How much of the time after a deadline is the library's own doing, and how much the machine's, whatever else
 * that has to do. Of a sleep only what the library asked for counts, not how late the kernel ended it.
 * Between two sleeps the time that the thread was ready and did not run is taken away; and if it slept
 * without being asked to, which is what waiting for a lock is, also the time that the process's other threads
 * were ready and did not run: one of them may have held it.
 */
#ifndef TEST_LATENESS_H
#define TEST_LATENESS_H

#include <stdbool.h>
#include <stdint.h>

/* Every look at the clock and every sleep with an end goes through here from now on, in all threads. */
void lateness_watch(void);

/* By a thread, around what has to be over after this time. */
void lateness_begin(uint64_t length_ns);
/* What it took beyond that, by its own doing: running, or asleep without need. */
uint64_t lateness_end(void);
/* Of that, after lateness_end(): stretches in which it never slept. All that is done between two sleeps takes
 * microseconds, so whoever ran for milliseconds was most likely not running: a hypervisor had the processor,
 * which this machine's books call running. */
uint64_t lateness_ran_ns(void);
/* What a hypervisor has taken away from this machine since it started, as far as it says so: all processors
 * together, in steps of a tick. */
uint64_t lateness_stolen_ns(void);
/* How the longest stretch between two sleeps was spent that was beyond the time, in words. */
const char *lateness_story(void);

#endif

/*
 * Divides the time after a deadline into what the library used and what the machine took for other work. A sleep
 * counts for as long as the library asked for it, however late the kernel ended it. Between two sleeps, the time in
 * which the thread was ready and did not run is not counted. If the thread slept without being asked to, it waited
 * for a lock; then the time in which other threads of the process were ready and did not run is not counted either,
 * because one of them may have held the lock.
 */
#ifndef TEST_LATENESS_H
#define TEST_LATENESS_H

#include <stdbool.h>
#include <stdint.h>

/* Watches every reading of the clock and every sleep with an end from now on, in all threads. */
void lateness_watch(void);

/* Called by a thread before something that has to be over after `length_ns`. */
void lateness_begin(uint64_t length_ns);
/* Returns how long it took beyond that by the library's own doing: running, or asleep without need. */
uint64_t lateness_end(void);
/*
 * After lateness_end(): the part of that in stretches without a sleep. All work between two sleeps takes
 * microseconds. A thread that seems to have run for milliseconds did most likely not run: a hypervisor had the
 * processor, and this machine's books count that as running.
 */
uint64_t lateness_ran_ns(void);
/* Returns what a hypervisor has taken away from this machine since it started, as far as it tells: the sum of all
 * processors, in steps of a tick. */
uint64_t lateness_stolen_ns(void);
/* Says in words how the time was spent in the longest stretch between two sleeps that went beyond the deadline. */
const char *lateness_story(void);

#endif

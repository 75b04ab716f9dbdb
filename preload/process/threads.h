/* Each thread's own counts: taken at its first call, left to the next thread at its end, never lost. */
#ifndef PRELOAD_THREADS_H
#define PRELOAD_THREADS_H

#include "preload/process/act.h"

/* The calling thread's own, which it gets now if it has none. Never NULL; keeps errno. */
struct act_thread *act_thread_get(void);
/* Over all threads, also those that ended. */
void act_thread_sum(uint64_t sum[CAT_COUNT]);
/* Calls that gave the GPU work, and how many of them have passed since their threads were given credit in
 * this interval. */
void act_thread_gated(uint64_t interval, uint64_t *calls, uint64_t *credited);

/* The program has put something into its streams that may wait for the host. */
bool act_thread_host_work(void);

/* Whether any thread is in a call that waits for work. */
bool act_thread_any_waits(void);

/* Whether any thread is in a read section (known.h) that began before the last change of phase. */
bool act_thread_any_reads(void);

/* No more credit; what has passed on it still counts. */
static inline void act_thread_take_back(struct act_thread *self)
{
	self->granted = self->granted > self->credit ? self->granted - self->credit : 0;
	self->credit = 0;
}

/* The program's first thread has ended, and others go on. */
bool act_thread_main_left(void);
/* A thread of ours, detached and without signals. False: it cannot be had. */
bool act_thread_start(void *(*body)(void *argument), void *argument);

/*
 * Then: is the calling thread the only one left? The C library ends the program with the last one. A driver
 * may have made a thread to call us back, which does not count if the program never asked for such a thing.
 */
enum act_left { ACT_OTHERS, ACT_ALONE, ACT_WITH_DRIVER };
enum act_left act_thread_left(void);
/* The calling thread is that one, unless it is one of the program's, or the tracker, in which the driver
 * calls back. */
void act_thread_is_drivers(void);
void act_thread_is_tracker(void);

#endif

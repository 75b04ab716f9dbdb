/* Each thread's record of counts: taken at the first call, left to another thread at the end, so no count is lost. */
#ifndef PRELOAD_THREADS_H
#define PRELOAD_THREADS_H

#include "preload/process/act.h"

/* Returns the calling thread's record; takes one if it has none yet. Never NULL; keeps errno. */
struct act_thread *act_thread_get(void);
/* Sums up the calls by category over all threads, also those that have ended. */
void act_thread_sum(uint64_t sum[CAT_COUNT]);
/* *calls: all calls that gave the GPU work. *credited: how many of them have passed on credit that was given in this busy
 * interval. */
void act_thread_gated(uint64_t interval, uint64_t *calls, uint64_t *credited);

/* Whether the program has put anything into its streams that may wait for the host. */
bool act_thread_host_work(void);

/* Whether any thread is in a call that waits for work. */
bool act_thread_any_waits(void);

/* Whether any thread is in a read section (known.h) that began before the last change of phase. */
bool act_thread_any_reads(void);

/* Takes the rest of the credit away. What has passed on it is still counted as credited. */
static inline void act_thread_take_back(struct act_thread *self)
{
	self->granted = self->granted > self->credit ? self->granted - self->credit : 0;
	self->credit = 0;
}

/* Whether the program's first thread has ended while others go on. */
bool act_thread_main_left(void);
/* Starts a thread of ours, detached and with all signals blocked. False: it could not be started. */
bool act_thread_start(void *(*body)(void *argument), void *argument);

/*
 * Says which threads are left besides the calling one, our other thread and the ended first thread. The C library ends the
 * program when its last thread ends, so ours have to end when no others are left. A thread in which the driver calls us
 * back (ACT_WITH_DRIVER) is not counted among the others, unless the program has asked for callbacks of its own.
 */
enum act_left { ACT_OTHERS, ACT_ALONE, ACT_WITH_DRIVER };
enum act_left act_thread_left(void);
/* Is called in a callback of the driver: notes the calling thread as the driver's own, unless it is the tracker or a thread
 * that has made calls of the program. */
void act_thread_is_drivers(void);
/* Notes that the calling thread is ours. */
void act_thread_is_tracker(void);

#endif

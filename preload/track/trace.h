/*
 * GPUARB_TRACE=FILE records what the book of each GPU was told and what it decided (preload/book/codec.h), for gpuarb-replay.
 * GPUARB_LOG=debug logs the decisions as they are made, in the words of gpuarb-replay.
 *
 * Each GPU of each process has a file of its own: the first of FILE, FILE.PID, FILE.PID.1, ... that does not exist yet. No
 * descriptor is kept open, because a program may close all that it has and open others in their places. Records are collected
 * in memory and written by the tracker, never by a thread of the program. A process that is killed loses the last of them.
 *
 * A trace ends at TRACE_MOST bytes. Dropping its beginning instead would make it useless for a proof: a replay starts with an
 * empty book, so it needs every event from the first.
 */
#ifndef PRELOAD_TRACK_TRACE_H
#define PRELOAD_TRACK_TRACE_H

#include <stdbool.h>
#include <stdint.h>

struct arb_device;
struct book_action;
struct book_event;
struct track;

#define TRACE_MOST (64ull << 20)

/* Called when a GPU is first tracked. Opens the file, and sets t->trace if a trace or a log of decisions is wanted. */
void trace_begin(struct track *t, const struct arb_device *device, bool limited);
/* Called after each event, with the track's lock held. */
void trace_told(struct track *t, const struct book_event *e, const struct book_action *act);
/* Writes the records that are due. Called by the tracker, without the lock. */
void trace_write(struct track *t);
/* Writes the rest and ends the trace. Called at the end of the program, when the tracker has ended. */
void trace_end(struct track *t);

#endif

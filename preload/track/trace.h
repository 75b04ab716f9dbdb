/*
 * GPUARB_TRACE=FILE: what the book of each GPU was told and what it decided (preload/book/codec.h), for gpuarb-replay. And
 * GPUARB_LOG=debug: decisions as they are made, in the same words.
 *
 * Each GPU of each process has a file of its own: the first of FILE, FILE.PID, FILE.PID.1, ... that does not exist yet. No
 * descriptor is kept: a program may close all it has, and open others in their places. Records are collected in memory
 * and written by the tracker, never by a thread of the program; a process that is killed loses those of its last moments.
 *
 * A trace ends at TRACE_MOST bytes. It does not forget its beginning instead: a replay starts with an empty book, so that
 * what is left could be read, but no decision in it could be proven.
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

/* When a GPU is first tracked: opens the file, sets t->trace if there is anything to be told. */
void trace_begin(struct track *t, const struct arb_device *device, bool limited);
/* Under the track's lock, after each event. */
void trace_told(struct track *t, const struct book_event *e, const struct book_action *act);
/* By the tracker, without the lock: writes what is due. */
void trace_write(struct track *t);
/* The program ends, and the tracker has ended. */
void trace_end(struct track *t);

#endif

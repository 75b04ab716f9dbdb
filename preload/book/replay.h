/*
 * Replays a trace: tells each recorded event to a new book and compares the book's decision with the recorded one. Pure, and
 * safe for any bytes: an event that the executors cannot have told ends the replay.
 */
#ifndef PRELOAD_BOOK_REPLAY_H
#define PRELOAD_BOOK_REPLAY_H

#include "preload/book/codec.h"

struct replay {
	struct trace_header header;
	const uint8_t *at, *end;
	struct codec codec;
	struct book book;
	uint64_t events;
	uint8_t note;       /* how the trace ended; 0: without a note, as after a kill */
	bool torn, garbage; /* the last record is incomplete; is not a record */
	bool differs;       /* a decision differs from the recorded one; the first such is: */
	uint64_t at_event;
	struct trace_record recorded;
	struct book_action decided;
	uint8_t outcome;
};

/* Begins a replay. Returns false if this is not a trace. The bytes must stay in place until the replay ends. */
bool replay_begin(struct replay *p, const uint8_t *data, size_t size);
/* Takes the next record and has its event decided again. Returns false if there is no other. */
bool replay_next(struct replay *p, struct trace_record *r);
/* To be called after the last record: returns whether all decisions were the same, and says so and how the trace ended. */
bool replay_verdict(const struct replay *p, char *words, size_t size);

#endif

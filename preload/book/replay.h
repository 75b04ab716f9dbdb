/*
 * A trace, read again: each event is told to a book of its own, and what that one decides is compared with what was
 * recorded. Pure, and for any bytes at all: what cannot have been told is found and ends the replay.
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
	uint8_t note;       /* how it ended; 0: in the midst of it, as one that was killed */
	bool torn, garbage; /* a record is not whole; is none */
	bool differs;       /* and the first decision that does is: */
	uint64_t at_event;
	struct trace_record recorded;
	struct book_action decided;
	uint8_t outcome;
};

/* False: this is no trace. The bytes must stay where they are. */
bool replay_begin(struct replay *p, const uint8_t *data, size_t size);
/* The next event as recorded; false: there is no other. */
bool replay_next(struct replay *p, struct trace_record *r);
/* After the last: were all decisions the same, and how did it end? In words. */
bool replay_verdict(const struct replay *p, char *words, size_t size);

#endif

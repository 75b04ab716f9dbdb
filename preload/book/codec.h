/*
 * The bytes of a trace: what the book was told and what it decided, from its beginning. Pure: written by
 * preload/track/trace.c, read by gpuarb-replay.
 *
 *	header    the text TRACE_MAGIC, then what struct trace_header has
 *	records   one for each event, behind one another; the last is a note, unless the process was killed
 *
 * Numbers are varints (seven bits a byte, the lowest first). A record begins with a byte: the kind of the event, and
 * whether the thread and the two masks differ from those of the last record of this kind. A mask says which fields differ
 * from that record; each of these follows as a difference, or by its place in a table of names that were seen lately.
 */
#ifndef PRELOAD_BOOK_CODEC_H
#define PRELOAD_BOOK_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/book/book.h"

#define TRACE_MAGIC "gpuarb-trace 1\n"

struct trace_header {
	uint64_t thresholds; /* codec_thresholds() of who wrote it */
	uint64_t began_ns;   /* times are counted from then */
	uint32_t pid;
	bool limited; /* as the book began */
	char version[16], program[32], gpu[64];
};

/* How a trace ends. */
enum trace_note {
	TRACE_ENDED = 1, /* the program has */
	TRACE_FULL,      /* it has reached its bound */
	TRACE_SLOW,      /* events came faster than the file could be written */
	TRACE_NOTES
};

struct trace_record {
	uint8_t note;    /* enum trace_note; 0: an event */
	uint8_t outcome; /* codec_outcome() behind it */
	uint32_t thread;
	struct book_event event;
	struct book_action action;
};

#define CODEC_NAMES 64

/* What the next record is compared with. The same at both ends; all zeros at the beginning but for now_ns. */
struct codec {
	uint64_t now_ns;
	uint32_t thread;
	struct trace_record last[EVENT_KINDS];
	uint64_t event_mask[EVENT_KINDS], action_mask[EVENT_KINDS];
	uint64_t names[CODEC_NAMES];
	uint32_t named;
};

/* No header and no record is longer. */
#define CODEC_MOST 512

void codec_begin(struct codec *c, const struct trace_header *h);
size_t codec_put_header(uint8_t *to, const struct trace_header *h);
size_t codec_put(struct codec *c, uint8_t *to, const struct trace_record *r);

/* How many bytes were taken; 0: they end too early; -1: they are none. Whatever they hold, nothing outside is read. */
int codec_take_header(const uint8_t *from, size_t size, struct trace_header *h);
int codec_take(struct codec *c, const uint8_t *from, size_t size, struct trace_record *r);

/* Where the book stands, in a byte: its state, whether the gate is open, and what others are told. */
uint8_t codec_outcome(const struct book *b);
/* One number for the values of all thresholds. */
uint64_t codec_thresholds(void);

#endif

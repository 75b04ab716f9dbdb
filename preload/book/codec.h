/*
 * The bytes of a trace: every event that a book was told since it began, and what it decided. preload/track/trace.c writes
 * them, gpuarb-replay reads them. Pure.
 *
 *	header    the text TRACE_MAGIC, then the fields of struct trace_header
 *	records   one for each event; the last is a note that says how the trace ended, unless the process was killed
 *
 * Numbers are varints (seven bits a byte, the lowest first). The first byte of a record has the kind of the event, and says
 * whether the thread and the two masks differ from those of the last record of this kind. A mask says which fields differ
 * from that record. Each of those fields follows, as a difference or as a place in a table of the latest names.
 */
#ifndef PRELOAD_BOOK_CODEC_H
#define PRELOAD_BOOK_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/book/book.h"

#define TRACE_MAGIC "gpuarb-trace 1\n"

struct trace_header {
	uint64_t thresholds; /* codec_thresholds() of the program that wrote it */
	uint64_t began_ns;   /* times are counted from here */
	uint32_t pid;
	bool limited; /* as book_init() was told */
	char version[16], program[32], gpu[64];
};

/* How a trace ends. */
enum trace_note {
	TRACE_ENDED = 1, /* the program ended */
	TRACE_FULL,      /* the trace reached its largest size */
	TRACE_SLOW,      /* events came faster than the file could be written */
	TRACE_NOTES
};

struct trace_record {
	uint8_t note;    /* enum trace_note; 0: an event */
	uint8_t outcome; /* codec_outcome() after the event */
	uint32_t thread;
	struct book_event event;
	struct book_action action;
};

#define CODEC_NAMES 64

/* What the next record is compared with. Writer and reader have equal ones; at the beginning all but now_ns is 0. */
struct codec {
	uint64_t now_ns;
	uint32_t thread;
	struct trace_record last[EVENT_KINDS];
	uint64_t event_mask[EVENT_KINDS], action_mask[EVENT_KINDS];
	uint64_t names[CODEC_NAMES];
	uint32_t named;
};

/* The most bytes of a header or a record. */
#define CODEC_MOST 512

void codec_begin(struct codec *c, const struct trace_header *h);
size_t codec_put_header(uint8_t *to, const struct trace_header *h);
size_t codec_put(struct codec *c, uint8_t *to, const struct trace_record *r);

/* Return how many bytes were taken; 0: the bytes end too early; -1: they are no header or record. They may hold anything:
 * nothing beyond them is read. */
int codec_take_header(const uint8_t *from, size_t size, struct trace_header *h);
int codec_take(struct codec *c, const uint8_t *from, size_t size, struct trace_record *r);

/* Returns the book's state, whether its gate is open and what others are told, in one byte. */
uint8_t codec_outcome(const struct book *b);
/* Returns a checksum of the names and values of all thresholds. */
uint64_t codec_thresholds(void);

#endif

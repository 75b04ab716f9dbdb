/* The event ring: the last decisions. All clients write it; all processes that may read the segment can read it, also
 * after all clients have died. */
#ifndef ARB_EVENTS_H
#define ARB_EVENTS_H

#include <stdint.h>

#include "shm/segment/segment.h"

struct arb_event_copy {
	uint64_t position;
	uint64_t time_ns;
	enum arb_event_kind kind;
	uint32_t slot;
	uint32_t generation;
	uint32_t account; /* ARB_NONE: of the GPU as a whole */
	uint64_t a, b, c;
	uint32_t why;
	uint32_t times; /* at least 1 */
};

void arb_events_write(struct arb_segment *seg, enum arb_event_kind kind, uint32_t slot, uint32_t account,
	uint64_t a, uint64_t b);
/* Writes an event with all of its fields but position, time and generation, which are filled in here. */
void arb_events_put(struct arb_segment *seg, const struct arb_event_copy *event);

/*
 * Events that a program can cause thousands of times a second must not push all others out of the ring: the first is
 * written at once, the following ones are combined into one event a second. Under a lock of the caller.
 */
#define ARB_EVENT_REPEAT_NS 1000000000u

struct arb_repeat {
	uint64_t written_ns;        /* 0: never */
	struct arb_event_copy last; /* not written yet; it stands for as many events as `times` */
};

void arb_events_repeat(
	struct arb_segment *seg, struct arb_repeat *repeat, const struct arb_event_copy *event);
/* Writes the events that were held back, if a second has passed or `now` is set. */
void arb_events_rest(struct arb_segment *seg, struct arb_repeat *repeat, bool now);

/* Gives the positions [first, end) whose events may still be there. */
void arb_events_range(const struct arb_segment *seg, uint64_t *first, uint64_t *end);
/* Reads one event: 0, or -ENOENT: overwritten, half-written or never written. */
int arb_events_read(const struct arb_segment *seg, uint64_t position, struct arb_event_copy *event);

const char *arb_events_name(enum arb_event_kind kind);

#endif

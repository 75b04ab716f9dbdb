/* The black box: the last decisions, written by everybody, readable by anybody, also after all have died. */
#ifndef ARB_EVENTS_H
#define ARB_EVENTS_H

#include <stdint.h>

#include "segment.h"

struct arb_event_copy {
	uint64_t position;
	uint64_t time_ns;
	enum arb_event_kind kind;
	uint32_t slot;
	uint32_t generation;
	uint32_t account;
	uint64_t a, b;
};

void arb_events_write(struct arb_segment *seg, enum arb_event_kind kind, uint32_t slot, uint32_t account,
	uint64_t a, uint64_t b);

/* Positions [first, end) may still be there. */
void arb_events_range(const struct arb_segment *seg, uint64_t *first, uint64_t *end);
/* 0, or -ENOENT: overwritten, half-written or never written. */
int arb_events_read(const struct arb_segment *seg, uint64_t position, struct arb_event_copy *event);

const char *arb_events_name(enum arb_event_kind kind);

#endif

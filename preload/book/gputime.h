/*
 * The GPU's clock against the host's. Events carry times of the GPU's clock; the book needs the host's. The
 * offset between the two clocks is never measured, but every event bounds it:
 *
 *	an event takes place when its record call submits it, or later:   offset >= submitted - gpu
 *	it is noticed after it has taken place:                           offset <= noticed - gpu
 *
 * An event that waits (for work, for a time slice) gives a loose bound, but never a wrong one. So the tightest
 * bounds are kept; they are loosened with time, because clocks drift. Pure: no driver, no clock.
 */
#ifndef PRELOAD_GPUTIME_H
#define PRELOAD_GPUTIME_H

#include <stdbool.h>
#include <stdint.h>

struct gputime {
	int64_t least, most;        /* bounds of the offset */
	uint64_t least_ns, most_ns; /* when the bounds were found; 0: never */
	int32_t drift;              /* how fast the offset grows, in billionths */
	int64_t rate;               /* the offset of the event from which the drift is measured, */
	uint64_t rate_ns;           /* and when that was; 0: never */
	bool sure;                  /* an event that had nothing to wait for gave the lower bound */
};

/* What an event may have waited for: earlier work; other clients; nothing. */
enum gputime_wait { GPUTIME_WORK, GPUTIME_OTHERS, GPUTIME_FREE };

/* Learns from an event of GPU time `gpu_ns`, recorded by a call that took `call_ns` and returned at `returned_ns`. */
void gputime_recorded(
	struct gputime *t, uint64_t gpu_ns, uint64_t call_ns, uint64_t returned_ns, enum gputime_wait wait);
/* Learns that an event of GPU time `gpu_ns` was found to have taken place at `noticed_ns`. */
void gputime_noticed(struct gputime *t, uint64_t gpu_ns, uint64_t noticed_ns);
/* Returns when the event took place on the host's clock, or `noticed_ns` if nothing is known. */
uint64_t gputime_host(const struct gputime *t, uint64_t gpu_ns, uint64_t noticed_ns);
/* Whether the lower bound is so old that an event in an idle stream is worth its cost. */
bool gputime_is_old(const struct gputime *t, uint64_t now_ns);

#endif

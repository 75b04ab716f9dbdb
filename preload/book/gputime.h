/*
 * The GPU's clock against ours. Events carry times of the GPU; what is asked for is when an event took place
 * on our clock. The offset between the two is never measured, but every event bounds it:
 *
 *	an event takes place when its record call submits it, or later:   offset >= submitted - gpu
 *	whoever finds that it has taken place finds it later:             offset <= noticed - gpu
 *
 * An event that waits (for work, for a time slice) gives a loose bound, never a wrong one. So the tightest
 * bounds are kept, and loosen with time as clocks drift. Pure: no driver, no clock.
 */
#ifndef PRELOAD_GPUTIME_H
#define PRELOAD_GPUTIME_H

#include <stdbool.h>
#include <stdint.h>

struct gputime {
	int64_t least, most;        /* bounds of the offset */
	uint64_t least_ns, most_ns; /* when they were found; 0: never */
	bool sure;                  /* an event that had nothing to wait for gave the lower one */
};

/*
 * An event of GPU time `gpu_ns` was recorded by a call that took `call_ns` and returned at `returned_ns`. `free`:
 * there was nothing that it could have had to wait for.
 */
void gputime_recorded(struct gputime *t, uint64_t gpu_ns, uint64_t call_ns, uint64_t returned_ns, bool free);
/* It was found to have taken place. */
void gputime_noticed(struct gputime *t, uint64_t gpu_ns, uint64_t noticed_ns);
/* On our clock; `noticed_ns` if nothing is known. */
uint64_t gputime_host(const struct gputime *t, uint64_t gpu_ns, uint64_t noticed_ns);
/* The lower bound is so old that an event in an idle stream is worth its cost. */
bool gputime_is_old(const struct gputime *t, uint64_t now_ns);

#endif

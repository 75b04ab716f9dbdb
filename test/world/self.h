/* In place of shm/base/self.h, before which it is included: each simulated process has its own. */
#ifndef ARB_SELF_H
#define ARB_SELF_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/base/self_state.h"

extern struct arb_self_state *world_self;
#define arb_self (*world_self)

/*
 * Points left until the running thread may be interrupted. 1 where it has gone on past the time at which others are
 * due (world_ahead): they come first before it sees or does what they could see or do.
 */
extern uint32_t world_points;
void world_interrupt(void);

static inline void arb_self_point(void)
{
	if (__builtin_expect(--world_points == 0, 0))
		world_interrupt();
}

extern uint64_t world_self_thread;

static inline uint64_t arb_self_thread(void)
{
	return world_self_thread;
}

#endif

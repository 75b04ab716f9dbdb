/* Replaces shm/base/self.h, before which it is included: each simulated process has a state of its own. */
#ifndef ARB_SELF_H
#define ARB_SELF_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/base/self_state.h"

extern struct arb_self_state *world_self;
#define arb_self (*world_self)

/*
 * Scheduling points left until the running thread may be interrupted. It is 1 while that thread runs ahead of others
 * that are due (world_ahead): then the others run before the thread reads or writes a word that they share.
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

/*
 * State of which a process has one copy, and which of its threads this is. The world (test/world), where many
 * processes are simulated in one, is compiled with a header of its own in place of this header.
 */
#ifndef ARB_SELF_H
#define ARB_SELF_H

#include <stdint.h>

#include "shm/base/self_state.h"

extern struct arb_self_state arb_self;

/* Called before each operation on a word that two processes see: there another process may come in between. */
static inline void arb_self_point(void)
{
}

/* Returns a number that no other thread of this process has; never 0. */
static inline uint64_t arb_self_thread(void)
{
	return (uint64_t)(uintptr_t)__builtin_thread_pointer();
}

#endif

/* The library's state of which a process has one copy. */
#ifndef ARB_SELF_STATE_H
#define ARB_SELF_STATE_H

#include "gpuarb/abi.h"

struct arb_self_state {
	arb_u64 claiming; /* 1: a slot is being claimed, and fork() waits for it */
};

#endif

/* What a process has one of in the library. */
#ifndef ARB_SELF_STATE_H
#define ARB_SELF_STATE_H

#include "gpuarb/abi.h"

struct arb_self_state {
	arb_u64 claiming; /* 1: a slot is being claimed, and fork() waits for it */
};

#endif

/* What the stress of the gate and its programs share. */
#ifndef TEST_PRELOAD_STRESS_H
#define TEST_PRELOAD_STRESS_H

#include <stdint.h>

#include "cuda_abi.h"
#include "gpuarb/control.h"
#include "test/harness.h"

#define PROCESSES 3

struct stress {
	unsigned seconds;
	uint64_t seed;
	uint32_t *stop; /* in shared memory: 1 when the programs are to end */
};
extern struct stress stress;

struct program {
	unsigned index;
	uint64_t seed;
};

/* Runs one program: it works until it is told to stop, then compares its sums. */
int stress_program(void *argument);

#endif

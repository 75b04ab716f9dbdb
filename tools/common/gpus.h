/* The GPUs that a program started now would see, as the driver (else NVML) says. */
#ifndef TOOLS_GPUS_H
#define TOOLS_GPUS_H

#include <stdint.h>

#define GPUS_MOST 64

struct gpu {
	char uuid[64];
	uint64_t bytes; /* of memory; 0: not known */
};

/*
 * Asks in a process of its own: a driver that hangs, or leaves threads and descriptors behind, does it there.
 * `libraries` is where the driver is looked for first, or NULL; `visible` is CUDA_VISIBLE_DEVICES for this,
 * or NULL: as it is. How many there are; 0: none, or no driver.
 */
int gpus_visible(const char *libraries, const char *visible, struct gpu list[GPUS_MOST]);

#endif

/* The GPUs that a program started now would see, as the driver says, or NVML if there is no driver. */
#ifndef TOOLS_GPUS_H
#define TOOLS_GPUS_H

#include <stdint.h>

#define GPUS_MOST 64

struct gpu {
	char uuid[64];
	uint64_t bytes; /* of memory; 0: not known */
};

/*
 * Asks in a process of its own, because a driver may hang or leave threads and descriptors behind. `libraries` is
 * where the driver is looked for first, or NULL. `visible` replaces CUDA_VISIBLE_DEVICES; NULL leaves it. Returns how
 * many GPUs there are; 0: none, or no driver.
 */
int gpus_visible(const char *libraries, const char *visible, struct gpu list[GPUS_MOST]);

#endif

/*
 * The GPUs that this process uses. A GPU is joined with its first context, or with the first call that finds
 * a context of it; where that fails the process runs free, and says so once.
 */
#ifndef PRELOAD_DEVICE_H
#define PRELOAD_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"

struct gpuarb_client;

#define ARB_DEVICES 64

struct arb_device {
	struct gpuarb_client *client; /* NULL: not joined, run free */
	CUdevice ordinal;
	char uuid[48];
	uint32_t state; /* of joining */
};

/* GPUARB_DISABLE is set: nothing but seeing. */
bool arb_disabled(void);

/* The GPU of the calling thread's current context, joined; NULL if there is none, or if it could not be. */
struct arb_device *arb_device_current(void);
/* The same by number. */
struct arb_device *arb_device_get(CUdevice ordinal);
/* If it has been joined already; asks nobody. */
struct arb_device *arb_device_known(CUdevice ordinal);

static inline struct gpuarb_client *arb_device_client(const struct arb_device *device)
{
	return device->client;
}

/* Its place, 0 to ARB_DEVICES - 1, for tables beside this one. */
static inline unsigned arb_device_index(const struct arb_device *device)
{
	return (unsigned)device->ordinal;
}

#endif

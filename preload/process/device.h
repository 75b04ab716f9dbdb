/*
 * The GPUs that this process uses. A GPU is joined when its first context is made, or with the first call
 * that finds a context of it. If joining fails, on_error decides, and the log says so once. With `open` a process
 * with limits keeps them by itself, as if it were alone, and for one without limits everything passes. With
 * `closed` both are refused the GPU. A process whose quota the GPU cannot promise (oversub_ratio) is refused it in any case.
 */
#ifndef PRELOAD_DEVICE_H
#define PRELOAD_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "preload/process/log.h"

struct gpuarb_client;

#define ARB_DEVICES 64

struct arb_device {
	struct gpuarb_client *client; /* NULL: not joined, everything passes */
	CUdevice ordinal;
	char uuid[48];
	char name[64];    /* for messages: the UUID, and the number by which the program knows the GPU */
	uint32_t state;   /* of joining */
	uint32_t refused; /* the CUresult with which the GPU is refused; 0: it is not */
	/* vigil.c: the number of the vigil that goes on (futex; 0: none); how many there were; 1: there was a context. */
	uint32_t vigil, vigils, had_context;
	uint64_t denied_ns; /* when it was last said that its quota cannot be promised */
	struct arb_log_rate refused_memory, driver_refused_memory; /* memory_say.c */
	uint32_t restored; /* how many overwritten words the last message about them counted */
	struct arb_log_rate wrote_over;
};

/* Whether GPUARB_DISABLE is set: then calls are counted, and nothing is done about them. */
bool arb_disabled(void);

/* Finds the number of the GPU of the calling thread's current context. False: there is no context. */
bool arb_device_ordinal(CUdevice *ordinal);
/* Returns the GPU of the calling thread's current context, and joins it. NULL: no context, or it could not be joined. */
struct arb_device *arb_device_current(void);
/* Returns the GPU of that number, and joins it. NULL: it could not be joined. */
struct arb_device *arb_device_get(CUdevice ordinal);
/* Returns the GPU of that number if it has been joined already. Asks neither driver nor segment. */
struct arb_device *arb_device_known(CUdevice ordinal);

/* Whether this process has tried to join the GPU of that UUID. *device: the GPU, or NULL if it has no client. */
bool arb_device_named(const char *uuid, struct arb_device **device);

/*
 * Joins again, because the segment cannot be used any more (-ESTALE: it was removed or replaced). True: the same
 * client has joined, outside the running set. False: everything passes, or device->refused is set.
 */
bool arb_device_rejoin(struct arb_device *device, int error);

/*
 * Returns CUDA_SUCCESS, or the error for a context on this GPU: CUDA_ERROR_NOT_PERMITTED (on_error = closed, and the
 * segment cannot be used), CUDA_ERROR_OUT_OF_MEMORY (the quota cannot be promised; asks again each time).
 */
CUresult arb_device_refuses(CUdevice ordinal);
/* Returns with which error work and memory in the calling thread's current context are refused, or CUDA_SUCCESS. */
CUresult arb_device_refuses_current(void);

/*
 * Joins again a segment that can be used again, after the process has gone on alone. 0: the same client has joined, outside
 * the running set. 1: it could not, and goes on alone. -errno: not even that; everything passes, or device->refused is set.
 */
int arb_device_return(struct arb_device *device);

/* Logs, once in a while, that others have overwritten the client's own words in the segment `times` times, and that the client
 * has put them right. */
void arb_device_say_restored(struct arb_device *device, uint32_t times);

/* Returns a sentence about the GPU without the UUID at its beginning: messages begin with the device's name, which has it. */
const char *arb_device_rest(const struct arb_device *device, const char *sentence);

static inline struct gpuarb_client *arb_device_client(const struct arb_device *device)
{
	return device->client;
}

/* Returns the device's place, 0 to ARB_DEVICES - 1, for other tables by device. */
static inline unsigned arb_device_index(const struct arb_device *device)
{
	return (unsigned)device->ordinal;
}

#endif

/*
 * The GPUs that this process uses. A GPU is joined when its first context is made, or with the first call
 * that finds a context of it. Where that fails, on_error decides, and it is said once: a process with limits
 * keeps them by itself, as if it were alone; one without runs free; or both are refused the GPU. One whose
 * quota the GPU may not promise any more (oversub_ratio) is refused it, whatever on_error says.
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
	struct gpuarb_client *client; /* NULL: not joined, run free */
	CUdevice ordinal;
	char uuid[48];
	char name[64];    /* for sentences: the UUID, and the number by which the program knows it */
	uint32_t state;   /* of joining */
	uint32_t refused; /* the CUresult that it is refused with; 0: it is not */
	uint32_t vigil, vigils,
		had_context; /* vigil.c: which one there is (futex; 0: none), how many there were */
	uint64_t denied_ns;  /* when it was last said that its quota cannot be promised */
	struct arb_log_rate refused_memory, driver_refused_memory; /* what was said of it: memory_say.c */
	uint32_t restored; /* how often words of its own had been written over when that was last said */
	struct arb_log_rate wrote_over;
};

/* GPUARB_DISABLE is set: nothing but seeing. */
bool arb_disabled(void);

/* The GPU of the calling thread's current context, joined; NULL if there is none, or if it could not be. */
struct arb_device *arb_device_current(void);
/* The GPU of that number, joined; NULL if it could not be. */
struct arb_device *arb_device_get(CUdevice ordinal);
/* The GPU of that number if it has been joined already; asks neither driver nor segment. */
struct arb_device *arb_device_known(CUdevice ordinal);

/* True: this process has come to the GPU of that UUID; *device is NULL if it does without a client. */
bool arb_device_named(const char *uuid, struct arb_device **device);

/*
 * Its segment cannot be used any more (-ESTALE: it was removed or replaced). True: the same client has joined
 * anew, outside the running set; false: it runs free, or device->refused is set.
 */
bool arb_device_rejoin(struct arb_device *device, int error);

/*
 * CUDA_SUCCESS, or why there is no context and no work: CUDA_ERROR_NOT_PERMITTED (on_error = closed, and its
 * segment cannot be used), CUDA_ERROR_OUT_OF_MEMORY (its quota cannot be promised; asks again each time).
 */
CUresult arb_device_refuses(CUdevice ordinal);
/* arb_device_refuses for the GPU of the calling thread's current context. */
CUresult arb_device_refuses_current(void);

/*
 * It goes on alone, and its segment can be used again. 0: the same client has joined it, outside the running set; 1: it
 * could not, and goes on alone; -errno: nor that, it runs free or device->refused is set.
 */
int arb_device_return(struct arb_device *device);

/* Its client has found words of its own in the segment written over so often, and put them right. Said once in a while. */
void arb_device_say_restored(struct arb_device *device, uint32_t times);

/* A sentence about the GPU without its UUID at the beginning: whoever says it begins with the name. */
const char *arb_device_rest(const struct arb_device *device, const char *sentence);

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

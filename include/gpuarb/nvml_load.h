/* NVML, NVIDIA's library that tells about GPUs. It is found at run time, because most machines have none. A caller
 * lists the functions that it needs. */
#ifndef GPUARB_NVML_LOAD_H
#define GPUARB_NVML_LOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "gpuarb/client.h"
#include "nvml_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpuarb_nvml_call {
	const char *name;
	void *place;   /* where the pointer to the function goes */
	bool optional; /* not in every version: its pointer may be NULL afterwards */
};

/* Loads NVML, finds the calls and initialises it. Returns NULL, or the name of what is missing: then NVML is not
 * loaded. */
GPUARB_API const char *gpuarb_nvml_load(const struct gpuarb_nvml_call *calls, size_t count);
/* Does the same with NVML loaded, for callers that must not name dlopen() and dlsym(): `find` is the latter. */
GPUARB_API const char *gpuarb_nvml_begin(void *library, void *(*find)(void *library, const char *name),
	const struct gpuarb_nvml_call *calls, size_t count);

#ifdef __cplusplus
}
#endif

#endif

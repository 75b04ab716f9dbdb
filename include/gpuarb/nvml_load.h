/* NVML, NVIDIA's library that tells about GPUs. It is found at run time, because most machines have none. A caller
 * lists the functions that it needs. */
#ifndef GPUARB_NVML_LOAD_H
#define GPUARB_NVML_LOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "gpuarb/client.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpuarb_nvml_call {
	const char *name;
	void *place;   /* where the pointer to the function goes */
	bool optional; /* not in every version: its pointer may be NULL afterwards */
};

/* What nvmlDeviceGetUtilizationRates fills in: percent of the time. */
struct gpuarb_nvml_rates {
	unsigned gpu, memory;
};

/* Loads NVML, finds the calls and initialises it. Returns NULL, or the name of what is missing: then NVML is not
 * loaded. */
GPUARB_API const char *gpuarb_nvml_load(const struct gpuarb_nvml_call *calls, size_t count);

#ifdef __cplusplus
}
#endif

#endif

/*
 * What the files of the simulated NVML share. Every call begins with nvml_device() or nvml_ready().
 */
#ifndef SIM_NVML_H
#define SIM_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "test/sim/device/model.h"
#include "test/sim/nvml/sim_nvml_abi.h"

/* Returns the index of the device behind a handle, or the negated error that the call must return. */
int nvml_device(nvmlDevice_t handle);

/* Returns whether a handle is an instance's. With GPUSIM_MIG the devices are instances of one GPU, and the last handle
 * is that GPU's. */
bool nvml_is_instance(nvmlDevice_t handle);
/* Return how many instances there are (0: the devices are GPUs), and the handle of an instance (-1: of the GPU). */
int nvml_instances(void);
nvmlDevice_t nvml_instance(int index);

/* Returns 0 after nvmlInit, and the error for the call before. */
nvmlReturn_t nvml_ready(void);

/* Copies a text with its terminator, or returns the error for a buffer that is too short. */
nvmlReturn_t nvml_text(const char *text, char *out, unsigned int length);

/* Converts a time of the model, by the monotonic clock, to NVML's: microseconds of the wall clock. */
uint64_t nvml_wall_us(uint64_t monotonic_ns);
uint64_t nvml_monotonic_ns(uint64_t wall_us);

#define NVML_ENTER(handle, pointer)                                                                          \
	int dev = nvml_device(handle);                                                                       \
	if (dev < 0)                                                                                         \
		return -dev;                                                                                 \
	if (!(pointer))                                                                                      \
	return NVML_ERROR_INVALID_ARGUMENT

#endif

/*
 * What the files of the simulated NVML share. Every call begins with one of the two checks.
 */
#ifndef SIM_NVML_H
#define SIM_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "test/sim/device/model.h"
#include "test/sim/nvml/nvml_abi.h"

/* Index of the device behind a handle, or the negated error the call must return. */
int nvml_device(nvmlDevice_t handle);

/* The devices are instances of one GPU (GPUSIM_MIG), whose handle is the last; is this one of theirs? */
bool nvml_is_instance(nvmlDevice_t handle);
/* How many instances there are; 0: the devices are GPUs. And the handle of one; of the GPU for -1. */
int nvml_instances(void);
nvmlDevice_t nvml_instance(int index);

/* 0 after nvmlInit, an error before. */
nvmlReturn_t nvml_ready(void);

/* Copies text with its terminator, or says that the caller's buffer is too short. */
nvmlReturn_t nvml_text(const char *text, char *out, unsigned int length);

/* NVML stamps samples with the wall clock in microseconds; the model uses the monotonic one. */
uint64_t nvml_wall_us(uint64_t monotonic_ns);
uint64_t nvml_monotonic_ns(uint64_t wall_us);

#define NVML_ENTER(handle, pointer)                                                                          \
	int dev = nvml_device(handle);                                                                       \
	if (dev < 0)                                                                                         \
		return -dev;                                                                                 \
	if (!(pointer))                                                                                      \
	return NVML_ERROR_INVALID_ARGUMENT

#endif

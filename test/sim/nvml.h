/*
 * What the files of the simulated NVML share. Every call begins with one of the two checks.
 */
#ifndef SIM_NVML_H
#define SIM_NVML_H

#include <stdint.h>

#include "model.h"
#include "nvml_abi.h"

/* Index of the device behind a handle, or the negated error the call must return. */
int nvml_device(nvmlDevice_t handle);

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

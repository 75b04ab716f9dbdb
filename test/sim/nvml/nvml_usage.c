/*
 * NVML: memory, utilisation and processes, as the model has them.
 */
#include <string.h>

#include "test/sim/nvml/sim_nvml.h"

#define NOT_MIG    0xffffffffu
#define BAR1_BYTES (256ull << 20)

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	struct sim_device_state s;

	NVML_ENTER(device, memory);
	if (sim_device_state(dev, &s))
		return NVML_ERROR_UNKNOWN;
	memory->total = s.memory_total_bytes;
	memory->used = s.memory_used_bytes;
	memory->free = s.memory_total_bytes - s.memory_used_bytes;
	return NVML_SUCCESS;
}

/* The simulated driver reserves no memory for itself. */
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	nvmlMemory_t m;
	nvmlReturn_t r;

	NVML_ENTER(device, memory);
	(void)dev;
	if (memory->version != NVML_MEMORY_V2_VERSION)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	r = nvmlDeviceGetMemoryInfo(device, &m);
	if (r)
		return r;
	memory->total = m.total;
	memory->reserved = 0;
	memory->free = m.free;
	memory->used = m.used;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
	NVML_ENTER(device, memory);
	memory->bar1Total = BAR1_BYTES;
	memory->bar1Used = 1 << 20;
	memory->bar1Free = memory->bar1Total - memory->bar1Used;
	return NVML_SUCCESS;
}

/* "memory" is the mean of both copy engines; the memory traffic of kernels is not modelled. */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
	struct sim_sample s;

	NVML_ENTER(device, rates);
	/* As on real hardware, there is no utilisation of an instance, nor of a GPU that is divided into instances. */
	if (nvml_instances())
		return NVML_ERROR_NOT_SUPPORTED;
	if (sim_last_sample(dev, &s))
		memset(&s, 0, sizeof(s));
	rates->gpu = s.util_pct;
	rates->memory = s.copy_util_pct;
	return NVML_SUCCESS;
}

static nvmlReturn_t idle_engine(nvmlDevice_t device, unsigned int *pct, unsigned int *period_us)
{
	NVML_ENTER(device, pct && period_us);
	*pct = 0;
	*period_us = sim_sample_period_ns() / 1000;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *pct, unsigned int *period_us)
{
	return idle_engine(device, pct, period_us);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *pct, unsigned int *period_us)
{
	return idle_engine(device, pct, period_us);
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned int type, unsigned long long last_seen_us,
	unsigned int *value_type, unsigned int *count, nvmlSample_t *samples)
{
	struct sim_sample list[SIM_SAMPLES];
	unsigned int out = 0;
	int n;

	NVML_ENTER(device, value_type && count);
	if (type != NVML_GPU_UTILIZATION_SAMPLES && type != NVML_MEMORY_UTILIZATION_SAMPLES)
		return type < 7 ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
	*value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
	if (!samples) {
		*count = SIM_SAMPLES;
		return NVML_SUCCESS;
	}
	n = sim_samples_after(dev, nvml_monotonic_ns(last_seen_us), list, SIM_SAMPLES);
	for (int i = 0; i < n && i < SIM_SAMPLES && out < *count; i++) {
		uint64_t stamp = nvml_wall_us(list[i].end_ns);

		/* The caller's last stamp was rounded down, so its sample must not be given again. */
		if (stamp <= last_seen_us)
			continue;
		samples[out].timeStamp = stamp;
		samples[out].sampleValue.ullVal = 0;
		samples[out++].sampleValue.uiVal =
			type == NVML_GPU_UTILIZATION_SAMPLES ? list[i].util_pct : list[i].copy_util_pct;
	}
	*count = out;
	return out ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

static int with_context(int dev, struct sim_process_state *list)
{
	int n = sim_processes(dev, false, list, SIM_MAX_PROCS), kept = 0;

	if (n > SIM_MAX_PROCS)
		n = SIM_MAX_PROCS;
	for (int i = 0; i < n; i++)
		if (list[i].alive && list[i].has_context)
			list[kept++] = list[i];
	return kept;
}

/* Checks the caller's space before it writes anything. If there is too little, it returns the number that is needed. */
static nvmlReturn_t running(nvmlDevice_t device, unsigned int *count, void *infos, int version)
{
	struct sim_process_state list[SIM_MAX_PROCS];
	unsigned int n;

	NVML_ENTER(device, count && (infos || !*count));
	n = with_context(dev, list);
	if (*count < n) {
		*count = n;
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	*count = n;
	for (unsigned int i = 0; i < n; i++) {
		if (version == 1) {
			nvmlProcessInfo_v1_t *p = (nvmlProcessInfo_v1_t *)infos + i;

			p->pid = list[i].pid;
			p->usedGpuMemory = list[i].memory_bytes;
		} else {
			nvmlProcessInfo_t *p = (nvmlProcessInfo_t *)infos + i;

			p->pid = list[i].pid;
			p->usedGpuMemory = list[i].memory_bytes;
			p->gpuInstanceId = p->computeInstanceId = NOT_MIG;
		}
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(
	nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos)
{
	return running(device, count, infos, 1);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(
	nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
	return running(device, count, infos, 2);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(
	nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
	return running(device, count, infos, 3);
}

static nvmlReturn_t nobody(nvmlDevice_t device, unsigned int *count)
{
	NVML_ENTER(device, count);
	*count = 0;
	return NVML_SUCCESS;
}

/* There are no graphics processes, and no MPS server whose clients would be listed separately. */
#define NOBODY(kind)                                                                                         \
	nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses(                                                  \
		nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos)                       \
	{                                                                                                    \
		(void)infos;                                                                                 \
		return nobody(device, count);                                                                \
	}                                                                                                    \
	nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses_v2(                                               \
		nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)                          \
	{                                                                                                    \
		(void)infos;                                                                                 \
		return nobody(device, count);                                                                \
	}                                                                                                    \
	nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses_v3(                                               \
		nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)                          \
	{                                                                                                    \
		(void)infos;                                                                                 \
		return nobody(device, count);                                                                \
	}
NOBODY(Graphics)
NOBODY(MPSCompute)

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
	unsigned int *count, unsigned long long last_seen_us)
{
	struct sim_process_state list[SIM_MAX_PROCS];
	unsigned int out = 0, n;

	NVML_ENTER(device, count);
	n = with_context(dev, list);
	for (unsigned int i = 0; i < n; i++)
		if (nvml_wall_us(list[i].sample_ns) > last_seen_us)
			list[out++] = list[i];
	if (!out) {
		*count = 0;
		return NVML_ERROR_NOT_FOUND;
	}
	if (!samples || *count < out) {
		*count = out;
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	*count = out;
	memset(samples, 0, out * sizeof(*samples));
	for (unsigned int i = 0; i < out; i++) {
		samples[i].pid = list[i].pid;
		samples[i].timeStamp = nvml_wall_us(list[i].sample_ns);
		samples[i].smUtil = list[i].util_pct;
		samples[i].memUtil = list[i].copy_util_pct;
	}
	return NVML_SUCCESS;
}

/* NVML's memory queries: the figures of the device are turned into what the account may see of it. */
#include "preload/hooks/nvml_hooks.h"

#include "preload/process/act.h"
#include "preload/hooks/hooks.h"
#include "preload/hooks/wrappers.h"

/* True: the figures are now what the account may see. False: they are still the device's. */
static bool show(
	nvmlDevice_t device, unsigned long long *total, unsigned long long *free, unsigned long long *used)
{
	uint64_t all = *total, rest = *free, taken = *used;
	bool shown = act_nvml_memory(device, &all, &rest, &taken);

	*total = all;
	*free = rest;
	*used = taken;
	return shown;
}

int wrap_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct nvml_memory *memory)
{
	__typeof__(nvmlDeviceGetMemoryInfo) *real = arb_real(nvmlDeviceGetMemoryInfo);
	int result;

	if (!real)
		return NVML_ERROR_FUNCTION_NOT_FOUND;
	act_count(CAT_NVML);
	result = real(device, memory);
	if (result == NVML_SUCCESS && memory)
		show(device, &memory->total, &memory->free, &memory->used);
	return result;
}

int wrap_nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct nvml_memory_v2 *memory)
{
	__typeof__(nvmlDeviceGetMemoryInfo_v2) *real = arb_real(nvmlDeviceGetMemoryInfo_v2);
	int result;

	if (!real)
		return NVML_ERROR_FUNCTION_NOT_FOUND;
	act_count(CAT_NVML);
	result = real(device, memory);
	/* What the driver keeps for itself does not belong to the account. */
	if (result == NVML_SUCCESS && memory && show(device, &memory->total, &memory->free, &memory->used))
		memory->reserved = 0;
	return result;
}

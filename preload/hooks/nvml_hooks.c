/* NVML's memory queries: what the device has, turned into what the account may see of it. */
#include "preload/hooks/nvml_abi.h"

#include "preload/process/act.h"
#include "preload/hooks/hooks.h"
#include "preload/hooks/wrappers.h"

int wrap_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct nvml_memory *memory)
{
	__typeof__(nvmlDeviceGetMemoryInfo) *real = arb_real(nvmlDeviceGetMemoryInfo);
	uint64_t total, free, used;
	int result;

	if (!real)
		return NVML_ERROR_FUNCTION_NOT_FOUND;
	act_count(CAT_NVML);
	result = real(device, memory);
	if (result != NVML_SUCCESS || !memory)
		return result;
	total = memory->total;
	free = memory->free;
	used = memory->used;
	act_nvml_memory(device, &total, &free, &used);
	memory->total = total;
	memory->free = free;
	memory->used = used;
	return result;
}

int wrap_nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct nvml_memory_v2 *memory)
{
	__typeof__(nvmlDeviceGetMemoryInfo_v2) *real = arb_real(nvmlDeviceGetMemoryInfo_v2);
	uint64_t total, free, used;
	int result;

	if (!real)
		return NVML_ERROR_FUNCTION_NOT_FOUND;
	act_count(CAT_NVML);
	result = real(device, memory);
	if (result != NVML_SUCCESS || !memory)
		return result;
	total = memory->total;
	free = memory->free;
	used = memory->used;
	/* What the driver keeps for itself is not the account's. */
	if (act_nvml_memory(device, &total, &free, &used))
		memory->reserved = 0;
	memory->total = total;
	memory->free = free;
	memory->used = used;
	return result;
}

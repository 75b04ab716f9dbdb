/*
 * What the program is told of the device's memory: what its account may have of it. Without a quota every
 * answer is the driver's own.
 */
#include "device.h"
#include "gpuarb/client.h"
#include "memory.h"
#include "symbols.h"

#include <stddef.h>
#include <string.h>

static struct gpuarb_client_memory share_of(struct arb_device *device)
{
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;
	struct gpuarb_client_memory share = {0};

	if (!client)
		return share;
	if (memory_pool_any())
		memory_pool_settle_all(false);
	if (gpuarb_client_memory(client, &share) < 0)
		share.limit = 0;
	return share;
}

/* Where memory moves, what the driver has just now is not what there is. */
static uint64_t shown(uint64_t driver, uint64_t limit, bool moves)
{
	return moves || driver > limit ? limit : driver;
}

static void show(void *out, bool wide, uint64_t limit, bool moves)
{
	if (!out)
		return;
	if (wide)
		*(size_t *)out = shown(*(size_t *)out, limit, moves);
	else
		*(unsigned *)out =
			(unsigned)shown(*(unsigned *)out, limit < UINT32_MAX ? limit : UINT32_MAX, moves);
}

void arb_query_after(const struct act_call *call)
{
	bool wide = call->id == HOOK_cuMemGetInfo_v2 || call->id == HOOK_cuDeviceTotalMem_v2;
	struct gpuarb_client_memory share;

	switch (call->id) {
	case HOOK_cuMemGetInfo:
	case HOOK_cuMemGetInfo_v2:
		share = share_of(arb_device_current());
		if (!share.limit)
			return;
		show(call->out, wide, share.left, share.oversubscribe);
		show(call->out2, wide, share.limit, share.oversubscribe);
		return;
	case HOOK_cuDeviceTotalMem:
	case HOOK_cuDeviceTotalMem_v2:
		share = share_of(memory_device(call->device));
		if (share.limit)
			show(call->out, wide, share.limit, share.oversubscribe);
		return;
	default:
		return;
	}
}

/* NVML names devices in its own way; the UUID is the same. */
static struct arb_device *device_of(nvmlDevice_t nvml)
{
	int (*uuid_of)(nvmlDevice_t device, char *uuid, unsigned length) = NULL;
	__typeof__(cuDeviceGetCount) *count = arb_real(cuDeviceGetCount);
	struct elf_object object;
	char uuid[96] = "";
	int n = 0;

	if (!count || count(&n) != CUDA_SUCCESS)
		return NULL;
	if (arb_library_loaded(LIBRARY_NVML, &object))
		uuid_of = (__typeof__(uuid_of))arb_elf_symbol(&object, "nvmlDeviceGetUUID");
	if (!uuid_of || uuid_of(nvml, uuid, sizeof(uuid)) != NVML_SUCCESS)
		return NULL;
	for (CUdevice i = 0; i < n; i++) {
		struct arb_device *device = arb_device_get(i);

		if (device && !strcmp(device->uuid, uuid))
			return device;
	}
	return NULL;
}

bool act_nvml_memory(nvmlDevice_t nvml, uint64_t *total, uint64_t *free, uint64_t *used)
{
	struct gpuarb_client_memory share = share_of(device_of(nvml));

	if (!share.limit)
		return false;
	*total = shown(*total, share.limit, share.oversubscribe);
	*free = shown(*free, share.left, share.oversubscribe);
	if (*free > *total)
		*free = *total;
	*used = *total - *free;
	return true;
}

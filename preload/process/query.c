/*
 * Answers to queries about the device's memory: the program is shown what its account may have of it. Without a
 * quota every answer is the driver's own.
 */
#include "preload/process/device.h"
#include "gpuarb/client.h"
#include "preload/memory/memory.h"
#include "preload/hooks/symbols.h"

#include <stddef.h>
#include <string.h>

static uint64_t less(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static struct gpuarb_client_memory share_of(struct arb_device *device)
{
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;
	struct gpuarb_client_memory share = {0};
	uint64_t gone = 0;

	if (!client)
		return share;
	if (memory_pool_any())
		memory_pool_settle_all(false);
	if (gpuarb_client_memory(client, &share) < 0)
		share.limit = 0;
	/* Memory of the account's other processes that a checkpoint has moved off the device is free again. */
	if (share.quota && share.used > share.mine && !share.oversubscribe)
		gone = memory_frozen(device);
	if (gone) {
		share.used -= less(gone, share.used);
		share.left = less(share.quota - less(share.used, share.quota), share.limit);
	}
	return share;
}

/* `moves`: memory may be moved to the host, so what is free on the device now does not bound what can be had. */
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

/* Asks NVML for the UUID: its handles and numbers of devices differ from the driver's. */
static bool uuid_of(nvmlDevice_t nvml, char *uuid, unsigned size)
{
	int (*get)(nvmlDevice_t device, char *uuid, unsigned length) = NULL;
	struct elf_object object;

	if (arb_library_loaded(LIBRARY_NVML, &object))
		get = (__typeof__(get))arb_elf_symbol(&object, "nvmlDeviceGetUUID");
	return get && get(nvml, uuid, size) == NVML_SUCCESS;
}

/*
 * Looks at the quota on a GPU that the program has not used, and may never use: many programs only look. So the GPU
 * is not joined, and the driver, which would have to be loaded, is not asked. False: no quota, nothing is changed.
 */
static bool look(const char *uuid, uint64_t *total, uint64_t *free, uint64_t *used)
{
	struct gpuarb_options options = {.gpu = uuid};
	struct gpuarb_client_memory share;

	if (gpuarb_client_look(&options, *total, &share) < 0 || !share.quota)
		return false;
	*total = shown(*total, share.limit, share.oversubscribe);
	*free = shown(*free, share.left, share.oversubscribe);
	*used = share.used < *total ? share.used : *total;
	return true;
}

bool act_nvml_memory(nvmlDevice_t nvml, uint64_t *total, uint64_t *free, uint64_t *used)
{
	struct gpuarb_client_memory share;
	struct arb_device *device;
	char uuid[96] = "";

	if (arb_disabled() || !uuid_of(nvml, uuid, sizeof(uuid)))
		return false;
	if (!arb_device_named(uuid, &device))
		return look(uuid, total, free, used);
	share = share_of(device);
	if (!share.limit)
		return false;
	*total = shown(*total, share.limit, share.oversubscribe);
	*free = shown(*free, share.left, share.oversubscribe);
	if (*free > *total)
		*free = *total;
	*used = *total - *free;
	return true;
}

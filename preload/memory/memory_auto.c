/*
 * Measures how much memory contexts and code take, where context_mb is auto. A context takes what is in use on the
 * device and in nobody's books after it was made; code takes the difference between the device's figures before and
 * after it was loaded. If the books of other clients change meanwhile, the measurement is not believed. Programs that
 * are no clients keep no books, so the first figure on each GPU is checked against NVML's figure for this process.
 */
#include "preload/memory/memory.h"

#include "preload/process/device.h"
#include "gpuarb/client.h"
#include "preload/process/log.h"
#include "preload/track/place.h"
#include "shm/base/word.h"

#include <stddef.h>

/* A measured context or module larger than this is taken for somebody else's memory. Contexts of 0.1 to 0.6 GiB are
 * known. */
#define BELIEVED_BYTES (1ull << 30)

/* Sets how much of the current context's device is in use, and how much is in anybody's books. False: not known. */
static bool look(struct arb_device *device, uint64_t *used, uint64_t *booked)
{
	__typeof__(cuMemGetInfo_v2) *info = arb_real(cuMemGetInfo_v2);
	size_t free_bytes = 0, total = 0;
	uint64_t again = 0;

	if (!info || !gpuarb_client_mem_explained(arb_device_client(device), booked) ||
		info(&free_bytes, &total) != CUDA_SUCCESS || free_bytes > total ||
		!gpuarb_client_mem_explained(arb_device_client(device), &again) || again != *booked)
		return false;
	*used = total - free_bytes;
	return true;
}

static bool measured(struct arb_device *device)
{
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;
	struct gpuarb_client_memory memory;

	/* Without a quota nobody is refused anything, and nothing has to be found out. */
	return client && gpuarb_client_memory(client, &memory) == 0 && memory.context_measured &&
	       memory.quota;
}

/* Returns NVML's figure for the context, because NVML knows whose memory it is; without one, `found`. NVML is asked once
 * for each GPU, because the answer takes a tenth of the time in which a context is made. */
static uint64_t checked(struct arb_device *device, uint64_t found)
{
	static uint64_t asked[ARB_DEVICES / 64];
	uint64_t bit = 1ull << arb_device_index(device) % 64, *word = &asked[arb_device_index(device) / 64];
	uint64_t used, mine;
	struct gpuarb_client_memory memory;

	if (arb_word_load(word) & bit || gpuarb_client_memory(arb_device_client(device), &memory) < 0)
		return found;
	arb_word_store(word, arb_word_load(word) | bit);
	mine = memory.mine;
	used = memory_by_nvml(device);
	if (used <= mine || used - mine > BELIEVED_BYTES || used - mine == found)
		return found;
	arb_log(ARB_LOG_INFO,
		"%s: a context takes %llu MiB by NVML, %llu by the driver's free memory: NVML's counts",
		device->name, (unsigned long long)(used - mine) >> 20, (unsigned long long)found >> 20);
	return used - mine;
}

uint64_t memory_auto_context(struct arb_device *device, CUcontext ctx)
{
	__typeof__(cuCtxPushCurrent_v2) *push = arb_real(cuCtxPushCurrent_v2);
	uint64_t used = 0, booked = 0, found = 0;
	CUcontext popped;

	if (!measured(device) || !push || !arb_real(cuCtxPopCurrent_v2) || push(ctx) != CUDA_SUCCESS)
		return 0;
	if (look(device, &used, &booked) && used > booked)
		found = used - booked;
	arb_real(cuCtxPopCurrent_v2)(&popped);
	found = checked(device, found);
	/* The context exists already. If it does not fit it is not counted, and the next allocation is refused. */
	if (!found || found > BELIEVED_BYTES || !memory_reserve(device, found, MEMORY_ALL))
		return 0;
	return found;
}

void memory_code_before(struct act_call *call)
{
	struct arb_device *device = arb_device_current();
	uint64_t used = 0, booked = 0;

	/* The token is the bytes in use plus one; 0: nothing was measured. */
	call->token = measured(device) && look(device, &used, &booked) ? used + 1 : 0;
	call->bytes = booked;
}

void memory_code_after(struct act_call *call, CUresult result)
{
	struct arb_device *device = arb_device_current();
	uint64_t before = call->token ? call->token - 1 : 0, used = 0, booked = 0;
	struct memory_entry entry;

	if (!call->token || result != CUDA_SUCCESS || !device || !look(device, &used, &booked) ||
		booked != call->bytes || used == before ||
		!memory_table_take((uintptr_t)place_current(), MEMORY_CONTEXT, &entry))
		return;
	if (used > before && used - before <= BELIEVED_BYTES &&
		memory_reserve(device, used - before, MEMORY_ALL)) {
		entry.bytes += used - before;
	} else if (used < before) {
		uint64_t less = before - used < entry.bytes ? before - used : entry.bytes;

		memory_release(device, less);
		entry.bytes -= less;
	}
	memory_table_put(&entry);
}

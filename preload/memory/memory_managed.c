/*
 * Oversubscription. Device memory that a program asks for becomes managed memory, which may be more than the GPU
 * has. When a turn of the process begins, the memory that others have pushed out is fetched back in one go, instead
 * of page by page as it is touched.
 */
#include "preload/memory/memory.h"

#include "preload/process/device.h"
#include "gpuarb/client.h"
#include "preload/process/log.h"
#include "shm/base/word.h"

#include <stddef.h>
#include <stdlib.h>

/* Bytes in one prefetch, and how many prefetches may be under way. Those are in vain if the turn ends meanwhile. */
#define CHUNK  (64ull << 20)
#define FLIGHT 8

static uint32_t managed[ARB_DEVICES]; /* by ordinal: has the GPU page faults? 1: no, 2: yes */

/* Managed memory that is larger than the GPU needs a GPU with page faults; older GPUs would refuse it. */
static bool faults(const struct arb_device *device)
{
	CUdevice ordinal = device->ordinal;
	__typeof__(cuDeviceGetAttribute) *ask = NULL;
	uint32_t answer;
	int value = 0;

	if (ordinal < 0 || ordinal >= ARB_DEVICES)
		return false;
	answer = arb_word_load(&managed[ordinal]);
	if (answer)
		return answer == 2;
	ask = (__typeof__(ask))arb_driver_symbol("cuDeviceGetAttribute");
	answer = ask && ask(&value, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, ordinal) == CUDA_SUCCESS &&
				 value
			 ? 2
			 : 1;
	if (answer == 1)
		arb_log(ARB_LOG_WARN,
			"%s: it cannot have more memory than it has: oversubscribe has no effect",
			device->name);
	arb_word_store(&managed[ordinal], answer);
	return answer == 2;
}

bool memory_managed_on(const struct arb_device *device)
{
	return arb_real(cuMemAllocManaged) && gpuarb_client_oversubscribes(device->client) && faults(device);
}

bool memory_managed_wanted(const struct arb_device *device, const struct act_call *call)
{
	/* The oldest forms return addresses of 32 bits, and managed memory has longer ones. */
	return (call->id == HOOK_cuMemAlloc_v2 || call->id == HOOK_cuMemAllocPitch_v2) && call->out &&
	       (call->id != HOOK_cuMemAllocPitch_v2 || call->out2) && memory_managed_on(device);
}

CUresult memory_managed_alloc(struct act_call *call, size_t bytes, size_t pitch)
{
	CUresult result = arb_real(cuMemAllocManaged)(call->out, bytes, CU_MEM_ATTACH_GLOBAL);

	if (result == CUDA_SUCCESS && call->id == HOOK_cuMemAllocPitch_v2)
		*(size_t *)call->out2 = pitch;
	return result;
}

struct list {
	const struct arb_device *device;
	struct {
		CUdeviceptr at;
		uint64_t bytes;
	} * entry;
	size_t n, room;
};

static bool note(void *argument, const struct memory_entry *e)
{
	struct list *list = argument;

	if (e->device != list->device)
		return false;
	if (list->n == list->room) {
		size_t room = list->room ? list->room * 2 : 64;
		void *more = realloc(list->entry, room * sizeof(*list->entry));

		if (!more)
			return false;
		list->entry = more;
		list->room = room;
	}
	list->entry[list->n].at = e->key;
	list->entry[list->n++].bytes = e->bytes;
	return false;
}

static CUresult fetch(CUdeviceptr at, size_t bytes, CUdevice ordinal, CUstream stream)
{
	__typeof__(cuMemPrefetchAsync) *older = arb_real(cuMemPrefetchAsync);
	__typeof__(cuMemPrefetchAsync_v2) *newer = arb_real(cuMemPrefetchAsync_v2);

	if (newer)
		return newer(at, bytes, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
			0, stream);
	return older ? older(at, bytes, ordinal, stream) : CUDA_ERROR_NOT_SUPPORTED;
}

/* The chunks under way. Another one is begun only after the oldest has arrived. */
struct flight {
	CUstream stream;
	CUevent event[FLIGHT];
	unsigned n;
};

static void take_off(struct flight *f)
{
	arb_real(cuEventRecord)(f->event[f->n++ % FLIGHT], f->stream);
	if (f->n >= FLIGHT)
		arb_real(cuEventSynchronize)(f->event[f->n % FLIGHT]);
}

static bool open_flight(struct flight *f)
{
	__typeof__(cuStreamCreate) *stream = arb_real(cuStreamCreate);
	__typeof__(cuEventCreate) *event = arb_real(cuEventCreate);
	bool ok = stream && event && arb_real(cuEventRecord) && arb_real(cuEventSynchronize) &&
		  arb_real(cuStreamSynchronize) && arb_real(cuEventDestroy_v2) &&
		  arb_real(cuStreamDestroy_v2) && stream(&f->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;

	for (unsigned i = 0; i < FLIGHT && ok; i++)
		ok = event(&f->event[i], CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
	return ok;
}

static void close_flight(struct flight *f)
{
	for (unsigned i = 0; i < FLIGHT; i++)
		if (f->event[i])
			arb_real(cuEventDestroy_v2)(f->event[i]);
	if (f->stream)
		arb_real(cuStreamDestroy_v2)(f->stream);
}

/* Fetches the entries in the order of the table, up to `most` bytes. The driver refuses what was freed meanwhile. */
static void fetch_all(const struct list *list, uint64_t most, struct flight *f, bool (*go_on)(void *argument),
	void *argument)
{
	for (size_t i = 0; i < list->n && most; i++)
		for (uint64_t done = 0, part; done < list->entry[i].bytes && most; done += part) {
			part = list->entry[i].bytes - done < CHUNK ? list->entry[i].bytes - done : CHUNK;
			part = part < most ? part : most;
			if (!go_on(argument))
				return;
			if (fetch(list->entry[i].at + done, part, list->device->ordinal, f->stream) !=
				CUDA_SUCCESS)
				break;
			most -= part;
			take_off(f);
		}
	arb_real(cuStreamSynchronize)(f->stream);
}

void memory_come_back(struct arb_device *device, bool (*go_on)(void *argument), void *argument)
{
	struct gpuarb_client_memory memory;
	struct list list = {.device = device};
	struct flight flight = {0};

	memory_say_used(device);
	if (!gpuarb_client_turn_began(device->client) || gpuarb_client_memory(device->client, &memory) < 0 ||
		!memory.prefetch)
		return;
	memory_table_walk(MEMORY_MANAGED | MEMORY_ORDERED, note, &list);
	if (list.n && open_flight(&flight))
		fetch_all(&list, memory.physical ? memory.physical : UINT64_MAX, &flight, go_on, argument);
	close_flight(&flight);
	free(list.entry);
}

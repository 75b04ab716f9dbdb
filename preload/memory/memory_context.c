/*
 * Counts the memory of contexts, and gives back what ends with them. A context counts from before the driver makes
 * it until it has ended. It counts as much as `context_mb` said when it was made, or as much as was measured.
 */
#include "preload/memory/memory.h"

#include "preload/hooks/compat.h"
#include "preload/process/device.h"
#include "shm/base/word.h"
#include "gpuarb/client.h"

#include <stddef.h>

#define PRIMARIES 64

/* How many contexts have ended, or begun to end. A handle may come back: memory of a later epoch belongs to the new
 * context. */
static uint64_t epoch;
static __thread uint64_t ending;

static CUcontext primary[PRIMARIES]; /* by ordinal */
static unsigned attached;            /* references by cuCtxAttach */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

uint64_t memory_epoch(void)
{
	return arb_word_load(&epoch);
}

struct end {
	CUcontext context;
	uint64_t epoch;
};

static bool ends(void *argument, const struct memory_entry *e)
{
	const struct end *end = argument;

	if (e->owner != end->context || e->epoch > end->epoch)
		return false;
	memory_release(e->device, e->bytes);
	return true;
}

/* Tells whether the device has no primary context. */
static bool primary_gone(CUdevice ordinal)
{
	__typeof__(cuDevicePrimaryCtxGetState) *state = arb_real(cuDevicePrimaryCtxGetState);
	unsigned flags;
	int active = 1;

	return state && state(ordinal, &flags, &active) == CUDA_SUCCESS && !active;
}

static bool makes(const struct act_call *call)
{
	switch (call->id) {
	case HOOK_cuCtxCreate:
	case HOOK_cuCtxCreate_v2:
	case HOOK_cuCtxCreate_v3:
	case HOOK_cuCtxCreate_v4:
		return true;
	case HOOK_cuDevicePrimaryCtxRetain:
		return primary_gone(call->device);
	default:
		return false;
	}
}

/* Reserves memory for a context before the driver makes it; false: there is no room. */
static bool count(struct act_call *call, CUresult *result)
{
	struct arb_device *device = memory_device(call->device);
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;
	struct gpuarb_client_memory memory;

	if (!client || gpuarb_client_memory(client, &memory) < 0)
		return true;
	/* Its memory is measured after it was made. */
	if (memory.context_measured)
		call->token = (uintptr_t)device;
	if (!memory.context)
		return true;
	if (!memory_reserve_hard_for(device, memory.context, MEMORY_ALL, "a context (context_mb)")) {
		*result = CUDA_ERROR_OUT_OF_MEMORY;
		return false;
	}
	call->bytes = memory.context;
	call->token = (uintptr_t)device;
	return true;
}

static void made(const struct act_call *call, CUresult result)
{
	struct arb_device *device = (struct arb_device *)(uintptr_t)call->token;
	struct memory_entry entry = {.bytes = call->bytes, .device = device, .kind = MEMORY_CONTEXT}, other;

	if (result != CUDA_SUCCESS || !call->out) {
		memory_release(device, call->bytes);
		return;
	}
	entry.owner = *(CUcontext *)call->out;
	entry.key = (uintptr_t)entry.owner;
	entry.epoch = memory_epoch();
	pthread_mutex_lock(&counting);
	if (!entry.bytes) {
		/* A context that two threads have retained is measured once. */
		if (memory_table_take(entry.key, MEMORY_CONTEXT, &other)) {
			memory_table_put(&other);
			pthread_mutex_unlock(&counting);
			return;
		}
		entry.bytes = memory_auto_context(device, entry.owner);
	}
	/* Two threads may have counted a primary context, of which the driver made only one. */
	if (memory_table_take(entry.key, MEMORY_CONTEXT, &other))
		memory_release(other.device, other.bytes);
	memory_table_put(&entry);
	pthread_mutex_unlock(&counting);
}

/* The primary context existed when we looked, but had gone before the driver retained it. The driver has made a new
 * one, which counts, too. */
static void made_unnoticed(const struct act_call *call)
{
	struct act_call again = *call;
	struct memory_entry known;
	CUresult result = CUDA_SUCCESS;
	uint64_t key = (uintptr_t) * (CUcontext *)call->out;

	pthread_mutex_lock(&counting);
	if (memory_table_take(key, MEMORY_CONTEXT, &known)) {
		memory_table_put(&known);
		again.out = NULL;
	}
	pthread_mutex_unlock(&counting);
	if (again.out && count(&again, &result) && again.token)
		made(&again, CUDA_SUCCESS);
}

/* Returns the context that the call may end, or NULL. */
static CUcontext ended(const struct act_call *call)
{
	switch (call->id) {
	case HOOK_cuCtxDestroy:
	case HOOK_cuCtxDestroy_v2:
	case HOOK_cuCtxDetach:
		return (CUcontext)(uintptr_t)call->handle;
	case HOOK_cuDevicePrimaryCtxReset:
	case HOOK_cuDevicePrimaryCtxReset_v2:
	case HOOK_cuDevicePrimaryCtxRelease:
	case HOOK_cuDevicePrimaryCtxRelease_v2:
		if ((unsigned)call->device >= PRIMARIES)
			return NULL;
		return arb_word_load(&primary[call->device]);
	default:
		return NULL;
	}
}

static void tell(const struct end *end, enum memory_end what)
{
	memory_graph_context(end->context, what);
	memory_ordered_context(end->context, end->epoch, what);
	memory_pool_context(end->context, what);
}

bool memory_context_before(struct act_call *call, CUresult *result)
{
	struct end end = {.context = ended(call)};

	call->token = 0;
	if (makes(call))
		return count(call, result);
	if (end.context) {
		end.epoch = ending = arb_word_add(&epoch, 1);
		tell(&end, MEMORY_ENDING);
	}
	return true;
}

static void retained(const struct act_call *call)
{
	if (!call->out)
		return;
	if ((unsigned)call->device < PRIMARIES)
		arb_word_store(&primary[call->device], *(CUcontext *)call->out);
	if (!call->token)
		made_unnoticed(call);
}

/* Tells whether the context of a call that may end one lives on. */
static bool stays(const struct act_call *call)
{
	switch (call->id) {
	case HOOK_cuCtxDetach:
		/* The reference of cuCtxCreate is the last to go. The references by cuCtxAttach are counted for all
		 * contexts together: programs do not attach to several contexts at once any more. */
		if (!arb_word_load(&attached))
			return false;
		arb_word_sub(&attached, 1);
		return true;
	case HOOK_cuDevicePrimaryCtxRelease:
	case HOOK_cuDevicePrimaryCtxRelease_v2:
		return !primary_gone(call->device);
	default:
		return false;
	}
}

void memory_context_after(struct act_call *call, CUresult result)
{
	struct end end = {.context = ended(call), .epoch = ending};

	if (call->token)
		made(call, result);
	if (result == CUDA_SUCCESS && call->id == HOOK_cuDevicePrimaryCtxRetain)
		retained(call);
	if (result == CUDA_SUCCESS && call->id == HOOK_cuCtxAttach)
		arb_word_add(&attached, 1);
	if (!end.context)
		return;
	if (result != CUDA_SUCCESS || stays(call)) {
		tell(&end, MEMORY_STAYS);
		return;
	}
	memory_table_walk(
		MEMORY_PLAIN | MEMORY_MANAGED | MEMORY_ORDERED | MEMORY_ARRAY | MEMORY_CONTEXT, ends, &end);
	tell(&end, MEMORY_ENDED);
	if (memory_pool_any())
		memory_pool_settle_all(false);
}

void memory_context_forget(void)
{
	pthread_mutex_init(&counting, NULL);
	memory_nvml_forget();
}

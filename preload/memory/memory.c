/* Hands each call to the part of the memory accounting that it belongs to, and counts bytes for the account. */
#include "preload/memory/memory.h"

#include "preload/hooks/compat.h"
#include "preload/process/device.h"
#include "gpuarb/client.h"
#include "preload/memory/memory_mark.h"
#include "preload/track/track.h"
#include "shm/base/word.h"

#include <errno.h>
#include <stddef.h>

#define NAP_NS 30000u

/* The driver answers for the current context's device; if that is another device, nothing is said. */
void memory_say_used(struct arb_device *device)
{
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;
	__typeof__(cuMemGetInfo_v2) *ask;
	CUstreamCaptureMode mode;
	size_t free, total;
	CUdevice current;

	if (__builtin_expect(!client || !gpuarb_client_used_due(client), 1))
		return;
	ask = arb_real(cuMemGetInfo_v2);
	if (!ask || !memory_ordinal(&current) || current != device->ordinal)
		return;
	mode = track_relax();
	if (ask(&free, &total) == CUDA_SUCCESS && free <= total)
		gpuarb_client_set_used(client, total - free);
	track_unrelax(mode);
}

int memory_try(struct arb_device *device, uint64_t bytes, enum memory_need need)
{
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;
	int r;

	memory_say_used(device);
	r = client && bytes ? gpuarb_client_mem_try(client, bytes, need == MEMORY_MOST) : 0;
	if (__builtin_expect(r == -ENOMEM, 0)) {
		uint64_t gone = memory_frozen(device);

		if (gone)
			r = gpuarb_client_mem_try_gone(client, bytes, need == MEMORY_MOST, gone);
	}

	/* Any other failure is the segment's fault, not the program's, so the call is let through. */
	return r == -ENOMEM || r == -EAGAIN ? r : 0;
}

bool memory_reserve(struct arb_device *device, uint64_t bytes, enum memory_need need)
{
	return memory_try(device, bytes, need) == 0;
}

void memory_settled(struct arb_device *device)
{
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;

	if (client)
		gpuarb_client_mem_settled(client);
}

void memory_release(struct arb_device *device, uint64_t bytes)
{
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;

	if (client && bytes)
		gpuarb_client_mem_release(client, bytes);
}

bool memory_never(struct arb_device *device, uint64_t bytes)
{
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;
	struct gpuarb_client_memory memory;

	return client && gpuarb_client_memory(client, &memory) == 0 && memory.limit && bytes > memory.limit;
}

uint64_t memory_reserve_rest(struct arb_device *device, uint64_t bytes)
{
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;
	uint64_t used, limit;

	/* Memory of frozen processes is not asked for here: only the rest of a quota is handed out. */
	if (!client || gpuarb_client_mem_read(client, &used, &limit) < 0 || used >= limit)
		return 0;
	bytes = bytes < limit - used ? bytes : limit - used;
	return gpuarb_client_mem_try(client, bytes, false) == 0 ? bytes : 0;
}

/* The thread may be capturing, and our calls must not break its capture. */
void memory_give_back(void)
{
	CUstreamCaptureMode mode = track_relax();

	memory_pool_settle_all(true);
	memory_ordered_give_back();
	track_unrelax(mode);
}

/*
 * Waits while other calls of the account have reserved more than they may need, and gives up after *until. All
 * attempts of one call of the program share *until; it is 0 before the first wait.
 */
static bool reserve_undisturbed(
	struct arb_device *device, uint64_t bytes, enum memory_need need, uint64_t *until)
{
	int r;

	while ((r = memory_try(device, bytes, need)) == -EAGAIN) {
		if (!*until)
			*until = track_now() + MEMORY_UNDER_WAY_NS;
		else if (track_now() > *until)
			return false;
		memory_nap(NAP_NS);
		memory_give_back();
	}
	return r == 0;
}

/*
 * Waits for frees that were queued when their pool was destroyed. The driver does not say when such a free is
 * done, but it is done when the context has no work. A program whose work may wait for what the calling thread
 * does next is not made to wait.
 */
static bool drain(void)
{
	__typeof__(cuCtxSynchronize) *wait = arb_real(cuCtxSynchronize);
	CUstreamCaptureMode mode;
	bool done;

	if (!memory_pool_pending() || !wait || memory_may_wait())
		return false;
	mode = track_relax();
	done = wait() == CUDA_SUCCESS;
	track_unrelax(mode);
	if (done)
		memory_pool_drained(NULL);
	memory_give_back();
	return done;
}

static bool reserve_hard(struct arb_device *device, uint64_t bytes, enum memory_need need, uint64_t *until)
{
	int r = memory_try(device, bytes, need);
	bool stocks = memory_pool_any() || memory_ordered_any();

	if (r == 0 || (r == -ENOMEM && !stocks))
		return r == 0;
	memory_give_back();
	return reserve_undisturbed(device, bytes, need, until) || memory_ordered_wait(device, bytes, need) ||
	       (drain() && reserve_undisturbed(device, bytes, need, until));
}

bool memory_reserve_hard_for(
	struct arb_device *device, uint64_t bytes, enum memory_need need, const char *purpose)
{
	uint64_t until = 0;

	return reserve_hard(device, bytes, need, &until) || memory_refused_for(device, bytes, purpose);
}

bool memory_reserve_hard(struct arb_device *device, uint64_t bytes, enum memory_need need)
{
	return memory_reserve_hard_for(device, bytes, need, NULL);
}

bool memory_reserve_waiting(
	struct arb_device *device, uint64_t bytes, enum memory_need need, const struct act_call *call)
{
	uint64_t until = 0;

	if (reserve_hard(device, bytes, need, &until))
		return true;
	/* Waits for queued frees, as the driver does before it refuses for lack of memory. */
	if (memory_never(device, bytes) || !memory_pool_owes() || !memory_mark_wait(call))
		return memory_refused(device, bytes);
	memory_give_back();
	return reserve_undisturbed(device, bytes, need, &until) || memory_refused(device, bytes);
}

struct arb_device *memory_device(CUdevice ordinal)
{
	return arb_device_get(ordinal);
}

bool memory_ordinal(CUdevice *ordinal)
{
	return arb_device_ordinal(ordinal);
}

static void forget(void)
{
	memory_table_forget();
	memory_pool_forget();
	memory_vmm_forget();
	memory_context_forget();
	memory_exec_forget();
	memory_ordered_forget();
}

/* This is not done in a constructor, because most programs that load the preload never allocate device memory. */
static void follow_fork(void)
{
	static int done;
	int no = 0;

	if (__builtin_expect(arb_word_load(&done), 1))
		return;
	if (arb_word_cas(&done, &no, 1))
		pthread_atfork(NULL, NULL, forget);
}

static bool before(struct act_call *call, CUresult *result)
{
	switch (arb_hooks[call->id].category) {
	case CAT_ALLOC:
	case CAT_ARRAY:
		follow_fork();
		return memory_plain_before(call, result);
	case CAT_FREE_ASYNC:
		if (memory_ordered_free(call, result))
			return false;
		/* fallthrough */
	case CAT_FREE:
		memory_free_before(call);
		if (!call->token && call->handle && memory_graph_any())
			memory_graph_freed(call->handle);
		return true;
	case CAT_GRAPH:
		return memory_launch_before(call, result);
	case CAT_ALLOC_ASYNC:
	case CAT_POOL:
		follow_fork();
		return memory_pool_before(call, result);
	case CAT_GRAPH_MEM:
		follow_fork();
		return memory_graph_before(call, result);
	case CAT_VMM:
		follow_fork();
		return memory_vmm_before(call, result);
	case CAT_GRAPH_MAKE:
		return memory_exec_before(call, result);
	case CAT_STREAM:
		if (call->id == HOOK_cuStreamDestroy || call->id == HOOK_cuStreamDestroy_v2) {
			memory_ordered_stream(call->stream);
			memory_graph_stream(call->stream);
		}
		return true;
	case CAT_CONTEXT:
		follow_fork();
		return memory_context_before(call, result);
	case CAT_CODE:
		memory_code_before(call);
		return true;
	default:
		return true;
	}
}

/* Tells whether the call may have made pools give memory back, or graphs take it. */
static bool moves_pools(enum hook_id id)
{
	return id != HOOK_cuStreamQuery && id != HOOK_cuStreamQuery_ptsz && id != HOOK_cuEventQuery;
}

static CUresult after(struct act_call *call, CUresult result)
{
	switch (arb_hooks[call->id].category) {
	case CAT_ALLOC:
	case CAT_ARRAY:
		return memory_plain_after(call, result);
	case CAT_FREE:
	case CAT_FREE_ASYNC:
		memory_free_after(call, result);
		return result;
	case CAT_ALLOC_ASYNC:
	case CAT_POOL:
		return memory_pool_after(call, result);
	case CAT_GRAPH_MEM:
		memory_graph_after(call);
		return result;
	case CAT_VMM:
		memory_vmm_after(call, result);
		return result;
	case CAT_CONTEXT:
		memory_context_after(call, result);
		return result;
	case CAT_CODE:
		memory_code_after(call, result);
		return result;
	case CAT_GRAPH_MAKE:
		memory_exec_after(call, result);
		return result;
	case CAT_GRAPH:
		memory_launch_after(call, result);
		return result;
	case CAT_SYNC:
		if (!moves_pools(call->id))
			return result;
		if (result == CUDA_SUCCESS &&
			(call->id == HOOK_cuCtxSynchronize || call->id == HOOK_cuCtxSynchronize_v2))
			memory_pool_drained((CUcontext)(uintptr_t)call->handle);
		if (memory_pool_any())
			memory_pool_settle_all(false);
		if (result == CUDA_SUCCESS)
			memory_ordered_synced();
		return result;
	case CAT_QUERY:
		if (result == CUDA_SUCCESS)
			arb_query_after(call);
		return result;
	default:
		return result;
	}
}

bool arb_memory_before(struct act_call *call, CUresult *result)
{
	int saved = errno;
	bool go;

	if (arb_disabled())
		return true;
	go = before(call, result);
	errno = saved;
	return go;
}

/* Says that the driver had no memory, although the account's quota had room. */
static void say_driver_refused(const struct act_call *call)
{
	const CUmemAllocationProp *prop = call->desc;
	CUdevice ordinal;

	switch (arb_hooks[call->id].category) {
	case CAT_ALLOC:
	case CAT_ARRAY:
		memory_driver_refused(arb_device_current(), memory_plain_bytes(call));
		break;
	case CAT_ALLOC_ASYNC:
		memory_driver_refused(arb_device_current(), call->bytes);
		break;
	case CAT_VMM:
		if (call->id == HOOK_cuMemCreate && prop && memory_on_device(&prop->location, &ordinal))
			memory_driver_refused(memory_device(ordinal), call->bytes);
		break;
	case CAT_GRAPH:
	case CAT_GRAPH_MAKE:
		memory_driver_refused(arb_device_current(), 0);
		break;
	case CAT_CONTEXT:
		/* bytes and token come from memory_context_before. */
		memory_driver_refused(memory_device(call->device), call->token ? call->bytes : 0);
		break;
	default:
		break;
	}
}

CUresult arb_memory_after(struct act_call *call, CUresult result)
{
	bool refused = result == CUDA_ERROR_OUT_OF_MEMORY;
	int saved = errno;

	if (arb_disabled())
		return result;
	result = after(call, result);
	if (__builtin_expect(refused, 0))
		say_driver_refused(call);
	errno = saved;
	return result;
}

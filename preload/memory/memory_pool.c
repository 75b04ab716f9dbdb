/* The calls that make, use, trim and destroy pools, and those that put allocations into graphs. */
#include "preload/memory/memory_stock.h"

#include "preload/process/device.h"

#include <stddef.h>
#include <stdlib.h>

enum capture { CAPTURE_NO, CAPTURE_YES, CAPTURE_ELSEWHERE };

static enum capture capturing(const struct act_call *call)
{
	bool thread = arb_hooks[call->id].variant == VARIANT_PTSZ;
	__typeof__(cuStreamIsCapturing) *ask =
		thread ? arb_real(cuStreamIsCapturing_ptsz) : arb_real(cuStreamIsCapturing);
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (!ask)
		return CAPTURE_NO;
	/* The driver returns an error if this is the legacy stream while another stream captures. */
	if (ask(call->stream, &status) != CUDA_SUCCESS)
		return CAPTURE_ELSEWHERE;
	return status == CU_STREAM_CAPTURE_STATUS_NONE ? CAPTURE_NO : CAPTURE_YES;
}

/* Reserves room for a call that is about to take `bytes` from the stock. */
static bool expect(struct stock *s, struct act_call *call, uint64_t bytes, bool may_wait, CUresult *result)
{
	bool room = may_wait ? memory_reserve_waiting(s->device, memory_pool_most(bytes), MEMORY_MOST, call)
			     : memory_reserve_hard(s->device, memory_pool_most(bytes), MEMORY_MOST);

	if (!room) {
		*result = CUDA_ERROR_OUT_OF_MEMORY;
		return false;
	}
	stock_come(s, memory_pool_most(bytes));
	call->token = (uintptr_t)s;
	return true;
}

/* A node takes no memory before its graph is launched, but a node that is larger than the quota is refused right away. */
static bool graph_node(const struct stock *s, uint64_t bytes, CUresult *result)
{
	if (!memory_never(s->device, bytes))
		return true;
	/* Reserves once more, so that the reason is known; a quota that was raised just now has room. */
	if (memory_reserve(s->device, bytes, MEMORY_ALL)) {
		memory_release(s->device, bytes);
		return true;
	}
	memory_refused_for(s->device, bytes, "a graph");
	*result = CUDA_ERROR_OUT_OF_MEMORY;
	return false;
}

static bool alloc_before(struct act_call *call, CUresult *result)
{
	__typeof__(cuDeviceGetMemPool) *current = arb_real(cuDeviceGetMemPool);
	enum capture capture = capturing(call);
	CUmemoryPool pool = (CUmemoryPool)(uintptr_t)call->handle;
	struct arb_device *device;
	struct stock *s;
	CUdevice ordinal;

	call->token = 0;
	if (!call->bytes || !memory_ordinal(&ordinal))
		return true;
	if (capture != CAPTURE_YES && !pool && (!current || current(&pool, ordinal) != CUDA_SUCCESS))
		return true;
	device = memory_device(ordinal);
	if (capture == CAPTURE_NO && device && device->client &&
		memory_ordered_alloc(call, device, pool, result))
		return false;
	s = stock_find_or_make(capture == CAPTURE_YES ? NULL : pool, ordinal, false);
	if (!s || !s->device)
		return true;
	if (capture == CAPTURE_YES)
		return graph_node(s, call->bytes, result);
	return expect(s, call, call->bytes, capture == CAPTURE_NO, result);
}

/* Returns the stock that the memory really came from: the stream, and so the memory, may belong to another device than
 * the current context. */
static struct stock *really(struct stock *s, const struct act_call *call, CUdeviceptr p)
{
	__typeof__(cuPointerGetAttribute) *ask = arb_real(cuPointerGetAttribute);
	__typeof__(cuDeviceGetMemPool) *current = arb_real(cuDeviceGetMemPool);
	int ordinal = s->ordinal;
	CUmemoryPool pool;
	struct stock *other;

	if (call->handle || !ask || ask(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p) != CUDA_SUCCESS ||
		ordinal == s->ordinal || current(&pool, ordinal) != CUDA_SUCCESS)
		return s;
	other = stock_find_or_make(pool, ordinal, false);
	return other && other->device ? other : s;
}

static CUresult alloc_after(struct act_call *call, CUresult result)
{
	struct stock *asked = (struct stock *)(uintptr_t)call->token, *s = asked;
	struct memory_entry entry = {.kind = MEMORY_POOLED, .bytes = call->bytes};
	bool thread = arb_hooks[call->id].variant == VARIANT_PTSZ, fits;

	if (!s)
		return result;
	if (result == CUDA_SUCCESS) {
		entry.key = *(CUdeviceptr *)call->out;
		entry.owner = s = really(s, call, entry.key);
		entry.device = s->device;
		stock_made(s, call->bytes);
		memory_table_put(&entry);
	}
	fits = stock_settle(asked, memory_pool_most(call->bytes), false);
	if (s != asked)
		fits = stock_settle(s, 0, false);
	if (fits || result != CUDA_SUCCESS)
		return result;
	/* The driver took more than was expected, and there is no room for it, so the memory is freed at once. */
	if (!memory_table_take(entry.key, MEMORY_POOLED, &entry))
		return result;
	(thread ? arb_real(cuMemFreeAsync_ptsz) : arb_real(cuMemFreeAsync))(entry.key, call->stream);
	memory_mark_wait(call);
	memory_pool_freed(&entry, call);
	memory_pool_settle_all(true);
	memory_refused(s->device, call->bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

bool memory_pool_before(struct act_call *call, CUresult *result)
{
	struct stock *s;

	if (arb_hooks[call->id].category == CAT_ALLOC_ASYNC)
		return alloc_before(call, result);
	/* Done before the driver's call, because the handle may be a new pool's as soon as this one was destroyed. */
	if (call->id == HOOK_cuMemPoolDestroy && call->handle) {
		s = stock_find((CUmemoryPool)(uintptr_t)call->handle, 0);
		if (s)
			stock_end(s);
		call->token = (uintptr_t)s;
	}
	return true;
}

static void made(const struct act_call *call, CUdevice ordinal, bool foreign)
{
	if (call->out && *(CUmemoryPool *)call->out)
		stock_find_or_make(*(CUmemoryPool *)call->out, ordinal, foreign);
}

CUresult memory_pool_after(struct act_call *call, CUresult result)
{
	struct stock *s;

	if (arb_hooks[call->id].category == CAT_ALLOC_ASYNC)
		return alloc_after(call, result);
	switch (call->id) {
	case HOOK_cuMemPoolDestroy:
		s = (struct stock *)(uintptr_t)call->token;
		if (s && result != CUDA_SUCCESS)
			stock_stay(s);
		else if (s)
			stock_settle(s, 0, false);
		break;
	case HOOK_cuMemPoolCreate:
		if (result == CUDA_SUCCESS && call->desc) {
			const CUmemLocation *at = &((const CUmemPoolProps *)call->desc)->location;
			CUdevice ordinal;
			bool here = memory_on_device(at, &ordinal);

			made(call, ordinal, !here);
		}
		break;
	case HOOK_cuMemPoolImportFromShareableHandle:
		if (result == CUDA_SUCCESS)
			made(call, 0, true);
		break;
	case HOOK_cuMemGetDefaultMemPool:
	case HOOK_cuMemGetMemPool:
		if (result == CUDA_SUCCESS && call->desc) {
			const CUmemLocation *at = call->desc;
			CUdevice ordinal;
			bool here = memory_on_device(at, &ordinal);

			made(call, ordinal, !here);
		}
		break;
	case HOOK_cuDeviceGetDefaultMemPool:
	case HOOK_cuDeviceGetMemPool:
		if (result == CUDA_SUCCESS)
			made(call, call->device, false);
		break;
	case HOOK_cuMemPoolGetAttribute:
		s = stock_find((CUmemoryPool)(uintptr_t)call->handle, 0);
		if (result == CUDA_SUCCESS && s && s->device)
			memory_ordered_attribute(
				s->pool, s->ordinal, (CUmemPool_attribute)call->aux, call->out);
		break;
	case HOOK_cuMemPoolTrimTo:
	case HOOK_cuMemPoolSetAttribute:
		s = stock_find((CUmemoryPool)(uintptr_t)call->handle, 0);
		if (result == CUDA_SUCCESS && s && call->id == HOOK_cuMemPoolTrimTo)
			memory_ordered_trim(s->pool, s->ordinal, call->bytes);
		if (memory_pool_any())
			memory_pool_settle_all(false);
		break;
	default:
		break;
	}
	return result;
}

/* Returns the bytes of an allocation that is put into a graph, and sets its device; 0: the node allocates nothing. */
static uint64_t node_bytes(const struct act_call *call, CUdevice *ordinal)
{
	const CUDA_MEM_ALLOC_NODE_PARAMS *node = NULL;
	const CUgraphNodeParams *any = call->desc;

	if (!call->desc)
		return 0;
	if (call->id == HOOK_cuGraphAddMemAllocNode)
		node = call->desc;
	else if ((call->id >= HOOK_cuGraphAddNode && call->id <= HOOK_cuGraphAddNode_v3) &&
		 any->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		node = (const CUDA_MEM_ALLOC_NODE_PARAMS *)&any->alloc;
	return node && memory_on_device(&node->poolProps.location, ordinal) ? node->bytesize : 0;
}

bool memory_graph_before(struct act_call *call, CUresult *result)
{
	CUdevice ordinal = 0;
	uint64_t bytes = node_bytes(call, &ordinal);
	struct stock *s = bytes ? stock_find_or_make(NULL, ordinal, false) : NULL;

	if (call->id == HOOK_cuDeviceGraphMemTrim)
		memory_graph_trim_begin();
	return !s || !s->device || graph_node(s, bytes, result);
}

void memory_graph_after(const struct act_call *call)
{
	if (call->id == HOOK_cuDeviceGraphMemTrim)
		memory_graph_trim_end();
	if (memory_graph_any())
		memory_pool_settle_all(false);
}

/*
 * Memory that the driver keeps in stock: pools, and what a device holds for graphs. What counts is what they
 * have reserved, whoever uses it. Before an allocation the most that it can add is reserved; afterwards the
 * driver says what there is, and the rest is given back:
 *
 *     counted = what the driver says + what the calls that are under way may still add
 *
 * which is exact whenever none is under way, and never too little. A pool gives memory back at
 * synchronisations, so that it is asked again behind each of them.
 */
#include "memory.h"

#include "compat.h"
#include "device.h"
#include "gpuarb/client.h"

#include <stddef.h>
#include <stdlib.h>

#define GRAIN (2u << 20) /* in what steps drivers give memory to a pool */

struct stock {
	struct stock *next; /* never taken away: programs make few pools, and somebody may be reading */
	pthread_mutex_t lock;
	CUmemoryPool pool; /* NULL: the memory of graphs */
	CUdevice ordinal;
	struct arb_device *device; /* NULL: not joined, not device memory, or another process's */
	bool gone;                 /* destroyed; lives until its last pointer is freed */
	bool answers;              /* the driver says what it has; else pointers are counted */
	uint64_t counted;
	uint64_t coming;     /* of it: for calls under way */
	uint64_t live_bytes; /* of pointers */
	uint64_t live_most;  /* the same, in the steps in which the driver takes it */
};

/* Calls that have reserved and not settled yet, and how many have. */
static struct {
	unsigned flying, landed;
} calls;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stock *list;

bool memory_pool_any(void)
{
	return __atomic_load_n(&list, __ATOMIC_ACQUIRE) != NULL;
}

/* The pool, or the memory of a device's graphs, if it is known. */
static struct stock *find(CUmemoryPool pool, CUdevice ordinal)
{
	for (struct stock *s = __atomic_load_n(&list, __ATOMIC_ACQUIRE); s; s = s->next)
		if (!__atomic_load_n(&s->gone, __ATOMIC_ACQUIRE) && s->pool == pool &&
			(pool || s->ordinal == ordinal))
			return s;
	return NULL;
}

static struct stock *find_or_make(CUmemoryPool pool, CUdevice ordinal, bool foreign)
{
	struct arb_device *device;
	struct stock *s = find(pool, ordinal);

	if (s)
		return s;
	device = foreign ? NULL : memory_device(ordinal);
	pthread_mutex_lock(&list_lock);
	s = find(pool, ordinal);
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (s) {
			*s = (struct stock){.next = list,
				.lock = PTHREAD_MUTEX_INITIALIZER,
				.pool = pool,
				.ordinal = ordinal,
				.device = device};
			__atomic_store_n(&list, s, __ATOMIC_RELEASE);
		}
	}
	pthread_mutex_unlock(&list_lock);
	return s;
}

/* The lock is held. */
static uint64_t reserved(struct stock *s)
{
	__typeof__(cuMemPoolGetAttribute) *pool = arb_real(cuMemPoolGetAttribute);
	__typeof__(cuDeviceGetGraphMemAttribute) *graph = arb_real(cuDeviceGetGraphMemAttribute);
	cuuint64_t bytes = 0;

	/* Nobody can be asked any more; what is in use cannot be more than this. */
	if (s->gone)
		return s->live_most < s->counted - s->coming ? s->live_most : s->counted - s->coming;
	if (!s->pool)
		return graph && graph(s->ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) ==
					       CUDA_SUCCESS
			       ? bytes
			       : s->counted - s->coming;
	if (pool && pool(s->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS) {
		s->answers = true;
		return bytes;
	}
	/* A driver that answered once has failed since, and has the memory still; an old one never does. */
	return s->answers ? s->counted - s->coming : s->live_bytes;
}

/* The lock is held. */
static void trim(struct stock *s)
{
	__typeof__(cuMemPoolTrimTo) *pool = arb_real(cuMemPoolTrimTo);
	__typeof__(cuDeviceGraphMemTrim) *graph = arb_real(cuDeviceGraphMemTrim);

	if (s->pool && !s->gone && pool)
		pool(s->pool, 0);
	else if (!s->pool && graph)
		graph(s->ordinal);
}

/* `done` bytes of what was coming have come, or not. False: there is more than could be counted. */
static bool settle(struct stock *s, uint64_t done, bool tight)
{
	bool fits = true;
	uint64_t now, want;

	/* While it is held nobody destroys the pool. */
	pthread_mutex_lock(&s->lock);
	s->coming -= done;
	if (tight)
		trim(s);
	now = reserved(s);
	/* What others' calls may still add is counted, whether the driver has added it by now or not. */
	want = now + s->coming;
	if (now > s->counted) {
		/* It is there already. If not all of it can be counted, at least nobody gets any more. */
		fits = memory_reserve(s->device, now - s->counted);
		s->counted = fits ? now : s->counted + memory_reserve_rest(s->device, now - s->counted);
	} else if (want < s->counted) {
		memory_release(s->device, s->counted - want);
		s->counted = want;
	}
	pthread_mutex_unlock(&s->lock);
	if (done) {
		__atomic_fetch_add(&calls.landed, 1, __ATOMIC_RELAXED);
		__atomic_fetch_sub(&calls.flying, 1, __ATOMIC_RELAXED);
	}
	return fits;
}

bool memory_graph_any(void)
{
	for (struct stock *s = __atomic_load_n(&list, __ATOMIC_ACQUIRE); s; s = s->next)
		if (!s->pool && s->device)
			return true;
	return false;
}

/* The lock is not held. */
static void come(struct stock *s, uint64_t bytes)
{
	pthread_mutex_lock(&s->lock);
	s->counted += bytes;
	s->coming += bytes;
	pthread_mutex_unlock(&s->lock);
	__atomic_fetch_add(&calls.flying, 1, __ATOMIC_RELAXED);
}

bool memory_graph_expect(CUdevice ordinal, uint64_t bytes)
{
	struct stock *s = find(NULL, ordinal);

	if (!s || !s->device || !bytes)
		return true;
	if (!memory_reserve(s->device, bytes))
		return false;
	come(s, bytes);
	return true;
}

void memory_graph_done(CUdevice ordinal, uint64_t bytes)
{
	struct stock *s = find(NULL, ordinal);

	if (s && s->device)
		settle(s, bytes, false);
}

unsigned memory_calls_flying(void)
{
	return __atomic_load_n(&calls.flying, __ATOMIC_RELAXED);
}

unsigned memory_calls_landed(void)
{
	return __atomic_load_n(&calls.landed, __ATOMIC_RELAXED);
}

bool memory_pool_holds(void)
{
	for (struct stock *s = __atomic_load_n(&list, __ATOMIC_ACQUIRE); s; s = s->next)
		if (s->pool && __atomic_load_n(&s->counted, __ATOMIC_RELAXED))
			return true;
	return false;
}

void memory_pool_settle_all(bool tight)
{
	if (tight)
		memory_graph_trim_begin();
	for (struct stock *s = __atomic_load_n(&list, __ATOMIC_ACQUIRE); s; s = s->next)
		/* Only graphs take memory without asking first. */
		if (s->device && (!s->pool || __atomic_load_n(&s->counted, __ATOMIC_RELAXED)))
			settle(s, 0, tight);
	if (tight)
		memory_graph_trim_end();
}

void memory_pool_forget(void)
{
	pthread_mutex_init(&list_lock, NULL);
	list = NULL;
	calls.flying = 0;
}

enum capture { CAPTURE_NO, CAPTURE_YES, CAPTURE_ELSEWHERE };

static enum capture capturing(const struct act_call *call)
{
	bool thread = arb_hooks[call->id].variant == VARIANT_PTSZ;
	__typeof__(cuStreamIsCapturing) *ask =
		thread ? arb_real(cuStreamIsCapturing_ptsz) : arb_real(cuStreamIsCapturing);
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (!ask)
		return CAPTURE_NO;
	/* The legacy stream must not be touched while another one captures. */
	if (ask(call->stream, &status) != CUDA_SUCCESS)
		return CAPTURE_ELSEWHERE;
	return status == CU_STREAM_CAPTURE_STATUS_NONE ? CAPTURE_NO : CAPTURE_YES;
}

uint64_t memory_pool_most(uint64_t bytes)
{
	return bytes > UINT64_MAX - GRAIN ? bytes : (bytes + GRAIN - 1) / GRAIN * GRAIN;
}

/* Reserves for a call that is about to take `bytes` from it. */
static bool expect(struct stock *s, struct act_call *call, uint64_t bytes, bool may_wait, CUresult *result)
{
	bool room = may_wait ? memory_reserve_waiting(s->device, memory_pool_most(bytes), call)
			     : memory_reserve_hard(s->device, memory_pool_most(bytes));

	if (!room) {
		*result = CUDA_ERROR_OUT_OF_MEMORY;
		return false;
	}
	come(s, memory_pool_most(bytes));
	call->token = (uintptr_t)s;
	return true;
}

/* A node takes no memory before its graph is launched; one that never can be is refused right away. */
static bool graph_node(const struct stock *s, uint64_t bytes, CUresult *result)
{
	struct gpuarb_client *client = arb_device_client(s->device);
	struct gpuarb_client_memory memory;

	if (!client || gpuarb_client_memory(client, &memory) < 0 || !memory.limit || bytes <= memory.limit)
		return true;
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
	s = find_or_make(capture == CAPTURE_YES ? NULL : pool, ordinal, false);
	if (!s || !s->device)
		return true;
	if (capture == CAPTURE_YES)
		return graph_node(s, call->bytes, result);
	return expect(s, call, call->bytes, capture == CAPTURE_NO, result);
}

/* The stream may be another device's than the current context's; then so is the memory. */
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
	other = find_or_make(pool, ordinal, false);
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
		pthread_mutex_lock(&s->lock);
		s->live_bytes += call->bytes;
		s->live_most += memory_pool_most(call->bytes);
		pthread_mutex_unlock(&s->lock);
		memory_table_put(&entry);
	}
	fits = settle(asked, memory_pool_most(call->bytes), false);
	if (s != asked)
		fits = settle(s, 0, false);
	if (fits || result != CUDA_SUCCESS)
		return result;
	/* The driver took more than was expected, and there is no room for it: it goes back at once. */
	if (!memory_table_take(entry.key, MEMORY_POOLED, &entry))
		return result;
	(thread ? arb_real(cuMemFreeAsync_ptsz) : arb_real(cuMemFreeAsync))(entry.key, call->stream);
	(thread ? arb_real(cuStreamSynchronize_ptsz) : arb_real(cuStreamSynchronize))(call->stream);
	memory_pool_freed(&entry, false);
	memory_pool_settle_all(true);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

void memory_pool_freed(const struct memory_entry *entry, bool waited)
{
	struct stock *s = entry->owner;
	bool look;

	pthread_mutex_lock(&s->lock);
	s->live_bytes -= entry->bytes;
	s->live_most -= memory_pool_most(entry->bytes);
	look = waited || !s->answers || s->gone;
	pthread_mutex_unlock(&s->lock);
	/* A queued free gives nothing back before somebody waits for it. */
	if (look)
		settle(s, 0, false);
}

static void set_gone(struct stock *s, bool gone)
{
	pthread_mutex_lock(&s->lock);
	__atomic_store_n(&s->gone, gone, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&s->lock);
}

bool memory_pool_before(struct act_call *call, CUresult *result)
{
	struct stock *s;

	if (arb_hooks[call->id].category == CAT_ALLOC_ASYNC)
		return alloc_before(call, result);
	/* The handle may come back as another pool's as soon as the driver has it. */
	if (call->id == HOOK_cuMemPoolDestroy && call->handle) {
		s = find((CUmemoryPool)(uintptr_t)call->handle, 0);
		if (s) {
			settle(s, 0, true);
			set_gone(s, true);
		}
		call->token = (uintptr_t)s;
	}
	return true;
}

static void made(const struct act_call *call, CUdevice ordinal, bool foreign)
{
	if (call->out && *(CUmemoryPool *)call->out)
		find_or_make(*(CUmemoryPool *)call->out, ordinal, foreign);
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
			set_gone(s, false);
		else if (s)
			settle(s, 0, false);
		break;
	case HOOK_cuMemPoolCreate:
		if (result == CUDA_SUCCESS && call->desc) {
			const CUmemLocation *at = &((const CUmemPoolProps *)call->desc)->location;

			made(call, at->id, at->type != CU_MEM_LOCATION_TYPE_DEVICE);
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

			made(call, at->id, at->type != CU_MEM_LOCATION_TYPE_DEVICE);
		}
		break;
	case HOOK_cuDeviceGetDefaultMemPool:
	case HOOK_cuDeviceGetMemPool:
		if (result == CUDA_SUCCESS)
			made(call, call->device, false);
		break;
	case HOOK_cuMemPoolGetAttribute:
		s = find((CUmemoryPool)(uintptr_t)call->handle, 0);
		if (result == CUDA_SUCCESS && s && s->device)
			memory_ordered_attribute(
				s->pool, s->ordinal, (CUmemPool_attribute)call->aux, call->out);
		break;
	case HOOK_cuMemPoolTrimTo:
	case HOOK_cuMemPoolSetAttribute:
		s = find((CUmemoryPool)(uintptr_t)call->handle, 0);
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

/* The bytes of an allocation that is put into a graph, and where; 0: it is not one. */
static uint64_t node_bytes(const struct act_call *call, CUdevice *ordinal)
{
	const CUDA_MEM_ALLOC_NODE_PARAMS *node = NULL;
	const CUgraphNodeParams *any = call->desc;

	if (!call->desc)
		return 0;
	if (call->id == HOOK_cuGraphAddMemAllocNode)
		node = call->desc;
	else if ((call->id == HOOK_cuGraphAddNode || call->id == HOOK_cuGraphAddNode_v2) &&
		 any->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		node = (const CUDA_MEM_ALLOC_NODE_PARAMS *)&any->alloc;
	if (!node || node->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return 0;
	*ordinal = node->poolProps.location.id;
	return node->bytesize;
}

bool memory_graph_before(struct act_call *call, CUresult *result)
{
	CUdevice ordinal = 0;
	uint64_t bytes = node_bytes(call, &ordinal);
	struct stock *s = bytes ? find_or_make(NULL, ordinal, false) : NULL;

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

/*
 * Stream-ordered allocation. A pool holds blocks in use, and free blocks for later requests. A freed
 * block can be used again by the stream that freed it at once, by others when the free is done. The
 * device's books count what a pool holds, rounded up. At each synchronisation a pool gives back what it
 * holds beyond its threshold.
 */
#include "test/sim/driver/graph.h"

#include <sys/mman.h>

#define GRAIN (2u << 20)

struct block {
	struct block *next;
	CUdeviceptr addr;
	uint64_t bytes;
	bool used;
	unsigned pending;          /* queued frees that the device has not reached yet */
	unsigned long long stream; /* the stream that freed it last */
};

struct CUmemPoolHandle_st {
	uint32_t mark;
	uint32_t device;
	struct CUmemPoolHandle_st *next;
	struct block *blocks;
	uint64_t held, reserved, reserved_high, used, used_high, threshold, max;
	int reuse[3];
	CUmemAllocationHandleType handles;
};

static CUmemoryPool pools;
static CUmemoryPool standard[SIM_MAX_DEVICES], current[SIM_MAX_DEVICES];

static CUmemoryPool pool_new(uint32_t device)
{
	CUmemoryPool p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->mark = MARK_POOL;
	p->device = device;
	p->reuse[0] = p->reuse[1] = p->reuse[2] = 1;
	p->next = pools;
	pools = p;
	return p;
}

static CUmemoryPool standard_of(uint32_t device)
{
	if (!standard[device])
		standard[device] = pool_new(device);
	return standard[device];
}

static CUmemoryPool current_of(uint32_t device)
{
	if (!current[device])
		current[device] = standard_of(device);
	return current[device];
}

/* Makes the device's books count what the pool holds. */
static bool settle(CUmemoryPool p)
{
	uint64_t want = (p->held + GRAIN - 1) / GRAIN * GRAIN;

	if (want > p->reserved) {
		if (p->max && want > p->max)
			return false;
		if (drv_take(p->device, want - p->reserved) != CUDA_SUCCESS)
			return false;
	} else if (want < p->reserved) {
		drv_give(p->device, p->reserved - want);
	}
	p->reserved = want;
	if (p->reserved > p->reserved_high)
		p->reserved_high = p->reserved;
	return true;
}

/* Unmaps free blocks until the pool holds at most `keep` bytes. */
static void trim(CUmemoryPool p, uint64_t keep)
{
	struct block **at = &p->blocks;

	while (*at && p->reserved > keep) {
		struct block *b = *at;

		if (b->used || b->pending) {
			at = &b->next;
			continue;
		}
		*at = b->next;
		munmap((void *)(uintptr_t)b->addr, b->bytes);
		p->held -= b->bytes;
		free(b);
		settle(p);
	}
}

/* drv.lock held */
void drv_pool_trim(void)
{
	for (CUmemoryPool p = pools; p; p = p->next)
		if (p->reserved > p->threshold)
			trim(p, p->threshold);
}

/* A pool that the program has destroyed gives back freed blocks at once, and ends with its last block. */
static void end_if_destroyed(CUmemoryPool p)
{
	if (p->mark != MARK_POOL)
		trim(p, 0);
}

/* drv.lock held: the device has reached a queued free */
void drv_pool_freed(CUdeviceptr ptr)
{
	for (CUmemoryPool p = pools; p; p = p->next) {
		for (struct block *b = p->blocks; b; b = b->next) {
			if (b->addr == ptr && b->pending) {
				b->pending--;
				end_if_destroyed(p);
				return;
			}
		}
	}
}

static struct block *reuse(CUmemoryPool p, uint64_t bytes, unsigned long long stream)
{
	for (struct block *b = p->blocks; b; b = b->next)
		if (!b->used && b->bytes >= bytes && b->bytes - bytes <= bytes / 4 &&
			(!b->pending || b->stream == stream))
			return b;
	return NULL;
}

static struct block *fresh(CUmemoryPool p, uint64_t bytes)
{
	struct block *b = calloc(1, sizeof(*b));
	void *m;

	p->held += bytes;
	if (!b || !settle(p))
		goto fail;
	m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m == MAP_FAILED)
		goto fail;
	b->addr = (CUdeviceptr)(uintptr_t)m;
	b->bytes = bytes;
	b->next = p->blocks;
	p->blocks = b;
	return b;
fail:
	p->held -= bytes;
	settle(p);
	free(b);
	return NULL;
}

static CUresult take(CUmemoryPool p, uint64_t bytes, CUstream s, CUdeviceptr *out)
{
	uint64_t size = (bytes + 4095) / 4096 * 4096;
	struct block *b = reuse(p, size, s->id);
	struct alloc *a;

	if (!b)
		b = fresh(p, size);
	if (!b) {
		/* Free blocks of any pool can give room; if they are not enough, once queued frees are done. */
		for (CUmemoryPool q = pools; q; q = q->next)
			trim(q, 0);
		b = fresh(p, size);
	}
	if (!b) {
		drv_ctx_drain(s->ctx);
		for (CUmemoryPool q = pools; q; q = q->next)
			trim(q, 0);
		b = fresh(p, size);
	}
	a = b ? drv_alloc_add(b->addr, bytes, ALLOC_POOL, p->device) : NULL;
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	b->used = true;
	a->rounded = b->bytes;
	a->pool = p;
	a->ctx = s->ctx;
	p->used += b->bytes;
	if (p->used > p->used_high)
		p->used_high = p->used;
	*out = b->addr;
	return CUDA_SUCCESS;
}

static CUresult alloc_async(CUdeviceptr *out, size_t bytes, CUmemoryPool p, CUstream handle)
{
	CUstream s;
	CUresult rc;

	if (!out || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	drv_cost(COST_ALLOC);
	drv_lock();
	rc = drv_stream(handle, &s);
	if (rc == CUDA_SUCCESS && p && p->mark != MARK_POOL)
		rc = CUDA_ERROR_INVALID_VALUE;
	if (rc == CUDA_SUCCESS && s->capture) {
		struct task t = {.kind = TASK_ALLOC, .alloc = {.bytesize = bytes}};

		t.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
		t.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
		t.alloc.poolProps.location.id = drv_device_index(s->ctx->device);
		*out = t.alloc.dptr = drv_graphmem_address(
			s->capture->graph, s->cap_deps, s->ncap_deps, s->ctx->device, bytes);
		rc = *out ? drv_capture_task(s, &t) : CUDA_ERROR_OUT_OF_MEMORY;
	} else if (rc == CUDA_SUCCESS) {
		rc = take(p ? p : current_of(s->ctx->device), bytes, s, out);
		if (rc == CUDA_SUCCESS)
			drv_marker(s);
	}
	drv_unlock();
	return rc;
}
TWIN(cuMemAllocAsync, _ptsz, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
	alloc_async(dptr, bytesize, NULL, PICK(hStream)))
TWIN(cuMemAllocFromPoolAsync, _ptsz,
	(CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
	pool ? alloc_async(dptr, bytesize, pool, PICK(hStream)) : CUDA_ERROR_INVALID_VALUE)

/* drv.lock held */
static struct block *block_of(CUmemoryPool p, CUdeviceptr addr)
{
	struct block *b = p->blocks;

	while (b && b->addr != addr)
		b = b->next;
	return b;
}

/* drv.lock held: the program frees the block; `pending` frees are queued that the device must still reach */
void drv_pool_release(struct alloc *a, unsigned long long stream, unsigned pending)
{
	struct block *b = block_of(a->pool, a->addr);

	if (b) {
		b->used = false;
		b->stream = stream;
		b->pending += pending;
		a->pool->used -= b->bytes;
		end_if_destroyed(a->pool);
	}
	drv_alloc_unlist(a);
}

static CUresult free_async(CUdeviceptr ptr, CUstream handle)
{
	struct task t = {.kind = TASK_FREE, .free = ptr};
	struct alloc *a;
	CUstream s;
	CUresult rc;

	drv_cost(COST_ALLOC);
	drv_lock();
	rc = drv_stream(handle, &s);
	a = drv_alloc_find(ptr);
	if (rc == CUDA_SUCCESS && (!a || a->addr != ptr || (a->kind != ALLOC_POOL && a->kind != ALLOC_GRAPH)))
		rc = CUDA_ERROR_INVALID_VALUE;
	if (rc == CUDA_SUCCESS && s->capture) {
		rc = drv_capture_task(s, &t);
	} else if (rc == CUDA_SUCCESS && a->kind == ALLOC_POOL) {
		drv_pool_release(a, s->id, 1);
		rc = drv_task(s, &t, 0);
	} else if (rc == CUDA_SUCCESS) {
		rc = drv_graphmem_free(ptr, s);
	}
	drv_unlock();
	return rc;
}
TWIN(cuMemFreeAsync, _ptsz, (CUdeviceptr dptr, CUstream hStream), free_async(dptr, PICK(hStream)))

static CUresult device_pool(CUdevice dev, CUmemoryPool *out, bool standard_one)
{
	uint32_t device;

	TRY(drv_device(dev, &device));
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	*out = standard_one ? standard_of(device) : current_of(device);
	drv_unlock();
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
	return device_pool(dev, pool_out, true);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	return device_pool(dev, pool, false);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	uint32_t device;

	TRY(drv_device(dev, &device));
	if (!pool || pool->mark != MARK_POOL || pool->device != device)
		return CUDA_ERROR_INVALID_VALUE;
	current[device] = pool;
	return CUDA_SUCCESS;
}

static CUresult pool_at(CUmemLocation *where, CUmemAllocationType type, CUdevice *dev)
{
	if (!where || type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (where->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	*dev = where->id;
	return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)
{
	CUdevice dev;

	TRY(pool_at(location, type, &dev));
	return device_pool(dev, pool_out, true);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	CUdevice dev;

	TRY(pool_at(location, type, &dev));
	return device_pool(dev, pool, false);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	CUdevice dev;

	TRY(pool_at(location, type, &dev));
	return cuDeviceSetMemPool(dev, pool);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	uint32_t device;

	if (!drv.ready)
		return drv_why();
	if (!pool || !poolProps || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(drv_device(poolProps->location.id, &device));
	drv_lock();
	*pool = pool_new(device);
	if (*pool)
		(*pool)->max = poolProps->maxSize;
	drv_unlock();
	return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool valid(CUmemoryPool p)
{
	return drv.ready && p && p->mark == MARK_POOL;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	if (!valid(pool) || pool == standard[pool->device])
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	if (current[pool->device] == pool)
		current[pool->device] = NULL;
	/* Blocks in use stay valid; the pool gives them back as soon as they are freed. */
	pool->mark = 0;
	pool->threshold = 0;
	trim(pool, 0);
	drv_unlock();
	return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	if (!valid(pool))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	drv_collect();
	trim(pool, minBytesToKeep);
	drv_unlock();
	return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult rc = CUDA_SUCCESS;

	if (!valid(pool) || !value)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)value = pool->reuse[attr - 1];
		break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*(cuuint64_t *)value = pool->threshold;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		*(cuuint64_t *)value = pool->reserved;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*(cuuint64_t *)value = pool->reserved_high;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*(cuuint64_t *)value = pool->used;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*(cuuint64_t *)value = pool->used_high;
		break;
	default:
		rc = CUDA_ERROR_INVALID_VALUE;
	}
	drv_unlock();
	return rc;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult rc = CUDA_SUCCESS;

	if (!valid(pool) || !value)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		pool->reuse[attr - 1] = *(int *)value;
		break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		pool->threshold = *(cuuint64_t *)value;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		/* The value can only be reset to zero. */
		if (*(cuuint64_t *)value)
			rc = CUDA_ERROR_INVALID_VALUE;
		else if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
			pool->reserved_high = pool->reserved;
		else
			pool->used_high = pool->used;
		break;
	default:
		rc = CUDA_ERROR_INVALID_VALUE;
	}
	drv_unlock();
	return rc;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	return valid(pool) && (map || !count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
	if (!valid(memPool) || !flags || !location)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	return CUDA_SUCCESS;
}

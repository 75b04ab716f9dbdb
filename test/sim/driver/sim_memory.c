/*
 * Allocations. A device pointer is an address in this process, so that copies and memsets really move
 * bytes. Its pages are allocated when they are first touched.
 */
#include "test/sim/driver/driver.h"

#include <sys/mman.h>

#define GRAIN (2u << 20) /* to this an allocation is rounded up in the device's books */

static struct alloc **table; /* sorted by address */
static size_t count, room;

static size_t position(CUdeviceptr p)
{
	size_t lo = 0, hi = count;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (table[mid]->addr <= p)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* drv.lock held. Returns the allocation into which `p` points, or NULL. */
struct alloc *drv_alloc_find(CUdeviceptr p)
{
	size_t i = position(p);

	if (!i || p >= table[i - 1]->addr + table[i - 1]->bytes)
		return NULL;
	return table[i - 1];
}

struct alloc *drv_alloc_add(CUdeviceptr addr, uint64_t bytes, enum alloc_kind kind, uint32_t device)
{
	struct alloc *a = calloc(1, sizeof(*a));
	size_t i = position(addr);

	if (count == room) {
		size_t n = room ? room * 2 : 256;
		struct alloc **t = realloc(table, n * sizeof(*t));

		if (!t) {
			free(a);
			return NULL;
		}
		table = t;
		room = n;
	}
	if (!a)
		return NULL;
	memmove(&table[i + 1], &table[i], (count - i) * sizeof(*table));
	table[i] = a;
	count++;
	a->addr = addr;
	a->bytes = bytes;
	a->kind = kind;
	a->device = device;
	a->id = drv.next_id++;
	return a;
}

/* Rounds large requests up to the device's granularity. Small requests share a chunk. */
static uint64_t rounded(uint64_t bytes)
{
	return bytes >= GRAIN / 2 ? (bytes + GRAIN - 1) / GRAIN * GRAIN : (bytes + 511) / 512 * 512;
}

CUresult drv_take(uint32_t device, uint64_t bytes)
{
	int rc;

	/* The model is advanced first: what happened before this call happened without this memory. */
	sim_lock();
	sim_engine_advance_fully(sim_clock_ns());
	rc = sim_memory_take(device, bytes);
	sim_unlock();
	return rc ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

void drv_give(uint32_t device, uint64_t bytes)
{
	sim_lock();
	sim_engine_advance_fully(sim_clock_ns());
	sim_memory_give(device, bytes);
	sim_unlock();
}

static void *map(uint64_t bytes, uint64_t align)
{
	uint64_t extra = align > 4096 ? align : 0;
	char *p = mmap(NULL, bytes + extra, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *at;

	if (p == MAP_FAILED)
		return NULL;
	if (!extra)
		return p;
	at = (char *)(((uintptr_t)p + align - 1) / align * align);
	if (at > p)
		munmap(p, (size_t)(at - p));
	if (p + extra > at)
		munmap(at + bytes, (size_t)(p + extra - at));
	return at;
}

/* drv.lock held. Counts an allocation and maps its pages; NULL: the device is full. */
struct alloc *drv_alloc_new(enum alloc_kind kind, uint32_t device, uint64_t bytes, uint64_t align)
{
	uint64_t size = rounded(bytes), pages = (bytes + 4095) / 4096 * 4096;
	bool on_device = kind == ALLOC_DEVICE || kind == ALLOC_ARRAY;
	struct alloc *a;
	void *p;

	if (bytes > 1ULL << 46)
		return NULL;
	if (on_device && drv_take(device, size) != CUDA_SUCCESS)
		return NULL;
	p = map(pages, align);
	a = p ? drv_alloc_add((CUdeviceptr)(uintptr_t)p, bytes, kind, device) : NULL;
	if (!a) {
		if (p)
			munmap(p, pages);
		if (on_device)
			drv_give(device, size);
		return NULL;
	}
	a->rounded = size;
	if (kind == ALLOC_MANAGED) {
		sim_lock();
		sim_engine_advance_fully(sim_clock_ns());
		sim_managed_take(device, size);
		sim_unlock();
	}
	return a;
}

void drv_alloc_unlist(struct alloc *a)
{
	size_t i = position(a->addr) - 1;

	memmove(&table[i], &table[i + 1], (count - i - 1) * sizeof(*table));
	count--;
	free(a);
}

/* drv.lock held */
void drv_alloc_drop(struct alloc *a)
{
	uint64_t pages = (a->bytes + 4095) / 4096 * 4096;

	switch (a->kind) {
	case ALLOC_DEVICE:
	case ALLOC_ARRAY:
		drv_give(a->device, a->rounded);
		if (a->exported)
			drv_ipc_unshare(a);
		munmap((void *)(uintptr_t)a->addr, pages);
		break;
	case ALLOC_IPC:
		drv_ipc_closed(a);
		munmap((void *)(uintptr_t)a->addr, pages);
		break;
	case ALLOC_MANAGED:
		sim_lock();
		sim_engine_advance_fully(sim_clock_ns());
		sim_managed_give(a->device, a->rounded);
		sim_unlock();
		munmap((void *)(uintptr_t)a->addr, pages);
		break;
	case ALLOC_GRAPH:
	case ALLOC_HOST:
		munmap((void *)(uintptr_t)a->addr, pages);
		break;
	default:
		break;
	}
	drv_alloc_unlist(a);
}

/* Frees plain, managed and array memory with its context. Pools belong to the device and stay. */
void drv_alloc_drop_ctx(CUcontext ctx)
{
	for (size_t i = 0; i < count;) {
		struct alloc *a = table[i];

		if (a->ctx == ctx &&
			(a->kind == ALLOC_DEVICE || a->kind == ALLOC_MANAGED || a->kind == ALLOC_ARRAY ||
				a->kind == ALLOC_HOST || a->kind == ALLOC_REGISTERED || a->kind == ALLOC_IPC))
			drv_alloc_drop(a);
		else
			i++;
	}
}

static CUresult allocate(enum alloc_kind kind, CUdeviceptr *out, size_t bytes, unsigned flags)
{
	CUcontext ctx;
	struct alloc *a;
	CUresult rc;

	TRY(drv_current(&ctx));
	if (!out || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	drv_cost(COST_ALLOC);
	drv_lock();
	rc = drv.captures ? drv_capture_unsafe() : CUDA_SUCCESS;
	if (rc == CUDA_SUCCESS) {
		a = drv_alloc_new(kind, ctx->device, bytes, 512);
		if (!a && kind == ALLOC_DEVICE) {
			/* Memory that finished work gave back to a pool can be used. */
			drv_collect();
			drv_pool_trim();
			a = drv_alloc_new(kind, ctx->device, bytes, 512);
		}
		if (a) {
			a->ctx = ctx;
			a->flags = flags;
			*out = a->addr;
		} else {
			rc = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	drv_unlock();
	return rc;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	return allocate(ALLOC_DEVICE, dptr, bytesize, 0);
}

CUresult cuMemAllocPitch_v2(
	CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes)
{
	size_t pitch = (WidthInBytes + 511) / 512 * 512;

	if (!pPitch || !WidthInBytes || !Height)
		return CUDA_ERROR_INVALID_VALUE;
	if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(allocate(ALLOC_DEVICE, dptr, pitch * Height, 0));
	*pPitch = pitch;
	return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	return allocate(ALLOC_MANAGED, dptr, bytesize, flags);
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	CUcontext ctx;
	struct alloc *a;
	CUresult rc;

	TRY(drv_current(&ctx));
	if (!dptr)
		return CUDA_SUCCESS;
	drv_cost(COST_ALLOC);
	drv_lock();
	rc = drv.captures ? drv_capture_unsafe() : CUDA_SUCCESS;
	a = drv_alloc_find(dptr);
	if (rc == CUDA_SUCCESS && (!a || a->addr != dptr ||
					  (a->kind != ALLOC_DEVICE && a->kind != ALLOC_MANAGED &&
						  a->kind != ALLOC_POOL && a->kind != ALLOC_GRAPH)))
		rc = CUDA_ERROR_INVALID_VALUE;
	if (rc == CUDA_SUCCESS && a->kind == ALLOC_GRAPH) {
		rc = drv_ctx_drain(ctx);
		if (rc == CUDA_SUCCESS)
			rc = drv_graphmem_free(dptr, NULL);
	} else if (rc == CUDA_SUCCESS) {
		bool pool = a->kind == ALLOC_POOL;

		/* Work that may use the memory must end first. */
		rc = drv_ctx_drain(a->ctx ? a->ctx : ctx);
		a = drv_alloc_find(dptr);
		if (a && pool)
			drv_pool_release(a, 0, 0);
		else if (a)
			drv_alloc_drop(a);
	}
	drv_unlock();
	return rc;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CUcontext ctx;
	uint64_t used;

	TRY(drv_current(&ctx));
	if (!free_bytes || !total)
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	sim_engine_advance_fully(sim_clock_ns());
	used = sim_memory_used(ctx->device);
	sim_unlock();
	*total = sim_shm.file->device[ctx->device].info.memory_bytes;
	*free_bytes = *total - used;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	CUcontext ctx;
	struct alloc *a;

	TRY(drv_current(&ctx));
	drv_lock();
	a = drv_alloc_find(dptr);
	if (a && pbase)
		*pbase = a->addr;
	if (a && psize)
		*psize = a->bytes;
	drv_unlock();
	return a ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	CUdeviceptr p;

	if (!pp || Flags & ~7u)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(allocate(ALLOC_HOST, &p, bytesize, Flags));
	*pp = (void *)(uintptr_t)p;
	return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	return cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemAllocHost(void **pp, unsigned int bytesize)
{
	return cuMemHostAlloc(pp, bytesize, 0);
}

static CUresult host_end(void *p, enum alloc_kind kind, CUresult wrong)
{
	CUcontext ctx;
	struct alloc *a;
	CUresult rc = CUDA_SUCCESS;

	TRY(drv_current(&ctx));
	drv_lock();
	a = drv_alloc_find((CUdeviceptr)(uintptr_t)p);
	if (!a || a->kind != kind || a->addr != (CUdeviceptr)(uintptr_t)p) {
		rc = wrong;
	} else {
		rc = drv_ctx_drain(a->ctx);
		a = drv_alloc_find((CUdeviceptr)(uintptr_t)p);
		if (a)
			drv_alloc_drop(a);
	}
	drv_unlock();
	return rc;
}

CUresult cuMemFreeHost(void *p)
{
	return p ? host_end(p, ALLOC_HOST, CUDA_ERROR_INVALID_VALUE) : CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *p)
{
	return host_end(p, ALLOC_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	CUcontext ctx;
	struct alloc *a;
	CUresult rc = CUDA_SUCCESS;

	TRY(drv_current(&ctx));
	if (!p || !bytesize || Flags & ~15u)
		return CUDA_ERROR_INVALID_VALUE;
	drv_cost(COST_ALLOC);
	drv_lock();
	if (drv_alloc_find((CUdeviceptr)(uintptr_t)p)) {
		rc = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	} else {
		a = drv_alloc_add((CUdeviceptr)(uintptr_t)p, bytesize, ALLOC_REGISTERED, ctx->device);
		if (a) {
			a->ctx = ctx;
			a->flags = Flags;
		} else {
			rc = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	drv_unlock();
	return rc;
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	return cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	CUcontext ctx;
	struct alloc *a;

	TRY(drv_current(&ctx));
	if (!pdptr || Flags)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	a = drv_alloc_find((CUdeviceptr)(uintptr_t)p);
	drv_unlock();
	if (!a)
		return CUDA_ERROR_INVALID_VALUE;
	*pdptr = (CUdeviceptr)(uintptr_t)p;
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
	CUcontext ctx;
	struct alloc *a;

	TRY(drv_current(&ctx));
	drv_lock();
	a = drv_alloc_find((CUdeviceptr)(uintptr_t)p);
	if (a && a->kind != ALLOC_HOST)
		a = NULL;
	if (a && pFlags)
		*pFlags = a->flags | CU_MEMHOSTALLOC_DEVICEMAP;
	drv_unlock();
	return a && pFlags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

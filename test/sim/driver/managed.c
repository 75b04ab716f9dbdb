/* The migration of managed memory, and what is known about a pointer. */
#include "test/sim/driver/driver.h"

/* Migrates a range of managed memory to its device (`in`) or to the host. */
static CUresult migrate(CUdeviceptr p, size_t bytes, bool in, CUstream handle)
{
	struct task t = {.kind = TASK_MIGRATE, .migrate = {.bytes = bytes, .in = in}};
	struct alloc *a;
	bool ok;

	if (!drv.ready)
		return drv_why();
	drv_lock();
	a = drv_alloc_find(p);
	ok = a && a->kind == ALLOC_MANAGED && bytes && p + bytes <= a->addr + a->bytes;
	drv_unlock();
	return ok ? drv_issue(handle, &t, false) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult place(CUmemLocation where, bool *in)
{
	uint32_t physical;

	*in = where.type == CU_MEM_LOCATION_TYPE_DEVICE;
	if (*in)
		return drv_device(where.id, &physical);
	return where.type == CU_MEM_LOCATION_TYPE_HOST || where.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
			       where.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

static CUresult prefetch(CUdeviceptr p, size_t bytes, CUmemLocation where, unsigned flags, CUstream handle)
{
	bool in;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(place(where, &in));
	drv_cost(COST_COPY);
	return migrate(p, bytes, in, handle);
}
TWIN(cuMemPrefetchAsync_v2, _ptsz,
	(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream),
	prefetch(devPtr, count, location, flags, PICK(hStream)))

static CUmemLocation location_of(CUdevice dev)
{
	if (dev == CU_DEVICE_CPU)
		return (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0};
	return (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, dev};
}
TWIN(cuMemPrefetchAsync, _ptsz, (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream),
	prefetch(devPtr, count, location_of(dstDevice), 0, PICK(hStream)))

static CUresult prefetch_batch(CUdeviceptr *p, size_t *bytes, size_t n, CUmemLocation *where, size_t *first,
	size_t nwhere, unsigned long long flags, CUstream handle)
{
	if (!p || !bytes || !where || !first || !n || !nwhere || flags)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++) {
		size_t k = 0;

		while (k + 1 < nwhere && first[k + 1] <= i)
			k++;
		TRY(prefetch(p[i], bytes[i], where[k], 0, handle));
	}
	return CUDA_SUCCESS;
}
TWIN(cuMemPrefetchBatchAsync, _ptsz,
	(CUdeviceptr * dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
		size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream),
	prefetch_batch(
		dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, PICK(hStream)))

/* Checks the advice, which has no effect on the model. */
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
	struct alloc *a;
	bool ok;

	(void)location;
	if (!drv.ready)
		return drv_why();
	drv_lock();
	a = drv_alloc_find(devPtr);
	ok = a && a->kind == ALLOC_MANAGED && devPtr + count <= a->addr + a->bytes;
	drv_unlock();
	return ok && advice >= CU_MEM_ADVISE_SET_READ_MOSTLY && advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
	return cuMemAdvise_v2(devPtr, count, advice, location_of(device));
}

static CUresult attach(CUstream handle, CUdeviceptr p, unsigned flags)
{
	struct alloc *a;
	bool ok;

	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	a = drv_alloc_find(p);
	ok = a && a->kind == ALLOC_MANAGED;
	drv_unlock();
	if (!ok)
		return CUDA_ERROR_INVALID_VALUE;
	return drv_issue(handle, &(struct task){.kind = TASK_EMPTY}, false);
}
TWIN(cuStreamAttachMemAsync, _ptsz, (CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags),
	((void)length, attach(PICK(hStream), dptr, flags)))

static CUresult attribute(struct alloc *a, CUdeviceptr p, CUpointer_attribute what, void *out)
{
	bool host = a->kind == ALLOC_HOST || a->kind == ALLOC_REGISTERED;

	switch (what) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)out = a->ctx;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)out = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)out = p;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!host && a->kind != ALLOC_MANAGED)
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)out = (void *)(uintptr_t)p;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*(unsigned *)out = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*(unsigned long long *)out = a->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)out = a->kind == ALLOC_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)out = drv_device_index(a->device);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(CUdeviceptr *)out = a->addr;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)out = a->bytes;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned *)out = 1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(unsigned long long *)out = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(unsigned *)out = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)out = a->pool;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute what, CUdeviceptr ptr)
{
	struct alloc *a;
	CUresult rc;

	if (!drv.ready)
		return drv_why();
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	a = drv_alloc_find(ptr);
	rc = a ? attribute(a, ptr, what, data) : CUDA_ERROR_INVALID_VALUE;
	drv_unlock();
	return rc;
}

static size_t attribute_bytes(CUpointer_attribute what)
{
	switch (what) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		return 4;
	default:
		return 8;
	}
}

/* Unlike in the form for a single attribute, an unknown pointer is no error here: every answer is zero. */
CUresult cuPointerGetAttributes(
	unsigned int numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr)
{
	struct alloc *a;

	if (!drv.ready)
		return drv_why();
	if (!attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	a = drv_alloc_find(ptr);
	for (unsigned i = 0; i < numAttributes; i++) {
		memset(data[i], 0, attribute_bytes(attributes[i]));
		if (a)
			attribute(a, ptr, attributes[i], data[i]);
		else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)data[i] = -2;
	}
	drv_unlock();
	return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute what, CUdeviceptr ptr)
{
	struct alloc *a;

	if (!drv.ready)
		return drv_why();
	if (!value || what != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	a = drv_alloc_find(ptr);
	drv_unlock();
	return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

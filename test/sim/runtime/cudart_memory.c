/*
 * Runtime: memory. Pointers are the driver's; the host and the devices share an address space.
 */
#include <string.h>

#include "test/sim/runtime/cudart.h"

#define DEV(p) ((CUdeviceptr)(uintptr_t)(p))

cudaError_t cudaMalloc(void **devPtr, size_t size)
{
	CUdeviceptr p = 0;
	CUresult r;

	RT_ENTER();
	if (!devPtr)
		return rt_result(cudaErrorInvalidValue);
	r = size ? rt_drv.cuMemAlloc(&p, size) : CUDA_SUCCESS;
	if (!r)
		*devPtr = (void *)(uintptr_t)p;
	return rt_result(r);
}

/* Programs call cudaFree(NULL) to get a context early. */
cudaError_t cudaFree(void *devPtr)
{
	RT_CALL(devPtr ? rt_drv.cuMemFree(DEV(devPtr)) : CUDA_SUCCESS);
}

cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
	RT_CALL(rt_drv.cuMemHostAlloc(pHost, size, flags));
}

cudaError_t cudaMallocHost(void **ptr, size_t size)
{
	return cudaHostAlloc(ptr, size, CU_MEMHOSTALLOC_PORTABLE);
}

cudaError_t cudaFreeHost(void *ptr)
{
	RT_CALL(ptr ? rt_drv.cuMemFreeHost(ptr) : CUDA_SUCCESS);
}

cudaError_t cudaHostGetDevicePointer(void **pDevice, void *pHost, unsigned int flags)
{
	CUdeviceptr p = 0;
	CUresult r;

	RT_ENTER();
	r = rt_drv.cuMemHostGetDevicePointer(&p, pHost, flags);
	if (!r)
		*pDevice = (void *)(uintptr_t)p;
	return rt_result(r);
}

cudaError_t cudaHostGetFlags(unsigned int *pFlags, void *pHost)
{
	RT_CALL(rt_drv.cuMemHostGetFlags(pFlags, pHost));
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags)
{
	RT_CALL(rt_drv.cuMemHostRegister(ptr, size, flags));
}

cudaError_t cudaHostUnregister(void *ptr)
{
	RT_CALL(rt_drv.cuMemHostUnregister(ptr));
}

cudaError_t cudaMallocManaged(void **devPtr, size_t size, unsigned int flags)
{
	CUdeviceptr p = 0;
	CUresult r;

	RT_ENTER();
	r = devPtr ? rt_drv.cuMemAllocManaged(&p, size, flags) : CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*devPtr = (void *)(uintptr_t)p;
	return rt_result(r);
}

cudaError_t cudaMallocPitch(void **devPtr, size_t *pitch, size_t width, size_t height)
{
	CUdeviceptr p = 0;
	CUresult r;

	RT_ENTER();
	r = devPtr ? rt_drv.cuMemAllocPitch(&p, pitch, width, height, 4) : CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*devPtr = (void *)(uintptr_t)p;
	return rt_result(r);
}

static cudaError_t malloc_async(int pt, void **out, size_t size, cudaMemPool_t pool, cudaStream_t stream)
{
	CUdeviceptr p = 0;
	CUresult r;

	RT_ENTER();
	if (!out)
		return rt_result(cudaErrorInvalidValue);
	r = pool ? rt_drv.cuMemAllocFromPoolAsync[pt](&p, size, pool, stream)
		 : rt_drv.cuMemAllocAsync[pt](&p, size, stream);
	if (!r)
		*out = (void *)(uintptr_t)p;
	return rt_result(r);
}

RT_BOTH(cudaMallocAsync, _ptsz, malloc_async, (void **devPtr, size_t size, cudaStream_t hStream), devPtr,
	size, NULL, hStream)
RT_BOTH(cudaMallocFromPoolAsync, _ptsz, malloc_async,
	(void **ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream), ptr, size, memPool, stream)

static cudaError_t free_async(int pt, void *p, cudaStream_t stream)
{
	RT_CALL(rt_drv.cuMemFreeAsync[pt](DEV(p), stream));
}

RT_BOTH(cudaFreeAsync, _ptsz, free_async, (void *devPtr, cudaStream_t hStream), devPtr, hStream)

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
	RT_CALL(rt_drv.cuMemGetInfo(free, total));
}

cudaError_t cudaMemAdvise(
	const void *devPtr, size_t count, enum cudaMemoryAdvise advice, struct cudaMemLocation location)
{
	CUmemLocation l = {.type = (CUmemLocationType)location.type, .id = location.id};

	RT_CALL(rt_drv.cuMemAdvise(DEV(devPtr), count, (CUmem_advise)advice, l));
}

static cudaError_t prefetch(int pt, const void *p, size_t count, struct cudaMemLocation location,
	unsigned int flags, cudaStream_t stream)
{
	CUmemLocation l = {.type = (CUmemLocationType)location.type, .id = location.id};

	RT_CALL(rt_drv.cuMemPrefetchAsync[pt](DEV(p), count, l, flags, stream));
}

RT_BOTH(cudaMemPrefetchAsync, _ptsz, prefetch,
	(const void *devPtr, size_t count, struct cudaMemLocation location, unsigned int flags,
		cudaStream_t stream),
	devPtr, count, location, flags, stream)

/* A pointer that the driver does not know is ordinary host memory: that is an answer, not an error. */
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
	unsigned int type = 0, managed = 0;
	int device = 0;
	CUdeviceptr on_device = 0;
	void *on_host = NULL;

	RT_ENTER();
	if (!attributes)
		return rt_result(cudaErrorInvalidValue);
	memset(attributes, 0, sizeof(*attributes));
	attributes->device = -2;
	if (rt_drv.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, DEV(ptr))) {
		attributes->hostPointer = (void *)ptr;
		return cudaSuccess;
	}
	rt_drv.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, DEV(ptr));
	rt_drv.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, DEV(ptr));
	rt_drv.cuPointerGetAttribute(&on_device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, DEV(ptr));
	rt_drv.cuPointerGetAttribute(&on_host, CU_POINTER_ATTRIBUTE_HOST_POINTER, DEV(ptr));
	attributes->type = managed                      ? cudaMemoryTypeManaged
			   : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
							: cudaMemoryTypeDevice;
	attributes->device = device;
	attributes->devicePointer = (void *)(uintptr_t)on_device;
	attributes->hostPointer = on_host;
	return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *memPool, const struct cudaMemPoolProps *poolProps)
{
	_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps), "one layout");
	RT_CALL(rt_drv.cuMemPoolCreate(memPool, (const CUmemPoolProps *)poolProps));
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t memPool)
{
	RT_CALL(rt_drv.cuMemPoolDestroy(memPool));
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
	RT_CALL(rt_drv.cuMemPoolSetAttribute(memPool, (CUmemPool_attribute)attr, value));
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
	RT_CALL(rt_drv.cuMemPoolGetAttribute(memPool, (CUmemPool_attribute)attr, value));
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep)
{
	RT_CALL(rt_drv.cuMemPoolTrimTo(memPool, minBytesToKeep));
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *devPtr)
{
	RT_CALL(rt_drv.cuIpcGetMemHandle((CUipcMemHandle *)handle, DEV(devPtr)));
}

cudaError_t cudaIpcOpenMemHandle(void **devPtr, cudaIpcMemHandle_t handle, unsigned int flags)
{
	CUipcMemHandle h;
	CUdeviceptr p = 0;
	CUresult r;

	RT_ENTER();
	memcpy(&h, &handle, sizeof(h));
	r = rt_drv.cuIpcOpenMemHandle(&p, h, flags);
	if (!r)
		*devPtr = (void *)(uintptr_t)p;
	return rt_result(r);
}

cudaError_t cudaIpcCloseMemHandle(void *devPtr)
{
	RT_CALL(rt_drv.cuIpcCloseMemHandle(DEV(devPtr)));
}

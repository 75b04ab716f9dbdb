/*
 * Runtime: what a device is. The properties are the driver's attributes under other names.
 */
#include <string.h>

#include "test/sim/runtime/cudart.h"

static int attribute(int device, CUdevice_attribute a)
{
	int v = 0;

	return rt_drv.cuDeviceGetAttribute(&v, a, device) ? 0 : v;
}

struct property {
	unsigned int offset, bytes;
	CUdevice_attribute attribute;
};

#define P(field, name)                                                                                       \
	{                                                                                                    \
		offsetof(struct cudaDeviceProp, field), sizeof(((struct cudaDeviceProp *)0)->field),         \
			CU_DEVICE_ATTRIBUTE_##name                                                           \
	}

static const struct property properties[] = {
	P(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK),
	P(regsPerBlock, MAX_REGISTERS_PER_BLOCK),
	P(warpSize, WARP_SIZE),
	P(memPitch, MAX_PITCH),
	P(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK),
	P(maxThreadsDim[0], MAX_BLOCK_DIM_X),
	P(maxThreadsDim[1], MAX_BLOCK_DIM_Y),
	P(maxThreadsDim[2], MAX_BLOCK_DIM_Z),
	P(maxGridSize[0], MAX_GRID_DIM_X),
	P(maxGridSize[1], MAX_GRID_DIM_Y),
	P(maxGridSize[2], MAX_GRID_DIM_Z),
	P(totalConstMem, TOTAL_CONSTANT_MEMORY),
	P(major, COMPUTE_CAPABILITY_MAJOR),
	P(minor, COMPUTE_CAPABILITY_MINOR),
	P(textureAlignment, TEXTURE_ALIGNMENT),
	P(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT),
	P(multiProcessorCount, MULTIPROCESSOR_COUNT),
	P(integrated, INTEGRATED),
	P(canMapHostMemory, CAN_MAP_HOST_MEMORY),
	P(maxTexture1D, MAXIMUM_TEXTURE1D_WIDTH),
	P(maxTexture2D[0], MAXIMUM_TEXTURE2D_WIDTH),
	P(maxTexture2D[1], MAXIMUM_TEXTURE2D_HEIGHT),
	P(maxTexture3D[0], MAXIMUM_TEXTURE3D_WIDTH),
	P(maxTexture3D[1], MAXIMUM_TEXTURE3D_HEIGHT),
	P(maxTexture3D[2], MAXIMUM_TEXTURE3D_DEPTH),
	P(surfaceAlignment, SURFACE_ALIGNMENT),
	P(concurrentKernels, CONCURRENT_KERNELS),
	P(ECCEnabled, ECC_ENABLED),
	P(pciBusID, PCI_BUS_ID),
	P(pciDeviceID, PCI_DEVICE_ID),
	P(pciDomainID, PCI_DOMAIN_ID),
	P(tccDriver, TCC_DRIVER),
	P(asyncEngineCount, ASYNC_ENGINE_COUNT),
	P(unifiedAddressing, UNIFIED_ADDRESSING),
	P(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH),
	P(l2CacheSize, L2_CACHE_SIZE),
	P(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE),
	P(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR),
	P(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED),
	P(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED),
	P(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED),
	P(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
	P(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR),
	P(managedMemory, MANAGED_MEMORY),
	P(isMultiGpuBoard, MULTI_GPU_BOARD),
	P(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID),
	P(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED),
	P(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS),
	P(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS),
	P(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED),
	P(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM),
	P(cooperativeLaunch, COOPERATIVE_LAUNCH),
	P(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
	P(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR),
	P(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE),
	P(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK),
	P(hostRegisterSupported, HOST_REGISTER_SUPPORTED),
	P(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED),
	P(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES),
	P(ipcEventSupported, IPC_EVENT_SUPPORTED),
	P(clusterLaunch, CLUSTER_LAUNCH),
	P(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS),
	P(mpsEnabled, MPS_ENABLED),
	P(hostNumaId, HOST_NUMA_ID),
};

static int exists(int device)
{
	int count = 0;

	return !rt_drv.cuDeviceGetCount(&count) && device >= 0 && device < count;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
	cudaError_t e = rt_load();

	if (e)
		return e;
	if (!prop)
		return rt_result(cudaErrorInvalidValue);
	if (!exists(device))
		return rt_result(cudaErrorInvalidDevice);
	memset(prop, 0, sizeof(*prop));
	rt_drv.cuDeviceGetName(prop->name, sizeof(prop->name), device);
	rt_drv.cuDeviceGetUuid(&prop->uuid, device);
	rt_drv.cuDeviceTotalMem(&prop->totalGlobalMem, device);
	for (size_t i = 0; i < sizeof(properties) / sizeof(*properties); i++) {
		const struct property *p = &properties[i];
		char *at = (char *)prop + p->offset;
		int v = attribute(device, p->attribute);

		if (p->bytes == sizeof(size_t))
			*(size_t *)at = (unsigned int)v;
		else
			*(int *)at = v;
	}
	return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
	cudaError_t e = rt_load();

	if (e)
		return e;
	if (!exists(device))
		return rt_result(cudaErrorInvalidDevice);
	return rt_result(rt_drv.cuDeviceGetAttribute(value, (CUdevice_attribute)attr, device));
}

cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device)
{
	cudaError_t e = rt_load();

	return e ? e : rt_result(rt_drv.cuDeviceGetPCIBusId(pciBusId, len, device));
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *pciBusId)
{
	cudaError_t e = rt_load();

	return e ? e : rt_result(rt_drv.cuDeviceGetByPCIBusId(device, pciBusId));
}

cudaError_t cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice)
{
	cudaError_t e = rt_load();

	return e ? e : rt_result(rt_drv.cuDeviceCanAccessPeer(canAccessPeer, device, peerDevice));
}

static cudaError_t peer(int device, CUcontext *ctx)
{
	RT_ENTER();
	return rt_result(rt_drv.cuDevicePrimaryCtxRetain(ctx, device));
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags)
{
	CUcontext ctx;
	cudaError_t e = peer(peerDevice, &ctx);

	return e ? e : rt_result(rt_drv.cuCtxEnablePeerAccess(ctx, flags));
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice)
{
	CUcontext ctx;
	cudaError_t e = peer(peerDevice, &ctx);

	return e ? e : rt_result(rt_drv.cuCtxDisablePeerAccess(ctx));
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *memPool, int device)
{
	RT_CALL(rt_drv.cuDeviceGetDefaultMemPool(memPool, device));
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *memPool, int device)
{
	RT_CALL(rt_drv.cuDeviceGetMemPool(memPool, device));
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t memPool)
{
	RT_CALL(rt_drv.cuDeviceSetMemPool(device, memPool));
}

cudaError_t cudaDeviceGetLimit(size_t *pValue, enum cudaLimit limit)
{
	RT_CALL(rt_drv.cuCtxGetLimit(pValue, (CUlimit)limit));
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
	RT_CALL(rt_drv.cuCtxSetLimit((CUlimit)limit, value));
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *pCacheConfig)
{
	RT_CALL(rt_drv.cuCtxGetCacheConfig((CUfunc_cache *)pCacheConfig));
}

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache cacheConfig)
{
	RT_CALL(rt_drv.cuCtxSetCacheConfig((CUfunc_cache)cacheConfig));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
	RT_CALL(rt_drv.cuCtxGetStreamPriorityRange(leastPriority, greatestPriority));
}

cudaError_t cudaGetDeviceFlags(unsigned int *flags)
{
	RT_CALL(rt_drv.cuCtxGetFlags(flags));
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
	int device;
	cudaError_t e = cudaGetDevice(&device);

	return e ? e : rt_result(rt_drv.cuDevicePrimaryCtxSetFlags(device, flags));
}

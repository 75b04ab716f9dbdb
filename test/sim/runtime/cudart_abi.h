/*
 * The part of the CUDA 13 runtime's binary interface that programs built by nvcc with a shared runtime
 * need. Most enumerations have the driver's values and are only named here.
 */
#ifndef SIM_CUDART_ABI_H
#define SIM_CUDART_ABI_H

#include <stddef.h>

#include "cuda_abi.h"

#define CUDART_VERSION 13000

typedef enum cudaError {
#define CUDART_ERROR(name, value) name = value,
#include "test/sim/runtime/cudart_errors.def"
#undef CUDART_ERROR
} cudaError_t;

enum cudaMemcpyKind {
	cudaMemcpyHostToHost = 0,
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDeviceToHost = 2,
	cudaMemcpyDeviceToDevice = 3,
	cudaMemcpyDefault = 4,
};

enum cudaMemoryType {
	cudaMemoryTypeUnregistered = 0,
	cudaMemoryTypeHost = 1,
	cudaMemoryTypeDevice = 2,
	cudaMemoryTypeManaged = 3,
};

/* The values are the driver's; only the first is named here. */
enum cudaDeviceAttr { cudaDevAttrMaxThreadsPerBlock = 1 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaFuncCache { cudaFuncCachePreferNone = 0 };
enum cudaLimit { cudaLimitStackSize = 0 };
enum cudaMemPoolAttr { cudaMemPoolReuseFollowEventDependencies = 1 };
enum cudaMemoryAdvise { cudaMemAdviseSetReadMostly = 1 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0 };
enum cudaGraphNodeType { cudaGraphNodeTypeKernel = 0 };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess = 0 };
enum cudaMemLocationType { cudaMemLocationTypeInvalid = 0 };
enum cudaMemAllocationType { cudaMemAllocationTypeInvalid = 0 };
enum cudaMemAllocationHandleType { cudaMemHandleTypeNone = 0 };

typedef struct dim3 {
	unsigned int x, y, z;
} dim3;

typedef CUstream cudaStream_t;
typedef CUevent cudaEvent_t;
typedef CUgraph cudaGraph_t;
typedef CUgraphExec cudaGraphExec_t;
typedef CUgraphNode cudaGraphNode_t;
typedef CUmemoryPool cudaMemPool_t;
typedef CUfunction cudaFunction_t;
typedef CUkernel cudaKernel_t;
typedef CUhostFn cudaHostFn_t;
typedef void (*cudaStreamCallback_t)(cudaStream_t stream, cudaError_t status, void *userData);
typedef struct cudaIpcMemHandle_st {
	char reserved[64];
} cudaIpcMemHandle_t;
typedef struct cudaIpcEventHandle_st {
	char reserved[64];
} cudaIpcEventHandle_t;

struct cudaMemLocation {
	enum cudaMemLocationType type;
	int id;
};

struct cudaMemPoolProps {
	enum cudaMemAllocationType allocType;
	enum cudaMemAllocationHandleType handleTypes;
	struct cudaMemLocation location;
	void *win32SecurityAttributes;
	size_t maxSize;
	unsigned short usage;
	unsigned char reserved[54];
};

struct cudaPointerAttributes {
	enum cudaMemoryType type;
	int device;
	void *devicePointer, *hostPointer;
	long reserved[8];
};

struct cudaFuncAttributes {
	size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
	int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes;
	int preferredShmemCarveout, clusterDimMustBeSet, requiredClusterWidth, requiredClusterHeight;
	int requiredClusterDepth, clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed,
		reserved[16];
};

struct cudaKernelNodeParams {
	void *func;
	dim3 gridDim, blockDim;
	unsigned int sharedMemBytes;
	void **kernelParams, **extra;
};

struct cudaMemsetParams {
	void *dst;
	size_t pitch;
	unsigned int value, elementSize;
	size_t width, height;
};

struct cudaHostNodeParams {
	cudaHostFn_t fn;
	void *userData;
};

/* Attributes are laid out as the driver's. */
typedef struct cudaLaunchConfig_st {
	dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	cudaStream_t stream;
	struct cudaLaunchAttribute_st *attrs;
	unsigned int numAttrs;
} cudaLaunchConfig_t;

struct cudaDeviceProp {
	char name[256];
	CUuuid uuid;
	char luid[8];
	unsigned int luidDeviceNodeMask;
	size_t totalGlobalMem, sharedMemPerBlock;
	int regsPerBlock, warpSize;
	size_t memPitch;
	int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
	size_t totalConstMem;
	int major, minor;
	size_t textureAlignment, texturePitchAlignment;
	int multiProcessorCount, integrated, canMapHostMemory, maxTexture1D, maxTexture1DMipmap,
		maxTexture2D[2];
	int maxTexture2DMipmap[2], maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3];
	int maxTexture3DAlt[3], maxTextureCubemap, maxTexture1DLayered[2], maxTexture2DLayered[3];
	int maxTextureCubemapLayered[2], maxSurface1D, maxSurface2D[2], maxSurface3D[3],
		maxSurface1DLayered[2];
	int maxSurface2DLayered[3], maxSurfaceCubemap, maxSurfaceCubemapLayered[2];
	size_t surfaceAlignment;
	int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount;
	int unifiedAddressing, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize;
	int maxThreadsPerMultiProcessor, streamPrioritiesSupported, globalL1CacheSupported;
	int localL1CacheSupported;
	size_t sharedMemPerMultiprocessor;
	int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID;
	int hostNativeAtomicSupported, pageableMemoryAccess, concurrentManagedAccess;
	int computePreemptionSupported, canUseHostPointerForRegisteredMem, cooperativeLaunch;
	size_t sharedMemPerBlockOptin;
	int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost;
	int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
	size_t reservedSharedMemPerBlock;
	int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported;
	int timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
	unsigned int gpuDirectRDMAFlushWritesOptions;
	int gpuDirectRDMAWritesOrdering;
	unsigned int memoryPoolSupportedHandleTypes;
	int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers;
	int deviceNumaConfig, deviceNumaId, mpsEnabled, hostNumaId;
	unsigned int gpuPciDeviceID, gpuPciSubsystemID;
	int hostNumaMultinodeIpcSupported, reserved[56];
};

#define CUDART_CALL(name, params) CUDA_ABI_EXPORT cudaError_t name params;
#include "test/sim/runtime/cudart.def"
#undef CUDART_CALL

CUDA_ABI_EXPORT const char *cudaGetErrorString(cudaError_t error);
CUDA_ABI_EXPORT const char *cudaGetErrorName(cudaError_t error);

/* Functions that code generated by nvcc calls. */
CUDA_ABI_EXPORT void **__cudaRegisterFatBinary(void *wrapper);
CUDA_ABI_EXPORT void __cudaRegisterFatBinaryEnd(void **handle);
CUDA_ABI_EXPORT void __cudaUnregisterFatBinary(void **handle);
CUDA_ABI_EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
	int thread_limit, void *tid, void *bid, dim3 *block, dim3 *grid, int *warp);
CUDA_ABI_EXPORT void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext,
	size_t size, int constant, int global);
CUDA_ABI_EXPORT void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name,
	int ext, size_t size, int constant, int global);
CUDA_ABI_EXPORT void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t size);
CUDA_ABI_EXPORT char __cudaInitModule(void **handle);
CUDA_ABI_EXPORT unsigned int __cudaPushCallConfiguration(
	dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream);
CUDA_ABI_EXPORT cudaError_t __cudaPopCallConfiguration(
	dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream);
CUDA_ABI_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
CUDA_ABI_EXPORT cudaError_t __cudaLaunchKernel(
	cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes, cudaStream_t stream);
CUDA_ABI_EXPORT cudaError_t __cudaLaunchKernel_ptsz(
	cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes, cudaStream_t stream);

#endif

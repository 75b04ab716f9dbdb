/*
 * Runtime: launches. nvcc makes of a <<<>>> three steps: it pushes the configuration and calls the host
 * function, which pops the configuration and launches the kernel.
 */
#include "test/sim/runtime/cudart.h"

#define NESTED 32

static __thread struct {
	dim3 grid, block;
	size_t shared_bytes;
	cudaStream_t stream;
} pushed[NESTED];
static __thread unsigned int depth;

/* If it does not return 0, the generated code skips the launch. */
unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream)
{
	if (depth == NESTED)
		return 1;
	pushed[depth].grid = grid;
	pushed[depth].block = block;
	pushed[depth].shared_bytes = shared_bytes;
	pushed[depth++].stream = stream;
	return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream)
{
	if (!depth)
		return rt_result(cudaErrorMissingConfiguration);
	depth--;
	*grid = pushed[depth].grid;
	*block = pushed[depth].block;
	*shared_bytes = pushed[depth].shared_bytes;
	*(cudaStream_t *)stream = pushed[depth].stream;
	return cudaSuccess;
}

/* The runtime's name for what the driver calls an invalid value. */
static cudaError_t launched(CUresult r, dim3 grid, dim3 block)
{
	unsigned long long threads = (unsigned long long)block.x * block.y * block.z;

	if (r == CUDA_ERROR_INVALID_VALUE && (!grid.x || !grid.y || !grid.z || !threads || threads > 1024))
		return rt_result(cudaErrorInvalidConfiguration);
	return rt_result(r);
}

static cudaError_t launch(
	int pt, CUfunction fn, dim3 grid, dim3 block, void **args, size_t shared_bytes, cudaStream_t stream)
{
	return launched(rt_drv.cuLaunchKernel[pt](fn, grid.x, grid.y, grid.z, block.x, block.y, block.z,
				shared_bytes, stream, args, NULL),
		grid, block);
}

static cudaError_t launch_kernel(int pt, cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
	size_t shared_bytes, cudaStream_t stream)
{
	CUfunction fn;
	cudaError_t e;

	RT_ENTER();
	e = rt_kernel_function(kernel, &fn);
	return e ? e : launch(pt, fn, grid, block, args, shared_bytes, stream);
}

RT_BOTH(__cudaLaunchKernel, _ptsz, launch_kernel,
	(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes, cudaStream_t stream),
	kernel, grid, block, args, shared_bytes, stream)

static cudaError_t launch_host(int pt, const void *func, dim3 grid, dim3 block, void **args,
	size_t shared_bytes, cudaStream_t stream)
{
	CUfunction fn;
	cudaError_t e;

	RT_ENTER();
	e = rt_function(func, &fn);
	return e ? e : launch(pt, fn, grid, block, args, shared_bytes, stream);
}

RT_BOTH(cudaLaunchKernel, _ptsz, launch_host,
	(const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem, cudaStream_t stream),
	func, gridDim, blockDim, args, sharedMem, stream)

static cudaError_t launch_cooperative(int pt, const void *func, dim3 grid, dim3 block, void **args,
	size_t shared_bytes, cudaStream_t stream)
{
	CUfunction fn;
	cudaError_t e;

	RT_ENTER();
	e = rt_function(func, &fn);
	if (e)
		return e;
	return launched(rt_drv.cuLaunchCooperativeKernel[pt](fn, grid.x, grid.y, grid.z, block.x, block.y,
				block.z, shared_bytes, stream, args),
		grid, block);
}

RT_BOTH(cudaLaunchCooperativeKernel, _ptsz, launch_cooperative,
	(const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem, cudaStream_t stream),
	func, gridDim, blockDim, args, sharedMem, stream)

static cudaError_t launch_ex(int pt, const cudaLaunchConfig_t *config, const void *func, void **args)
{
	CUlaunchConfig c;
	CUfunction fn;
	cudaError_t e;

	RT_ENTER();
	if (!config)
		return rt_result(cudaErrorInvalidValue);
	e = rt_function(func, &fn);
	if (e)
		return e;
	c = (CUlaunchConfig){
		.gridDimX = config->gridDim.x,
		.gridDimY = config->gridDim.y,
		.gridDimZ = config->gridDim.z,
		.blockDimX = config->blockDim.x,
		.blockDimY = config->blockDim.y,
		.blockDimZ = config->blockDim.z,
		.sharedMemBytes = config->dynamicSmemBytes,
		.hStream = config->stream,
		.attrs = (CUlaunchAttribute *)config->attrs,
		.numAttrs = config->numAttrs,
	};
	return launched(rt_drv.cuLaunchKernelEx[pt](&c, fn, args, NULL), config->gridDim, config->blockDim);
}

RT_BOTH(cudaLaunchKernelExC, _ptsz, launch_ex,
	(const cudaLaunchConfig_t *config, const void *func, void **args), config, func, args)

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *func)
{
	int v[CU_FUNC_ATTRIBUTE_MAX] = {0};
	CUfunction fn;
	cudaError_t e;

	RT_ENTER();
	e = attr ? rt_function(func, &fn) : rt_result(cudaErrorInvalidValue);
	if (e)
		return e;
	for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX; i++)
		rt_drv.cuFuncGetAttribute(&v[i], (CUfunction_attribute)i, fn);
	*attr = (struct cudaFuncAttributes){
		.sharedSizeBytes = v[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES],
		.constSizeBytes = v[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES],
		.localSizeBytes = v[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES],
		.maxThreadsPerBlock = v[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
		.numRegs = v[CU_FUNC_ATTRIBUTE_NUM_REGS],
		.ptxVersion = v[CU_FUNC_ATTRIBUTE_PTX_VERSION],
		.binaryVersion = v[CU_FUNC_ATTRIBUTE_BINARY_VERSION],
		.cacheModeCA = v[CU_FUNC_ATTRIBUTE_CACHE_MODE_CA],
		.maxDynamicSharedSizeBytes = v[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES],
		.preferredShmemCarveout = v[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT],
	};
	return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
	CUfunction fn;
	cudaError_t e;

	RT_ENTER();
	e = rt_function(func, &fn);
	return e ? e : rt_result(rt_drv.cuFuncSetAttribute(fn, (CUfunction_attribute)attr, value));
}

cudaError_t cudaFuncSetCacheConfig(const void *func, enum cudaFuncCache cacheConfig)
{
	CUfunction fn;
	cudaError_t e;

	RT_ENTER();
	e = rt_function(func, &fn);
	return e ? e : rt_result(rt_drv.cuFuncSetCacheConfig(fn, (CUfunc_cache)cacheConfig));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
	int *numBlocks, const void *func, int blockSize, size_t dynamicSMemSize, unsigned int flags)
{
	CUfunction fn;
	cudaError_t e;

	RT_ENTER();
	e = rt_function(func, &fn);
	return e ? e
		 : rt_result(rt_drv.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
			   numBlocks, fn, blockSize, dynamicSMemSize, flags));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(
	int *numBlocks, const void *func, int blockSize, size_t dynamicSMemSize)
{
	return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
		numBlocks, func, blockSize, dynamicSMemSize, 0);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(
	size_t *dynamicSmemSize, const void *func, int numBlocks, int blockSize)
{
	CUfunction fn;
	cudaError_t e;

	RT_ENTER();
	e = rt_function(func, &fn);
	return e ? e
		 : rt_result(rt_drv.cuOccupancyAvailableDynamicSMemPerBlock(
			   dynamicSmemSize, fn, numBlocks, blockSize));
}

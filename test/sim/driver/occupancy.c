/* Occupancy: 2048 threads, 32 blocks and 164 KiB of shared memory per multiprocessor. */
#include "test/sim/driver/driver.h"

#define SM_THREADS 2048
#define SM_BLOCKS  32
#define SM_SHARED  (164u << 10)

static CUresult check(CUfunction f)
{
	if (!drv.ready)
		return drv_why();
	return f && f->mark == MARK_FUNC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static int blocks(int size, size_t shared)
{
	int n = SM_THREADS / ((size + 31) / 32 * 32);

	if (n > SM_BLOCKS)
		n = SM_BLOCKS;
	if (shared && (size_t)n > SM_SHARED / shared)
		n = (int)(SM_SHARED / shared);
	return n;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(
	int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize)
{
	TRY(check(func));
	if (!numBlocks || blockSize < 1 || blockSize > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	*numBlocks = blocks(blockSize, dynamicSMemSize);
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
	int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned int flags)
{
	if (flags & ~1u)
		return CUDA_ERROR_INVALID_VALUE;
	return cuOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks, func, blockSize, dynamicSMemSize);
}

CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
	CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit)
{
	CUcontext ctx;
	int size = blockSizeLimit > 0 && blockSizeLimit < 1024 ? blockSizeLimit : 1024;

	TRY(drv_current(&ctx));
	TRY(check(func));
	if (!minGridSize || !blockSize)
		return CUDA_ERROR_INVALID_VALUE;
	if (blockSizeToDynamicSMemSize)
		dynamicSMemSize = blockSizeToDynamicSMemSize(size);
	*blockSize = size;
	*minGridSize =
		blocks(size, dynamicSMemSize) * (int)sim_shm.file->device[ctx->device].info.multiprocessors;
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
	CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit,
	unsigned int flags)
{
	if (flags & ~1u)
		return CUDA_ERROR_INVALID_VALUE;
	return cuOccupancyMaxPotentialBlockSize(
		minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(
	size_t *dynamicSmemSize, CUfunction func, int numBlocks, int blockSize)
{
	TRY(check(func));
	if (!dynamicSmemSize || numBlocks < 1 || blockSize < 1)
		return CUDA_ERROR_INVALID_VALUE;
	*dynamicSmemSize = SM_SHARED / (unsigned)numBlocks - 1024;
	return CUDA_SUCCESS;
}

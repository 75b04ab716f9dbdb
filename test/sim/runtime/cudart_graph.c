/*
 * Runtime: nodes of graphs that a program builds by hand.
 */
#include "test/sim/runtime/cudart.h"

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
	const cudaGraphNode_t *pDependencies, size_t numDependencies,
	const struct cudaKernelNodeParams *pNodeParams)
{
	CUDA_KERNEL_NODE_PARAMS p;
	CUfunction fn;
	cudaError_t e;

	RT_ENTER();
	if (!pNodeParams)
		return rt_result(cudaErrorInvalidValue);
	e = rt_function(pNodeParams->func, &fn);
	if (e)
		return e;
	p = (CUDA_KERNEL_NODE_PARAMS){
		.func = fn,
		.gridDimX = pNodeParams->gridDim.x,
		.gridDimY = pNodeParams->gridDim.y,
		.gridDimZ = pNodeParams->gridDim.z,
		.blockDimX = pNodeParams->blockDim.x,
		.blockDimY = pNodeParams->blockDim.y,
		.blockDimZ = pNodeParams->blockDim.z,
		.sharedMemBytes = pNodeParams->sharedMemBytes,
		.kernelParams = pNodeParams->kernelParams,
		.extra = pNodeParams->extra,
	};
	return rt_result(rt_drv.cuGraphAddKernelNode(pGraphNode, graph, pDependencies, numDependencies, &p));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
	const cudaGraphNode_t *pDependencies, size_t numDependencies, void *dst, const void *src,
	size_t count, enum cudaMemcpyKind kind)
{
	CUDA_MEMCPY3D c = {
		.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
		.srcDevice = (CUdeviceptr)(uintptr_t)src,
		.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
		.dstDevice = (CUdeviceptr)(uintptr_t)dst,
		.WidthInBytes = count,
		.Height = 1,
		.Depth = 1,
	};
	CUcontext ctx;

	RT_ENTER();
	if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost) {
		c.srcMemoryType = CU_MEMORYTYPE_HOST;
		c.srcHost = src;
	}
	if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost) {
		c.dstMemoryType = CU_MEMORYTYPE_HOST;
		c.dstHost = dst;
	}
	rt_drv.cuCtxGetCurrent(&ctx);
	return rt_result(
		rt_drv.cuGraphAddMemcpyNode(pGraphNode, graph, pDependencies, numDependencies, &c, ctx));
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
	const cudaGraphNode_t *pDependencies, size_t numDependencies,
	const struct cudaMemsetParams *pMemsetParams)
{
	CUDA_MEMSET_NODE_PARAMS p;
	CUcontext ctx;

	RT_ENTER();
	if (!pMemsetParams)
		return rt_result(cudaErrorInvalidValue);
	p = (CUDA_MEMSET_NODE_PARAMS){
		.dst = (CUdeviceptr)(uintptr_t)pMemsetParams->dst,
		.pitch = pMemsetParams->pitch,
		.value = pMemsetParams->value,
		.elementSize = pMemsetParams->elementSize,
		.width = pMemsetParams->width,
		.height = pMemsetParams->height,
	};
	rt_drv.cuCtxGetCurrent(&ctx);
	return rt_result(
		rt_drv.cuGraphAddMemsetNode(pGraphNode, graph, pDependencies, numDependencies, &p, ctx));
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
	const cudaGraphNode_t *pDependencies, size_t numDependencies)
{
	RT_CALL(rt_drv.cuGraphAddEmptyNode(pGraphNode, graph, pDependencies, numDependencies));
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
	const cudaGraphNode_t *pDependencies, size_t numDependencies,
	const struct cudaHostNodeParams *pNodeParams)
{
	CUDA_HOST_NODE_PARAMS p;

	RT_ENTER();
	if (!pNodeParams)
		return rt_result(cudaErrorInvalidValue);
	p = (CUDA_HOST_NODE_PARAMS){.fn = pNodeParams->fn, .userData = pNodeParams->userData};
	return rt_result(rt_drv.cuGraphAddHostNode(pGraphNode, graph, pDependencies, numDependencies, &p));
}

/* Calls of CUDA 13.2 to 13.4 that give a stream work or a graph nodes: each does what its older form does. */
#include "test/sim/driver/graph.h"

TWIN(cuMemcpyWithAttributesAsync, _ptsz,
	(CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attr, CUstream hStream),
	!attr ? CUDA_ERROR_INVALID_VALUE
	: pt  ? cuMemcpyBatchAsync_v2_ptsz(&dst, &src, &size, 1, attr, &(size_t){0}, 1, hStream)
	      : cuMemcpyBatchAsync_v2(&dst, &src, &size, 1, attr, &(size_t){0}, 1, hStream))

TWIN(cuMemcpy3DWithAttributesAsync, _ptsz,
	(CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream hStream),
	pt ? cuMemcpy3DBatchAsync_v2_ptsz(1, op, flags, hStream)
	   : cuMemcpy3DBatchAsync_v2(1, op, flags, hStream))

/* `syncMode`, how the helper thread waits for the next host function, makes no difference here. */
TWIN(cuLaunchHostFunc_v2, _ptsz, (CUstream hStream, CUhostFn fn, void *userData, unsigned int syncMode),
	syncMode > 1 ? CUDA_ERROR_INVALID_VALUE
	: pt         ? cuLaunchHostFunc_ptsz(hStream, fn, userData)
		     : cuLaunchHostFunc(hStream, fn, userData))

CUresult cuGraphAddNode_v3(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
	const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	return cuGraphAddNode_v2(
		phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}

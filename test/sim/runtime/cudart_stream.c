/*
 * Runtime: streams, events, capture and graphs. Handles are the driver's own.
 */
#include "test/sim/runtime/cudart.h"

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
	RT_CALL(rt_drv.cuStreamCreate(pStream, flags));
}

cudaError_t cudaStreamCreate(cudaStream_t *pStream)
{
	return cudaStreamCreateWithFlags(pStream, CU_STREAM_DEFAULT);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority)
{
	RT_CALL(rt_drv.cuStreamCreateWithPriority(pStream, flags, priority));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	RT_CALL(rt_drv.cuStreamDestroy(stream));
}

/* Defines a call that passes its arguments to a call of the driver with the same parameters. */
#define PASS(body, params, call, ...)                                                                        \
	static cudaError_t body params                                                                       \
	{                                                                                                    \
		RT_CALL(rt_drv.call[pt](__VA_ARGS__));                                                       \
	}

PASS(stream_sync, (int pt, cudaStream_t s), cuStreamSynchronize, s)
RT_BOTH(cudaStreamSynchronize, _ptsz, stream_sync, (cudaStream_t stream), stream)

PASS(stream_query, (int pt, cudaStream_t s), cuStreamQuery, s)
RT_BOTH(cudaStreamQuery, _ptsz, stream_query, (cudaStream_t stream), stream)

PASS(stream_wait, (int pt, cudaStream_t s, cudaEvent_t e, unsigned int f), cuStreamWaitEvent, s, e, f)
RT_BOTH(cudaStreamWaitEvent, _ptsz, stream_wait, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
	stream, event, flags)

PASS(stream_priority, (int pt, cudaStream_t s, int *p), cuStreamGetPriority, s, p)
RT_BOTH(cudaStreamGetPriority, _ptsz, stream_priority, (cudaStream_t hStream, int *priority), hStream,
	priority)

PASS(stream_flags, (int pt, cudaStream_t s, unsigned int *f), cuStreamGetFlags, s, f)
RT_BOTH(cudaStreamGetFlags, _ptsz, stream_flags, (cudaStream_t hStream, unsigned int *flags), hStream, flags)

PASS(stream_id, (int pt, cudaStream_t s, unsigned long long *id), cuStreamGetId, s, id)
RT_BOTH(cudaStreamGetId, _ptsz, stream_id, (cudaStream_t hStream, unsigned long long *streamId), hStream,
	streamId)

PASS(stream_callback, (int pt, cudaStream_t s, cudaStreamCallback_t c, void *u, unsigned int f),
	cuStreamAddCallback, s, (CUstreamCallback)c, u, f)
RT_BOTH(cudaStreamAddCallback, _ptsz, stream_callback,
	(cudaStream_t stream, cudaStreamCallback_t callback, void *userData, unsigned int flags), stream,
	callback, userData, flags)

PASS(host_func, (int pt, cudaStream_t s, cudaHostFn_t fn, void *u), cuLaunchHostFunc, s, fn, u)
RT_BOTH(cudaLaunchHostFunc, _ptsz, host_func, (cudaStream_t stream, cudaHostFn_t fn, void *userData), stream,
	fn, userData)

PASS(attach, (int pt, cudaStream_t s, void *p, size_t n, unsigned int f), cuStreamAttachMemAsync, s,
	(CUdeviceptr)(uintptr_t)p, n, f)
RT_BOTH(cudaStreamAttachMemAsync, _ptsz, attach,
	(cudaStream_t stream, void *devPtr, size_t length, unsigned int flags), stream, devPtr, length, flags)

PASS(begin, (int pt, cudaStream_t s, enum cudaStreamCaptureMode m), cuStreamBeginCapture, s,
	(CUstreamCaptureMode)m)
RT_BOTH(cudaStreamBeginCapture, _ptsz, begin, (cudaStream_t stream, enum cudaStreamCaptureMode mode), stream,
	mode)

PASS(end, (int pt, cudaStream_t s, cudaGraph_t *g), cuStreamEndCapture, s, g)
RT_BOTH(cudaStreamEndCapture, _ptsz, end, (cudaStream_t stream, cudaGraph_t *pGraph), stream, pGraph)

PASS(capturing, (int pt, cudaStream_t s, enum cudaStreamCaptureStatus *c), cuStreamIsCapturing, s,
	(CUstreamCaptureStatus *)c)
RT_BOTH(cudaStreamIsCapturing, _ptsz, capturing,
	(cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus), stream, pCaptureStatus)

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	RT_CALL(rt_drv.cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	RT_CALL(rt_drv.cuEventCreate(event, flags));
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	return cudaEventCreateWithFlags(event, CU_EVENT_DEFAULT);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	RT_CALL(rt_drv.cuEventDestroy(event));
}

PASS(record, (int pt, cudaEvent_t e, cudaStream_t s), cuEventRecord, e, s)
RT_BOTH(cudaEventRecord, _ptsz, record, (cudaEvent_t event, cudaStream_t stream), event, stream)

PASS(record_flags, (int pt, cudaEvent_t e, cudaStream_t s, unsigned int f), cuEventRecordWithFlags, e, s, f)
RT_BOTH(cudaEventRecordWithFlags, _ptsz, record_flags,
	(cudaEvent_t event, cudaStream_t stream, unsigned int flags), event, stream, flags)

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	RT_CALL(rt_drv.cuEventQuery(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	RT_CALL(rt_drv.cuEventSynchronize(event));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
	RT_CALL(rt_drv.cuEventElapsedTime(ms, start, end));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
	RT_CALL(rt_drv.cuIpcGetEventHandle((CUipcEventHandle *)handle, event));
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
	CUipcEventHandle h;

	__builtin_memcpy(&h, &handle, sizeof(h));
	RT_CALL(rt_drv.cuIpcOpenEventHandle(event, h));
}

cudaError_t cudaGraphCreate(cudaGraph_t *pGraph, unsigned int flags)
{
	RT_CALL(rt_drv.cuGraphCreate(pGraph, flags));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	RT_CALL(rt_drv.cuGraphDestroy(graph));
}

cudaError_t cudaGraphClone(cudaGraph_t *pGraphClone, cudaGraph_t originalGraph)
{
	RT_CALL(rt_drv.cuGraphClone(pGraphClone, originalGraph));
}

cudaError_t cudaGraphInstantiateWithFlags(
	cudaGraphExec_t *pGraphExec, cudaGraph_t graph, unsigned long long flags)
{
	RT_CALL(rt_drv.cuGraphInstantiateWithFlags(pGraphExec, graph, flags));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph, unsigned long long flags)
{
	return cudaGraphInstantiateWithFlags(pGraphExec, graph, flags);
}

PASS(graph_launch, (int pt, cudaGraphExec_t g, cudaStream_t s), cuGraphLaunch, g, s)
RT_BOTH(cudaGraphLaunch, _ptsz, graph_launch, (cudaGraphExec_t graphExec, cudaStream_t stream), graphExec,
	stream)

PASS(graph_upload, (int pt, cudaGraphExec_t g, cudaStream_t s), cuGraphUpload, g, s)
RT_BOTH(cudaGraphUpload, _ptsz, graph_upload, (cudaGraphExec_t graphExec, cudaStream_t stream), graphExec,
	stream)

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec)
{
	RT_CALL(rt_drv.cuGraphExecDestroy(graphExec));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes)
{
	RT_CALL(rt_drv.cuGraphGetNodes(graph, nodes, numNodes));
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *pRootNodes, size_t *pNumRootNodes)
{
	RT_CALL(rt_drv.cuGraphGetRootNodes(graph, pRootNodes, pNumRootNodes));
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *pType)
{
	RT_CALL(rt_drv.cuGraphNodeGetType(node, (CUgraphNodeType *)pType));
}

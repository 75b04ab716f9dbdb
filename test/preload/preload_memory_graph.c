/* The memory of graphs against the quota: when it is taken, what is shared, what is waited for, what is refused. */
#include "test/preload/preload_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "units.h"

static CUfunction spin(void)
{
	CUmodule module;
	CUfunction f;

	OK(cuModuleLoadData(
		&module, ".version 7.0\n.target sm_50\n.visible .entry spin_ns(.param .u64 ns) {}\n"));
	OK(cuModuleGetFunction(&f, module, "spin_ns"));
	return f;
}

static CUresult add_alloc(
	CUgraph g, CUgraphNode *node, const CUgraphNode *after, uint64_t bytes, CUdeviceptr *p)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
		.bytesize = bytes};
	CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
	static unsigned turn;
	CUresult result;

	/* Each of the two calls that add a node is used in turn. */
	if (turn++ % 2) {
		result = cuGraphAddMemAllocNode(node, g, after, after != NULL, &params);
		*p = params.dptr;
	} else {
		memcpy(&any.alloc, &params, sizeof(params));
		result = cuGraphAddNode_v3(node, g, after, NULL, after != NULL, &any);
		*p = any.alloc.dptr;
	}
	return result;
}

/* Makes a graph that takes memory, computes for `ns`, and frees the memory if told to. */
static CUgraph computing(uint64_t bytes, uint64_t ns, bool free_it, CUdeviceptr *p)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {
		.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
	void *params[] = {&ns};
	CUgraphNode n[3];
	CUgraph g;

	kernel.func = spin();
	kernel.kernelParams = params;
	OK(cuGraphCreate(&g, 0));
	OK(add_alloc(g, &n[0], NULL, bytes, p));
	OK(cuGraphAddKernelNode_v2(&n[1], g, &n[0], 1, &kernel));
	if (free_it)
		OK(cuGraphAddMemFreeNode(&n[2], g, &n[1], 1, *p));
	return g;
}

static CUgraphExec executable(uint64_t bytes, uint64_t ns, bool free_it, CUdeviceptr *p)
{
	CUgraph g = computing(bytes, ns, free_it, p);
	CUgraphExec x;

	OK(cuGraphInstantiateWithFlags(&x, g, 0));
	OK(cuGraphDestroy(g));
	return x;
}

/* One graph alone: from its first node to the trim. */
void pm_graphs(void)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
	CUgraph g, outer;
	CUgraphNode n[4];
	CUgraphExec x;
	CUdeviceptr p, q;
	CUstream s;

	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	x = executable(40 * MIB, MS, true, &p);
	PM_BOTH(0);
	OK(cuGraphLaunch(x, s));
	PM_BOTH(40 * MIB);
	OK(cuGraphLaunch(x, s));
	PM_BOTH(40 * MIB);
	OK(cuStreamSynchronize(s));
	OK(cuGraphExecDestroy(x));
	PM_BOTH(40 * MIB);
	OK(cuDeviceGraphMemTrim(0));
	PM_BOTH(0);
	/* Memory that is kept without use is given back where it is in the way. */
	x = executable(200 * MIB, MS, true, &p);
	OK(cuGraphUpload(x, s));
	PM_BOTH(200 * MIB);
	OK(cuStreamSynchronize(s));
	OK(cuMemAlloc_v2(&q, 100 * MIB));
	PM_BOTH(100 * MIB);
	GIVES(cuGraphLaunch(x, s), CUDA_ERROR_OUT_OF_MEMORY);
	PM_BOTH(100 * MIB);
	/* If it cannot be launched at all, that is the answer, whatever room there is. */
	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	GIVES(cuGraphLaunch(x, s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	T_CHECK(cuStreamEndCapture(s, &g) != CUDA_SUCCESS, "a capture with a launch in it");
	PM_BOTH(100 * MIB);
	OK(cuMemFree_v2(q));
	OK(cuGraphLaunch(x, s));
	OK(cuStreamSynchronize(s));
	OK(cuGraphExecDestroy(x));
	OK(cuDeviceGraphMemTrim(0));
	/* More than the quota: in one node, in two that run at the same time, and in two that never exist at the same
	 * time. */
	OK(cuGraphCreate(&g, 0));
	GIVES(add_alloc(g, &n[0], NULL, 257 * MIB, &p), CUDA_ERROR_OUT_OF_MEMORY);
	OK(add_alloc(g, &n[0], NULL, 150 * MIB, &p));
	OK(add_alloc(g, &n[1], NULL, 150 * MIB, &q));
	OK(cuGraphInstantiateWithFlags(&x, g, 0));
	GIVES(cuGraphLaunch(x, s), CUDA_ERROR_OUT_OF_MEMORY);
	GIVES(cuGraphUpload(x, s), CUDA_ERROR_OUT_OF_MEMORY);
	PM_BOTH(0);
	OK(cuGraphExecDestroy(x));
	GIVES(cuGraphInstantiateWithParams(&x, g, &params), CUDA_ERROR_OUT_OF_MEMORY);
	PM_BOTH(0);
	OK(cuGraphCreate(&g, 0));
	OK(add_alloc(g, &n[0], NULL, 150 * MIB, &p));
	OK(cuGraphAddMemFreeNode(&n[1], g, &n[0], 1, p));
	OK(add_alloc(g, &n[2], &n[1], 150 * MIB, &q));
	OK(cuGraphAddMemFreeNode(&n[3], g, &n[2], 1, q));
	OK(cuGraphInstantiateWithParams(&x, g, &params));
	PM_BOTH(150 * MIB);
	OK(cuGraphLaunch(x, s));
	PM_BOTH(150 * MIB);
	OK(cuCtxSynchronize());
	OK(cuGraphExecDestroy(x));
	OK(cuDeviceGraphMemTrim(0));
	/* Made by a capture, and in a graph inside a graph. */
	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	GIVES(cuMemAllocAsync(&p, 257 * MIB, s), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAllocAsync(&p, 30 * MIB, s));
	OK(cuMemFreeAsync(p, s));
	OK(cuStreamEndCapture(s, &g));
	PM_BOTH(0);
	OK(cuGraphCreate(&outer, 0));
	OK(cuGraphAddChildGraphNode(&n[0], outer, NULL, 0, g));
	OK(cuGraphInstantiateWithFlags(&x, outer, 0));
	OK(cuGraphLaunch(x, s));
	PM_BOTH(30 * MIB);
	OK(cuCtxSynchronize());
	OK(cuGraphExecDestroy(x));
	OK(cuDeviceGraphMemTrim(0));
	PM_BOTH(0);
}

/* Several graphs: at the same time as far as there is room, otherwise one after the other, never beyond the quota. */
void pm_graphs_at_once(void)
{
	CUgraphExec a, b, c;
	CUdeviceptr p;
	CUstream s, t;
	CUevent first;

	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&first, 0));
	a = executable(100 * MIB, 500 * MS, true, &p);
	b = executable(150 * MIB, 500 * MS, true, &p);
	c = executable(120 * MIB, 500 * MS, true, &p);
	OK(cuGraphLaunch(a, s));
	OK(cuGraphLaunch(b, t));
	PM_BOTH(250 * MIB);
	/* There is no room beside both of them, so one of them ends first. */
	OK(cuGraphLaunch(c, s));
	T_CHECK(pm_truth(0) <= 256 * MIB && pm_counted(0) == pm_truth(0), "%lld", (long long)pm_counted(0));
	/* It may be destroyed by the time that its memory is wanted. */
	OK(cuGraphLaunch(b, t));
	OK(cuGraphExecDestroy(b));
	OK(cuGraphLaunch(a, s));
	T_CHECK(pm_truth(0) <= 256 * MIB && pm_counted(0) == pm_truth(0), "%lld", (long long)pm_counted(0));
	OK(cuCtxSynchronize());
	OK(cuDeviceGraphMemTrim(0));
	PM_BOTH(0);
	/* After itself it has what it needs: nothing is waited for. */
	OK(cuGraphExecDestroy(a));
	a = executable(200 * MIB, 1000 * MS, true, &p);
	OK(cuGraphLaunch(a, s));
	OK(cuEventRecord(first, s));
	OK(cuGraphLaunch(a, s));
	OK(cuGraphLaunch(a, s));
	GIVES(cuEventQuery(first), CUDA_ERROR_NOT_READY);
	PM_BOTH(200 * MIB);
	/* In another stream it may need more, so its own end is waited for. */
	OK(cuGraphLaunch(a, t));
	PM_BOTH(200 * MIB);
	OK(cuCtxSynchronize());
	OK(cuGraphExecDestroy(a));
	OK(cuGraphExecDestroy(c));
	OK(cuDeviceGraphMemTrim(0));
	PM_BOTH(0);
}

/* Allocations that their graph does not free. */
void pm_graphs_rest(void)
{
	CUdeviceptr p, q, r;
	CUgraphExec x, y;
	CUgraph g, h;
	CUgraphNode n;
	CUstream s, t;

	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	x = executable(100 * MIB, MS, false, &p);
	y = executable(200 * MIB, MS, true, &q);
	OK(cuGraphLaunch(x, s));
	OK(cuGraphExecDestroy(x));
	OK(cuCtxSynchronize());
	OK(cuDeviceGraphMemTrim(0));
	PM_BOTH(100 * MIB);
	GIVES(cuGraphLaunch(y, s), CUDA_ERROR_OUT_OF_MEMORY);
	GIVES(cuMemAlloc_v2(&r, 157 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFreeAsync(p, s));
	OK(cuGraphLaunch(y, s));
	PM_BOTH(200 * MIB);
	OK(cuCtxSynchronize());
	OK(cuGraphExecDestroy(y));
	OK(cuDeviceGraphMemTrim(0));
	PM_BOTH(0);
	/* A graph that frees its allocations when it is launched again has its memory again, whatever came between.
	 */
	g = computing(150 * MIB, MS, false, &p);
	OK(cuGraphInstantiateWithFlags(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	y = executable(50 * MIB, MS, true, &q);
	for (int i = 0; i < 3; i++) {
		OK(cuGraphLaunch(x, s));
		OK(cuGraphLaunch(y, t));
		PM_BOTH(200 * MIB);
	}
	/* If another graph frees the memory, it does not belong to the graph any more. */
	OK(cuGraphCreate(&h, 0));
	OK(cuGraphAddMemFreeNode(&n, h, NULL, 0, p));
	OK(cuGraphExecDestroy(y));
	OK(cuGraphInstantiateWithFlags(&y, h, 0));
	OK(cuGraphLaunch(y, s));
	OK(cuCtxSynchronize());
	OK(cuMemAlloc_v2(&r, 256 * MIB));
	PM_BOTH(256 * MIB);
	GIVES(cuGraphLaunch(x, s), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree_v2(r));
	OK(cuGraphLaunch(x, s));
	PM_BOTH(150 * MIB);
	OK(cuMemFree_v2(p));
	OK(cuGraphExecDestroy(x));
	OK(cuGraphExecDestroy(y));
	OK(cuDeviceGraphMemTrim(0));
	PM_BOTH(0);
}

static CUcontext context;
static uint32_t done;

static void *launcher(void *argument)
{
	CUdeviceptr p;
	CUgraphExec x;
	CUstream s;

	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	x = executable((60 + 10 * (uintptr_t)argument) * MIB, MS / 4, true, &p);
	for (int i = 0; i < 40; i++) {
		OK(cuGraphLaunch(x, s));
		if (i % 8 == 7)
			OK(cuStreamSynchronize(s));
	}
	OK(cuStreamSynchronize(s));
	OK(cuGraphExecDestroy(x));
	__atomic_fetch_add(&done, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* Six threads launch graphs that do not fit together: none is refused, and the quota is never exceeded. */
void pm_graphs_threads(void)
{
	pthread_t thread[6];

	OK(cuCtxGetCurrent(&context));
	for (uintptr_t i = 0; i < 6; i++)
		T_CHECK(!pthread_create(&thread[i], NULL, launcher, (void *)i), "no thread");
	while (__atomic_load_n(&done, __ATOMIC_RELAXED) < 6) {
		uint64_t now = pm_truth(0);

		T_CHECK(now <= 256 * MIB, "%lld bytes over the quota", (long long)(now - 256 * MIB));
		t_sleep_us(20);
	}
	for (int i = 0; i < 6; i++)
		pthread_join(thread[i], NULL);
	OK(cuDeviceGraphMemTrim(0));
	PM_BOTH(0);
}

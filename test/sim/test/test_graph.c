/* Graphs and stream capture. */
#include "test/sim/test/simtest.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "units.h"

TestSuite(graph, .fini = sim_remove);

static CUgraphExec finish(CUstream s, size_t nodes)
{
	CUgraphExec x;
	CUgraph g;
	size_t n;

	OK(cuStreamEndCapture(s, &g));
	OK(cuGraphGetNodes(g, NULL, &n));
	cr_assert_eq(n, nodes);
	OK(cuGraphInstantiateWithFlags(&x, g, 0));
	OK(cuGraphDestroy(g));
	return x;
}

static double launch_us(CUgraphExec x, CUstream s, int times)
{
	CUevent a, b;

	sim_gate(s);
	a = sim_mark(s);
	for (int i = 0; i < times; i++)
		OK(cuGraphLaunch(x, s));
	b = sim_mark(s);
	sim_release();
	return sim_between_us(a, b);
}

static void takes(CUgraphExec x, CUstream s, int times, double want_us)
{
	double us = launch_us(x, s, times); /* the assertion would evaluate it twice */

	cr_assert_float_eq(us, want_us, 0.6, "%.3f us instead of %.3f us", us, want_us);
}

static void capture(CUstream s)
{
	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

Test(graph, a_captured_chain_runs_in_its_order_as_often_as_launched)
{
	uint32_t two = 2, back = 0;
	CUdeviceptr p;
	CUgraphExec x;
	CUstream s;
	void *params[] = {&p, &two};

	sim_fresh("GPUSIM_KERNELS", "add_u32=100", NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAlloc_v2(&p, 4));
	OK(cuMemsetD32_v2(p, 0, 1));
	OK(cuCtxSynchronize());
	capture(s);
	for (int i = 0; i < 5; i++)
		OK(cuLaunchKernel(sim_kernel("add_u32"), 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
	x = finish(s, 5);
	OK(cuStreamQuery(s));
	OK(cuMemcpyDtoH_v2(&back, p, 4));
	cr_assert_eq(back, 0, "capturing must not run anything");
	takes(x, s, 3, 1500);
	OK(cuMemcpyDtoH_v2(&back, p, 4));
	cr_assert_eq(back, 30);
	cr_assert_eq(sim_truth_of(getpid()).graph_launches, 3);
	cr_assert_eq(sim_truth_of(getpid()).launches, 15);
}

Test(graph, branches_run_side_by_side_and_join)
{
	CUstream s, t;
	CUevent fork_point, join_point;
	CUgraphExec x;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	t = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuEventCreate(&fork_point, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&join_point, CU_EVENT_DISABLE_TIMING));
	capture(s);
	sim_spin_part(s, 1 * MS, 100);
	OK(cuEventRecord(fork_point, s));
	OK(cuStreamWaitEvent(t, fork_point, 0));
	sim_spin_part(s, 2 * MS, 100);
	sim_spin_part(t, 3 * MS, 100);
	OK(cuEventRecord(join_point, t));
	OK(cuStreamWaitEvent(s, join_point, 0));
	sim_spin_part(s, 1 * MS, 100);
	x = finish(s, 4);
	takes(x, s, 1, 5000);
	/* Launches of the same graph run one after the other. */
	takes(x, t, 2, 10000);
	GIVES(cuEventQuery(fork_point), CUDA_ERROR_CAPTURED_EVENT);
}

Test(graph, a_stream_that_did_not_join_is_an_error)
{
	CUstream s, t;
	CUevent e;
	CUgraph g;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	t = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuEventCreate(&e, 0));
	capture(s);
	OK(cuEventRecord(e, s));
	OK(cuStreamWaitEvent(t, e, 0));
	sim_spin(t, 1000);
	GIVES(cuStreamEndCapture(t, &g), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	GIVES(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	cr_assert_null(g);
	GIVES(cuStreamEndCapture(s, &g), CUDA_ERROR_ILLEGAL_STATE);
	OK(cuStreamSynchronize(t));
}

Test(graph, what_has_no_place_in_a_capture_invalidates_it)
{
	CUstreamCaptureStatus status;
	CUstream s, blocking, other;
	CUdeviceptr p;
	CUevent outside;
	CUgraph g;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	blocking = sim_stream(0);
	other = sim_stream(CU_STREAM_NON_BLOCKING);
	outside = sim_mark(other);

	capture(s);
	GIVES(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	OK(cuStreamIsCapturing(s, &status));
	cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	GIVES(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

	capture(s);
	GIVES(cuMemAlloc_v2(&p, 4096), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	GIVES(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemAlloc_v2(&p, 4096));
	GIVES(cuStreamWaitEvent(s, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	GIVES(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

	capture(blocking);
	GIVES(cuStreamIsCapturing(CU_STREAM_LEGACY, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	OK(cuStreamIsCapturing(blocking, &status));
	cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	GIVES(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	GIVES(cuStreamEndCapture(blocking, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

	GIVES(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
		CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	OK(cuStreamSynchronize(NULL));
}

static void *end_elsewhere(void *arg)
{
	CUgraph g;
	void **a = arg;

	OK(cuCtxSetCurrent(a[0]));
	return (void *)(uintptr_t)cuStreamEndCapture(a[1], &g);
}

Test(graph, a_capture_is_ended_by_its_thread_unless_relaxed)
{
	pthread_t t;
	void *rc, *arg[2];

	sim_fresh(NULL);
	arg[0] = sim_device();
	arg[1] = sim_stream(CU_STREAM_NON_BLOCKING);
	for (int relaxed = 0; relaxed < 2; relaxed++) {
		CUgraph g;

		OK(cuStreamBeginCapture_v2(
			arg[1], relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_GLOBAL));
		pthread_create(&t, NULL, end_elsewhere, arg);
		pthread_join(t, &rc);
		cr_assert_eq((uintptr_t)rc, relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
		if (!relaxed)
			OK(cuStreamEndCapture(arg[1], &g));
	}
}

static atomic_int called;

static void on_node(void *arg)
{
	called += *(int *)arg;
}

Test(graph, nodes_of_every_kind_do_their_work)
{
	int seven = 7;
	uint32_t back = 0, nine = 9;
	CUDA_HOST_NODE_PARAMS host = {on_node, &seven};
	CUDA_MEMSET_NODE_PARAMS set = {.value = 5, .elementSize = 4, .width = 1, .height = 1};
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.WidthInBytes = 4,
		.Height = 1,
		.Depth = 1};
	CUDA_KERNEL_NODE_PARAMS kernel = {
		.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = 4096,
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}};
	CUgraphNode n[8], parent, list[8], from[8], to[8];
	CUgraph g, child, clone;
	size_t count = 8, edges = 8;
	CUgraphExec x;
	CUcontext ctx;
	CUevent e;
	void *params[2];

	sim_fresh(NULL);
	ctx = sim_device();
	OK(cuEventCreate(&e, 0));
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphCreate(&child, 0));
	OK(cuGraphAddMemAllocNode(&n[0], g, NULL, 0, &alloc));
	set.dst = alloc.dptr;
	OK(cuGraphAddMemsetNode(&n[1], g, &n[0], 1, &set, ctx));
	params[0] = &alloc.dptr;
	params[1] = &nine;
	kernel.func = sim_kernel("add_u32");
	kernel.kernelParams = params;
	OK(cuGraphAddKernelNode_v2(&n[2], child, NULL, 0, &kernel));
	OK(cuGraphAddKernelNode_v2(&n[3], child, &n[2], 1, &kernel));
	OK(cuGraphAddChildGraphNode(&parent, g, &n[1], 1, child));
	copy.srcDevice = alloc.dptr;
	copy.dstHost = &back;
	OK(cuGraphAddMemcpyNode(&n[4], g, &parent, 1, &copy, ctx));
	OK(cuGraphAddHostNode(&n[5], g, &n[4], 1, &host));
	OK(cuGraphAddEventRecordNode(&n[6], g, &n[5], 1, e));
	OK(cuGraphAddEmptyNode(&n[7], g, NULL, 0));
	OK(cuGraphGetRootNodes(g, list, &count));
	cr_assert_eq(count, 2);
	OK(cuGraphGetEdges(g, from, to, &edges));
	cr_assert_eq(edges, 5);
	GIVES(cuGraphAddDependencies(g, &n[6], &n[0], 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphClone(&clone, g));
	OK(cuGraphNodeFindInClone(&list[0], n[5], clone));
	OK(cuGraphInstantiateWithFlags(&x, g, 0));
	OK(cuGraphLaunch(x, NULL));
	OK(cuStreamSynchronize(NULL));
	cr_assert_eq(back, 5 + 18);
	cr_assert_eq(called, 7);
	OK(cuEventQuery(e));
	OK(cuGraphExecDestroy(x));
	OK(cuGraphDestroy(clone));
	OK(cuGraphDestroy(g));
	OK(cuGraphDestroy(child));
}

Test(graph, an_executable_graph_can_be_changed_but_not_reshaped)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {
		.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
	CUgraphExecUpdateResultInfo info;
	uint64_t ns = 1 * MS;
	void *params[] = {&ns};
	CUgraphNode n[2], m;
	CUgraph g, other;
	CUgraphExec x;
	CUstream s;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	kernel.func = sim_kernel("spin_ns");
	kernel.kernelParams = params;
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddKernelNode_v2(&n[0], g, NULL, 0, &kernel));
	OK(cuGraphAddKernelNode_v2(&n[1], g, &n[0], 1, &kernel));
	OK(cuGraphInstantiateWithFlags(&x, g, 0));
	takes(x, s, 1, 2000);
	ns = 5 * MS;
	OK(cuGraphExecKernelNodeSetParams_v2(x, n[1], &kernel));
	takes(x, s, 1, 6000);
	OK(cuGraphNodeSetEnabled(x, n[1], 0));
	takes(x, s, 1, 1000);
	OK(cuGraphNodeSetEnabled(x, n[1], 1));
	OK(cuGraphKernelNodeSetParams_v2(n[0], &kernel));
	OK(cuGraphKernelNodeSetParams_v2(n[1], &kernel));
	OK(cuGraphExecUpdate_v2(x, g, &info));
	takes(x, s, 1, 10000);
	OK(cuGraphCreate(&other, 0));
	OK(cuGraphAddKernelNode_v2(&m, other, NULL, 0, &kernel));
	GIVES(cuGraphExecUpdate_v2(x, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	cr_assert_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

Test(graph, a_graph_larger_than_a_ring_runs_to_its_end)
{
	CUgraphExec x;
	CUstream s;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	capture(s);
	for (int i = 0; i < 5000; i++)
		sim_spin(s, 2000);
	x = finish(s, 5000);
	OK(cuGraphLaunch(x, s));
	OK(cuStreamSynchronize(s));
	cr_assert_eq(sim_truth_of(getpid()).launches, 5000);
	cr_assert_eq(sim_truth_of(getpid()).device_ns, 10 * MS);
}

Test(graph, a_launch_ends_with_its_last_branch)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {
		.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
	unsigned permille = 100;
	uint64_t ns;
	void *params[] = {&ns, &permille};
	CUgraphNode n;
	CUgraphExec x;
	CUgraph g;

	sim_fresh(NULL);
	sim_device();
	kernel.func = sim_kernel("spin_part_ns");
	kernel.kernelParams = params;
	OK(cuGraphCreate(&g, 0));
	for (ns = 1 * MS; ns <= 3 * MS; ns += 1 * MS)
		OK(cuGraphAddKernelNode_v2(&n, g, NULL, 0, &kernel));
	OK(cuGraphInstantiateWithFlags(&x, g, 0));
	takes(x, sim_stream(CU_STREAM_NON_BLOCKING), 2, 6000);
}

static CUgraphExec with_memory(CUgraph *g, uint64_t bytes, uint64_t ns, bool free_it, CUdeviceptr *p)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = bytes,
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}};
	CUDA_KERNEL_NODE_PARAMS kernel = {
		.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
	void *params[] = {&ns};
	CUgraphNode n[3];
	CUgraphExec x;

	kernel.func = sim_kernel("spin_ns");
	kernel.kernelParams = params;
	OK(cuGraphCreate(g, 0));
	OK(cuGraphAddMemAllocNode(&n[0], *g, NULL, 0, &alloc));
	OK(cuGraphAddKernelNode_v2(&n[1], *g, &n[0], 1, &kernel));
	if (free_it)
		OK(cuGraphAddMemFreeNode(&n[2], *g, &n[1], 1, alloc.dptr));
	OK(cuGraphInstantiateWithFlags(&x, *g, 0));
	*p = alloc.dptr;
	return x;
}

static uint64_t reserved(void)
{
	cuuint64_t bytes = 77;

	OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes));
	return bytes;
}

Test(graph, memory_comes_with_a_launch_and_is_shared_by_those_that_do_not_run_at_once)
{
	CUstream s, t;
	CUgraphExec a, b;
	CUgraph g, h;
	CUdeviceptr p, q;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	t = sim_stream(CU_STREAM_NON_BLOCKING);
	a = with_memory(&g, 30 * MIB, 50 * MS, true, &p);
	b = with_memory(&h, 40 * MIB, 50 * MS, true, &q);
	cr_assert_eq(reserved(), 0);
	OK(cuGraphUpload(a, s));
	cr_assert_eq(reserved(), 30 * MIB);
	OK(cuGraphLaunch(a, s));
	OK(cuGraphLaunch(a, s));
	cr_assert_eq(reserved(), 30 * MIB);
	/* The second graph is launched behind the first in its stream, and then in another stream. */
	OK(cuGraphLaunch(b, s));
	cr_assert_eq(reserved(), 40 * MIB);
	OK(cuGraphLaunch(a, t));
	cr_assert_eq(reserved(), 70 * MIB);
	OK(cuDeviceGraphMemTrim(0));
	cr_assert_eq(reserved(), 70 * MIB);
	OK(cuCtxSynchronize());
	OK(cuGraphDestroy(g));
	OK(cuGraphExecDestroy(a));
	cr_assert_eq(reserved(), 70 * MIB);
	OK(cuDeviceGraphMemTrim(0));
	cr_assert_eq(reserved(), 0);
	OK(cuGraphLaunch(b, t));
	cr_assert_eq(reserved(), 40 * MIB);
	OK(cuCtxSynchronize());
}

Test(graph, memory_that_a_graph_does_not_free_outlives_it)
{
	CUgraphExec a, b;
	CUgraph g, h;
	CUdeviceptr p, q;
	CUstream s;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	a = with_memory(&g, 30 * MIB, MS, false, &p);
	b = with_memory(&h, 30 * MIB, MS, true, &q);
	GIVES(cuMemFreeAsync(p, s), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphLaunch(a, s));
	GIVES(cuGraphLaunch(a, s), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphLaunch(b, s));
	cr_assert_eq(reserved(), 60 * MIB);
	OK(cuGraphExecDestroy(a));
	OK(cuGraphDestroy(g));
	OK(cuCtxSynchronize());
	OK(cuDeviceGraphMemTrim(0));
	cr_assert_eq(reserved(), 30 * MIB);
	OK(cuMemsetD8_v2(p, 1, 30 * MIB));
	OK(cuMemFreeAsync(p, s));
	OK(cuGraphLaunch(b, s));
	cr_assert_eq(reserved(), 30 * MIB);
	OK(cuCtxSynchronize());
	GIVES(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
}

Test(graph, allocations_that_are_never_there_at_once_share_an_address)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = 10 * MIB,
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}};
	CUgraphNode n[4];
	CUdeviceptr first;
	CUgraphExec x;
	CUgraph g;

	sim_fresh(NULL);
	sim_device();
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddMemAllocNode(&n[0], g, NULL, 0, &alloc));
	first = alloc.dptr;
	OK(cuGraphAddMemFreeNode(&n[1], g, &n[0], 1, first));
	OK(cuGraphAddMemAllocNode(&n[2], g, &n[1], 1, &alloc));
	cr_assert_eq(alloc.dptr, first);
	OK(cuGraphAddMemAllocNode(&n[3], g, &n[1], 1, &alloc));
	cr_assert_neq(alloc.dptr, first);
	OK(cuGraphInstantiateWithFlags(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	OK(cuGraphLaunch(x, NULL));
	OK(cuGraphLaunch(x, NULL));
	cr_assert_eq(reserved(), 20 * MIB);
	OK(cuCtxSynchronize());
}

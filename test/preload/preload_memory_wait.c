/* A call exceeds the quota while a stream waits for what this thread does next: then the call is refused and does not
 * wait. Work that only takes its time is still waited for. */
#include "test/preload/preload_memory.h"
#include "units.h"

enum how { BY_FUNCTION, BY_VALUE, WAYS };

/* The word that a stream waits for, in memory that the GPU can read. */
static volatile uint32_t *word;

static void stands_still(void *argument)
{
	(void)argument;
	while (!__atomic_load_n(word, __ATOMIC_ACQUIRE))
		t_sleep_us(1000);
}

static void hold(CUstream s, enum how how)
{
	if (!word)
		OK(cuMemHostAlloc((void **)&word, sizeof(*word), CU_MEMHOSTALLOC_DEVICEMAP));
	__atomic_store_n(word, 0, __ATOMIC_RELEASE);
	if (how == BY_FUNCTION)
		OK(cuLaunchHostFunc(s, stands_still, NULL));
	else
		OK(cuStreamWaitValue32_v2(s, (CUdeviceptr)(uintptr_t)word, 1, CU_STREAM_WAIT_VALUE_GEQ));
}

static void let_go(CUstream s)
{
	GIVES(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	OK(cuStreamSynchronize(s));
}

static void spin(CUstream s, uint64_t ns)
{
	static CUfunction f;
	CUmodule module;
	void *params[] = {&ns};

	if (!f) {
		OK(cuModuleLoadData(&module,
			".version 7.0\n.target sm_50\n.visible .entry spin_ns(.param .u64 ns) {}\n"));
		OK(cuModuleGetFunction(&f, module, "spin_ns"));
	}
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

/* Makes a graph that takes memory and frees it. */
static CUgraphExec taking(uint64_t bytes)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
		.bytesize = bytes};
	CUgraphNode n[2];
	CUgraphExec x;
	CUgraph g;

	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddMemAllocNode(&n[0], g, NULL, 0, &params));
	OK(cuGraphAddMemFreeNode(&n[1], g, &n[0], 1, params.dptr));
	OK(cuGraphInstantiateWithFlags(&x, g, 0));
	OK(cuGraphDestroy(g));
	return x;
}

static void in_stream(CUstream s, enum how how)
{
	CUdeviceptr a, b;

	/* It asks for more than there will ever be; then for more than there is now, with nothing queued that will be
	 * freed. */
	OK(cuMemAllocAsync(&a, 200 * MIB, s));
	hold(s, how);
	GIVES(cuMemAllocAsync(&b, 300 * MIB, s), CUDA_ERROR_OUT_OF_MEMORY);
	GIVES(cuMemAllocAsync(&b, 100 * MIB, s), CUDA_ERROR_OUT_OF_MEMORY);
	/* The memory is freed in the stream, but the stream does not get there. */
	OK(cuMemFreeAsync(a, s));
	GIVES(cuMemAllocAsync(&b, 100 * MIB, s), CUDA_ERROR_OUT_OF_MEMORY);
	PM_BOTH(200 * MIB);
	let_go(s);
	OK(cuMemAllocAsync(&b, 100 * MIB, s));
	/* Work that ends by itself is waited for, whatever the program has put into its streams before. */
	spin(s, 50 * MS);
	OK(cuMemFreeAsync(b, s));
	OK(cuMemAllocAsync(&a, 200 * MIB, s));
	PM_BOTH(200 * MIB);
	OK(cuMemFreeAsync(a, s));
	OK(cuStreamSynchronize(s));
	PM_BOTH(0);
}

static void by_graph(CUstream s, enum how how)
{
	CUgraphExec x = taking(100 * MIB);
	CUdeviceptr a;

	OK(cuMemAllocAsync(&a, 200 * MIB, s));
	hold(s, how);
	OK(cuMemFreeAsync(a, s));
	GIVES(cuGraphLaunch(x, s), CUDA_ERROR_OUT_OF_MEMORY);
	let_go(s);
	OK(cuGraphLaunch(x, s));
	OK(cuStreamSynchronize(s));
	OK(cuGraphExecDestroy(x));
	OK(cuDeviceGraphMemTrim(0));
	PM_BOTH(0);
}

/* The memory is on another GPU than it was reserved on, and that GPU has no room for it. */
static void elsewhere(CUcontext here, enum how how)
{
	CUdeviceptr full, a;
	CUcontext there;
	CUstream s;

	OK(cuCtxCreate_v2(&there, 0, 1));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&full, 200 * MIB));
	OK(cuCtxSetCurrent(here));
	hold(s, how);
	GIVES(cuMemAllocAsync(&a, 100 * MIB, s), CUDA_ERROR_OUT_OF_MEMORY);
	let_go(s);
	T_CHECK(pm_counted(1) == 200 * MIB && pm_truth(1) == 200 * MIB, "counted %lld, truth %lld",
		(long long)pm_counted(1), (long long)pm_truth(1));
	PM_BOTH(0);
	OK(cuCtxDestroy_v2(there));
	OK(cuCtxSetCurrent(here));
}

void pm_waits(void)
{
	CUcontext here;
	CUstream s;

	OK(cuCtxGetCurrent(&here));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	for (enum how how = 0; how < WAYS; how++) {
		in_stream(s, how);
		by_graph(s, how);
	}
	elsewhere(here, BY_VALUE);
}

/* Memory kept for streams is freed only while no stream waits, because freeing waits for all work. */
void pm_waits_managed(void)
{
	CUdeviceptr a, b;
	CUmemoryPool pool;
	CUstream s, t;

	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	for (enum how how = 0; how < WAYS; how++) {
		OK(cuMemAllocAsync(&a, 200 * MIB, t));
		hold(s, how);
		OK(cuMemFreeAsync(a, t));
		if (how == BY_FUNCTION)
			GIVES(cuMemAllocAsync(&b, 100 * MIB, t), CUDA_ERROR_OUT_OF_MEMORY);
		else
			GIVES(cuMemAlloc_v2(&b, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
		OK(cuMemPoolTrimTo(pool, 0));
		let_go(s);
		OK(cuMemAllocAsync(&b, 100 * MIB, t));
		spin(t, 50 * MS);
		OK(cuMemFreeAsync(b, t));
		OK(cuMemAllocAsync(&a, 200 * MIB, t));
		OK(cuMemFreeAsync(a, t));
		OK(cuCtxSynchronize());
		PM_BOTH(0);
	}
}

/* Stream-ordered allocations that become managed: what is used again, when it is freed, what counts. */
#include "test/preload/preload_memory.h"
#include "units.h"

static CUfunction spin_kernel(void)
{
	CUmodule module;
	CUfunction f;

	OK(cuModuleLoadData(
		&module, ".version 7.0\n.target sm_50\n.visible .entry spin_ns(.param .u64 ns) {}\n"));
	OK(cuModuleGetFunction(&f, module, "spin_ns"));
	return f;
}

static void spin(CUfunction f, CUstream s, uint64_t ns)
{
	void *params[] = {&ns};

	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

static unsigned managed(CUdeviceptr p)
{
	unsigned yes = 7;

	OK(cuPointerGetAttribute(&yes, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	return yes;
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute what)
{
	cuuint64_t bytes = 77;

	OK(cuMemPoolGetAttribute(pool, what, &bytes));
	return bytes;
}

#define COUNTED(bytes) T_CHECK(pm_counted(0) == (bytes), "counted %lld", (long long)pm_counted(0))

/* Allocations that do not become managed. */
static void others(CUstream s)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUmemoryPool pool, standard;
	CUdeviceptr a, b;
	CUgraph graph;

	OK(cuMemPoolCreate(&pool, &props));
	OK(cuDeviceGetDefaultMemPool(&standard, 0));
	OK(cuMemAllocFromPoolAsync(&a, 10 * MIB, pool, s));
	OK(cuMemAllocFromPoolAsync(&b, 10 * MIB, standard, s));
	T_CHECK(!managed(a) && managed(b), "%u %u", managed(a), managed(b));
	OK(cuMemFreeAsync(a, s));
	OK(cuMemFreeAsync(b, s));
	OK(cuDeviceSetMemPool(0, pool));
	OK(cuMemAllocAsync(&a, 10 * MIB, s));
	T_CHECK(!managed(a), "out of the program's own pool, and managed");
	OK(cuMemFreeAsync(a, s));
	OK(cuDeviceSetMemPool(0, standard));
	OK(cuMemPoolDestroy(pool));
	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemAllocAsync(&a, 10 * MIB, s));
	OK(cuMemFreeAsync(a, s));
	OK(cuStreamEndCapture(s, &graph));
	OK(cuGraphDestroy(graph));
	OK(cuCtxSynchronize());
	PM_BOTH(0);
}

void pm_ordered(void)
{
	cuuint64_t keep = 150 * MIB;
	CUdeviceptr a, b, c;
	CUmemoryPool pool;
	CUstream s, t;
	CUfunction f = spin_kernel();

	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemAllocAsync(&a, 100 * MIB, s));
	T_CHECK(managed(a), "not managed");
	COUNTED(100 * MIB);
	spin(f, s, 1000 * MS);
	OK(cuMemFreeAsync(a, s));
	/* In its own stream it can be used again at once; in another one only after its work has ended. */
	OK(cuMemAllocAsync(&b, 100 * MIB, s));
	T_CHECK(b == a, "not used again");
	COUNTED(100 * MIB);
	OK(cuMemFreeAsync(b, s));
	OK(cuMemAllocAsync(&b, 100 * MIB, t));
	T_CHECK(b != a, "taken while it is in use");
	GIVES(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	COUNTED(200 * MIB);
	T_CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 100 * MIB, "used");
	T_CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 200 * MIB, "reserved");
	OK(cuMemFreeAsync(b, t));
	/* Where it is in the way it is freed, after a wait. */
	OK(cuMemAllocAsync(&b, 110 * MIB, t));
	OK(cuMemAllocAsync(&c, 120 * MIB, t));
	T_CHECK(pm_counted(0) <= 256 * MIB, "%lld", (long long)pm_counted(0));
	GIVES(cuMemAllocAsync(&a, 130 * MIB, t), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFreeAsync(b, t));
	OK(cuMemFreeAsync(c, t));
	OK(cuCtxSynchronize());
	COUNTED(0ull);
	OK(cuMemAllocAsync(&a, 200 * MIB, s));
	spin(f, s, 20 * MS);
	OK(cuMemFreeAsync(a, s));
	OK(cuMemAlloc_v2(&b, 150 * MIB));
	COUNTED(150 * MIB);
	OK(cuMemFree_v2(b));
	/* At a synchronisation as much is kept as the program says. */
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuMemAllocAsync(&a, 100 * MIB, s));
	OK(cuMemAllocAsync(&b, 100 * MIB, s));
	OK(cuMemFreeAsync(a, s));
	OK(cuMemFreeAsync(b, s));
	OK(cuStreamSynchronize(s));
	COUNTED(100 * MIB);
	OK(cuMemPoolTrimTo(pool, 0));
	COUNTED(0ull);
	keep = 0;
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	others(s);
}

/* Streams and contexts that end, and wrong calls. */
void pm_ordered_ends(void)
{
	CUdeviceptr a, b, c;
	CUcontext first, other;
	CUstream s, t;
	CUfunction f = spin_kernel();

	OK(cuCtxGetCurrent(&first));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocAsync(&a, 100 * MIB, s));
	spin(f, s, 1000 * MS);
	OK(cuMemFreeAsync(a, s));
	OK(cuStreamDestroy_v2(s));
	/* A new stream may have the address of the old one but is not the same. */
	OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocAsync(&b, 100 * MIB, t));
	T_CHECK(b != a, "taken while it is in use");
	OK(cuMemFree_v2(b));
	OK(cuCtxSynchronize());
	COUNTED(0ull);
	/* Freed twice, freed in something that is no stream, and freed in a stream though it was not allocated in
	 * one. */
	OK(cuMemAllocAsync(&a, 10 * MIB, t));
	T_CHECK(cuMemFreeAsync(a, (CUstream)&a) != CUDA_SUCCESS, "freed in nowhere");
	COUNTED(10 * MIB);
	OK(cuMemFreeAsync(a, t));
	GIVES(cuMemFreeAsync(a, t), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAlloc_v2(&c, 10 * MIB));
	GIVES(cuMemFreeAsync(c, t), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(c));
	T_CHECK(cuMemAllocAsync(&a, MIB, (CUstream)&a) != CUDA_SUCCESS, "in nowhere");
	GIVES(cuMemAllocAsync(NULL, MIB, t), CUDA_ERROR_INVALID_VALUE);
	OK(cuCtxSynchronize());
	COUNTED(0ull);
	/* Its context ends and frees it. */
	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocAsync(&a, 50 * MIB, s));
	OK(cuMemAllocAsync(&b, 60 * MIB, s));
	OK(cuMemFreeAsync(a, s));
	COUNTED(110 * MIB);
	OK(cuCtxDestroy_v2(other));
	COUNTED(0ull);
	OK(cuCtxSetCurrent(first));
	OK(cuDevicePrimaryCtxRetain(&other, 0));
	OK(cuCtxPushCurrent_v2(other));
	OK(cuMemAllocAsync(&a, 50 * MIB, NULL));
	OK(cuMemFreeAsync(a, NULL));
	COUNTED(50 * MIB);
	OK(cuDevicePrimaryCtxReset_v2(0));
	COUNTED(0ull);
	OK(cuCtxSetCurrent(first));
	OK(cuMemAllocAsync(&a, 50 * MIB, CU_STREAM_PER_THREAD));
	OK(cuMemFreeAsync(a, CU_STREAM_PER_THREAD));
	OK(cuMemAllocAsync(&b, 50 * MIB, CU_STREAM_PER_THREAD));
	T_CHECK(a == b, "not used again");
	OK(cuMemFree_v2(b));
	PM_BOTH(0);
}

/* Memory that is shared, freed elsewhere, on several GPUs, or inherited by a forked child. */
#include "test/preload/preload_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static int importer(void *argument)
{
	int *pipes = argument;
	CUipcMemHandle handle;
	CUdeviceptr p;

	T_CHECK(read(pipes[0], &handle, sizeof(handle)) == sizeof(handle), "no handle");
	pm_context();
	OK(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	T_CHECK(pm_counted(0) == 20 * MIB && pm_truth(0) == 0, "%lld", (long long)pm_counted(0));
	OK(cuIpcCloseMemHandle(p));
	T_CHECK(pm_counted(0) == 20 * MIB, "%lld", (long long)pm_counted(0));
	return 0;
}

static void *free_it(void *argument)
{
	OK(cuCtxSetCurrent(((void **)argument)[0]));
	OK(cuMemFree_v2((CUdeviceptr)(uintptr_t)((void **)argument)[1]));
	return NULL;
}

static int child(void *argument)
{
	/* The driver does not work here, and this process must not give back what belongs to its parent. */
	T_CHECK(cuMemFree_v2(*(CUdeviceptr *)argument) != CUDA_SUCCESS, "freed in the child");
	T_CHECK(pm_counted(0) == 20 * MIB, "%lld", (long long)pm_counted(0));
	return 0;
}

void pm_others(void)
{
	CUipcMemHandle handle;
	void *given[2];
	CUdeviceptr p;
	pthread_t thread;
	int pipes[2];
	pid_t pid;

	T_CHECK(!pipe(pipes), "no pipe");
	pid = t_spawn(importer, pipes, 30);
	given[0] = pm_context();
	OK(cuMemAlloc_v2(&p, 20 * MIB));
	OK(cuIpcGetMemHandle(&handle, p));
	T_CHECK(write(pipes[1], &handle, sizeof(handle)) == sizeof(handle), "no pipe");
	T_CHECK(t_wait(pid) == 0, "the importer failed");
	T_CHECK(t_run(child, &p, 30) == 0, "the child failed");
	PM_BOTH(20 * MIB);
	given[1] = (void *)(uintptr_t)p;
	T_CHECK(!pthread_create(&thread, NULL, free_it, given) && !pthread_join(thread, NULL), "no thread");
	PM_BOTH(0);
}

#define ON(device, bytes)                                                                                    \
	T_CHECK(pm_counted(device) == (bytes) && pm_truth(device) == (bytes),                                \
		"GPU %d: counted %lld, truth %lld", device, (long long)pm_counted(device),                   \
		(long long)pm_truth(device))

void pm_devices(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
	CUmemGenericAllocationHandle h;
	CUcontext first = pm_context(), second;
	CUdeviceptr a, b, c;
	CUstream stream;
	size_t left, total;

	OK(cuCtxCreate_v2(&second, 0, 1));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&b, 200 * MIB));
	OK(cuCtxSetCurrent(first));
	OK(cuMemAlloc_v2(&a, 100 * MIB));
	ON(0, 100 * MIB);
	ON(1, 200 * MIB);
	OK(cuMemGetInfo_v2(&left, &total));
	T_CHECK(left == 156 * MIB && total == 256 * MIB, "%zu %zu", left, total);
	/* The GPU that the memory is on counts, not the current context. */
	OK(cuMemCreate(&h, 20 * MIB, &prop, 0));
	ON(1, 220 * MIB);
	GIVES(cuMemCreate(&h, 38 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAllocAsync(&c, 20 * MIB, stream));
	ON(0, pm_truth(0));
	ON(1, pm_truth(1));
	T_CHECK(pm_counted(0) + pm_counted(1) == 340 * MIB, "%lld", (long long)pm_counted(1));
	OK(cuMemFreeAsync(c, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemFree_v2(b));
	ON(0, 100 * MIB);
	ON(1, 20 * MIB);
	OK(cuMemFree_v2(a));
	OK(cuMemRelease(h));
	ON(0, 0ull);
	ON(1, 0ull);
}

static CUcontext context;
static uint32_t *stop;

/* Takes memory out of a pool that keeps what it has, and gives it back: each call might add memory, and none does. */
static void *pooled(void *argument)
{
	cuuint64_t keep = UINT64_MAX;
	CUmemoryPool pool;
	CUdeviceptr p;
	CUstream s;

	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		OK(cuMemAllocAsync(&p, 100 * MIB, s));
		OK(cuMemFreeAsync(p, s));
	}
	OK(cuStreamSynchronize(s));
	OK(cuMemPoolTrimTo(pool, 0));
	return argument;
}

static void take_and_give(int times)
{
	CUdeviceptr p;

	for (int i = 0; i < times; i++) {
		OK(cuMemAlloc_v2(&p, 156 * MIB));
		OK(cuMemFree_v2(p));
	}
	__atomic_store_n(stop, 1, __ATOMIC_RELAXED);
}

/* What a call under way has reserved and will not need refuses no other call. */
void pm_under_way(void)
{
	pthread_t thread;

	/* Calls take as long as those of a real driver. */
	setenv("GPUSIM_COST", "1", 1);
	stop = t_shared(sizeof(*stop));
	context = pm_context();
	T_CHECK(!pthread_create(&thread, NULL, pooled, NULL), "no thread");
	take_and_give(3000);
	pthread_join(thread, NULL);
	PM_BOTH(0);
}

/* The calls of another process of the account refuse none either. */
void pm_under_way_elsewhere(void)
{
	pid_t pid;

	setenv("GPUSIM_COST", "1", 1);
	stop = t_shared(sizeof(*stop));
	pid = fork();
	T_CHECK(pid >= 0, "no child");
	context = pm_context();
	if (!pid) {
		pooled(NULL);
		_exit(0);
	}
	take_and_give(3000);
	T_CHECK(t_wait(pid) == 0, "the other process failed");
	PM_BOTH(0);
}

/* What is done about a lack of room does not disturb a capture that is under way. */
void pm_capture(void)
{
	CUstream stream, other;
	cuuint64_t keep = UINT64_MAX;
	CUmemoryPool pool;
	CUdeviceptr a, b;
	CUgraph graph;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuMemAllocAsync(&a, 200 * MIB, other));
	OK(cuMemFreeAsync(a, other));
	OK(cuStreamSynchronize(other));
	PM_BOTH(200 * MIB);
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuMemAllocAsync(&a, 100 * MIB, stream));
	OK(cuMemAllocAsync(&b, 150 * MIB, other));
	PM_BOTH(150 * MIB);
	GIVES(cuMemAllocAsync(&a, 107 * MIB, other), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFreeAsync(b, other));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphDestroy(graph));
	OK(cuCtxSynchronize());
	OK(cuMemPoolTrimTo(pool, 0));
	PM_BOTH(0);
}

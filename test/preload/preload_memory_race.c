/*
 * Four processes of one account, with eight threads each, take and give back memory of all kinds at random, launch
 * graphs with memory, and are killed at random; once with memory of the device, and once with managed memory. The
 * parent reads the GPU's own books all the time and must never see more than the quota, not by a byte. In the end
 * nothing may be left.
 */
#include "test/preload/preload_memory.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuarb/control.h"

#include "test/sim/device/model.h"

#define PROCESSES  4
#define THREADS    8
#define OPERATIONS 10000u
#define HELD       4
#define QUOTA_MIB  64

enum kind { PLAIN, PITCHED, MANAGED, ARRAY, MIPMAP, POOLED, OWN_POOL, GRAPH, PHYSICAL, KINDS };

struct shared {
	uint64_t operations, refused, stop, at_rest;
};

struct held {
	enum kind kind;
	uint64_t handle; /* 0: there is none */
	CUdeviceptr left;
};

static struct shared *shared;
static CUcontext context;
static CUfunction spin;
static __thread CUmemoryPool own_pool;

/* Launches a new graph that takes memory, computes for a moment, and frees the memory every other time. */
static CUresult launch(struct held *h, unsigned rows, CUstream stream)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
		.bytesize = rows * 4096ull};
	CUDA_KERNEL_NODE_PARAMS kernel = {.func = spin,
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = (void *[]){&(uint64_t){100000}}};
	CUgraphNode n[3];
	CUgraphExec x;
	CUresult result;
	CUgraph g;

	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddMemAllocNode(&n[0], g, NULL, 0, &alloc));
	OK(cuGraphAddKernelNode_v2(&n[1], g, &n[0], 1, &kernel));
	if (rows % 2)
		OK(cuGraphAddMemFreeNode(&n[2], g, &n[1], 1, alloc.dptr));
	OK(cuGraphInstantiateWithFlags(&x, g, 0));
	OK(cuGraphDestroy(g));
	result = rows % 8 < 2 ? cuGraphUpload(x, stream) : CUDA_SUCCESS;
	if (result == CUDA_SUCCESS)
		result = cuGraphLaunch(x, stream);
	if (result == CUDA_SUCCESS && rows % 3 == 0 && rows % 2)
		result = cuGraphLaunch(x, stream);
	h->handle = (uintptr_t)x;
	h->left = rows % 2 ? 0 : alloc.dptr;
	if (result != CUDA_SUCCESS)
		OK(cuGraphExecDestroy(x));
	return result;
}

static bool take(struct held *h, enum kind kind, unsigned rows, CUstream stream)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUDA_ARRAY_DESCRIPTOR flat = {
		.Width = 1024, .Height = rows, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUDA_ARRAY3D_DESCRIPTOR deep = {
		.Width = 1024, .Height = rows, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUresult result = CUDA_SUCCESS;
	unsigned managed = 0;
	size_t pitch;

	switch (kind) {
	case PLAIN:
		result = cuMemAlloc_v2((CUdeviceptr *)&h->handle, rows * 4096ull + rows % 7);
		break;
	case PITCHED:
		result = cuMemAllocPitch_v2((CUdeviceptr *)&h->handle, &pitch, 4000, rows, 4);
		break;
	case MANAGED:
		result = cuMemAllocManaged((CUdeviceptr *)&h->handle, rows * 4096ull, CU_MEM_ATTACH_GLOBAL);
		break;
	case GRAPH:
		result = launch(h, rows, stream);
		break;
	case ARRAY:
		result = cuArrayCreate_v2((CUarray *)&h->handle, &flat);
		break;
	case MIPMAP:
		result = cuMipmappedArrayCreate((CUmipmappedArray *)&h->handle, &deep, 1);
		break;
	case POOLED:
		result = cuMemAllocAsync((CUdeviceptr *)&h->handle, rows * 4096ull + rows % 7, stream);
		if (result == CUDA_SUCCESS)
			OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, h->handle));
		T_CHECK(result != CUDA_SUCCESS || managed == (getenv("GPUARB_OVERSUBSCRIBE") != NULL),
			"of the other kind");
		break;
	case OWN_POOL:
		result = cuMemAllocFromPoolAsync(
			(CUdeviceptr *)&h->handle, rows * 4096ull + rows % 7, own_pool, stream);
		break;
	default:
		result = cuMemCreate(
			(CUmemGenericAllocationHandle *)&h->handle, (1 + rows / 512) * 2 * MIB, &prop, 0);
		break;
	}
	if (result == CUDA_SUCCESS) {
		h->kind = kind;
		return true;
	}
	h->handle = 0;
	T_CHECK(result == CUDA_ERROR_OUT_OF_MEMORY, "kind %d gives %d", (int)kind, (int)result);
	return false;
}

static void give(struct held *h, CUstream stream)
{
	CUresult result = CUDA_SUCCESS;

	if (!h->handle)
		return;
	switch (h->kind) {
	case PLAIN:
	case PITCHED:
	case MANAGED:
		result = cuMemFree_v2(h->handle);
		break;
	case GRAPH:
		result = cuGraphExecDestroy((CUgraphExec)h->handle);
		if (result == CUDA_SUCCESS && h->left)
			result = h->left >> 21 & 1 ? cuMemFreeAsync(h->left, stream) : cuMemFree_v2(h->left);
		break;
	case ARRAY:
		result = cuArrayDestroy((CUarray)h->handle);
		break;
	case MIPMAP:
		result = cuMipmappedArrayDestroy((CUmipmappedArray)h->handle);
		break;
	case POOLED:
		result = cuMemFreeAsync(h->handle, stream);
		if (result == CUDA_SUCCESS && !(h->handle >> 21 & 3))
			result = cuStreamSynchronize(stream);
		break;
	case OWN_POOL:
		result = h->handle >> 21 & 1 ? cuMemFree_v2(h->handle) : cuMemFreeAsync(h->handle, stream);
		break;
	default:
		result = cuMemRelease(h->handle);
		break;
	}
	T_CHECK(result == CUDA_SUCCESS, "kind %d gives %d", (int)h->kind, (int)result);
	h->handle = 0;
}

static void *thread(void *argument)
{
	struct t_random random = t_seeded((uint64_t)(uintptr_t)argument * 977 + (uint64_t)getpid());
	struct held held[HELD] = {{0}};
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUstream stream;

	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemPoolCreate(&own_pool, &props));
	while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
		struct held *h = &held[t_below(&random, HELD)];

		if (h->handle)
			give(h, stream);
		else if (!take(h, (enum kind)t_below(&random, KINDS), 1 + t_below(&random, 2048), stream))
			__atomic_fetch_add(&shared->refused, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&shared->operations, 1, __ATOMIC_RELAXED);
		if (t_below(&random, 200))
			continue;
		/* The pool and the stream end before what is allocated in them. */
		OK(cuMemPoolDestroy(own_pool));
		OK(cuMemPoolCreate(&own_pool, &props));
		OK(cuStreamDestroy_v2(stream));
		OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	}
	for (unsigned i = 0; i < HELD; i++)
		give(&held[i], stream);
	OK(cuStreamSynchronize(stream));
	OK(cuMemPoolDestroy(own_pool));
	return NULL;
}

static int process(void *argument)
{
	pthread_t threads[THREADS];
	CUmodule module;

	(void)argument;
	context = pm_context();
	OK(cuModuleLoadData(
		&module, ".version 7.0\n.target sm_50\n.visible .entry spin_ns(.param .u64 ns) {}\n"));
	OK(cuModuleGetFunction(&spin, module, "spin_ns"));
	for (uintptr_t i = 0; i < THREADS; i++)
		T_CHECK(!pthread_create(&threads[i], NULL, thread, (void *)i), "no thread");
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	OK(cuCtxSynchronize());
	OK(cuDeviceGraphMemTrim(0));
	/* The process still exists: what is left was really given back, and not only cleared after its death. */
	__atomic_fetch_add(&shared->at_rest, 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(&shared->stop, __ATOMIC_RELAXED) < 2)
		t_sleep_us(1000);
	return 0;
}

/* Gives what the processes that were not killed hold at one moment. */
static uint64_t truth(const pid_t *pids)
{
	static struct sim_process_state all[SIM_MAX_PROCS];
	struct sim_device_state state;
	uint64_t sum = 0;
	int n = sim_open() ? -1 : sim_snapshot(0, &state, false, all, SIM_MAX_PROCS);

	T_CHECK(n >= 0, "no simulation");
	for (int i = 0; i < n; i++)
		for (unsigned p = 0; p < PROCESSES; p++)
			if (all[i].pid == pids[p])
				sum += all[i].memory_bytes + all[i].away_bytes;
	return sum;
}

static int race(void *argument)
{
	struct t_random random = t_seeded(t_seed_of_today());
	uint64_t most = 0, looks = 0, next = t_now_ns() + 60000000;
	unsigned kills = 0;
	pid_t pids[PROCESSES];

	(void)argument;
	for (unsigned i = 0; i < PROCESSES; i++)
		pids[i] = t_spawn(process, NULL, 100);
	while (__atomic_load_n(&shared->operations, __ATOMIC_RELAXED) < OPERATIONS || kills < 20) {
		uint64_t now = truth(pids);

		most = now > most ? now : most;
		T_CHECK(now <= QUOTA_MIB * MIB, "%lld bytes over the quota, %lld counted after %u kills",
			(long long)(now - QUOTA_MIB * MIB), (long long)pm_counted(0), kills);
		looks++;
		t_sleep_us(50);
		if (t_now_ns() < next)
			continue;
		unsigned i = t_below(&random, PROCESSES);

		kill(pids[i], SIGKILL);
		T_CHECK(t_wait(pids[i]) == -SIGKILL, "a process failed");
		pids[i] = t_spawn(process, NULL, 100);
		kills++;
		next = t_now_ns() + 20000000 + t_below(&random, 100000000);
	}
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(&shared->at_rest, __ATOMIC_RELAXED) < PROCESSES)
		t_sleep_us(1000);
	/* The members that rest hold nothing; what killed ones left and nobody has cleared is cleared now. */
	T_CHECK(gpuarb_control_reap(NULL, pm_uuid(0), NULL, NULL, NULL) >= 0, "no segment");
	T_CHECK(truth(pids) == 0, "%lld bytes left on the GPU", (long long)truth(pids));
	T_CHECK(pm_counted(0) == 0, "%lld bytes left in the account", (long long)pm_counted(0));
	__atomic_store_n(&shared->stop, 2, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < PROCESSES; i++)
		T_CHECK(t_wait(pids[i]) == 0, "a process failed");
	printf("memory: %llu operations, %llu refused, %u kills, %llu looks: at most %llu of %llu bytes\n",
		(unsigned long long)shared->operations, (unsigned long long)shared->refused, kills,
		(unsigned long long)looks, (unsigned long long)most, QUOTA_MIB * MIB);
	return 0;
}

void pm_race(void)
{
	struct t_dir dir;
	int r;

	shared = t_shared(sizeof(*shared));
	pm_begin(&dir, "64Mi");
	r = t_run(race, NULL, 110);
	pm_end(&dir);
	T_CHECK(r == 0, "the race failed (%d)", r);
}

void pm_race_managed(void)
{
	setenv("GPUARB_OVERSUBSCRIBE", "on", 1);
	pm_race();
	unsetenv("GPUARB_OVERSUBSCRIBE");
}

/* What a context counts, as configured or as found; and calls without arguments. */
#include "test/preload/preload_memory.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define CONTEXT (100 * MIB)

/* The quota is 256 MiB; a context takes 100 MiB of the device and counts as much. */
void pm_overhead(void)
{
	CUcontext first, second, third;
	size_t left, total;
	CUdeviceptr p;

	OK(cuInit(0));
	OK(cuCtxCreate_v2(&first, 0, 0));
	PM_BOTH(CONTEXT);
	OK(cuMemGetInfo_v2(&left, &total));
	T_CHECK(left == 156 * MIB && total == 256 * MIB, "%zu of %zu", left, total);
	OK(cuDevicePrimaryCtxRetain(&second, 0));
	PM_BOTH(2 * CONTEXT);
	/* A second reference to a context takes no more memory. */
	OK(cuDevicePrimaryCtxRetain(&second, 0));
	PM_BOTH(2 * CONTEXT);
	/* A third context does not fit, and none of it stays counted. */
	GIVES(cuCtxCreate_v2(&third, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	PM_BOTH(2 * CONTEXT);
	OK(cuMemAlloc_v2(&p, 56 * MIB));
	GIVES(cuMemAlloc_v2(&p, 1), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	PM_BOTH(2 * CONTEXT + 56 * MIB);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	PM_BOTH(CONTEXT + 56 * MIB);
	OK(cuCtxCreate_v3(&third, NULL, 0, 0, 0));
	PM_BOTH(2 * CONTEXT + 56 * MIB);
	OK(cuCtxDestroy_v2(third));
	PM_BOTH(CONTEXT + 56 * MIB);
	OK(cuDevicePrimaryCtxRetain(&second, 0));
	OK(cuDevicePrimaryCtxReset_v2(0));
	PM_BOTH(CONTEXT + 56 * MIB);
	OK(cuCtxDestroy_v2(first));
	PM_BOTH(0);
	GIVES(cuCtxCreate_v2(NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuCtxCreate_v2(&first, 0, 77), CUDA_ERROR_INVALID_DEVICE);
	GIVES(cuDevicePrimaryCtxRetain(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	PM_BOTH(0);
}

/* Here no setting says it: a context takes 100 MiB of the device, which the preload finds out. */
void pm_found(void)
{
	CUcontext first, second, third;
	size_t left, total, got = 0;
	CUdeviceptr p;

	OK(cuInit(0));
	OK(cuCtxCreate_v2(&first, 0, 0));
	PM_BOTH(CONTEXT);
	OK(cuMemGetInfo_v2(&left, &total));
	T_CHECK(left == 156 * MIB && total == 256 * MIB, "%zu of %zu", left, total);
	OK(cuDevicePrimaryCtxRetain(&second, 0));
	OK(cuDevicePrimaryCtxRetain(&second, 0));
	PM_BOTH(2 * CONTEXT);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	PM_BOTH(CONTEXT);
	/* A program gets as much as it is told that it can get. */
	OK(cuMemGetInfo_v2(&left, &total));
	OK(cuMemAlloc_v2(&p, left));
	PM_BOTH(256 * MIB);
	OK(cuMemGetInfo_v2(&got, &total));
	T_CHECK(got == 0, "%zu left", got);
	GIVES(cuMemAlloc_v2(&p, 512), CUDA_ERROR_OUT_OF_MEMORY);
	/* A context that does not fit is made nevertheless, because its size was unknown; it is not counted. */
	OK(cuCtxCreate_v2(&third, 0, 0));
	OK(cuCtxDestroy_v2(third));
	OK(cuCtxDestroy_v2(first));
	PM_BOTH(0);
}

/* A program that is no client: it has a context of 100 MiB, and 50 MiB more. */
static int stranger(void *argument)
{
	CUdeviceptr p;

	setenv("GPUARB_DISABLE", "1", 1);
	pm_context();
	OK(cuMemAlloc_v2(&p, 50 * MIB));
	__atomic_store_n((int *)argument, 1, __ATOMIC_RELEASE);
	pause();
	return 0;
}

/* A context of 100 MiB is made beside a program that is no client: not all that is in use belongs to the context. */
static void find_beside_a_stranger(uint64_t counts)
{
	int *there = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = t_spawn(stranger, there, 60);

	while (!__atomic_load_n(there, __ATOMIC_ACQUIRE))
		t_sleep_us(1000);
	pm_context();
	T_CHECK(pm_counted(0) == counts && pm_truth(0) == CONTEXT, "counted %lld MiB",
		(long long)(pm_counted(0) / MIB));
	kill(pid, SIGKILL);
	t_wait(pid);
}

void pm_found_by_nvml(void)
{
	find_beside_a_stranger(CONTEXT);
}

/* If NVML does not say it, says something incredible, or does not answer, all that has come into use counts as the
 * context. */
void pm_found_without_nvml(void)
{
	find_beside_a_stranger(2 * CONTEXT + 50 * MIB);
}

static void *retain_and_release(void *argument)
{
	CUcontext context;

	for (int i = 0; i < 300; i++) {
		if (cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS)
			OK(cuDevicePrimaryCtxRelease_v2(0));
		if (i % 3 == 0 && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS)
			OK(cuCtxDestroy_v2(context));
	}
	return argument;
}

/* A context that is made and destroyed at once is counted once, and not for ever. */
void pm_overhead_race(void)
{
	pthread_t thread[4];

	OK(cuInit(0));
	for (int i = 0; i < 4; i++)
		T_CHECK(!pthread_create(&thread[i], NULL, retain_and_release, NULL), "no thread");
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	PM_BOTH(0);
}

struct nvml_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

static void nvml_of(unsigned long long total, unsigned long long left)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *handle;
	int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
	int (*device)(unsigned, void **) =
		(int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	int (*first)(void *, void *) = (int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo");
	int (*second)(void *, void *) = (int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
	struct nvml_v2 m = {.version = (unsigned)sizeof(m) | 2u << 24};

	T_CHECK(!init() && !device(0, &handle), "no NVML");
	T_CHECK(!second(handle, &m), "NVML says no");
	T_CHECK(m.total == total && m.free == left && m.used == total - left && !m.reserved,
		"%llu: %llu free, %llu used, %llu reserved", m.total, m.free, m.used, m.reserved);
	T_CHECK(first(handle, NULL) && second(handle, NULL) && first(NULL, &m) && second(NULL, &m),
		"something was said of nothing");
}

/* Nothing that is refused for its arguments stays counted. */
void pm_nothing(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUDA_ARRAY3D_DESCRIPTOR deep = {
		.Width = 256, .Height = 256, .Depth = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2};
	CUDA_ARRAY_DESCRIPTOR flat = {
		.Width = 1000, .Height = 2048, .Format = CU_AD_FORMAT_HALF, .NumChannels = 4};
	CUmemGenericAllocationHandle h;
	CUstream stream;
	CUgraph graph;
	CUgraphNode node;
	CUdeviceptr p;
	size_t n = 1;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuGraphCreate(&graph, 0));
	nvml_of(256 * MIB, 256 * MIB);
	OK(cuMemAlloc_v2(&p, 56 * MIB));
	nvml_of(256 * MIB, 200 * MIB);
	OK(cuMemFree_v2(p));
#define REFUSED(call) T_CHECK((call) != CUDA_SUCCESS, "taken")
	REFUSED(cuMemAlloc_v2(NULL, 10 * MIB));
	REFUSED(cuMemAllocPitch_v2(NULL, &n, 512, 512, 4));
	REFUSED(cuMemAllocPitch_v2(&p, NULL, 512, 512, 4));
	REFUSED(cuMemAllocManaged(NULL, 10 * MIB, CU_MEM_ATTACH_GLOBAL));
	REFUSED(cuMemAllocAsync(NULL, 10 * MIB, stream));
	REFUSED(cuMemAllocFromPoolAsync(NULL, 10 * MIB, NULL, stream));
	REFUSED(cuMemAllocFromPoolAsync(&p, 10 * MIB, NULL, stream));
	REFUSED(cuMemCreate(NULL, 10 * MIB, &prop, 0));
	REFUSED(cuMemCreate(&h, 10 * MIB, NULL, 0));
	REFUSED(cuMemRetainAllocationHandle(NULL, NULL));
	REFUSED(cuArrayCreate_v2(NULL, &flat));
	REFUSED(cuArray3DCreate_v2(NULL, &deep));
	REFUSED(cuArray3DCreate_v2((CUarray *)&p, NULL));
	REFUSED(cuMipmappedArrayCreate(NULL, &deep, 2));
	REFUSED(cuMipmappedArrayCreate((CUmipmappedArray *)&p, NULL, 2));
	REFUSED(cuMipmappedArrayDestroy(NULL));
	REFUSED(cuMemPoolCreate(NULL, NULL));
	REFUSED(cuMemPoolDestroy(NULL));
	REFUSED(cuDeviceGetDefaultMemPool(NULL, 0));
	REFUSED(cuGraphAddMemAllocNode(&node, graph, NULL, 0, NULL));
	REFUSED(cuGraphAddMemAllocNode(NULL, graph, NULL, 0, NULL));
	REFUSED(cuGraphLaunch(NULL, stream));
	REFUSED(cuMemGetInfo_v2(&n, NULL));
	REFUSED(cuMemGetInfo_v2(NULL, NULL));
	REFUSED(cuDeviceTotalMem_v2(NULL, 0));
	REFUSED(cuDeviceTotalMem_v2(&n, -1));
	REFUSED(cuMemFreeAsync(0, stream));
	OK(cuStreamSynchronize(stream));
	PM_BOTH(0);
}

/* What a program is told of the device's memory: never more than its account may have. */
#include "test/preload/preload_memory.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

struct nvml_memory {
	unsigned long long total, free, used;
};

static void nvml(uint64_t total, uint64_t left)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	int (*init)(void) = library ? (int (*)(void))dlsym(library, "nvmlInit_v2") : NULL;
	int (*device)(unsigned, void **) =
		library ? (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2") : NULL;
	int (*memory)(void *, struct nvml_memory *) =
		library ? (int (*)(void *, struct nvml_memory *))dlsym(library, "nvmlDeviceGetMemoryInfo")
			: NULL;
	struct nvml_memory m;
	void *handle;

	T_CHECK(init && device && memory, "no NVML");
	T_CHECK(!init() && !device(0, &handle) && !memory(handle, &m), "NVML says no");
	T_CHECK(m.total == total && m.free == left && m.used == total - left, "%llu %llu %llu", m.total,
		m.free, m.used);
}

static void shows(uint64_t total, uint64_t left)
{
	size_t t = 1, f = 1, d = 1;

	OK(cuMemGetInfo_v2(&f, &t));
	OK(cuDeviceTotalMem_v2(&d, 0));
	T_CHECK(t == total && d == total && f == left, "total %zu and %zu, free %zu", t, d, f);
	nvml(total, left);
}

static int neighbour(void *argument)
{
	int *pipes = argument;
	CUdeviceptr p;
	char c;

	T_CHECK(read(pipes[2], &c, 1) == 1, "nobody there");
	pm_context();
	OK(cuMemAlloc_v2(&p, 100 * MIB));
	return write(pipes[1], "x", 1) != 1 || read(pipes[2], &c, 1) != 1;
}

void pm_queries(void)
{
	int pipes[4];
	CUdeviceptr a, b;
	size_t total = 1;
	pid_t other;

	/* The neighbour is forked first, because a driver does not work after a fork. */
	T_CHECK(!pipe(pipes) && !pipe(pipes + 2), "no pipes");
	other = t_spawn(neighbour, pipes, 30);
	/* NVML is asked before there is a context, or a driver that answers. */
	nvml(256 * MIB, 256 * MIB);
	OK(cuInit(0));
	OK(cuDeviceTotalMem_v2(&total, 0));
	T_CHECK(total == 256 * MIB, "%zu", total);
	total = 1;
	pm_context();
	shows(256 * MIB, 256 * MIB);
	OK(cuMemAlloc_v2(&a, 56 * MIB));
	shows(256 * MIB, 200 * MIB);
	/* Another process of the account takes memory. */
	T_CHECK(write(pipes[3], "x", 1) == 1, "no pipe");
	T_CHECK(read(pipes[0], &(char){0}, 1) == 1, "the neighbour failed");
	shows(256 * MIB, 100 * MIB);
	GIVES(cuMemAlloc_v2(&b, 100 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
	/* The quota is lowered below what is used: nothing is taken away, nothing more is given. */
	pm_quota("60Mi");
	shows(60 * MIB, 0);
	GIVES(cuMemAlloc_v2(&b, 1), CUDA_ERROR_OUT_OF_MEMORY);
	T_CHECK(pm_counted(0) == 156 * MIB && pm_truth(0) == 56 * MIB, "%lld", (long long)pm_counted(0));
	T_CHECK(write(pipes[3], "x", 1) == 1 && t_wait(other) == 0, "the neighbour failed");
	/* The simulated GPU looks for dead processes every 2 ms. */
	t_sleep_us(5000);
	shows(60 * MIB, 4 * MIB);
	OK(cuMemFree_v2(a));
	shows(60 * MIB, 60 * MIB);
	GIVES(cuMemGetInfo_v2(NULL, &total), CUDA_ERROR_INVALID_VALUE);
	T_CHECK(total == 1, "written to although refused");
	/* No quota, and a quota of more than there is. */
	pm_quota("0");
	shows(16384 * MIB, 16384 * MIB);
	pm_ratio("100");
	pm_quota("1Ti");
	OK(cuMemAlloc_v2(&a, 384 * MIB));
	shows(16384 * MIB, 16000 * MIB);
	OK(cuMemFree_v2(a));
}

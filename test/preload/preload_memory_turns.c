/* More memory than the GPU has: plain allocations become managed, and programs that do not fit together take turns.
 */
#include "test/preload/preload_memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb/control.h"

#include "test/sim/device/model.h"

#define TURN_NS   200000000ull
#define MINE      (768 * MIB)
#define LAUNCHES  300
#define KERNEL_NS 1000000ull

static void set(const char *key, const char *value)
{
	struct gpuarb_change change = {NULL, key, value};
	struct gpuarb_error err = {0};

	T_CHECK(!gpuarb_control_change(NULL, pm_uuid(0), &change, 1, &err), "%s", err.text);
}

static unsigned managed(CUdeviceptr p)
{
	unsigned yes = 7;

	OK(cuPointerGetAttribute(&yes, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	return yes;
}

/* A GPU of 1 GiB on which no memory is set aside. */
void pm_oversubscribe(void)
{
	CUdeviceptr a, b, c;
	size_t pitch = 0, left, total;
	CUcontext other;

	OK(cuMemAlloc_v2(&a, 100 * MIB));
	T_CHECK(!managed(a), "managed, though nobody said so");
	OK(cuMemFree_v2(a));
	set("oversubscribe", "on");
	OK(cuMemAlloc_v2(&a, 700 * MIB));
	OK(cuMemAllocPitch_v2(&b, &pitch, 1000, 2048, 4));
	T_CHECK(managed(a) && managed(b), "not managed");
	T_CHECK(pitch == 1024, "%zu", pitch);
	T_CHECK(pm_counted(0) == 702 * MIB, "%lld", (long long)pm_counted(0));
	/* A program that is alone may not exceed the GPU, and is told how much that is. */
	OK(cuMemGetInfo_v2(&left, &total));
	T_CHECK(left == 322 * MIB && total == 1024 * MIB, "%zu of %zu", left, total);
	GIVES(cuMemAlloc_v2(&c, 324 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	set("single_oversub", "on");
	OK(cuMemAlloc_v2(&c, 3000 * MIB));
	OK(cuMemGetInfo_v2(&left, &total));
	T_CHECK(left == 0 && total == 1024 * MIB, "%zu of %zu", left, total);
	OK(cuMemFree_v2(c));
	OK(cuMemFree_v2(b));
	/* A quota may be larger than the GPU if that much may be promised. */
	pm_ratio("2");
	pm_quota("2Gi");
	OK(cuMemAlloc_v2(&b, 1300 * MIB));
	GIVES(cuMemAlloc_v2(&c, 50 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemGetInfo_v2(&left, &total));
	T_CHECK(left == 48 * MIB && total == 2048 * MIB, "%zu of %zu", left, total);
	OK(cuMemFree_v2(a));
	OK(cuMemFree_v2(b));
	PM_BOTH(0);
	/* What the end of its context frees is given back too. */
	OK(cuMemAlloc_v2(&a, 500 * MIB));
	other = pm_context();
	OK(cuMemAlloc_v2(&b, 600 * MIB));
	T_CHECK(pm_counted(0) == 1100 * MIB, "%lld", (long long)pm_counted(0));
	OK(cuCtxDestroy_v2(other));
	T_CHECK(pm_counted(0) == 500 * MIB, "%lld", (long long)pm_counted(0));
	OK(cuMemFree_v2(a));
	PM_BOTH(0);
}

static int worker(void *argument)
{
	uint64_t ns = KERNEL_NS;
	void *params[] = {&ns};
	CUdeviceptr p;
	CUmodule module;
	CUfunction spin;
	CUstream stream;

	(void)argument;
	pm_context();
	if (getenv("PM_IN_STREAM"))
		OK(cuMemAllocAsync(&p, MINE, NULL));
	else
		OK(cuMemAlloc_v2(&p, MINE));
	OK(cuModuleLoadData(
		&module, ".version 7.0\n.target sm_50\n.visible .entry spin_ns(.param .u64 ns) {}\n"));
	OK(cuModuleGetFunction(&spin, module, "spin_ns"));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < LAUNCHES; i++) {
		OK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
		if (i % 3 == 0)
			OK(cuStreamSynchronize(stream));
	}
	OK(cuStreamSynchronize(stream));
	return 0;
}

/* Two programs that do not fit together: each turn moves in what is missing, once. However slow the machine is, there
 * are not more turns than the time has room for. */
void pm_turns(void)
{
	struct sim_device_state state;
	uint64_t began = t_now_ns(), turns, page_ns = MINE * 1000000000ull / 100000000000ull;
	pid_t pids[3];

	/* Only the children have the preload and its segment. */
	for (int i = 0; i < 3; i++)
		pids[i] = t_spawn(worker, NULL, 50);
	for (int i = 0; i < 3; i++)
		T_CHECK(t_wait(pids[i]) == 0, "a worker failed");
	turns = (t_now_ns() - began) / TURN_NS + 6;
	T_CHECK(!sim_open() && !sim_device_state(0, &state), "no simulation");
	T_CHECK(state.launches == 3 * LAUNCHES, "%lld launches", (long long)state.launches);
	T_CHECK(state.paging_ns + state.copy_ns[0] <= turns * page_ns * 11 / 10,
		"paged for %lld us in %lld turns of %lld us", (long long)state.paging_ns / 1000,
		(long long)turns, (long long)page_ns / 1000);
	T_CHECK(state.paging_ns + state.copy_ns[0] >= 3 * page_ns, "nothing was paged in");
}

/* Every kind of device memory, counted by the preload against a quota and compared with the books of the simulated
 * GPU. It runs with the preload loaded; each case is a process of its own. */
#include "test/preload/preload_memory.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb/control.h"

#include "test/sim/device/model.h"

static struct t_dir sim;
static const char *context_mb = "0";

void pm_begin(struct t_dir *dir, const char *quota)
{
	t_dir_make(&sim, NULL);
	t_dir_make(dir, NULL);
	setenv("GPUSIM_DIR", sim.path, 1);
	setenv("GPUSIM_COST", "0", 1);
	setenv("GPUSIM_CTX_MB", context_mb, 1);
	setenv("GPUSIM_DEVICES", "2", 1);
	setenv("GPUARB_DIR", dir->path, 1);
	setenv("GPUARB_CONF", dir->conf, 1);
	setenv("GPUARB_ACCOUNT", PM_ACCOUNT, 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	if (quota)
		setenv("GPUARB_MEM_LIMIT", quota, 1);
	else
		unsetenv("GPUARB_MEM_LIMIT");
}

void pm_end(struct t_dir *dir)
{
	t_dir_remove(dir);
	t_dir_remove(&sim);
}

const char *pm_uuid(int device)
{
	static struct sim_device_info info[2];

	if (!*info[device].uuid)
		T_CHECK(!sim_open() && !sim_device_info(device, &info[device]), "no simulation");
	return info[device].uuid;
}

static void set(const char *account, const char *key, const char *value)
{
	struct gpuarb_change change = {account, key, value};
	struct gpuarb_error err = {0};

	T_CHECK(!gpuarb_control_change(NULL, pm_uuid(0), &change, 1, &err), "%s", err.text);
}

void pm_quota(const char *text)
{
	set(PM_ACCOUNT, "mem", text);
}

void pm_ratio(const char *text)
{
	set(NULL, "oversub_ratio", text);
}

CUcontext pm_context(void)
{
	CUcontext context;
	CUdevice device;

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate_v2(&context, 0, device));
	return context;
}

uint64_t pm_counted(int device)
{
	static struct gpuarb_picture picture;
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;
	uint64_t used = 0;

	T_CHECK(!gpuarb_view_open(NULL, pm_uuid(device), &view, &err), "%s", err.text);
	T_CHECK(!gpuarb_view_read(view, &picture), "no picture");
	for (unsigned i = 0; i < picture.naccounts; i++)
		if (!strcmp(picture.accounts[i].name, PM_ACCOUNT))
			used = picture.accounts[i].mem_used;
	gpuarb_view_close(view);
	return used;
}

uint64_t pm_truth(int device)
{
	static struct sim_process_state all[SIM_MAX_PROCS];
	int n = sim_open() ? -1 : sim_processes(device, false, all, SIM_MAX_PROCS);

	T_CHECK(n >= 0, "no simulation");
	for (int i = 0; i < n; i++)
		if (all[i].pid == getpid())
			return all[i].memory_bytes;
	return 0;
}

static void plain(void)
{
	CUdeviceptr a, b, c;
	CUarray array;
	size_t pitch;

	OK(cuMemAlloc_v2(&a, 64 * MIB));
	OK(cuMemAlloc_v2(&b, 1));
	PM_BOTH(64 * MIB + 512);
	/* What the device gives is counted, not what was asked for. */
	OK(cuMemAlloc_v2(&c, 3 * MIB));
	PM_BOTH(68 * MIB + 512);
	OK(cuMemFree_v2(c));
	/* Rows of 1000 bytes take 1024. */
	OK(cuMemAllocPitch_v2(&c, &pitch, 1000, 4096, 4));
	PM_BOTH(68 * MIB + 512);
	OK(cuMemFree_v2(a));
	OK(cuMemFree_v2(c));
	PM_BOTH(512);
	GIVES(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemFree_v2(b + 4096 * MIB), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(0));
	OK(cuMemFree_v2(b));
	PM_BOTH(0);
	/* Takes the last byte of the quota, and then one byte more. */
	OK(cuMemAlloc_v2(&a, 254 * MIB));
	GIVES(cuMemAlloc_v2(&b, 2 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
	GIVES(cuMemAllocPitch_v2(&b, &pitch, 1025, 2048, 4), CUDA_ERROR_OUT_OF_MEMORY);
	GIVES(cuMemAllocManaged(&b, 2 * MIB + 1, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
	GIVES(cuMemAlloc_v2(&b, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	GIVES(cuArrayCreate_v2(&array,
		      &(CUDA_ARRAY_DESCRIPTOR){
			      .Width = 4096, .Height = 129, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1}),
		CUDA_ERROR_OUT_OF_MEMORY);
	PM_BOTH(254 * MIB);
	OK(cuMemAlloc_v2(&b, 2 * MIB));
	PM_BOTH(256 * MIB);
	GIVES(cuMemAlloc_v2(&c, 1), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree_v2(a));
	OK(cuMemFree_v2(b));
	/* If the driver refuses, the quota is given back, and the program gets the driver's error. */
	GIVES(cuMemAlloc_v2(NULL, MIB), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemAlloc_v2(&a, 0), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemAllocPitch_v2(&a, &pitch, 512, 512, 5), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemAllocManaged(&a, MIB, 77), CUDA_ERROR_INVALID_VALUE);
	PM_BOTH(0);
	/* Managed memory is on the device only when it is used, but counts against the quota from the start. */
	OK(cuMemAllocManaged(&a, 10 * MIB, CU_MEM_ATTACH_GLOBAL));
	T_CHECK(pm_counted(0) == 10 * MIB, "%lld", (long long)pm_counted(0));
	OK(cuMemFree_v2(a));
	PM_BOTH(0);
}

static void arrays(void)
{
	CUDA_ARRAY_DESCRIPTOR flat = {
		.Width = 1000, .Height = 2048, .Format = CU_AD_FORMAT_HALF, .NumChannels = 4};
	CUDA_ARRAY3D_DESCRIPTOR deep = {
		.Width = 256, .Height = 256, .Depth = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2};
	CUDA_ARRAY3D_DESCRIPTOR level = {
		.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUmipmappedArray mipmap;
	CUarray a, b;

	OK(cuArrayCreate_v2(&a, &flat));
	PM_BOTH(16 * MIB);
	OK(cuArray3DCreate_v2(&b, &deep));
	PM_BOTH(24 * MIB);
	OK(cuArrayDestroy(a));
	OK(cuArrayDestroy(b));
	PM_BOTH(0);
	OK(cuMipmappedArrayCreate(&mipmap, &level, 4));
	PM_BOTH(6 * MIB);
	OK(cuMipmappedArrayDestroy(mipmap));
	GIVES(cuArrayCreate_v2(&a, NULL), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuArrayDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
	PM_BOTH(0);
}

static void pools(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	cuuint64_t keep = UINT64_MAX;
	CUdeviceptr a, b, c;
	CUmemoryPool pool;
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocAsync(&a, 100, stream));
	PM_BOTH(2 * MIB);
	OK(cuMemAllocAsync(&b, 31 * MIB, stream));
	PM_BOTH(32 * MIB);
	OK(cuMemFreeAsync(a, stream));
	OK(cuMemFreeAsync(b, stream));
	OK(cuStreamSynchronize(stream));
	PM_BOTH(0);
	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuMemAllocFromPoolAsync(&a, 100 * MIB, pool, stream));
	OK(cuMemAllocFromPoolAsync(&b, 100 * MIB, pool, stream));
	PM_BOTH(200 * MIB);
	GIVES(cuMemAllocFromPoolAsync(&c, 57 * MIB, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
	PM_BOTH(200 * MIB);
	OK(cuMemFreeAsync(a, stream));
	OK(cuStreamSynchronize(stream));
	/* The pool keeps what it has, so that counts. Where it is in the way it is given back. */
	PM_BOTH(200 * MIB);
	OK(cuMemAlloc_v2(&a, 150 * MIB));
	PM_BOTH(250 * MIB);
	OK(cuMemFree_v2(a));
	/* It waits for a free that is still queued. */
	OK(cuMemFreeAsync(b, stream));
	OK(cuMemAllocFromPoolAsync(&b, 200 * MIB, pool, stream));
	PM_BOTH(200 * MIB);
	OK(cuMemFree_v2(b));
	OK(cuMemPoolTrimTo(pool, 0));
	PM_BOTH(0);
	OK(cuMemAllocFromPoolAsync(&a, 10 * MIB, pool, stream));
	OK(cuMemPoolDestroy(pool));
	PM_BOTH(10 * MIB);
	OK(cuMemFree_v2(a));
	OK(cuStreamSynchronize(stream));
	PM_BOTH(0);
	GIVES(cuMemFreeAsync(a, stream), CUDA_ERROR_INVALID_VALUE);
	/* A destroyed pool keeps only what is in use. */
	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuMemAllocFromPoolAsync(&a, 100 * MIB, pool, stream));
	OK(cuMemAllocFromPoolAsync(&b, 10 * MIB, pool, stream));
	OK(cuMemAllocFromPoolAsync(&c, 20 * MIB, pool, stream));
	OK(cuMemFreeAsync(a, stream));
	OK(cuStreamSynchronize(stream));
	PM_BOTH(130 * MIB);
	OK(cuMemPoolDestroy(pool));
	PM_BOTH(30 * MIB);
	OK(cuMemFree_v2(c));
	OK(cuStreamSynchronize(stream));
	PM_BOTH(10 * MIB);
	OK(cuMemFree_v2(b));
	OK(cuStreamSynchronize(stream));
	PM_BOTH(0);
}

static void physical(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUmemGenericAllocationHandle h, again, other;
	CUdeviceptr at;

	OK(cuMemCreate(&h, 20 * MIB, &prop, 0));
	PM_BOTH(20 * MIB);
	OK(cuMemAddressReserve(&at, 80 * MIB, 0, 0, 0));
	OK(cuMemMap(at, 20 * MIB, 0, h, 0));
	OK(cuMemMap(at + 40 * MIB, 10 * MIB, 0, h, 0));
	OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + 4 * MIB)));
	OK(cuMemRelease(h));
	OK(cuMemUnmap(at, 20 * MIB));
	OK(cuMemRelease(again));
	PM_BOTH(20 * MIB);
	GIVES(cuMemRelease(12345), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemUnmap(at, 20 * MIB), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemCreate(&other, 236 * MIB, &prop, 0));
	GIVES(cuMemCreate(&h, 2 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	PM_BOTH(256 * MIB);
	OK(cuMemMap(at, 20 * MIB, 0, other, 0));
	OK(cuMemRelease(other));
	/* Unmaps both mappings, and the hole between them. */
	OK(cuMemUnmap(at, 80 * MIB));
	PM_BOTH(0);
	GIVES(cuMemCreate(&h, 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemCreate(&h, 2 * MIB, NULL, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAddressFree(at, 80 * MIB));
	PM_BOTH(0);
}

static void contexts(void)
{
	CUdeviceptr a, b;
	CUcontext first, second;
	CUdevice device;
	CUarray array;

	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate_v2(&first, 0, device));
	OK(cuMemAlloc_v2(&a, 10 * MIB));
	OK(cuCtxCreate_v2(&second, 0, device));
	OK(cuMemAlloc_v2(&b, 20 * MIB));
	OK(cuArrayCreate_v2(&array,
		&(CUDA_ARRAY_DESCRIPTOR){
			.Width = 512, .Height = 4096, .Format = CU_AD_FORMAT_HALF, .NumChannels = 1}));
	PM_BOTH(34 * MIB);
	/* Frees it in the other context. */
	OK(cuMemFree_v2(a));
	PM_BOTH(24 * MIB);
	OK(cuCtxDestroy_v2(second));
	PM_BOTH(0);
	OK(cuCtxDestroy_v2(first));
	OK(cuDevicePrimaryCtxRetain(&first, device));
	OK(cuDevicePrimaryCtxRetain(&first, device));
	OK(cuCtxSetCurrent(first));
	OK(cuMemAlloc_v2(&a, 10 * MIB));
	OK(cuDevicePrimaryCtxRelease_v2(device));
	PM_BOTH(10 * MIB);
	OK(cuDevicePrimaryCtxRelease_v2(device));
	PM_BOTH(0);
	OK(cuDevicePrimaryCtxRetain(&first, device));
	OK(cuCtxSetCurrent(first));
	OK(cuMemAlloc_v2(&a, 10 * MIB));
	OK(cuDevicePrimaryCtxReset_v2(device));
	PM_BOTH(0);
	OK(cuCtxSetCurrent(NULL));
	GIVES(cuMemAlloc_v2(&a, MIB), CUDA_ERROR_INVALID_CONTEXT);
}

static int one(void *argument)
{
	static void (*const without[])(void) = {pm_queries, pm_others, pm_devices, pm_under_way,
		pm_under_way_elsewhere, pm_overhead, pm_found, pm_overhead_race, pm_promises, pm_turns,
		pm_says, pm_says_ways, pm_says_driver, pm_says_context, pm_frozen, pm_frozen_killed,
		pm_frozen_stopped, pm_found_by_nvml, pm_found_without_nvml};
	bool with = true;

	for (unsigned i = 0; i < sizeof(without) / sizeof(without[0]); i++)
		with &= argument != (void *)without[i];
	if (with)
		pm_context();
	((void (*)(void))argument)();
	return 0;
}

static void run(const char *name, void (*fn)(void), const char *quota)
{
	struct t_dir dir;
	int r;

	pm_begin(&dir, quota);
	r = t_run(one, (void *)fn, 180); /* in emulation 13 s, on an idle machine */
	pm_end(&dir);
	T_CHECK(r == 0, "%s failed (%d)", name, r);
	printf("memory: %s\n", name);
}

/* A GPU of 1 GiB on which no memory is set aside, with turns of 200 ms. */
static void more_than_there_is(void)
{
	setenv("GPUARB_CONTEXT_MB", "0", 1);
	context_mb = "0";
	setenv("GPUSIM_MEMORY_MB", "1024", 1);
	setenv("GPUSIM_PAGE_GBPS", "100", 1);
	setenv("GPUSIM_PCIE_GBPS", "100", 1);
	setenv("GPUARB_RESERVE_FIXED_MB", "0", 1);
	setenv("GPUARB_RESERVE_PER_CLIENT_MB", "0", 1);
	run("quotas of programs that were just started", pm_promises, "600Mi");
	run("more than there is", pm_oversubscribe, NULL);
	setenv("GPUARB_OVERSUBSCRIBE", "on", 1);
	run("more than there is, in streams", pm_ordered, "256Mi");
	run("streams and contexts that end before what was freed in them", pm_ordered_ends, "256Mi");
	run("streams that wait for the program, with more than there is", pm_waits_managed, "256Mi");
	setenv("GPUARB_SWITCH_TIME", "fixed", 1);
	setenv("GPUARB_SWITCH_FIXED_MS", "200", 1);
	run("turns", pm_turns, NULL);
	setenv("GPUARB_PREFETCH", "on", 1);
	run("turns, fetched back at once", pm_turns, NULL);
	setenv("PM_IN_STREAM", "1", 1);
	run("turns with memory of streams", pm_turns, NULL);
}

/* What is logged when memory is refused. The environment is the same afterwards. */
static void says(void)
{
	unsetenv("GPUARB_LOG");
	run("what is refused is said", pm_says, "256Mi");
	run("what others wrote over is said", pm_says_restored, "256Mi");
	run("what is refused is said, whichever way it is asked for", pm_says_ways, "256Mi");
	setenv("GPUARB_CONTEXT_MB", "300", 1);
	run("a context that is refused is said", pm_says_context, "256Mi");
	unsetenv("GPUARB_CONTEXT_MB");
	setenv("GPUSIM_MEMORY_MB", "1024", 1);
	setenv("GPUARB_RESERVE_FIXED_MB", "0", 1);
	setenv("GPUARB_RESERVE_PER_CLIENT_MB", "0", 1);
	setenv("GPUARB_OVERSUB_RATIO", "4", 1);
	run("what the driver refuses is said", pm_says_driver, "4Gi");
	unsetenv("GPUARB_OVERSUB_RATIO");
	run("what nobody need know is not said", pm_says_nothing, NULL);
	setenv("GPUARB_OVERSUBSCRIBE", "on", 1);
	run("what one process may not have alone is said", pm_says_single, NULL);
	unsetenv("GPUARB_OVERSUBSCRIBE");
	unsetenv("GPUARB_RESERVE_FIXED_MB");
	unsetenv("GPUARB_RESERVE_PER_CLIENT_MB");
	unsetenv("GPUSIM_MEMORY_MB");
}

/* Runs with the library of preload_nvml_odd.c instead of NVML. */
static void odd_nvml(void)
{
	static const char *const odd[] = {
		"hangs", "fails", "strange", "crowded", "elsewhere", "unavailable", "huge"};

	unsetenv("GPUARB_CONTEXT_MB");
	context_mb = "100";
	run("contexts by NVML", pm_found_by_nvml, "600Mi");
	for (unsigned i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		setenv("ODD_NVML", odd[i], 1);
		run(odd[i], pm_found_without_nvml, "600Mi");
	}
}

/* With an argument, one part only: race, race-managed, says or nvml. */
int main(int argc, char **argv)
{
	if (argc > 1) {
		if (!strcmp(argv[1], "race"))
			pm_race();
		else if (!strcmp(argv[1], "says"))
			says();
		else if (!strcmp(argv[1], "nvml"))
			odd_nvml();
		else
			pm_race_managed();
		return 0;
	}
	run("plain, pitched and managed", plain, "256Mi");
	run("arrays and mipmaps", arrays, "256Mi");
	run("pools", pools, "256Mi");
	run("physical memory by reference", physical, "256Mi");
	run("graphs", pm_graphs, "256Mi");
	run("graphs that run at once", pm_graphs_at_once, "256Mi");
	run("what graphs leave behind", pm_graphs_rest, "256Mi");
	run("graphs of many threads", pm_graphs_threads, "256Mi");
	run("contexts that end", contexts, "256Mi");
	run("queries", pm_queries, "256Mi");
	run("memory of others", pm_others, "256Mi");
	run("two GPUs", pm_devices, "256Mi");
	run("processes that are frozen", pm_frozen, "256Mi");
	run("processes that are killed while they are frozen", pm_frozen_killed, "256Mi");
	run("processes that are stopped, frozen or not", pm_frozen_stopped, "256Mi");
	run("captures", pm_capture, "256Mi");
	run("streams that wait for the program", pm_waits, "256Mi");
	run("calls under way", pm_under_way, "256Mi");
	run("calls under way in another process", pm_under_way_elsewhere, "256Mi");
	run("arguments that are not there", pm_nothing, "256Mi");
	says();
	pm_race();
	pm_race_managed();
	unsetenv("GPUARB_CONTEXT_MB");
	context_mb = "100";
	run("what contexts are found to take", pm_found, "256Mi");
	run("what contexts are found to take beside a stranger", pm_found_by_nvml, "600Mi");
	setenv("GPUARB_CONTEXT_MB", "100", 1);
	run("what contexts count", pm_overhead, "256Mi");
	run("contexts that come and go", pm_overhead_race, "256Mi");
	more_than_there_is();
	return 0;
}

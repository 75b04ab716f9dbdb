/* Memory: every kind of allocation is counted, copies move bytes, missing pages cost time by their size. */
#include "test/sim/test/simtest.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "units.h"

TestSuite(memory, .fini = sim_remove);

static uint64_t used(void)
{
	size_t free_bytes, total;

	OK(cuMemGetInfo_v2(&free_bytes, &total));
	return total - free_bytes;
}

Test(memory, every_kind_of_allocation_is_counted_and_given_back)
{
	CUDA_ARRAY3D_DESCRIPTOR volume = {
		.Width = 256, .Height = 256, .Depth = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	CUmipmappedArray mip;
	CUdeviceptr p, q;
	CUarray array;
	size_t pitch;
	uint64_t base;
	void *host;

	sim_fresh("GPUSIM_MEMORY_MB", "1024", "GPUSIM_CTX_MB", "100", NULL);
	sim_device();
	base = used();
	cr_assert_eq(base, 100 * MIB);

	OK(cuMemAlloc_v2(&p, 10 * MIB));
	cr_assert_eq(used() - base, 10 * MIB);
	OK(cuMemAllocPitch_v2(&q, &pitch, 1000, 2048, 4));
	cr_assert_eq(pitch, 1024);
	cr_assert_eq(used() - base, 12 * MIB);
	OK(cuMemFree_v2(p));
	OK(cuMemFree_v2(q));
	cr_assert_eq(used(), base);

	OK(cuArray3DCreate_v2(&array, &volume));
	cr_assert_eq(used() - base, 4 * MIB);
	OK(cuArrayDestroy(array));
	OK(cuMipmappedArrayCreate(&mip, &volume, 3));
	cr_assert_geq(used() - base, 4 * MIB);
	OK(cuMipmappedArrayDestroy(mip));
	cr_assert_eq(used(), base);

	OK(cuMemCreate(&handle, 6 * MIB, &prop, 0));
	cr_assert_eq(used() - base, 6 * MIB);
	OK(cuMemRelease(handle));
	cr_assert_eq(used(), base);

	OK(cuMemHostAlloc(&host, 10 * MIB, 0));
	cr_assert_eq(used(), base, "host memory is not the device's");
	OK(cuMemFreeHost(host));

	GIVES(cuMemAlloc_v2(&p, 925 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAlloc_v2(&p, 924 * MIB));
	GIVES(cuMemAlloc_v2(&q, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	cr_assert_eq(sim_truth_of(getpid()).memory_peak_bytes, 1024 * MIB);
	OK(cuMemFree_v2(p));
	cr_assert_eq(sim_truth_of(getpid()).memory_bytes, base);
}

static void hold(void *arg)
{
	volatile int *state = arg;
	CUdeviceptr p;

	sim_device();
	OK(cuMemAlloc_v2(&p, 300 * MIB));
	*state = 1;
	while (*state == 1)
		usleep(1000);
}

Test(memory, all_processes_see_the_same_free_memory)
{
	volatile int *state = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr p;
	pid_t pid;

	sim_fresh("GPUSIM_MEMORY_MB", "1024", "GPUSIM_CTX_MB", "100", NULL);
	pid = sim_child(hold, (void *)(uintptr_t)state);
	while (!*state)
		usleep(1000);
	sim_device();
	cr_assert_eq(used(), 500 * MIB);
	GIVES(cuMemAlloc_v2(&p, 600 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	*state = 2;
	cr_assert_eq(sim_join(pid), 0);
	OK(cuMemAlloc_v2(&p, 600 * MIB));
	cr_assert_eq(used(), 700 * MIB);
}

Test(memory, a_pool_keeps_what_its_threshold_allows)
{
	CUmemoryPool pool;
	CUdeviceptr p, q;
	cuuint64_t v, keep = 64 * MIB;
	uint64_t base;
	CUstream s;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	base = used();
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemAllocAsync(&p, 32 * MIB, s));
	cr_assert_eq(used() - base, 32 * MIB);
	OK(cuMemFreeAsync(p, s));
	/* The stream that freed the memory may use it again at once. */
	OK(cuMemAllocAsync(&q, 32 * MIB, s));
	cr_assert_eq(p, q);
	cr_assert_eq(used() - base, 32 * MIB);
	OK(cuMemFreeAsync(q, s));
	OK(cuStreamSynchronize(s));
	cr_assert_eq(used(), base, "the default threshold is zero");

	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuMemAllocAsync(&p, 32 * MIB, s));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &v));
	cr_assert_eq(v, 32 * MIB);
	OK(cuMemFreeAsync(p, s));
	OK(cuStreamSynchronize(s));
	cr_assert_eq(used() - base, 32 * MIB);
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &v));
	cr_assert_eq(v, 32 * MIB);
	OK(cuMemPoolTrimTo(pool, 0));
	cr_assert_eq(used(), base);
}

Test(memory, two_mappings_of_one_handle_are_the_same_bytes)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;
	uint64_t base;
	uint32_t v = 0;

	sim_fresh(NULL);
	sim_device();
	base = used();
	OK(cuMemAddressReserve(&p, 8 * MIB, 0, 0, 0));
	OK(cuMemCreate(&handle, 4 * MIB, &prop, 0));
	OK(cuMemMap(p, 4 * MIB, 0, handle, 0));
	OK(cuMemMap(p + 4 * MIB, 4 * MIB, 0, handle, 0));
	OK(cuMemSetAccess(p, 8 * MIB, &access, 1));
	OK(cuMemsetD32_v2(p + 1024, 0xabcd, 1));
	OK(cuMemcpyDtoH_v2(&v, p + 4 * MIB + 1024, 4));
	cr_assert_eq(v, 0xabcd);
	OK(cuMemRelease(handle));
	cr_assert_eq(used() - base, 4 * MIB, "mappings keep the memory");
	OK(cuMemUnmap(p, 8 * MIB));
	cr_assert_eq(used(), base);
	OK(cuMemAddressFree(p, 8 * MIB));
}

Test(memory, computing_kernels_compute)
{
	enum { N = 10000 };
	CUdeviceptr x, y, sum;
	float one = 1.5f, two = 2, a = 3, got, *host = malloc(N * sizeof(float));
	unsigned n = N;
	void *fill_x[] = {&x, &one, &n}, *fill_y[] = {&y, &two, &n}, *reduce[] = {&y, &sum, &n};
	struct {
		float a;
		CUdeviceptr x, y;
		unsigned n;
	} packed;
	size_t bytes = sizeof(packed);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
		CU_LAUNCH_PARAM_END};

	sim_fresh(NULL);
	sim_device();
	OK(cuMemAlloc_v2(&x, N * 4));
	OK(cuMemAlloc_v2(&y, N * 4));
	OK(cuMemAlloc_v2(&sum, 4));
	OK(cuLaunchKernel(sim_kernel("fill"), 10, 1, 1, 100, 1, 1, 0, NULL, fill_x, NULL));
	OK(cuLaunchKernel(sim_kernel("fill"), 10, 1, 1, 100, 1, 1, 0, NULL, fill_y, NULL));
	packed.a = a;
	packed.x = x;
	packed.y = y;
	packed.n = n;
	OK(cuLaunchKernel(sim_kernel("saxpy"), 10, 1, 1, 100, 1, 1, 0, NULL, NULL, extra));
	OK(cuLaunchKernel(sim_kernel("reduce"), 1, 1, 1, 100, 1, 1, 0, NULL, reduce, NULL));
	OK(cuMemcpyDtoH_v2(host, y, N * 4));
	OK(cuMemcpyDtoH_v2(&got, sum, 4));
	for (int i = 0; i < N; i++)
		cr_assert_eq(host[i], 6.5f);
	cr_assert_eq(got, 65000.0f);
}

Test(memory, copies_take_latency_and_bandwidth_and_overlap)
{
	CUstream s, up, down;
	CUevent gate, a, b, c;
	CUdeviceptr p;
	void *host;

	sim_fresh("GPUSIM_PCIE_GBPS", "10", "GPUSIM_COPY_LATENCY_US", "2", NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	up = sim_stream(CU_STREAM_NON_BLOCKING);
	down = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAlloc_v2(&p, 20 * 1000 * 1000));
	OK(cuMemHostAlloc(&host, 20 * 1000 * 1000, 0));
	sim_gate(s);
	gate = sim_mark(s);
	OK(cuStreamWaitEvent(up, gate, 0));
	OK(cuStreamWaitEvent(down, gate, 0));
	sim_spin(s, 1 * MS);
	OK(cuMemcpyHtoDAsync_v2(p, host, 10 * 1000 * 1000, up));
	OK(cuMemcpyDtoHAsync_v2((char *)host + 10000000, p + 10000000, 10 * 1000 * 1000, down));
	a = sim_mark(s);
	b = sim_mark(up);
	c = sim_mark(down);
	sim_release();
	cr_assert_float_eq(sim_between_us(gate, a), 1000, 0.6);
	cr_assert_float_eq(sim_between_us(gate, b), 1002, 0.6);
	cr_assert_float_eq(sim_between_us(gate, c), 1002, 0.6);
	cr_assert_eq(sim_truth_of(getpid()).copies, 2);
	cr_assert_float_eq((double)sim_truth_of(getpid()).copy_ns, 2004000.0, 100.0);
}

Test(memory, pageable_memory_is_read_when_the_call_is_made)
{
	uint32_t value = 1, back = 0;
	CUdeviceptr p;
	CUstream s;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAlloc_v2(&p, 4));
	sim_gate(s);
	OK(cuMemcpyHtoDAsync_v2(p, &value, 4, s));
	GIVES(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	value = 2;
	sim_release();
	/* A copy into pageable memory is done when the call returns. */
	OK(cuMemcpyDtoHAsync_v2(&back, p, 4, s));
	cr_assert_eq(back, 1);
	OK(cuStreamQuery(s));
}

Test(memory, a_copy_through_an_array_keeps_its_shape)
{
	CUDA_ARRAY_DESCRIPTOR desc = {
		.Width = 100, .Height = 50, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
	unsigned char in[50][100], out[20][30];
	CUarray array;
	CUDA_MEMCPY2D to = {.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = in,
		.srcPitch = 100,
		.dstMemoryType = CU_MEMORYTYPE_ARRAY,
		.WidthInBytes = 100,
		.Height = 50};
	CUDA_MEMCPY2D from = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
		.srcXInBytes = 7,
		.srcY = 9,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = out,
		.dstPitch = 30,
		.WidthInBytes = 30,
		.Height = 20};

	sim_fresh(NULL);
	sim_device();
	for (int y = 0; y < 50; y++)
		for (int x = 0; x < 100; x++)
			in[y][x] = (unsigned char)(y * 31 + x);
	OK(cuArrayCreate_v2(&array, &desc));
	to.dstArray = from.srcArray = array;
	OK(cuMemcpy2D_v2(&to));
	OK(cuMemcpy2D_v2(&from));
	for (int y = 0; y < 20; y++)
		for (int x = 0; x < 30; x++)
			cr_assert_eq(out[y][x], in[y + 9][x + 7]);
}

Test(memory, managed_pages_cost_their_bytes_over_the_bandwidth_once)
{
	CUevent a, b, c;
	CUdeviceptr p;
	CUstream s;

	sim_fresh("GPUSIM_PAGE_GBPS", "4", NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAllocManaged(&p, 40 * MIB, CU_MEM_ATTACH_GLOBAL));
	sim_gate(s);
	a = sim_mark(s);
	sim_spin(s, 1 * MS);
	b = sim_mark(s);
	sim_spin(s, 1 * MS);
	c = sim_mark(s);
	sim_release();
	cr_assert_float_eq(sim_between_us(a, b), 1000 + 40.0 * MIB / 4 / 1000, 0.6);
	cr_assert_float_eq(sim_between_us(b, c), 1000, 0.6);
	cr_assert_float_eq((double)sim_truth_of(getpid()).paging_ns, 40.0 * MIB / 4, 2.0);
	cr_assert_eq(sim_truth_of(getpid()).memory_bytes, 340 * MIB);
}

struct thrash {
	uint64_t bytes;
	volatile int *ready;
	double took_us;
};

static void thrash(void *arg)
{
	struct thrash *t = arg;
	CUdeviceptr p;
	CUevent a, b;
	CUstream s;

	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAllocManaged(&p, t->bytes, CU_MEM_ATTACH_GLOBAL));
	__atomic_fetch_add(t->ready, 1, __ATOMIC_SEQ_CST);
	while (*t->ready < 2)
		usleep(100);
	a = sim_mark(s);
	for (int i = 0; i < 50; i++)
		sim_spin(s, 1 * MS);
	b = sim_mark(s);
	t->took_us = sim_between_us(a, b);
}

/* Runs two processes whose memory fits together or does not. Sets the page-in time per process and the whole time, in
 * ms. */
static void run_two(uint64_t bytes, double *paging_ms, double *took_ms)
{
	struct thrash *t = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct sim_device_state state;
	pid_t pid[2];

	sim_fresh("GPUSIM_MEMORY_MB", "1000", "GPUSIM_CTX_MB", "0", "GPUSIM_PAGE_GBPS", "100",
		"GPUSIM_SLICE_US", "5000", NULL);
	for (int i = 0; i < 2; i++) {
		t[i].bytes = bytes;
		t[i].ready = (int *)(void *)&t[2];
		pid[i] = sim_child(thrash, &t[i]);
	}
	for (int i = 0; i < 2; i++)
		cr_assert_eq(sim_join(pid[i]), 0);
	sim_truth(&state, NULL, NULL);
	*paging_ms = (double)state.paging_ns / 1e6;
	*took_ms = (t[0].took_us > t[1].took_us ? t[0].took_us : t[1].took_us) / 1000;
	/* The device did work and paging, and nothing else. */
	cr_assert_float_eq((double)state.busy_ns, 100e6 + (double)state.paging_ns, 300);
}

Test(memory, two_processes_that_fit_page_in_once)
{
	double paging, took;

	run_two(400 * MIB, &paging, &took);
	cr_assert_float_eq(paging, 2 * 400.0 * MIB / 100e6, 0.1);
}

Test(memory, two_processes_that_do_not_fit_thrash_at_every_switch)
{
	double paging, took, evicted = 600.0 * MIB / 100e6;

	run_two(800 * MIB, &paging, &took);
	/*
	 * 50 ms of work each in slices of 5 ms: about 10 turns each. The first turn of each brings 800 MiB,
	 * every further one the 600 MiB that the other's turn pushed out.
	 */
	cr_assert_geq(paging, 2 * 800.0 * MIB / 100e6 + 14 * evicted);
	cr_assert_leq(paging, 2 * 800.0 * MIB / 100e6 + 20 * evicted);
	cr_assert_geq(took, 180);
}

Test(memory, prefetching_moves_pages_ahead_of_the_kernel)
{
	CUevent a, b, c;
	CUdeviceptr p;
	CUstream s;

	sim_fresh("GPUSIM_PAGE_GBPS", "4", NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAllocManaged(&p, 40 * MIB, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemPrefetchAsync(p, 40 * MIB, 0, s));
	OK(cuStreamSynchronize(s));
	sim_gate(s);
	a = sim_mark(s);
	sim_spin(s, 10 * MS);
	b = sim_mark(s);
	sim_release();
	OK(cuMemPrefetchAsync(p, 40 * MIB, CU_DEVICE_CPU, s));
	OK(cuStreamSynchronize(s));
	cr_assert_eq(sim_truth_of(getpid()).memory_bytes, 300 * MIB);
	sim_spin(s, 60 * MS);
	c = sim_mark(s);
	cr_assert_float_eq(sim_between_us(a, b), 10000, 0.6);
	cr_assert_geq(sim_between_us(b, c), 60000 + 2 * 40.0 * MIB / 4 / 1000);
	cr_assert_float_eq((double)sim_truth_of(getpid()).paging_ns, 40.0 * MIB / 4, 2.0);
}

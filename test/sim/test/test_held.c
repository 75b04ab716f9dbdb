/* Kernels that occupy the device while they wait: for the other ranks of a group, for a value in memory. */
#include "test/sim/test/simtest.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

TestSuite(held, .fini = sim_remove);

#define GROUP 42ull

static CUfunction kernel(const char *name)
{
	static CUlibrary library;
	CUkernel k;

	if (!library)
		OK(cuLibraryLoadData(&library, "test", NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&k, library, name));
	return (CUfunction)k;
}

static CUresult collective(CUstream s, uint64_t ns, uint64_t group, uint32_t rank, uint32_t ranks)
{
	void *params[] = {&ns, &group, &rank, &ranks};

	return cuLaunchKernel(kernel("collective_ns"), 1, 1, 1, 1, 1, 1, 0, s, params, NULL);
}

static CUresult until(CUstream s, uint64_t ns, CUdeviceptr p, uint32_t value)
{
	void *params[] = {&ns, &p, &value};

	return cuLaunchKernel(kernel("spin_until_ns"), 1, 1, 1, 1, 1, 1, 0, s, params, NULL);
}

/* Returns the device time of this process on a device. */
static uint64_t device_ns(int device)
{
	static struct sim_process_state list[SIM_MAX_PROCS];
	int n;

	cr_assert_eq(sim_open(), 0);
	n = sim_snapshot(device, NULL, true, list, SIM_MAX_PROCS);
	for (int i = 0; i < n; i++)
		if (list[i].pid == getpid())
			return list[i].device_ns;
	return 0;
}

/* Starts a rank on each of n devices, each 2 ms later than the one before: all end with the last. */
static void meet(int n)
{
	CUcontext ctx[4];
	CUstream s[4];
	CUevent begin[4], end[4], open;
	char devices[16];

	snprintf(devices, sizeof(devices), "%d", n);
	sim_fresh("GPUSIM_DEVICES", devices, NULL);
	OK(cuInit(0));
	for (int i = 0; i < n; i++) {
		OK(cuCtxCreate_v2(&ctx[i], 0, i));
		s[i] = sim_stream(CU_STREAM_NON_BLOCKING);
	}
	OK(cuCtxSetCurrent(ctx[0]));
	sim_gate(s[0]);
	open = sim_mark(s[0]);
	for (int i = 0; i < n; i++) {
		OK(cuCtxSetCurrent(ctx[i]));
		if (i)
			OK(cuStreamWaitEvent(s[i], open, 0));
		if (i)
			sim_spin(s[i], (uint64_t)i * 2 * MS);
		begin[i] = sim_mark(s[i]);
		OK(collective(s[i], 1 * MS, GROUP, (uint32_t)i, (uint32_t)n));
		OK(collective(s[i], 1 * MS, GROUP, (uint32_t)i, (uint32_t)n));
		end[i] = sim_mark(s[i]);
	}
	sim_release();
	for (int i = 0; i < n; i++) {
		double waits = (n - 1 - i) * 2000.0;

		OK(cuCtxSetCurrent(ctx[i]));
		cr_assert_float_eq(sim_between_us(begin[i], end[i]), waits + 2000, 0.6, "rank %d", i);
		/* The wait is busy time. */
		cr_assert_float_eq((double)device_ns(i), (n - 1) * 2e6 + 2e6, 3.0);
	}
}

Test(held, two_ranks_on_two_devices_begin_together)
{
	meet(2);
}

Test(held, any_number_of_ranks_begin_together)
{
	meet(4);
}

Test(held, ranks_that_make_no_sense_are_refused)
{
	CUstream s;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	GIVES(collective(s, MS, GROUP, 0, 0), CUDA_ERROR_INVALID_VALUE);
	GIVES(collective(s, MS, GROUP, 2, 2), CUDA_ERROR_INVALID_VALUE);
	GIVES(collective(s, MS, GROUP, 0, 65), CUDA_ERROR_INVALID_VALUE);
	/* A group of one rank waits for no other. */
	OK(collective(s, MS, GROUP, 0, 1));
	OK(cuStreamSynchronize(s));
	cr_assert_eq(device_ns(0), 1 * MS);
}

struct shared {
	volatile int ready, go, done[2];
	double between_us[2];
};

static struct shared *shared(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

struct rank {
	struct shared *with;
	uint32_t number;
};

static void be_rank(void *arg)
{
	struct rank *me = arg;
	CUevent a, b;
	CUstream s;

	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	__atomic_add_fetch(&me->with->ready, 1, __ATOMIC_SEQ_CST);
	while (!me->with->go)
		usleep(200);
	a = sim_mark(s);
	for (int i = 0; i < 20; i++)
		OK(collective(s, 1 * MS, GROUP, me->number, 2));
	b = sim_mark(s);
	me->with->between_us[me->number] = sim_between_us(a, b);
}

/* Two ranks of a job share a GPU in slices of 2 ms. The first spins until its slice ends; then the other has the GPU
 * until it waits, too. Both make progress, and the spinning is busy time. */
Test(held, ranks_on_one_device_take_their_slices_to_meet)
{
	struct rank ranks[2] = {{shared(), 0}, {NULL, 1}};
	struct sim_device_state state;
	pid_t pid[2];

	sim_fresh("GPUSIM_SLICE_US", "2000", NULL);
	ranks[1].with = ranks[0].with;
	for (int i = 0; i < 2; i++)
		pid[i] = sim_child(be_rank, &ranks[i]);
	while (ranks[0].with->ready < 2)
		usleep(200);
	ranks[0].with->go = 1;
	for (int i = 0; i < 2; i++)
		cr_assert_eq(sim_join(pid[i]), 0);
	sim_truth(&state, NULL, NULL);
	/* 2 x 20 kernels of 1 ms, and a part of each slice of 2 ms in which a rank spun. */
	cr_assert_gt(state.busy_ns, 45 * MS);
	cr_assert_lt(state.busy_ns, 130 * MS);
	cr_assert_eq(state.launches, 40);
}

static void lonely(void *ready)
{
	CUstream s;

	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(collective(s, 1 * MS, GROUP, 0, 2));
	*(volatile int *)ready = 1;
	for (;;)
		pause();
}

/* A rank whose partner is dead spins for ever, as on a real GPU. Its own death frees the device. */
Test(held, a_rank_whose_partner_never_comes_keeps_the_device)
{
	struct shared *with = shared();
	struct sim_device_state before, after;
	pid_t pid;

	sim_fresh(NULL);
	pid = sim_child(lonely, (void *)&with->ready);
	while (!with->ready)
		usleep(200);
	sim_truth(&before, NULL, NULL);
	usleep(50000);
	sim_truth(&after, NULL, NULL);
	cr_assert_float_eq(
		(double)(after.busy_ns - before.busy_ns), (double)(after.now_ns - before.now_ns), 2.0);
	kill(pid, SIGKILL);
	sim_join(pid);
	usleep(5000);
	sim_truth(&before, NULL, NULL);
	usleep(20000);
	sim_truth(&after, NULL, NULL);
	cr_assert_eq(after.busy_ns, before.busy_ns);
}

Test(held, a_kernel_waits_for_the_host)
{
	volatile uint32_t *flag;
	uint64_t before, after;
	CUevent a, b;
	CUstream s;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemHostAlloc((void **)&flag, 4096, 0));
	*flag = 0;
	sim_gate(s);
	a = sim_mark(s);
	OK(until(s, 3 * MS, (CUdeviceptr)(uintptr_t)flag, 1));
	b = sim_mark(s);
	sim_release();
	usleep(50000);
	GIVES(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	before = device_ns(0);
	cr_assert_gt(before, 40 * MS);
	*flag = 1;
	OK(cuStreamSynchronize(s));
	after = device_ns(0);
	cr_assert_geq(after, before + 3 * MS);
	/* The kernel had the device from its start to its end. */
	cr_assert_float_eq((double)after / 1000, sim_between_us(a, b), 1.0);
}

static void doze(void *arg)
{
	(void)arg;
	usleep(30000);
}

Test(held, a_kernel_waits_for_a_value_that_another_stream_writes)
{
	CUevent a, b, c;
	CUdeviceptr p;
	CUstream s, t;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	t = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAlloc_v2(&p, 4096));
	OK(cuMemsetD32_v2(p, 0, 1024));
	OK(cuCtxSynchronize());
	OK(until(s, 1 * MS, p + 64, 7));
	b = sim_mark(s);
	a = sim_mark(t);
	OK(cuLaunchHostFunc(t, doze, NULL));
	OK(cuStreamWriteValue32(t, p + 64, 7, 0));
	c = sim_mark(t);
	cr_assert_gt(sim_between_us(a, c), 30000);
	cr_assert_geq(sim_between_us(c, b), 900);
	cr_assert_geq(device_ns(0), 29 * MS);
	GIVES(until(s, MS, 3, 7), CUDA_ERROR_INVALID_VALUE);
}

/* In a graph each launch waits for the value anew, and finds it. */
Test(held, a_graph_of_kernels_that_wait)
{
	volatile uint32_t *flag;
	CUgraphExec exec;
	CUgraph graph;
	CUstream s;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemHostAlloc((void **)&flag, 4096, 0));
	*flag = 0;
	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(until(s, 1 * MS, (CUdeviceptr)(uintptr_t)flag, 1));
	OK(until(s, 1 * MS, (CUdeviceptr)(uintptr_t)flag, 2));
	OK(cuStreamEndCapture(s, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, s));
	usleep(10000);
	*flag = 1;
	usleep(10000);
	GIVES(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	*flag = 2;
	OK(cuStreamSynchronize(s));
	cr_assert_geq(device_ns(0), 20 * MS);
	OK(cuGraphLaunch(exec, s));
	OK(cuStreamSynchronize(s));
}

/* Time and order: what the events of one process say. */
#include "test/sim/test/simtest.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

TestSuite(order, .fini = sim_remove);

static void near_us(double got, double want)
{
	cr_assert_float_eq(got, want, 0.51, "%.3f us instead of %.3f us", got, want);
}

Test(order, event_time_is_the_kernels_length_exactly)
{
	CUevent a, b, c;
	CUstream s;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(s);
	a = sim_mark(s);
	for (int i = 0; i < 100; i++)
		sim_spin(s, 20000);
	b = sim_mark(s);
	sim_spin(s, 123456);
	c = sim_mark(s);
	sim_release();
	near_us(sim_between_us(a, b), 2000);
	near_us(sim_between_us(b, c), 123.456);
}

Test(order, a_late_look_does_not_change_the_time)
{
	CUevent a, b;
	CUstream s;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(s);
	a = sim_mark(s);
	sim_spin(s, 3 * MS);
	sim_spin(s, 3 * MS);
	b = sim_mark(s);
	sim_release();
	usleep(100000);
	near_us(sim_between_us(a, b), 6000);
}

Test(order, streams_of_one_process_overlap_as_far_as_they_fit)
{
	CUstream s, t;
	CUevent gate, a, b;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	t = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(s);
	gate = sim_mark(s);
	OK(cuStreamWaitEvent(t, gate, 0));
	sim_spin_part(s, 2 * MS, 500);
	sim_spin_part(t, 2 * MS, 500);
	a = sim_mark(s);
	b = sim_mark(t);
	sim_release();
	near_us(sim_between_us(gate, a), 2000);
	near_us(sim_between_us(gate, b), 2000);

	sim_gate(s);
	gate = sim_mark(s);
	OK(cuStreamWaitEvent(t, gate, 0));
	sim_spin(s, 2 * MS);
	sim_spin(t, 2 * MS);
	a = sim_mark(s);
	b = sim_mark(t);
	sim_release();
	near_us(sim_between_us(gate, a), 4000);
	near_us(sim_between_us(gate, b), 4000);
}

Test(order, a_wait_holds_only_what_comes_behind_it)
{
	CUstream s, t;
	CUevent gate, done, a, b;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	t = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(s);
	gate = sim_mark(s);
	OK(cuStreamWaitEvent(t, gate, 0));
	sim_spin_part(s, 5 * MS, 100);
	done = sim_mark(s);
	sim_spin_part(t, 1 * MS, 100);
	a = sim_mark(t);
	OK(cuStreamWaitEvent(t, done, 0));
	sim_spin_part(t, 1 * MS, 100);
	b = sim_mark(t);
	sim_release();
	near_us(sim_between_us(gate, a), 1000);
	near_us(sim_between_us(gate, b), 6000);
}

Test(order, the_legacy_stream_is_a_barrier_for_blocking_streams_only)
{
	CUstream blocking, other, apart;
	CUevent gate, first, legacy, after, free_one;

	sim_fresh(NULL);
	sim_device();
	blocking = sim_stream(0);
	other = sim_stream(0);
	apart = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(blocking);
	gate = sim_mark(blocking);
	OK(cuStreamWaitEvent(apart, gate, 0));
	sim_spin_part(blocking, 4 * MS, 100);
	first = sim_mark(blocking);
	sim_spin_part(NULL, 1 * MS, 100);
	legacy = sim_mark(NULL);
	sim_spin_part(other, 1 * MS, 100);
	after = sim_mark(other);
	sim_spin_part(apart, 1 * MS, 100);
	free_one = sim_mark(apart);
	sim_release();
	near_us(sim_between_us(gate, first), 4000);
	near_us(sim_between_us(gate, legacy), 5000);
	near_us(sim_between_us(gate, after), 6000);
	near_us(sim_between_us(gate, free_one), 1000);
}

Test(order, synchronising_the_legacy_stream_waits_for_blocking_streams)
{
	CUstream s;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(0);
	sim_gate(s);
	sim_spin(s, 20 * MS);
	GIVES(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	sim_release();
	OK(cuStreamSynchronize(NULL));
	OK(cuStreamQuery(s));
}

struct thread {
	CUcontext ctx;
	unsigned long long id;
	atomic_int *there;
};

static void *one_thread(void *arg)
{
	struct thread *t = arg;

	OK(cuCtxSetCurrent(t->ctx));
	OK(cuStreamGetId_ptsz(NULL, &t->id));
	/* Both threads must exist at the same time; otherwise the second could get the identity of the first. */
	for (*t->there += 1; *t->there < 2;)
		usleep(100);
	return NULL;
}

Test(order, each_thread_has_a_default_stream_of_its_own)
{
	atomic_int there = 0;
	unsigned long long legacy;
	struct thread of[2];
	pthread_t t[2];
	CUcontext ctx;

	sim_fresh(NULL);
	ctx = sim_device();
	for (int i = 0; i < 2; i++) {
		of[i] = (struct thread){.ctx = ctx, .there = &there};
		pthread_create(&t[i], NULL, one_thread, &of[i]);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	OK(cuStreamGetId(NULL, &legacy));
	cr_assert_neq(of[0].id, of[1].id);
	cr_assert_neq(of[0].id, legacy);
}

Test(order, the_per_thread_stream_is_ordered_with_the_legacy_one)
{
	uint64_t ns = 2 * MS;
	unsigned permille = 100;
	void *params[] = {&ns, &permille};
	CUevent gate, mine, legacy;
	CUfunction f;

	sim_fresh(NULL);
	sim_device();
	f = sim_kernel("spin_part_ns");
	sim_gate(CU_STREAM_PER_THREAD);
	gate = sim_mark(CU_STREAM_PER_THREAD);
	OK(cuLaunchKernel_ptsz(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	mine = sim_mark(CU_STREAM_PER_THREAD);
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	legacy = sim_mark(CU_STREAM_LEGACY);
	sim_release();
	near_us(sim_between_us(gate, mine), 2000);
	near_us(sim_between_us(mine, legacy), 2000);
}

static atomic_int calls;
static atomic_bool early;
static CUevent before_call;

static void on_call(void *arg)
{
	early = cuEventQuery(before_call) != CUDA_SUCCESS;
	usleep(20000);
	calls += (int)(intptr_t)arg;
}

static void on_callback(CUstream s, CUresult rc, void *arg)
{
	(void)s;
	if (rc == CUDA_SUCCESS)
		calls += (int)(intptr_t)arg;
}

Test(order, host_functions_run_in_their_place_and_hold_the_stream)
{
	CUevent after;
	CUstream s;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(s);
	sim_spin(s, 5 * MS);
	before_call = sim_mark(s);
	OK(cuLaunchHostFunc(s, on_call, (void *)1));
	OK(cuStreamAddCallback(s, on_callback, (void *)10, 0));
	sim_spin(s, 1 * MS);
	after = sim_mark(s);
	cr_assert_eq(calls, 0);
	sim_release();
	OK(cuStreamSynchronize(s));
	cr_assert_eq(calls, 11);
	cr_assert(!early, "it was called before the kernel had ended");
	cr_assert_geq(sim_between_us(before_call, after), 21000);
}

Test(order, a_launch_blocks_when_1024_are_unfinished)
{
	double start, queued, full;
	CUstream s;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	start = sim_wall_s();
	for (int i = 0; i < 1024; i++)
		sim_spin(s, 10 * MS);
	queued = sim_wall_s();
	for (int i = 0; i < 10; i++)
		sim_spin(s, 10 * MS);
	full = sim_wall_s();
	cr_assert_lt(queued - start, 5, "the queue was full too early");
	cr_assert_geq(full - start, 0.1 - 1e-3, "the queue is longer than it should be");
}

Test(order, a_blocking_launch_returns_when_its_kernel_has_ended)
{
	CUstream s;

	sim_fresh("CUDA_LAUNCH_BLOCKING", "1", NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < 3; i++) {
		sim_spin(s, 5 * MS);
		OK(cuStreamQuery(s));
	}
}

Test(order, a_queue_longer_than_the_ring_keeps_its_order)
{
	CUdeviceptr p;
	CUstream s;
	CUfunction f;
	uint32_t sum = 0;

	sim_fresh("GPUSIM_KERNELS", "add_u32=1", NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	f = sim_kernel("add_u32");
	OK(cuMemAlloc_v2(&p, 4));
	OK(cuMemsetD32Async(p, 0, 1, s));
	for (uint32_t i = 0; i < 10000; i++) {
		void *params[] = {&p, &i};

		OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
	}
	OK(cuMemcpyDtoHAsync_v2(&sum, p, 4, s));
	cr_assert_eq(sum, 10000u * 9999 / 2);
}

Test(order, a_destroyed_stream_finishes_its_work)
{
	CUdeviceptr p;
	CUfunction f;
	uint32_t one = 1, sum = 0;
	void *params[] = {&p, &one};

	sim_fresh("GPUSIM_KERNELS", "add_u32=2000", NULL);
	sim_device();
	f = sim_kernel("add_u32");
	OK(cuMemAlloc_v2(&p, 4));
	OK(cuMemsetD32_v2(p, 0, 1));
	OK(cuCtxSynchronize());
	for (int i = 0; i < 20; i++) {
		CUstream s = sim_stream(CU_STREAM_NON_BLOCKING);

		OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
		OK(cuStreamDestroy_v2(s));
		GIVES(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
	}
	OK(cuCtxSynchronize());
	OK(cuMemcpyDtoH_v2(&sum, p, 4));
	cr_assert_eq(sum, 20);
}

Test(order, a_stream_waits_for_a_value_another_one_writes)
{
	CUevent before, after;
	CUdeviceptr p;
	CUstream s, t;

	sim_fresh(NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	t = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAlloc_v2(&p, 4096));
	OK(cuMemsetD32_v2(p, 0, 1024));
	OK(cuCtxSynchronize());
	OK(cuStreamWaitValue32_v2(s, p, 5, CU_STREAM_WAIT_VALUE_GEQ));
	after = sim_mark(s);
	sim_spin(t, 20 * MS);
	before = sim_mark(t);
	GIVES(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	OK(cuStreamWriteValue32_v2(t, p, 4, 0));
	sim_spin(t, 20 * MS);
	OK(cuStreamSynchronize(t));
	GIVES(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	OK(cuStreamWriteValue32_v2(t, p, 6, 0));
	OK(cuStreamSynchronize(s));
	cr_assert_geq(sim_between_us(before, after), 20000);
}

Test(order, an_event_of_a_context_comes_after_all_its_streams)
{
	CUevent e, a, b;
	CUcontext ctx;
	CUstream s, t;

	sim_fresh(NULL);
	ctx = sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	t = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuEventCreate(&e, 0));
	sim_spin_part(s, 40 * MS, 100);
	a = sim_mark(s);
	sim_spin_part(t, 60 * MS, 100);
	b = sim_mark(t);
	OK(cuCtxRecordEvent(ctx, e));
	cr_assert_geq(sim_between_us(a, e), 0);
	near_us(sim_between_us(b, e), 0);
}

Test(order, devices_run_side_by_side_and_wait_for_each_other)
{
	CUcontext ctx[2];
	CUstream s[2];
	CUevent start, first, end, waited;

	sim_fresh("GPUSIM_DEVICES", "2", NULL);
	ctx[0] = sim_device();
	s[0] = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuCtxCreate_v2(&ctx[1], 0, 1));
	s[1] = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(s[1]);
	start = sim_mark(s[1]);
	sim_spin(s[1], 60 * MS);
	end = sim_mark(s[1]);
	OK(cuCtxSetCurrent(ctx[0]));
	OK(cuStreamWaitEvent(s[0], start, 0));
	sim_spin(s[0], 90 * MS);
	first = sim_mark(s[0]);
	OK(cuStreamWaitEvent(s[1], first, 0));
	sim_spin(s[1], 10 * MS);
	waited = sim_mark(s[1]);
	sim_release();
	/* The work of a device does not slow the other device down. */
	near_us(sim_between_us(start, end), 60000);
	near_us(sim_between_us(start, waited), 100000);
}

Test(order, what_streams_do_to_memory_follows_their_order)
{
	uint32_t two = 2, back = 0;
	CUstream first, second;
	CUdeviceptr p;
	CUevent e;
	void *params[] = {&p, &two};

	sim_fresh(NULL);
	sim_device();
	OK(cuMemAlloc_v2(&p, 4));
	for (int turn = 0; turn < 2; turn++) {
		CUstream a = sim_stream(CU_STREAM_NON_BLOCKING), b = sim_stream(CU_STREAM_NON_BLOCKING);

		/* Which of them was made first must not matter. */
		first = turn ? b : a;
		second = turn ? a : b;
		sim_gate(first);
		OK(cuMemsetD32Async(p, 5, 1, first));
		e = sim_mark(first);
		OK(cuStreamWaitEvent(second, e, 0));
		OK(cuLaunchKernel(sim_kernel("add_u32"), 1, 1, 1, 1, 1, 1, 0, second, params, NULL));
		sim_release();
		OK(cuStreamSynchronize(second));
		OK(cuMemcpyDtoH_v2(&back, p, 4));
		cr_assert_eq(back, 7);
	}
}

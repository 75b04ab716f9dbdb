/* Queues that are full, queues that wait for the host, and queues with other queues beside them. */
#include "test/preload/preload_host.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

/* This is more than any driver lets a stream hold. */
#define DEPTH 4000
/* Our own event comes at each of this many places, in a stream that is full at that place. */
#define PLACES 100

static CUstream new_stream(void)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static struct {
	CUcontext context;
	CUfunction function;
	CUdeviceptr flag;
	unsigned place;
	unsigned launched; /* kernels launched by the thread that fills its stream */
} full;

/* Each launch comes with two events, so that the places of the stream run out before the kernels. */
static void launch_one(CUevent event)
{
	unsigned us = 5;
	void *params[] = {&us};

	OK(cuLaunchKernel_ptsz(full.function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	OK(cuEventRecord_ptsz(event, NULL));
	OK(cuEventRecord_ptsz(event, NULL));
	__atomic_fetch_add(&full.launched, 1, __ATOMIC_RELAXED);
}

static void *fills_its_stream(void *argument)
{
	CUevent event;

	OK(cuCtxSetCurrent(full.context));
	OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
	OK(cuStreamWaitValue32_v2_ptsz(NULL, full.flag, full.place + 1, CU_STREAM_WAIT_VALUE_GEQ));
	for (unsigned i = 0; i < full.place; i++)
		OK(cuEventRecord_ptsz(event, NULL));
	for (unsigned i = 0; i < DEPTH; i++)
		launch_one(event);
	OK(cuStreamSynchronize_ptsz(NULL));
	OK(cuEventDestroy_v2(event));
	return argument;
}

/* A thread waits in the driver for room in its stream, and another launches what makes room. */
static void fills_a_stream_that_waits(void)
{
	pthread_t thread;
	CUmodule module;
	CUstream other;

	full.context = host_context(0);
	OK(cuModuleLoadData(
		&module, ".version 7.0\n.target sm_50\n.visible .entry spin_us(.param .u32 us) {}\n"));
	OK(cuModuleGetFunction(&full.function, module, "spin_us"));
	OK(cuMemAlloc_v2(&full.flag, 4));
	OK(cuMemsetD32_v2(full.flag, 0, 1));
	OK(cuCtxSynchronize());
	for (full.place = 0; full.place < PLACES; full.place++) {
		unsigned before;

		full.launched = 0;
		T_CHECK(!pthread_create(&thread, NULL, fills_its_stream, NULL), "no thread");
		do {
			before = __atomic_load_n(&full.launched, __ATOMIC_RELAXED);
			t_sleep_us(5000);
		} while (!before || before != __atomic_load_n(&full.launched, __ATOMIC_RELAXED));
		T_CHECK(before < DEPTH, "it is not full");
		other = new_stream();
		host_launch(other, 1, 10);
		OK(cuStreamWriteValue32_v2(other, full.flag, full.place + 1, 0));
		pthread_join(thread, NULL);
		OK(cuStreamDestroy_v2(other));
	}
}

static int other_program(void *argument)
{
	setenv("GPUARB_ACCOUNT", "other", 1);
	host_context(0);
	__atomic_store_n((uint32_t *)argument, 1, __ATOMIC_RELEASE);
	for (;;)
		host_launch(NULL, 1, 100);
	return 0;
}

/* Urgent work has a stream of its own and does not wait for long work in another stream. */
static void has_something_urgent(void)
{
	uint32_t *there = t_shared(sizeof(*there));
	pid_t other = t_spawn(other_program, there, 60);
	CUstream lengthy, urgent;

	while (!__atomic_load_n(there, __ATOMIC_ACQUIRE))
		t_sleep_us(1000);
	host_context(0);
	lengthy = new_stream();
	urgent = new_stream();
	/* After these it is known that another program is there, and how long such a kernel takes. */
	for (unsigned i = 0; i < 3; i++) {
		host_launch(lengthy, 1, 100000);
		host_launch(urgent, 1, 100);
		OK(cuCtxSynchronize());
	}
	host_launch(lengthy, 1, 1000000);
	for (unsigned i = 0; i < 10; i++) {
		host_launch(urgent, 1, 100);
		OK(cuStreamSynchronize(urgent));
	}
	GIVES(cuStreamQuery(lengthy), CUDA_ERROR_NOT_READY);
	OK(cuCtxSynchronize());
	kill(other, SIGKILL);
	t_wait(other);
}

#define ROUNDS_MOST 12
#define HELD_NS     1000000000ull

/* All work is queued behind a value that the program writes when the queueing is done, again and again. At first this
 * cannot be known, and the program is held up for seconds; at some point that must end. */
static void waits_for_the_host(void)
{
	unsigned quick = 0;
	uint64_t began;
	CUstream stream;
	uint32_t *flag;

	host_context(0);
	stream = new_stream();
	OK(cuMemHostAlloc((void **)&flag, 4, CU_MEMHOSTALLOC_DEVICEMAP));
	*flag = 0;
	for (uint32_t round = 1; quick < 2; round++) {
		T_CHECK(round <= ROUNDS_MOST, "held up for seconds, still");
		began = t_now_ns();
		OK(cuStreamWaitValue32_v2(
			stream, (CUdeviceptr)(uintptr_t)flag, round, CU_STREAM_WAIT_VALUE_GEQ));
		host_launch(stream, 20, 1000);
		quick = t_now_ns() - began < HELD_NS ? quick + 1 : 0;
		__atomic_store_n(flag, round, __ATOMIC_RELEASE);
		OK(cuStreamSynchronize(stream));
	}
}

/* Long kernels follow each other as soon as one has ended: the program is in the set as long as any of them runs. */
static void launches_long_ones_one_by_one(void)
{
	unsigned looked = 0;
	CUevent end;

	host_context(0);
	OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
	for (unsigned i = 0; i < 24; i++) {
		bool in_set;

		host_launch(NULL, 1, 15000);
		OK(cuEventRecord(end, NULL));
		t_sleep_us(3000);
		in_set = host_picture(0)->nrunning;
		if (cuEventQuery(end) == CUDA_ERROR_NOT_READY) {
			looked++;
			T_CHECK(in_set, "round %u: it runs, and nobody knows", i);
		}
		while (cuEventQuery(end) == CUDA_ERROR_NOT_READY)
			t_sleep_us(20);
	}
	T_CHECK(looked, "it never ran when it was looked at");
	host_must_leave(0);
}

/* A stream captures for long while others work: their work ends, and that is noticed. */
static void works_beside_a_capture(void)
{
	CUstream quiet, stream, blocking;
	CUgraph graph;

	host_context(0);
	quiet = new_stream();
	stream = new_stream();
	OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	OK(cuStreamBeginCapture_v2(quiet, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	for (unsigned i = 0; i < 5; i++) {
		host_launch(stream, 300, 20);
		host_must_leave(0);
	}
	OK(cuStreamEndCapture(blocking, &graph));
	OK(cuStreamEndCapture(quiet, &graph));
	host_work();
}

static void begins_a_capture_twice(void)
{
	CUstream stream, other;
	CUgraph graph;

	host_context(0);
	OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	other = new_stream();
	host_launch(other, 200, 20);
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	GIVES(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
	host_launch(other, 200, 20);
	t_sleep_us(100000);
	OK(cuStreamEndCapture(stream, &graph));
}

/* A context that it fails to destroy, and one that its reset does not concern, must still be looked after. */
static void keeps_its_context(void)
{
	CUcontext made = host_context(0), primary;
	CUstream stream = new_stream();

	host_launch(stream, 1, 400000);
	OK(cuDevicePrimaryCtxReset_v2(0));
	t_sleep_us(20000);
	T_CHECK(cuStreamQuery(stream) != CUDA_ERROR_NOT_READY || host_picture(0)->nrunning,
		"it is forgotten");
	OK(cuStreamSynchronize(stream));
	OK(cuCtxDestroy_v2(made));
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cuCtxSetCurrent(primary));
	stream = new_stream();
	host_launch(stream, 1, 400000);
	T_CHECK(cuCtxDestroy_v2(primary) != CUDA_SUCCESS, "the primary context is not the program's");
	t_sleep_us(20000);
	T_CHECK(cuStreamQuery(stream) != CUDA_ERROR_NOT_READY || host_picture(0)->nrunning,
		"it is forgotten");
	OK(cuStreamSynchronize(stream));
	host_must_leave(0);
}

static void counts(void *data)
{
	++*(unsigned *)data;
}

static uint64_t billed(void)
{
	return host_picture(0)->nclients ? host_picture(0)->clients[0].used_ns : 0;
}

/* While a function of the program is called between two kernels, the GPU stands still. Only the kernels are billed. */
static void has_functions_between_kernels(void)
{
	const unsigned rounds = 30, each = 4, us = 300;
	unsigned called = 0;
	uint64_t before, ns;
	CUstream stream;

	setenv("GPUSIM_CALLBACK_US", "300", 1);
	host_context(0);
	stream = new_stream();
	host_work();
	host_must_leave(0);
	before = billed();
	for (unsigned i = 0; i < rounds; i++) {
		for (unsigned k = 0; k < each; k++) {
			host_launch(stream, 1, us);
			OK(cuLaunchHostFunc(stream, counts, &called));
		}
		OK(cuStreamSynchronize(stream));
	}
	host_must_leave(0);
	T_CHECK(called == rounds * each, "%u called", called);
	ns = billed() - before;
	/* If the time between them were billed, it would be 1.75 times as much. */
	T_CHECK(ns > rounds * each * us * 980ull && ns < rounds * each * us * 1300ull,
		"billed %llu us for %u us", (unsigned long long)ns / 1000, rounds * each * us);
}

/* Nothing tells the preload that each launch returns when its kernel has ended. */
static void runs_kernels_within_its_calls(void)
{
	const unsigned rounds = 100, us = 1000;
	uint64_t before, ns;

	setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
	host_context(0);
	unsetenv("CUDA_LAUNCH_BLOCKING");
	before = billed();
	host_launch(NULL, rounds, us);
	OK(cuCtxSynchronize());
	host_must_leave(0);
	ns = billed() - before;
	T_CHECK(ns > rounds * us * 850ull && ns < rounds * us * 1300ull, "billed %llu us for %u us",
		(unsigned long long)ns / 1000, rounds * us);
}

static void has_one_gpu_alone(void)
{
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	host_context(0);
	for (unsigned i = 0; i < 20; i++)
		host_work();
	host_must_leave(0);
	T_CHECK(billed() > 20 * 20 * 50 * 900ull, "billed %llu us", (unsigned long long)billed() / 1000);
}

const struct host_case host_queue_cases[] = {
	{"has one GPU alone", has_one_gpu_alone, "90", 0},
	{"runs kernels within its calls", runs_kernels_within_its_calls, "90", 0},
	{"has functions between kernels", has_functions_between_kernels, "90", 0},
	{"fills a stream that waits", fills_a_stream_that_waits, NULL, 0},
	{"fills a stream that waits, limited", fills_a_stream_that_waits, "99", 0},
	{"has something urgent", has_something_urgent, NULL, 0},
	{"waits for the host", waits_for_the_host, "50", 0},
	{"works beside a capture", works_beside_a_capture, "50", 0},
	{"works beside a capture, unlimited", works_beside_a_capture, NULL, 0},
	{"begins a capture twice", begins_a_capture_twice, "50", 0},
	{"keeps its context", keeps_its_context, "90", 0},
	{"launches long ones one by one", launches_long_ones_one_by_one, NULL, 0},
	{"launches long ones one by one, limited", launches_long_ones_one_by_one, "90", 0},
	{NULL, NULL, NULL, 0},
};

/* What waits at the gate, what is billed, and what is left alone. */
#include "test/preload/preload_host.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/sim/device/model.h"

static CUstream new_stream(void)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

/* Returns what the GPU's clients were billed for, to be compared with what the GPU did. */
static uint64_t billed_ns(void)
{
	return host_picture(0)->busy_ns;
}

static uint64_t worked_ns(void)
{
	struct sim_device_state state;

	T_CHECK(!sim_open() && !sim_device_state(0, &state), "no simulation");
	return state.busy_ns;
}

static pthread_barrier_t barrier;
static int stop;

static void *captures_in_its_own(void *argument)
{
	CUgraph graph;

	OK(cuCtxSetCurrent(argument));
	OK(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	OK(cuStreamEndCapture_ptsz(NULL, &graph));
	return NULL;
}

/* Two threads capture, each in its own default stream, and one ends while there is other work. */
static void captures_in_two_threads(void)
{
	CUcontext context = host_context(0);
	CUstream stream = new_stream();
	pthread_t thread;
	CUgraph graph;

	pthread_barrier_init(&barrier, NULL, 2);
	host_launch(stream, 200, 20);
	T_CHECK(!pthread_create(&thread, NULL, captures_in_its_own, context), "no thread");
	OK(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	pthread_barrier_wait(&barrier);
	OK(cuStreamEndCapture_ptsz(NULL, &graph));
	host_launch(stream, 200, 20);
	t_sleep_us(200000);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
}

/* Another library has retained the primary context too, and releases it. */
static void shares_its_primary_context(void)
{
	CUcontext context, again;
	CUstream stream;
	uint64_t worked, billed;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	stream = new_stream();
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	host_launch(stream, 100, 3000);
	t_sleep_us(400000);
	OK(cuCtxSynchronize());
	host_must_leave(0);
	worked = worked_ns();
	billed = billed_ns();
	T_CHECK(billed > worked * 9 / 10 && billed < worked * 13 / 10, "billed %llu of %llu ns",
		(unsigned long long)billed, (unsigned long long)worked);
}

/* What runs in a context while it is destroyed is billed as if the program had waited for it. */
static void destroys_contexts_at_work(void)
{
	uint64_t worked, billed;

	for (int i = 0; i < 10; i++) {
		CUcontext context = host_context(0);

		/* The length of the last kernel must say nothing about the next. */
		host_launch(new_stream(), 4, i % 2 ? 200 : 20000);
		OK(cuCtxDestroy_v2(context));
	}
	host_must_leave(0);
	worked = worked_ns();
	billed = billed_ns();
	T_CHECK(billed > worked * 8 / 10, "billed %llu of %llu ns", (unsigned long long)billed,
		(unsigned long long)worked);
}

static void *floods(void *argument)
{
	OK(cuCtxSetCurrent(argument));
	for (;;) {
		host_launch(NULL, 1, 2000);
		pthread_testcancel();
	}
	return NULL;
}

/* No call of the driver is a cancellation point, so no call of the preload may be one. */
static void cancels_a_thread_at_the_gate(void)
{
	CUcontext context = host_context(0);

	for (int i = 0; i < 5; i++) {
		pthread_t thread;

		T_CHECK(!pthread_create(&thread, NULL, floods, context), "no thread");
		t_sleep_us(100000);
		pthread_cancel(thread);
		pthread_join(thread, NULL);
	}
	host_must_leave(0);
	host_work();
	host_must_leave(0);
}

/* A kernel waits for a value that is written by work behind one that is launched later. */
static void waits_for_what_comes_later(void)
{
	CUstream first, second;
	CUdeviceptr flag;

	host_context(0);
	first = new_stream();
	second = new_stream();
	OK(cuMemAlloc_v2(&flag, 4));
	OK(cuMemsetD32_v2(flag, 0, 1));
	for (unsigned i = 1; i <= 20; i++) {
		OK(cuStreamWaitValue32_v2(first, flag, i, CU_STREAM_WAIT_VALUE_GEQ));
		host_launch(first, 1 + i % 3, 3000);
		host_launch(second, 1, 3000);
		OK(cuStreamWriteValue32_v2(second, flag, i, 0));
		OK(cuCtxSynchronize());
	}
}

/* A program whose work was once seen to wait for later work has kernels that are just long. */
static void has_waited_for_what_comes_later(void)
{
	uint64_t began, worked, end;
	CUstream stream;

	waits_for_what_comes_later();
	stream = new_stream();
	t_sleep_us(500000);
	/* The first of these kernels is taken for one that waits, and some are let past it. Then their length is
	 * known. */
	end = t_now_ns() + 3000000000ull;
	while (t_now_ns() < end)
		host_launch(stream, 1, 300000);
	OK(cuStreamSynchronize(stream));
	worked = worked_ns();
	began = t_now_ns();
	end = began + 5000000000ull;
	while (t_now_ns() < end)
		host_launch(stream, 1, 300000);
	worked = worked_ns() - worked;
	T_CHECK(worked < (t_now_ns() - began) * 6 / 10, "%llu ms in %llu, limited to 25 %%",
		(unsigned long long)worked / 1000000, (unsigned long long)(t_now_ns() - began) / 1000000);
}

/* A stream that waits for long must not free the other streams from the limit, nor hold them up. */
static void works_beside_a_stream_that_waits(void)
{
	CUstream first, second;
	CUdeviceptr flag;
	uint64_t began, end;
	unsigned n = 0;

	host_context(0);
	first = new_stream();
	second = new_stream();
	OK(cuMemAlloc_v2(&flag, 4));
	OK(cuMemsetD32_v2(flag, 0, 1));
	OK(cuStreamWaitValue32_v2(first, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
	host_launch(first, 1, 100);
	began = t_now_ns();
	end = began + 5000000000ull;
	while (t_now_ns() < end) {
		host_launch(second, 1, 3000);
		n++;
	}
	OK(cuStreamWriteValue32_v2(second, flag, 1, 0));
	OK(cuCtxSynchronize());
	T_CHECK(n > 20, "%u launches in 5 s", n);
	T_CHECK(n * 3000000ull < (t_now_ns() - began) / 2, "%u of 3 ms in 5 s, limited to 25 %%", n);
}

static void posts(void *argument)
{
	__atomic_store_n((int *)argument, 1, __ATOMIC_RELEASE);
}

static void *idles(void *argument)
{
	OK(cuCtxSetCurrent(argument));
	host_launch(NULL, 2000, 50);
	OK(cuCtxSynchronize());
	pthread_barrier_wait(&barrier);
	pause();
	return NULL;
}

static int other_program(void *argument)
{
	while (!__atomic_load_n((int *)argument, __ATOMIC_ACQUIRE))
		t_sleep_us(1000);
	setenv("GPUARB_ACCOUNT", "other", 1);
	host_context(0);
	for (;;)
		host_launch(NULL, 1, 100);
	return 0;
}

static bool in_the_set(void)
{
	const struct gpuarb_picture *picture = host_picture(0);

	for (unsigned i = 0; i < picture->nclients; i++)
		if (picture->clients[i].pid == (unsigned)getpid())
			return picture->clients[i].running;
	return false;
}

/* What one thread was given long ago is no work of another thread later. */
static void has_a_thread_that_once_worked(void)
{
	int *now = t_shared(sizeof(*now));
	pid_t pid = t_spawn(other_program, now, 20);
	CUcontext context = host_context(0);
	unsigned stayed = 0;
	pthread_t thread;
	CUstream stream;

	pthread_barrier_init(&barrier, NULL, 2);
	T_CHECK(!pthread_create(&thread, NULL, idles, context), "no thread");
	pthread_barrier_wait(&barrier);
	stream = new_stream();
	posts(now);
	t_sleep_us(300000);
	for (int i = 0; i < 20; i++) {
		int done = 0;

		host_launch(stream, 1, 1000);
		OK(cuLaunchHostFunc(stream, posts, &done));
		while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE))
			t_sleep_us(100);
		t_sleep_us(50000);
		stayed += in_the_set();
	}
	kill(pid, SIGKILL);
	T_CHECK(stayed < 10, "%u of 20 times it was in the set without work", stayed);
}

static unsigned launched;

static void *launches_until_it_cannot(void *argument)
{
	CUfunction function;
	CUmodule module;
	unsigned us = 100000;
	void *params[] = {&us};

	OK(cuCtxSetCurrent(argument));
	OK(cuModuleLoadData(&module, "any"));
	OK(cuModuleGetFunction(&function, module, "gpusim_spin"));
	while (cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL) == CUDA_SUCCESS)
		__atomic_add_fetch(&launched, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* It has launched, and is refused because its quota is used up. */
static bool is_throttled(void)
{
	const struct gpuarb_picture *p = host_picture(0);

	return __atomic_load_n(&launched, __ATOMIC_RELAXED) && p->nclients == 1 &&
	       p->clients[0].reason == ARB_REASON_QUOTA;
}

/* At 1 percent each of these kernels has to be paid for with 10 s without the GPU. Nothing else may wait for that: if
 * something did, another kernel would have been launched meanwhile. */
static void does_other_things_without_quota(void)
{
	CUcontext context = host_context(0), other;
	unsigned before;
	pthread_t thread;
	CUstream stream;
	CUdeviceptr p;

	T_CHECK(!pthread_create(&thread, NULL, launches_until_it_cannot, context), "no thread");
	while (!is_throttled())
		t_sleep_us(1000);
	before = __atomic_load_n(&launched, __ATOMIC_RELAXED);
	for (int i = 0; i < 5; i++) {
		other = host_context(0);
		stream = new_stream();
		OK(cuMemAlloc_v2(&p, 1 << 20));
		OK(cuStreamSynchronize(stream));
		OK(cuMemFree_v2(p));
		OK(cuStreamDestroy_v2(stream));
		OK(cuCtxDestroy_v2(other));
	}
	OK(cuCtxSetCurrent(context));
	OK(cuCtxSynchronize());
	T_CHECK(__atomic_load_n(&launched, __ATOMIC_RELAXED) == before, "it waited until there was quota");
	OK(cuCtxDestroy_v2(context));
	/* Its end must not wait either, while that thread is still at the gate. */
	exit(4);
}

static int stops_its_parent(void *argument)
{
	while (!__atomic_load_n((int *)argument, __ATOMIC_ACQUIRE))
		t_sleep_us(1000);
	t_sleep_us(100000);
	alarm(0); /* if it died now, its parent would stay stopped */
	kill(getppid(), SIGSTOP);
	t_sleep_us(900000); /* longer than the grace */
	kill(getppid(), SIGCONT);
	return 0;
}

/* It loses its place, and comes back with a kernel that has run on. That time is billed, quota or not. */
static void is_stopped_while_a_kernel_runs(void)
{
	int *now = t_shared(sizeof(*now)), *beside = t_shared(sizeof(*beside));
	pid_t stopper = t_spawn(stops_its_parent, now, 20), pid = t_spawn(other_program, beside, 20);
	uint64_t used = 0;

	host_context(0);
	posts(beside);
	t_sleep_us(300000);
	host_launch(NULL, 1, 1500000);
	posts(now);
	OK(cuCtxSynchronize());
	T_CHECK(t_wait(stopper) == 0, "the stopper");
	t_sleep_us(100000);
	for (unsigned i = 0; i < host_picture(0)->nclients; i++)
		if (host_picture(0)->clients[i].pid == (unsigned)getpid()) {
			T_CHECK(host_picture(0)->clients[i].evictions == 1, "it was not taken out");
			used = host_picture(0)->clients[i].used_ns;
		}
	kill(pid, SIGKILL);
	T_CHECK(used > 1500000000ull / 2, "%llu ns of 1.5 s are billed", (unsigned long long)used);
}

/* A copy that is waited for counts as a wait, whatever was queued before it. */
static void waits_by_copying(void)
{
	unsigned stayed = 0;
	CUdeviceptr p;
	char byte;

	host_context(0);
	OK(cuMemAlloc_v2(&p, 4096));
	for (int i = 0; i < 100; i++) {
		host_launch(NULL, 100, 5);
		OK(cuMemcpyDtoH_v2(&byte, p, 1));
		stayed += in_the_set();
	}
	T_CHECK(stayed < 20, "%u of 100 times it was in the set without work", stayed);
}

static void *keeps_the_gate_open(void *argument)
{
	OK(cuCtxSetCurrent(argument));
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
		host_launch(NULL, 1, 100);
	return NULL;
}

/* A launch that fails because there is no context is no reason to let through launches that work. */
static void works_without_a_context_first(void)
{
	CUcontext context = host_context(0);
	CUstream stream = new_stream();
	uint64_t before, after;
	pthread_t thread;

	T_CHECK(!pthread_create(&thread, NULL, keeps_the_gate_open, context), "no thread");
	for (int i = 0; i < 5; i++) {
		OK(cuCtxSetCurrent(context));
		OK(cuCtxSynchronize());
		t_sleep_us(50000);
		before = worked_ns();
		OK(cuCtxSetCurrent(NULL));
		T_CHECK(cuMemsetD8Async(1, 0, 1, NULL) != CUDA_SUCCESS, "it worked");
		OK(cuCtxSetCurrent(context));
		host_launch(stream, 1000, 100);
		after = worked_ns();
		T_CHECK(after - before > 50000000, "of 100 ms %lld are queued",
			100 - (long long)(after - before) / 1000000);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
}

static int runs_all_the_time(void *argument)
{
	uint32_t *begin = argument;

	while (!__atomic_load_n(begin, __ATOMIC_ACQUIRE))
		t_sleep_us(1000);
	host_context(0);
	for (;;)
		host_launch(NULL, 1, 1000);
	return 0;
}

static uint64_t own_bill_ns(void)
{
	const struct gpuarb_picture *p = host_picture(0);

	for (unsigned i = 0; i < p->nclients; i++)
		if (p->clients[i].pid == (unsigned)getpid())
			return p->clients[i].used_now_ns;
	T_CHECK(false, "it is no client");
	return 0;
}

static void waits_for_each_of(unsigned n, unsigned us)
{
	for (unsigned i = 0; i < n; i++) {
		host_launch(NULL, 1, us);
		OK(cuCtxSynchronize());
	}
}

static void waits_for_each(unsigned n)
{
	waits_for_each_of(n, 20);
}

/* It pays for what it gets, which are a few of another program's slices, though it never was alone. As on real
 * hardware, its events wait for its slices. */
static void waits_beside_one_that_never_pauses(void)
{
	uint32_t *begin = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t billed = 0, worked = 200 * 200000;
	bool right = false;
	pid_t other;

	setenv("GPUSIM_EVENTS", "slice", 1);
	other = t_spawn(runs_all_the_time, begin, 60);
	host_context(0);
	__atomic_store_n(begin, 1, __ATOMIC_RELEASE);
	while (!host_picture(0)->nrunning)
		t_sleep_us(1000);
	waits_for_each_of(100, 200);
	/* How soon it is seen that the GPU alternates depends on the machine, too. */
	for (int round = 0; round < 5 && !right; round++) {
		billed = own_bill_ns();
		waits_for_each_of(200, 200);
		billed = own_bill_ns() - billed;
		right = billed > worked / 2 && billed < worked * 5 / 2;
	}
	kill(other, SIGKILL);
	t_wait(other);
	T_CHECK(right, "billed %llu of %llu ns", (unsigned long long)billed, (unsigned long long)worked);
}

/* What it pays beside another program follows from what it does now, not from what it did before. */
static void waits_first_and_floods_then(void)
{
	uint32_t *begin = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t other = t_spawn(runs_all_the_time, begin, 60);
	uint64_t billed, worked = 300000000;

	host_context(0);
	waits_for_each(200);
	__atomic_store_n(begin, 1, __ATOMIC_RELEASE);
	while (!host_picture(0)->nrunning)
		t_sleep_us(1000);
	waits_for_each(200);
	billed = own_bill_ns();
	host_launch(NULL, 300, 1000);
	OK(cuCtxSynchronize());
	billed = own_bill_ns() - billed;
	kill(other, SIGKILL);
	t_wait(other);
	T_CHECK(billed > worked * 8 / 10 && billed < worked * 3 / 2, "billed %llu of %llu ns",
		(unsigned long long)billed, (unsigned long long)worked);
}

static int stops_its_parent_for_a_moment(void *argument)
{
	while (!__atomic_load_n((int *)argument, __ATOMIC_ACQUIRE))
		t_sleep_us(1000);
	kill(getppid(), SIGSTOP);
	t_sleep_us(300000);
	kill(getppid(), SIGCONT);
	return 0;
}

/* Its work of 20 ms ends while it is stopped for 300 ms. Returns what it is billed for that. */
static uint64_t bill_of_one_that_is_stopped(void)
{
	int *now = t_shared(sizeof(*now));
	pid_t stopper = t_spawn(stops_its_parent_for_a_moment, now, 20);
	uint64_t billed = own_bill_ns();

	host_launch(NULL, 1, 20000);
	posts(now);
	T_CHECK(t_wait(stopper) == 0, "the stopper");
	OK(cuCtxSynchronize());
	return own_bill_ns() - billed;
}

/* When it notices the end of its work says nothing about when that was, in whatever context. */
static void notices_late_in_another_context(void)
{
	host_context(0);
	waits_for_each(20);
	host_context(0);
	for (unsigned round = 0; round < 3; round++) {
		uint64_t bill;

		waits_for_each(20);
		bill = bill_of_one_that_is_stopped();
		T_CHECK(bill > 15000000 && bill < 100000000, "%llu ns of 20 ms are billed, round %u",
			(unsigned long long)bill, round);
	}
}

/* A driver need not answer a thread that has no context; the program's work is billed all the same. */
static void has_a_driver_that_wants_a_context(void)
{
	uint64_t before, billed;

	setenv("GPUSIM_STRICT", "1", 1);
	host_context(0);
	waits_for_each(20);
	before = own_bill_ns();
	host_launch(NULL, 1, 300000);
	t_sleep_us(150000);
	T_CHECK(in_the_set(), "it is out, with a kernel that runs");
	OK(cuCtxSynchronize());
	billed = own_bill_ns() - before;
	T_CHECK(billed > 250000000, "%llu ns of 0.3 s are billed", (unsigned long long)billed);
}

const struct host_case host_gate_cases[] = {
	{"captures in two threads", captures_in_two_threads, "50", 0},
	{"captures in two threads, unlimited", captures_in_two_threads, NULL, 0},
	{"shares its primary context", shares_its_primary_context, NULL, 0},
	{"shares its primary context, limited", shares_its_primary_context, "90", 0},
	{"destroys contexts at work", destroys_contexts_at_work, "50", 0},
	{"waits beside one that never pauses", waits_beside_one_that_never_pauses, NULL, 0},
	{"waits first and floods then", waits_first_and_floods_then, NULL, 0},
	{"cancels a thread at the gate", cancels_a_thread_at_the_gate, "10", 0},
	{"waits for what comes later", waits_for_what_comes_later, "90", 0},
	{"has waited for what comes later", has_waited_for_what_comes_later, "25", 0},
	{"works beside a stream that waits", works_beside_a_stream_that_waits, "25", 0},
	{"has a thread that once worked", has_a_thread_that_once_worked, NULL, 0},
	{"does other things without quota", does_other_things_without_quota, "1", 4},
	{"is stopped while a kernel runs", is_stopped_while_a_kernel_runs, "10", 0},
	{"works without a context first", works_without_a_context_first, "90", 0},
	{"waits by copying", waits_by_copying, "90", 0},
	{"notices late in another context", notices_late_in_another_context, "90", 0},
	{"has a driver that wants a context", has_a_driver_that_wants_a_context, "90", 0},
	{NULL, NULL, NULL, 0},
};

/* A program of the stress: each thread adds to a word on the GPU in every possible way, and knows the sum. */
#include "test/preload/preload_stress.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
#define STREAMS 3

#define OK(call) check(call, #call, __LINE__)

static void check(CUresult got, const char *call, int line)
{
	/* The driver has ended, because the program ends while this thread works. */
	while (got == CUDA_ERROR_DEINITIALIZED)
		pause();
	T_CHECK(got == CUDA_SUCCESS, "line %d: %s gives %d", line, call, (int)got);
}

struct worker {
	pthread_t thread;
	struct t_random random;
	CUcontext shared;
	int device;
	CUcontext ctx; /* its own context, or the shared one */
	bool own;
	CUfunction add, spin;
	CUstream stream[STREAMS];
	CUevent event;
	CUdeviceptr words; /* 0: the sum; 1: what streams wait for */
	uint32_t sum, flag;
	uint32_t called, expected_calls;
};

static CUresult launch(struct worker *w, CUstream s, bool per_thread, uint32_t value)
{
	void *params[] = {&w->words, &value};

	return per_thread ? cuLaunchKernel_ptsz(w->add, 1, 1, 1, 1, 1, 1, 0, s, params, NULL)
			  : cuLaunchKernel(w->add, 1, 1, 1, 1, 1, 1, 0, s, params, NULL);
}

static void add(struct worker *w, CUstream s, bool per_thread, uint32_t value)
{
	OK(launch(w, s, per_thread, value));
	w->sum += value;
}

static void spin(struct worker *w, CUstream s, unsigned us)
{
	void *params[] = {&us};

	OK(cuLaunchKernel(w->spin, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

static void begin(struct worker *w)
{
	CUmodule module;

	if (w->own)
		OK(cuCtxCreate_v2(&w->ctx, 0, w->device));
	else
		OK(cuCtxSetCurrent(w->ctx = w->shared));
	OK(cuModuleLoadData(&module, "any"));
	OK(cuModuleGetFunction(&w->add, module, "add_u32"));
	OK(cuModuleGetFunction(&w->spin, module, "gpusim_spin"));
	for (int i = 0; i < STREAMS; i++)
		OK(cuStreamCreate(&w->stream[i], CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&w->event, t_below(&w->random, 2) ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING));
	OK(cuMemAlloc_v2(&w->words, 8));
	OK(cuMemsetD32Async(w->words, 0, 2, w->stream[0]));
	OK(cuStreamSynchronize(w->stream[0]));
	w->sum = w->flag = 0;
}

static void called(void *argument)
{
	__atomic_fetch_add((uint32_t *)argument, 1, __ATOMIC_RELEASE);
}

static void wait_all(struct worker *w)
{
	for (int i = 0; i < STREAMS; i++)
		OK(cuStreamSynchronize(w->stream[i]));
	OK(cuStreamSynchronize_ptsz(CU_STREAM_PER_THREAD));
	if (w->own)
		OK(cuCtxSynchronize());
}

static void compare(struct worker *w)
{
	uint32_t got = 0;

	wait_all(w);
	OK(cuMemcpyDtoHAsync_v2(&got, w->words, 4, w->stream[0]));
	OK(cuStreamSynchronize(w->stream[0]));
	T_CHECK(got == w->sum, "the sum is %u, not %u", got, w->sum);
	T_CHECK(__atomic_load_n(&w->called, __ATOMIC_ACQUIRE) == w->expected_calls, "calls");
}

static void end(struct worker *w)
{
	compare(w);
	OK(cuMemFree_v2(w->words));
	OK(cuEventDestroy_v2(w->event));
	for (int i = 0; i < STREAMS; i++)
		OK(cuStreamDestroy_v2(w->stream[i]));
	if (w->own)
		OK(cuCtxDestroy_v2(w->ctx));
}

/* Additions must not run at the same time: events order them across streams. */
static void order(struct worker *w, CUstream from, CUstream to)
{
	OK(cuEventRecord(w->event, from));
	OK(cuStreamWaitEvent(to, w->event, 0));
}

static void across_streams(struct worker *w)
{
	wait_all(w);
	for (int i = 0; i < STREAMS; i++) {
		add(w, w->stream[i], false, 1);
		order(w, w->stream[i], w->stream[(i + 1) % STREAMS]);
	}
	add(w, w->stream[0], false, 1);
	OK(cuStreamSynchronize(w->stream[0]));
}

static void captured(struct worker *w)
{
	bool own = t_below(&w->random, 3) == 0;
	unsigned n = 1 + t_below(&w->random, 20);
	CUstream s = own ? NULL : w->stream[1];
	CUgraphExec exec;
	CUgraph graph;

	wait_all(w);
	if (own)
		OK(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	else
		OK(cuStreamBeginCapture_v2(s, t_below(&w->random, 2) ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
								     : CU_STREAM_CAPTURE_MODE_RELAXED));
	for (unsigned i = 0; i < n; i++)
		OK(launch(w, s, own, 1));
	if (t_below(&w->random, 3) == 0) {
		OK(own ? cuLaunchHostFunc_ptsz(s, called, &w->called)
		       : cuLaunchHostFunc(s, called, &w->called));
		w->expected_calls += 2;
	}
	OK(own ? cuStreamEndCapture_ptsz(s, &graph) : cuStreamEndCapture(s, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 2; i++)
		OK(cuGraphLaunch(exec, w->stream[1]));
	w->sum += 2 * n;
	OK(cuStreamSynchronize(w->stream[1]));
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
}

/* Work in front waits for work behind it. */
static void waits_for_later(struct worker *w)
{
	wait_all(w);
	w->flag++;
	OK(cuStreamWaitValue32_v2(w->stream[0], w->words + 4, w->flag, CU_STREAM_WAIT_VALUE_GEQ));
	spin(w, w->stream[0], 20);
	spin(w, w->stream[1], 20);
	OK(cuStreamWriteValue32_v2(w->stream[1], w->words + 4, w->flag, 0));
	OK(cuStreamSynchronize(w->stream[0]));
}

static void polls(struct worker *w)
{
	CUresult r;

	add(w, w->stream[2], false, 1);
	OK(cuEventRecord(w->event, w->stream[2]));
	while ((r = cuEventQuery(w->event)) == CUDA_ERROR_NOT_READY)
		sched_yield();
	OK(r);
}

static void hosts(struct worker *w)
{
	add(w, w->stream[2], false, 1);
	OK(cuLaunchHostFunc(w->stream[2], called, &w->called));
	w->expected_calls++;
	while (__atomic_load_n(&w->called, __ATOMIC_ACQUIRE) != w->expected_calls)
		usleep(200);
}

static void floods(struct worker *w)
{
	unsigned n = 20 + t_below(&w->random, 300), us = 2 + t_below(&w->random, 30);

	for (unsigned i = 0; i < n; i++)
		spin(w, w->stream[t_below(&w->random, STREAMS)], us);
}

static void step(struct worker *w)
{
	switch (t_below(&w->random, 16)) {
	case 0:
		across_streams(w);
		break;
	case 1:
		captured(w);
		break;
	case 2:
		waits_for_later(w);
		break;
	case 3:
		wait_all(w);
		hosts(w);
		break;
	case 4:
		floods(w);
		break;
	case 5:
		wait_all(w);
		for (int i = 0; i < 40; i++)
			add(w, NULL, true, 1);
		OK(cuStreamSynchronize_ptsz(NULL));
		break;
	case 6:
		wait_all(w);
		/* The default stream of all threads may be used where no other thread captures. */
		if (w->own)
			for (int i = 0; i < 10; i++)
				add(w, NULL, false, 1);
		break;
	case 7:
		if (!t_below(&w->random, 4)) {
			end(w);
			begin(w);
		}
		break;
	case 8:
		OK(cuStreamSynchronize(w->stream[1]));
		OK(cuStreamDestroy_v2(w->stream[1]));
		OK(cuStreamCreate(&w->stream[1], CU_STREAM_NON_BLOCKING));
		break;
	case 9:
		usleep(t_below(&w->random, 3000));
		break;
	case 10:
		spin(w, w->stream[0], 2000 + t_below(&w->random, 3000));
		break;
	default:
		wait_all(w);
		polls(w);
	}
}

static void *work(void *argument)
{
	struct worker *w = argument;

	begin(w);
	while (!__atomic_load_n(stress.stop, __ATOMIC_ACQUIRE))
		step(w);
	end(w);
	return NULL;
}

int stress_program(void *argument)
{
	const struct program *p = argument;
	struct t_random r = t_seeded(p->seed);
	struct worker w[THREADS];
	char account[16];
	CUcontext shared, popped;

	snprintf(account, sizeof(account), "stress%u", p->index);
	setenv("GPUARB_ACCOUNT", account, 1);
	memset(w, 0, sizeof(w));
	OK(cuInit(0));
	OK(cuCtxCreate_v2(&shared, 0, 0));
	OK(cuCtxPopCurrent_v2(&popped));
	for (int i = 0; i < THREADS; i++) {
		w[i].random = t_seeded(t_next(&r));
		w[i].shared = shared;
		w[i].own = i % 2;
		/* One of the threads has another GPU. */
		w[i].device = i == 3 ? 1 : 0;
		T_CHECK(!pthread_create(&w[i].thread, NULL, work, &w[i]), "no thread");
	}
	/* Some programs end in the middle of it. */
	if (!t_below(&r, 8)) {
		usleep(t_below(&r, 500000));
		exit(0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
	return 0;
}

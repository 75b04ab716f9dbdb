/* What waits at the gate, what is billed, and what is left alone. */
#include "preload_host.h"

#include <pthread.h>

static CUstream new_stream(void)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static pthread_barrier_t barrier;

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

const struct host_case host_gate_cases[] = {
	{"captures in two threads", captures_in_two_threads, "50", 0},
	{"captures in two threads, unlimited", captures_in_two_threads, NULL, 0},
	{"begins a capture twice", begins_a_capture_twice, "50", 0},
	{NULL, NULL, NULL, 0},
};

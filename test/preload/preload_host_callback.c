/*
 * Work whose end cannot be foreseen. The driver is asked for a completion callback. The program must not notice,
 * whatever it does meanwhile, and whether or not the driver calls back. Under a driver that writes down its calls
 * ($FORWARD_LOG) the test also sees whether it was asked.
 */
#include "test/preload/preload_host.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns how often the driver was asked for a host function; the programs here ask for none themselves. */
static unsigned asked(void)
{
	const char *path = getenv("FORWARD_LOG");
	FILE *file = path ? fopen(path, "re") : NULL;
	char line[160];
	unsigned n = 0;

	while (file && fgets(line, sizeof(line), file))
		n += !strncmp(line, "cuLaunchHostFunc", strlen("cuLaunchHostFunc"));
	if (file)
		fclose(file);
	return n;
}

static bool answers(void)
{
	const char *how = getenv("FORWARD_HOST_FUNC");

	return how && !strcmp(how, "works");
}

/*
 * Launches a kernel that was never launched before and takes long enough for the driver to be asked. On a busy
 * machine it may have ended before our thread got a processor. Then there was nothing to ask for, and it is tried
 * again with a longer kernel.
 */
static void begin_long_work(CUstream stream, unsigned ms)
{
	unsigned before = asked();

	for (int tries = 0; tries < 6; tries++, ms *= 2) {
		uint64_t end = t_now_ns() + (ms + 1000) * 1000000ull;

		host_launch(stream, 1, ms * 1000);
		if (!getenv("FORWARD_LOG")) {
			t_sleep_us(10000);
			return;
		}
		while (t_now_ns() < end) {
			if (asked() > before)
				return;
			t_sleep_us(1000);
		}
	}
	T_CHECK(false, "the driver was not asked");
}

static void is_told(void)
{
	host_context(0);
	for (int i = 0; i < 3; i++) {
		/* A driver that cannot do it is asked only once. */
		if (i && getenv("FORWARD_HOST_FUNC") && !strcmp(getenv("FORWARD_HOST_FUNC"), "fails"))
			host_launch(NULL, 1, 50000);
		else
			begin_long_work(NULL, 50);
		host_must_leave(0);
	}
	host_work();
}

static void destroys_its_context(void)
{
	for (int i = 0; i < 3; i++) {
		CUcontext context = host_context(0);

		begin_long_work(NULL, 100);
		OK(cuCtxDestroy_v2(context));
	}
	host_must_leave(0);
	host_context(0);
	host_work();
}

static void resets_its_context(void)
{
	CUcontext context;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	begin_long_work(NULL, 100);
	OK(cuDevicePrimaryCtxReset_v2(0));
	host_must_leave(0);
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	begin_long_work(NULL, 50);
	OK(cuCtxSynchronize());
	host_must_leave(0);
}

static void ends(void)
{
	host_context(0);
	begin_long_work(NULL, 200);
}

static void *ends_last(void *argument)
{
	OK(cuCtxSetCurrent(argument));
	begin_long_work(NULL, 50);
	host_must_leave(0);
	return NULL;
}

/* The driver has a thread of its own by then, which it has only because of the preload. */
static void ends_with_its_last_thread(void)
{
	pthread_t thread;

	T_CHECK(!pthread_create(&thread, NULL, ends_last, host_context(0)), "no thread");
	pthread_exit(NULL);
}

static int works_anew(void *argument)
{
	/* The driver does not work after a fork, and need not. */
	T_CHECK(argument == NULL, "an argument");
	return 3;
}

static void forks(void)
{
	host_context(0);
	begin_long_work(NULL, 100);
	T_CHECK(t_run(works_anew, NULL, 20) == 3, "the child suffered");
	OK(cuCtxSynchronize());
	host_must_leave(0);
}

static void captures(void)
{
	CUstream stream, other;
	CUgraph graph;
	CUgraphExec exec;

	host_context(0);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	begin_long_work(other, 60);
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	host_launch(stream, 3, 100);
	t_sleep_us(100000);
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	host_must_leave(0);
}

static void work_in_streams(CUstream *streams, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		host_launch(streams[i], 1, 20000);
	host_must_leave(0);
}

#define STREAMS_MOST 40
static void make_streams(CUstream *streams, unsigned n)
{
	host_context(0);
	for (unsigned i = 0; i < n; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
}

/* On a busy machine another thread may see the end first, so it is tried several times. */
static void has_some_streams(void)
{
	CUstream streams[8];
	bool must_ask = getenv("FORWARD_LOG") != NULL;

	make_streams(streams, 8);
	work_in_streams(streams, 8);
	for (int i = 0; i < 20 && must_ask && !asked(); i++)
		work_in_streams(streams, 8);
	T_CHECK(!must_ask || asked() > 0, "the driver was not asked");
}

static void has_many_streams(void)
{
	CUstream streams[STREAMS_MOST];

	make_streams(streams, STREAMS_MOST);
	work_in_streams(streams, STREAMS_MOST);
}

/* The second context is destroyed while there is work in the first. */
static void has_two_contexts(void)
{
	CUcontext first = host_context(0), second = host_context(0);

	host_launch(NULL, 1, 20000);
	OK(cuCtxSetCurrent(first));
	begin_long_work(NULL, 100);
	OK(cuCtxDestroy_v2(second));
	host_must_leave(0);
	host_work();
}

/* A wait for one context's work does not wait for another's, whichever had a callback before. */
static void waits_beside_another_context(void)
{
	CUcontext first = host_context(0), second = host_context(0);
	CUevent end;

	OK(cuCtxSetCurrent(first));
	begin_long_work(NULL, 50);
	host_must_leave(0);
	OK(cuCtxSetCurrent(second));
	OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
	begin_long_work(NULL, 3000);
	OK(cuEventRecord(end, NULL));
	OK(cuCtxSetCurrent(first));
	host_launch(NULL, 1, 100);
	OK(cuCtxSynchronize());
	OK(cuCtxDestroy_v2(first));
	OK(cuCtxSetCurrent(second));
	GIVES(cuEventQuery(end), CUDA_ERROR_NOT_READY);
	OK(cuCtxDestroy_v2(second));
	host_must_leave(0);
}

static uint32_t let_go;

/* Stands still until it is let go, however long that takes. */
static void stands_still(void *argument)
{
	while (!__atomic_load_n((uint32_t *)argument, __ATOMIC_ACQUIRE))
		t_sleep_us(1000);
}

/* The driver's thread is busy with a function of the program: that must not keep the program in the set. */
static void has_a_function_that_stands_still(void)
{
	CUstream stream;

	/* A driver that calls no host function does not call the program's either. */
	if (getenv("FORWARD_HOST_FUNC") && !answers())
		return;
	host_context(0);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < 3; i++) {
		__atomic_store_n(&let_go, 0, __ATOMIC_RELEASE);
		OK(cuLaunchHostFunc(stream, stands_still, &let_go));
		host_launch(NULL, 1, 20000);
		host_must_leave(0);
		__atomic_store_n(&let_go, 1, __ATOMIC_RELEASE);
		OK(cuStreamSynchronize(stream));
	}
	host_work();
}

/* The program's first function waits for the program, which waits for another context: it must not wait for a
 * callback there. */
static void calls_beside_another_context(void)
{
	CUcontext first, second;
	CUstream stream;

	if (getenv("FORWARD_HOST_FUNC") && !answers())
		return;
	first = host_context(0);
	second = host_context(0);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuCtxSetCurrent(first));
	begin_long_work(NULL, 50);
	OK(cuCtxSetCurrent(second));
	OK(cuLaunchHostFunc(stream, stands_still, &let_go));
	OK(cuCtxSetCurrent(first));
	OK(cuCtxSynchronize());
	__atomic_store_n(&let_go, 1, __ATOMIC_RELEASE);
	OK(cuCtxSetCurrent(second));
	OK(cuStreamSynchronize(stream));
	host_must_leave(0);
}

/* If no callback ever comes, the driver is asked a few times only: its queue would become full otherwise. */
static void is_not_answered(void)
{
	const char *how = getenv("FORWARD_HOST_FUNC");
	unsigned before;

	host_context(0);
	before = asked();
	for (int i = 0; i < 20; i++) {
		host_launch(NULL, 1, i % 2 ? 12000 : 4000);
		host_must_leave(0);
	}
	T_CHECK(!how || strcmp(how, "never") || asked() - before <= 8, "it was asked %u times",
		asked() - before);
	host_work();
}

/* Returns how often this thread has asked, if the driver counts that. */
static unsigned asked_here(void)
{
	unsigned (*callbacks)(void) = (unsigned (*)(void))dlsym(RTLD_DEFAULT, "forward_callbacks");

	return callbacks ? callbacks() : 0;
}

/* Launches one short kernel at a time, now and then. The launching thread asks for the callback, so that no thread
 * has to wake for that. The driver must not have made its own thread for us. */
static void now_and_then(void)
{
	unsigned first = 0, rounds = answers() ? 80 : 20;

	host_context(0);
	for (unsigned i = 0; i < rounds && !(i >= 20 && first); i++) {
		unsigned before = asked();

		host_launch(NULL, 1, i % 2 ? 700 : 1800);
		if (!first && asked_here())
			first = 1 + before;
		/* On a slow machine the tracker needs more CPU budget for it first. */
		t_sleep_us(i < 50 ? 20000 : 200000);
		host_must_leave(0);
	}
	T_CHECK(!answers() || first, "it never asked");
	T_CHECK(!answers() || first > 1, "it was the first to ask");
	host_work();
}

/* A program that waits for all its streams would wait for the driver's thread, too. */
static void waits_each_time(void)
{
	host_context(0);
	begin_long_work(NULL, 50);
	host_must_leave(0);
	for (unsigned i = 0; i < 30; i++) {
		host_launch(NULL, 1, i % 2 ? 700 : 1800);
		OK(cuCtxSynchronize());
		t_sleep_us(20000);
	}
	T_CHECK(!asked_here(), "it asked %u times", asked_here());
	host_must_leave(0);
}

/* Launches work whose end cannot be foreseen, in a program where the driver must not be asked. */
static void work_unasked(CUstream stream)
{
	unsigned before = asked();

	for (unsigned i = 0; i < 6; i++) {
		host_launch(stream, 1, i % 2 ? 40000 : 15000);
		host_must_leave(0);
	}
	T_CHECK(asked() == before, "it asked %u times", asked() - before);
}

static void must_not_ask(void)
{
	setenv("GPUARB_CALLBACK", "off", 1);
	host_context(0);
	work_unasked(NULL);
}

static void has_few_queues(void)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	host_context(0);
	work_unasked(NULL);
}

static void uses_the_highest_priority(void)
{
	CUstream stream;
	int least, greatest;

	host_context(0);
	OK(cuCtxGetStreamPriorityRange(&least, &greatest));
	OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));
	work_unasked(stream);
}

const struct host_case host_callback_cases[] = {
	{"callback: is told when its work has ended", is_told, "90", 0},
	{"callback: destroys its context", destroys_its_context, "90", 0},
	{"callback: resets its context", resets_its_context, "90", 0},
	{"callback: ends", ends, "90", 0},
	{"callback: ends with its last thread", ends_with_its_last_thread, "90", 0},
	{"callback: forks", forks, "90", 0},
	{"callback: is not answered", is_not_answered, "90", 0},
	{"callback: works now and then", now_and_then, "90", 0},
	{"callback: works now and then without a limit", now_and_then, NULL, 0},
	{"callback: waits each time", waits_each_time, "90", 0},
	{"callback: captures", captures, "90", 0},
	{"callback: has some streams", has_some_streams, "90", 0},
	{"callback: has many streams", has_many_streams, "90", 0},
	{"callback: has two contexts", has_two_contexts, "90", 0},
	{"callback: waits beside another context", waits_beside_another_context, "90", 0},
	{"callback: calls beside another context", calls_beside_another_context, "90", 0},
	{"callback: has a function that stands still", has_a_function_that_stands_still, "90", 0},
	{"callback: must not ask", must_not_ask, "90", 0},
	{"callback: has few queues", has_few_queues, "90", 0},
	{"callback: uses the highest priority", uses_the_highest_priority, "90", 0},
	{NULL, NULL, NULL, 0},
};

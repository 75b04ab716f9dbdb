/* Fixed work on a GPU, to measure gpuarb with: gpu_work MODE [name=value ...]. It uses nothing but the driver, knows
 * nothing of gpuarb, and prints one JSON object for each result. */
#include "test/gpu/work.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test/gpu/kernels.h"

CUdevice work_device;
CUcontext work_context;
CUmodule work_module;

static void *driver;
static char **options;

void work_fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("gpu_work: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	exit(1);
}

void *work_symbol(const char *name)
{
	void *found;

	if (!driver)
		driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver)
		work_fail("%s", dlerror());
	found = dlsym(driver, name);
	if (!found)
		work_fail("the driver has no %s", name);
	return found;
}

void work_ok(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS)
		work_fail("%s gives %d", what, (int)result);
}

uint64_t work_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

const char *work_text(const char *name, const char *other)
{
	size_t length = strlen(name);

	for (char **o = options; *o; o++)
		if (!strncmp(*o, name, length) && (*o)[length] == '=')
			return *o + length + 1;
	return other;
}

double work_option(const char *name, double other)
{
	const char *text = work_text(name, NULL);

	return text ? atof(text) : other;
}

CUfunction work_function(const char *name)
{
	CUfunction f;

	OK(CU(cuModuleGetFunction)(&f, work_module, name));
	return f;
}

void work_begin(void)
{
	OK(CU(cuInit)(0));
	OK(CU(cuDeviceGet)(&work_device, 0));
	OK(CU(cuDevicePrimaryCtxRetain)(&work_context, work_device));
	OK(CU(cuCtxSetCurrent)(work_context));
	OK(CU(cuModuleLoadData)(&work_module, kernels_ptx));
}

#define THREADS 256

unsigned work_blocks(void)
{
	static unsigned blocks;
	int sms = 1, each = 1;

	if (blocks)
		return blocks;
	OK(CU(cuDeviceGetAttribute)(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, work_device));
	OK(CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&each, work_function("spin_ns"), THREADS, 0));
	blocks = (unsigned)(sms * (each > 0 ? each : 1));
	return blocks;
}

void work_launch(CUstream stream, uint64_t count)
{
	static __typeof__(cuLaunchKernel) *launch;
	static CUfunction f;
	void *params[] = {&count};

	if (!launch) {
		f = work_function("spin_ns");
		launch = CU(cuLaunchKernel);
	}
	OK(launch(f, work_blocks(), 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
}

/* Returns how long each of `n` kernels takes that are queued behind each other, when nothing else runs. */
static double each_ns(CUstream stream, uint64_t count, unsigned n)
{
	uint64_t begin;

	work_launch(stream, count);
	OK(CU(cuStreamSynchronize)(stream));
	begin = work_now_ns();
	for (unsigned i = 0; i < n; i++)
		work_launch(stream, count);
	OK(CU(cuStreamSynchronize)(stream));
	return (double)(work_now_ns() - begin) / n;
}

/* Finds the count that takes each of the wanted lengths. It takes the best of five tries, because clocks rise under
 * load. */
void work_calibrate(void)
{
	char *list = strdup(work_text("us", "20,200,1000")), *rest = NULL;
	CUstream stream;

	work_begin();
	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	for (uint64_t until = work_now_ns() + 500000000u; work_now_ns() < until;)
		each_ns(stream, 10000, 20);
	for (char *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
		double want = atof(word) * 1000, count = 1000, got = 0, best = 0;
		unsigned n = (unsigned)(40e6 / want) + 8;

		for (int i = 0; i < 6; i++) {
			got = each_ns(stream, (uint64_t)count, i < 2 ? 20 : n);
			if (i < 5)
				count = count * want / got < 1 ? 1 : count * want / got;
		}
		best = got;
		for (int i = 0; i < 4; i++) {
			got = each_ns(stream, (uint64_t)count, n);
			if (got < best)
				best = got;
		}
		printf("{\"us\": %s, \"count\": %llu, \"alone_ns\": %.1f}\n", word, (unsigned long long)count,
			best);
	}
	free(list);
}

/*
 * Does units of work for the given number of seconds. sync=0: about 6 ms of work are always queued; sync=1: each unit
 * is waited for. Only whole batches that ended within the measured time count, from the end of the first to the end
 * of the last.
 */
void work_run(void)
{
	double warm = work_option("warm", 1), seconds = work_option("seconds", 2);
	uint64_t count = (uint64_t)work_option("count", 10000), first = 0, last = 0, units = 0, now, until;
	unsigned batch = (unsigned)work_option("batch", 1), turn = 0;
	bool waits = work_option("sync", 0) != 0;
	CUevent event[4];
	CUstream stream;

	work_begin();
	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 4; i++) {
		OK(CU(cuEventCreate)(&event[i], CU_EVENT_DISABLE_TIMING));
		OK(CU(cuEventRecord)(event[i], stream));
	}
	now = work_now_ns();
	until = now + (uint64_t)((warm + seconds) * 1e9);
	for (uint64_t from = now + (uint64_t)(warm * 1e9); now < until;) {
		for (unsigned i = 0; i < batch; i++)
			work_launch(stream, count);
		if (waits) {
			OK(CU(cuStreamSynchronize)(stream));
		} else {
			OK(CU(cuEventRecord)(event[turn % 4], stream));
			OK(CU(cuEventSynchronize)(event[++turn % 4]));
		}
		now = work_now_ns();
		if (now < from)
			continue;
		if (first)
			units += batch;
		else
			first = now;
		last = now;
	}
	OK(CU(cuCtxSynchronize)());
	printf("{\"units\": %llu, \"elapsed_ns\": %llu}\n", (unsigned long long)units,
		(unsigned long long)(last - first));
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

#define ROUNDS 4096

/* Measures how many calls of `submit` are made a second, with a wait after each `n`: in the fastest fifth of the
 * rounds, and on average. */
static void rate(const char *name, void (*submit)(CUstream stream, void *what), void *what, CUstream stream,
	unsigned n, double seconds)
{
	static double ns[ROUNDS];
	uint64_t begin = work_now_ns(), last = begin;
	unsigned rounds = 0;

	while ((double)(last - begin) < seconds * 1e9 && rounds < ROUNDS) {
		uint64_t now;

		for (unsigned i = 0; i < n; i++)
			submit(stream, what);
		OK(CU(cuStreamSynchronize)(stream));
		now = work_now_ns();
		ns[rounds++] = (double)(now - last);
		last = now;
	}
	/* Slow rounds were disturbed, by other programs or because the program was throttled. */
	qsort(ns, rounds, sizeof(*ns), compare);
	printf("{\"what\": \"%s\", \"best\": %.0f, \"mean\": %.0f}\n", name, n * 1e9 / ns[rounds / 5],
		(double)n * rounds * 1e9 / (double)(last - begin));
}

static void submit_launch(CUstream stream, void *f)
{
	OK(CU(cuLaunchKernel)(f, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

static void submit_graph(CUstream stream, void *exec)
{
	OK(CU(cuGraphLaunch)(exec, stream));
}

void work_rate(void)
{
	double seconds = work_option("seconds", 1);
	CUfunction f;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	work_begin();
	f = work_function("nothing");
	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	rate("launches", submit_launch, f, stream, 100, seconds);
	OK(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (int i = 0; i < 10; i++)
		submit_launch(stream, f);
	OK(CU(cuStreamEndCapture)(stream, &graph));
	OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	rate("graphs", submit_graph, exec, stream, 20, seconds);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} modes[] = {{"calibrate", work_calibrate}, {"run", work_run}, {"rate", work_rate},
		{"facts", work_facts}, {"memory", work_memory}, {"safety", work_safety},
		{"switches", work_switches}};

	options = argv + argc;
	if (argc > 1)
		options = argv + 2;
	setlinebuf(stdout);
	for (size_t i = 0; argc > 1 && i < sizeof(modes) / sizeof(*modes); i++)
		if (!strcmp(argv[1], modes[i].name)) {
			modes[i].run();
			return 0;
		}
	fputs("usage: gpu_work calibrate|run|rate|facts|memory|safety|switches [name=value ...]\n", stderr);
	return 2;
}

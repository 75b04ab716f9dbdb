/* Facts about this driver: addresses, delays, costs. */
#include "test/gpu/work.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPEAT 200

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void say(const char *name, double *ns, unsigned n)
{
	qsort(ns, n, sizeof(*ns), compare);
	printf("{\"fact\": \"%s\", \"us\": %.2f, \"most_us\": %.2f}\n", name, ns[n / 2] / 1000,
		ns[n - 1 - n / 20] / 1000);
}

/* Checks the functions by whose address the preload tells which of its wrappers is meant. */
static void addresses(void)
{
	static const char *const names[][2] = {{"cuLaunchKernel", "cuLaunchKernel"},
		{"cuMemAlloc", "cuMemAlloc_v2"}, {"cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2"},
		{"cuStreamSynchronize", "cuStreamSynchronize"}, {"cuGraphLaunch", "cuGraphLaunch"},
		{"cuMemAllocAsync", "cuMemAllocAsync"}, {"cuEventRecord", "cuEventRecord"},
		{"cuCtxCreate", "cuCtxCreate_v2"}, {"cuMemGetInfo", "cuMemGetInfo_v2"},
		{"cuStreamBeginCapture", "cuStreamBeginCapture_v2"}};
	unsigned same = 0, asked = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		CUdriverProcAddressQueryResult status;
		void *found = NULL;

		if (CU(cuGetProcAddress_v2)(names[i][0], &found, 11030, 0, &status) != CUDA_SUCCESS || !found)
			continue;
		asked++;
		same += found == work_symbol(names[i][1]);
	}
	printf("{\"fact\": \"exported\", \"asked\": %u, \"same\": %u}\n", asked, same);
}

/* Measures from the record of an event in an idle stream until a query says that it has passed. */
static void event_delay(const char *name)
{
	static double ns[REPEAT];
	CUstream stream;
	CUevent event;
	unsigned n = 0;

	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	for (uint64_t until = work_now_ns() + 2000000000u; n < REPEAT && work_now_ns() < until; n++) {
		uint64_t begin = work_now_ns();

		OK(CU(cuEventRecord)(event, stream));
		while (CU(cuEventQuery)(event) == CUDA_ERROR_NOT_READY)
			;
		ns[n] = (double)(work_now_ns() - begin);
		usleep(200);
	}
	say(name, ns, n);
	OK(CU(cuStreamDestroy_v2)(stream));
}

static void note(void *at)
{
	__atomic_store_n((uint64_t *)at, work_now_ns(), __ATOMIC_RELEASE);
}

/* Measures from the end of a kernel, as a waiter sees it, to the call of a host function behind it. */
static void callback_delay(void)
{
	static double ns[50];
	CUstream stream;
	CUevent event;

	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < 50; i++) {
		uint64_t called = 0, ended;

		work_launch(stream, 1000);
		OK(CU(cuEventRecord)(event, stream));
		OK(CU(cuLaunchHostFunc)(stream, note, &called));
		while (CU(cuEventQuery)(event) == CUDA_ERROR_NOT_READY)
			;
		ended = work_now_ns();
		while (!__atomic_load_n(&called, __ATOMIC_ACQUIRE))
			sched_yield();
		ns[i] = called > ended ? (double)(called - ended) : 0;
	}
	say("callback", ns, 50);
	OK(CU(cuStreamDestroy_v2)(stream));
}

static void costs(void)
{
	static double launch[REPEAT], record[REPEAT], query[REPEAT];
	CUfunction f = work_function("nothing");
	CUstream stream;
	CUevent event;

	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < REPEAT; i++) {
		uint64_t a = work_now_ns(), b, c;

		OK(CU(cuLaunchKernel)(f, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
		b = work_now_ns();
		OK(CU(cuEventRecord)(event, stream));
		c = work_now_ns();
		CU(cuEventQuery)(event);
		launch[i] = (double)(b - a);
		record[i] = (double)(c - b);
		query[i] = (double)(work_now_ns() - c);
		if (i % 20 == 0)
			OK(CU(cuStreamSynchronize)(stream));
	}
	say("launch", launch, REPEAT);
	say("record", record, REPEAT);
	say("query", query, REPEAT);
}

void work_facts(void)
{
	double first;
	uint64_t begin;
	int version = 0;
	Dl_info info;

	work_begin();
	begin = work_now_ns();
	work_launch(NULL, 1);
	OK(CU(cuCtxSynchronize)());
	first = (double)(work_now_ns() - begin);
	say("first launch", &first, 1);
	OK(CU(cuDriverGetVersion)(&version));
	printf("{\"fact\": \"version\", \"value\": %d}\n", version);
	if (dladdr(work_symbol("cuInit"), &info))
		printf("{\"fact\": \"driver\", \"path\": \"%s\"}\n", info.dli_fname);
	addresses();
	event_delay("event alone");
	callback_delay();
	costs();
	/* The program that started this one now runs something at the same time. */
	if (work_option("beside", 0) != 0) {
		char line[8];

		puts("{\"fact\": \"ready\"}");
		if (fgets(line, sizeof(line), stdin))
			event_delay("event beside a spinner");
	}
}

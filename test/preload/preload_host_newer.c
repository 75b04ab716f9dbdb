/* Calls of CUDA 13.1 to 13.4, and functions of a driver that is newer than those. */
#include "test/preload/preload_host.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "preload/hooks/hooks.h"
#include "preload/process/process.h"

static uint64_t seen(unsigned which)
{
	unsigned (*get)(uint64_t *, unsigned) =
		(unsigned (*)(uint64_t *, unsigned))dlsym(RTLD_DEFAULT, "gpuarb_preload_seen");
	uint64_t counts[CAT_COUNT + NOTE_COUNT] = {0};

	T_CHECK(get, "there is no preload");
	get(counts, CAT_COUNT + NOTE_COUNT);
	return counts[which];
}

static size_t nodes_of(CUgraph graph)
{
	size_t n = 0;

	OK(cuGraphGetNodes(graph, NULL, &n));
	return n;
}

/* It has a limit, so that work is fenced. A fence in a capture would become a node, or end the capture. */
static void captures_once_more(void)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUgraph graph, same;
	CUgraphExec exec;
	CUstream stream, other;

	host_context(0);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	host_launch(stream, 12, 50);
	OK(cuStreamEndCapture(stream, &graph));
	for (CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
		mode++)
		for (int ptsz = 0; ptsz < 2; ptsz++) {
			host_launch(other, 20, 100);
			if (ptsz)
				OK(cuStreamBeginRecaptureToGraph_ptsz(stream, mode, graph, NULL, NULL));
			else
				OK(cuStreamBeginRecaptureToGraph(stream, mode, graph, NULL, NULL));
			host_launch(stream, 12, 70);
			OK(cuStreamIsCapturing(stream, &status));
			T_CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "status %d", (int)status);
			OK(cuStreamEndCapture(stream, &same));
			T_CHECK(same == graph, "another graph");
			T_CHECK(nodes_of(graph) == 12, "%zu nodes", nodes_of(graph));
			OK(cuStreamSynchronize(other));
		}
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	host_must_leave(0);
}

static void nothing(void *data)
{
	__atomic_fetch_add((int *)data, 1, __ATOMIC_RELAXED);
}

static void copies_with_attributes(void)
{
	CUmemcpyAttributes attr = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	uint64_t copies = seen(CAT_COPY), functions = seen(CAT_HOSTFN), billed;
	CUdeviceptr from, to;
	CUstream stream;
	int called = 0;

	host_context(0);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&from, 1 << 20));
	OK(cuMemAlloc_v2(&to, 1 << 20));
	OK(cuMemsetD8Async(from, 7, 1 << 20, stream));
	for (int i = 0; i < 100; i++)
		OK(cuMemcpyWithAttributesAsync(to, from, 1 << 20, &attr, stream));
	OK(cuLaunchHostFunc_v2(stream, nothing, &called, 1));
	OK(cuStreamSynchronize(stream));
	T_CHECK(called == 1, "called %d times", called);
	T_CHECK(seen(CAT_COPY) - copies == 100, "%d copies seen", (int)(seen(CAT_COPY) - copies));
	T_CHECK(seen(CAT_HOSTFN) - functions == 1, "the host function was not seen");
	host_must_leave(0);
	/* 1 MiB at 1000 GB/s, and 1 us more, a hundred times. */
	billed = host_picture(0)->clients[0].used_ns;
	T_CHECK(billed > 200000, "billed %d us", (int)(billed / 1000));
}

/* Only the forwarding driver exports such names. */
static void asks_for_what_is_in_no_table(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found = NULL;
	uint64_t before = seen(CAT_COUNT + NOTE_UNKNOWN), now;
	CUdriverProcAddressQueryResult status;
	const char *names = "";

	T_CHECK(driver, "%s", dlerror());
	T_CHECK(dlsym(driver, "cuGraphNodeSetParams"), "%s", dlerror());
	T_CHECK(dlsym(driver, "cuGraphNodeSetParams_v2"), "%s", dlerror());
	T_CHECK(seen(CAT_COUNT + NOTE_UNKNOWN) == before, "what is in a table was counted");
	if (!dlsym(driver, "cuUnheardOf"))
		return;
	OK(cuGetProcAddress_v2("cuUnheardOfToo", &found, CUDA_ABI_NEWEST, 0, &status));
	T_CHECK(found, "nothing found");
	now = seen(CAT_COUNT + NOTE_UNKNOWN);
	T_CHECK(now == before + 2, "%d counted", (int)(now - before));
	host_context(0);
	for (int i = 0; i < 200 && !*names; i++) {
		host_work();
		t_sleep_us(10000);
		names = host_picture(0)->clients[0].unknown;
	}
	T_CHECK(!strcmp(names, "cuUnheardOf cuUnheardOfToo"), "'%s'", names);
	T_CHECK(host_picture(0)->clients[0].counter[ARB_COUNTER_PAST_UNKNOWN] == 2, "not shown");
}

const struct host_case host_newer_cases[] = {
	{"newer: captures once more into a graph", captures_once_more, "40", 0},
	{"newer: copies with attributes, and a host function of the second form", copies_with_attributes,
		NULL, 0},
	{"newer: asks for functions that are in no table", asks_for_what_is_in_no_table, NULL, 0},
	{NULL, NULL, NULL, 0},
};

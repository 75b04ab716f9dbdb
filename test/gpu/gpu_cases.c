/* Allocates memory of each kind and holds it until it has been measured; and does things that the preload must not
 * disturb. */
#include "test/gpu/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void wait_for_a_look(const char *state)
{
	char line[16];

	printf("{\"state\": \"%s\"}\n", state);
	if (!fgets(line, sizeof(line), stdin))
		exit(1);
}

static CUmemAllocationProp on_device(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = work_device}};

	return prop;
}

static void hold_virtual(size_t bytes)
{
	CUmemAllocationProp prop = on_device();
	CUmemGenericAllocationHandle handle;
	size_t step = 1;

	OK(CU(cuMemGetAllocationGranularity)(&step, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	bytes = (bytes + step - 1) / step * step;
	OK(CU(cuMemCreate)(&handle, bytes, &prop, 0));
	wait_for_a_look("held");
	OK(CU(cuMemRelease)(handle));
}

static void hold_ordered(size_t bytes)
{
	CUdeviceptr p;

	OK(CU(cuMemAllocAsync)(&p, bytes, NULL));
	OK(CU(cuStreamSynchronize)(NULL));
	wait_for_a_look("held");
	OK(CU(cuMemFreeAsync)(p, NULL));
	OK(CU(cuStreamSynchronize)(NULL));
}

static void hold_array(size_t bytes)
{
	CUDA_ARRAY_DESCRIPTOR d = {
		.Width = 4096, .Height = bytes / 16384, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUarray array;

	OK(CU(cuArrayCreate_v2)(&array, &d));
	wait_for_a_look("held");
	OK(CU(cuArrayDestroy)(array));
}

static void hold_graph(size_t bytes)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = bytes};
	CUmemAllocationProp prop = on_device();
	CUgraphExec exec;
	CUgraphNode node;
	CUgraph graph;

	params.poolProps.allocType = prop.type;
	params.poolProps.location = prop.location;
	OK(CU(cuGraphCreate)(&graph, 0));
	OK(CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &params));
	OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	OK(CU(cuGraphLaunch)(exec, NULL));
	OK(CU(cuCtxSynchronize)());
	wait_for_a_look("held");
	OK(CU(cuMemFree_v2)(params.dptr));
}

static void hold_plain(size_t bytes)
{
	CUdeviceptr p;

	OK(CU(cuMemAlloc_v2)(&p, bytes));
	OK(CU(cuMemsetD8_v2)(p, 0, bytes));
	wait_for_a_look("held");
	OK(CU(cuMemFree_v2)(p));
}

static void hold_pitched(size_t bytes)
{
	CUdeviceptr p;
	size_t pitch;

	OK(CU(cuMemAllocPitch_v2)(&p, &pitch, 4096, bytes / 4096, 4));
	wait_for_a_look("held");
	OK(CU(cuMemFree_v2)(p));
}

void work_memory(void)
{
	static const struct {
		const char *name;
		void (*hold)(size_t bytes);
	} kinds[] = {{"plain", hold_plain}, {"pitched", hold_pitched}, {"array", hold_array},
		{"ordered", hold_ordered}, {"virtual", hold_virtual}, {"graph", hold_graph}};
	const char *kind = work_text("kind", "plain");

	work_begin();
	/* The first launch loads things that stay: they are loaded before memory is measured. */
	work_launch(NULL, 1);
	OK(CU(cuCtxSynchronize)());
	wait_for_a_look("before");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(kinds[i].name, kind)) {
			kinds[i].hold((size_t)work_option("mib", 256) << 20);
			wait_for_a_look("after");
			return;
		}
	work_fail("no such kind of memory: %s", kind);
}

/* Captures launches beside work, so that there is something to fence, and checks that the graph holds what was
 * captured. */
static void captures(void)
{
	CUstream stream, other;

	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(CU(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
	for (CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
		mode++)
		for (int round = 0; round < 20; round++) {
			CUgraphExec exec;
			CUgraph graph;
			size_t n = 0;

			for (int i = 0; i < 8; i++)
				work_launch(other, 2000);
			OK(CU(cuStreamBeginCapture_v2)(stream, mode));
			for (int i = 0; i < 16; i++)
				work_launch(stream, 2000);
			OK(CU(cuStreamEndCapture)(stream, &graph));
			OK(CU(cuGraphGetNodes)(graph, NULL, &n));
			if (n != 16)
				work_fail("a capture of 16 launches, mode %d, has %zu nodes", (int)mode, n);
			OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
			OK(CU(cuGraphLaunch)(exec, stream));
			OK(CU(cuStreamSynchronize)(stream));
			OK(CU(cuStreamSynchronize)(other));
			OK(CU(cuGraphExecDestroy)(exec));
			OK(CU(cuGraphDestroy)(graph));
		}
}

/* A forked child may not use its parent's driver, but may start a program that does, and may end. */
static void forks(const char *self)
{
	int status = 0;
	pid_t child;

	for (int i = 0; i < 50; i++)
		work_launch(NULL, 20000);
	child = fork();
	if (!child) {
		execl(self, self, "run", "seconds=0.2", "warm=0", "count=20000", NULL);
		_exit(127);
	}
	if (waitpid(child, &status, 0) != child || status)
		work_fail("the child of a fork ended with %d", status);
	child = fork();
	if (!child)
		_exit(3);
	if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 3)
		work_fail("a child that does nothing ended with %d", status);
	OK(CU(cuCtxSynchronize)());
}

static void faults(void)
{
	CUresult first, then, free;
	CUdeviceptr p = 0;

	OK(CU(cuMemAlloc_v2)(&p, 4096));
	for (int i = 0; i < 20; i++)
		work_launch(NULL, 20000);
	OK(CU(cuLaunchKernel)(work_function("gpusim_fault"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	first = CU(cuCtxSynchronize)();
	then = CU(cuCtxSynchronize)();
	free = CU(cuMemFree_v2)(p);
	printf("{\"errors\": [%d, %d, %d]}\n", (int)first, (int)then, (int)free);
	/* exit() is not called: the handlers of a program with a broken context are not what is tested. */
	fflush(stdout);
	_exit(0);
}

void work_safety(void)
{
	const char *which = work_text("case", "capture");

	work_begin();
	if (!strcmp(which, "capture")) {
		captures();
	} else if (!strcmp(which, "fork")) {
		forks(work_text("self", "/proc/self/exe"));
	} else if (!strcmp(which, "fault")) {
		faults();
	} else if (!strcmp(which, "exit")) {
		/* Half a second of work is queued, and the program does not wait for it. */
		for (int i = 0; i < 500; i++)
			work_launch(NULL, (uint64_t)work_option("count", 1000000));
	} else if (!strcmp(which, "forever")) {
		puts("{\"state\": \"runs\"}");
		for (;;) {
			for (int i = 0; i < 20; i++)
				work_launch(NULL, (uint64_t)work_option("count", 200000));
			OK(CU(cuCtxSynchronize)());
		}
	} else {
		work_fail("no such case: %s", which);
	}
	puts("{\"state\": \"done\"}");
}

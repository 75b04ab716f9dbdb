/* A program that gets no memory is told why, once, on standard error, with the names of the holders. */
#include "test/preload/preload_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb/control.h"

#include "shm/base/atomic.h"
#include "shm/segment/segment.h"

static int was, file;
static char said[65536];

/* Lets standard error be a file that is appended to, as under a supervisor. */
static void listen_to_it(void)
{
	char path[] = "/tmp/gpuarb-said-XXXXXX";

	file = mkostemp(path, O_APPEND);
	T_CHECK(file >= 0 && !unlink(path), "no file");
	was = dup(STDERR_FILENO);
	dup2(file, STDERR_FILENO);
}

/* Reads what was logged since the last call; returns the number of lines. */
static unsigned heard(void)
{
	ssize_t n = pread(file, said, sizeof(said) - 1, 0);
	unsigned lines = 0;

	dup2(was, STDERR_FILENO);
	close(was);
	close(file);
	said[n > 0 ? n : 0] = '\0';
	for (const char *c = said; *c; c++)
		lines += *c == '\n';
	return lines;
}

#define SAYS(text) T_CHECK(strstr(said, text), "'%s' is not in: %s", text, said)

/* Returns how often the event ring has this event, and the last one. */
static uint64_t in_the_ring(unsigned kind, struct gpuarb_event *last)
{
	static struct gpuarb_event events[4096];
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;
	uint64_t position = 0, times = 0;
	int n;

	T_CHECK(!gpuarb_view_open(NULL, pm_uuid(0), &view, &err), "%s", err.text);
	n = gpuarb_view_events(view, &position, events, 4096);
	for (int i = 0; i < n; i++)
		if (events[i].kind == kind) {
			times += events[i].times;
			*last = events[i];
		}
	gpuarb_view_close(view);
	return times;
}

static int member(void *argument)
{
	int *pipes = argument;
	CUdeviceptr p;
	char c;

	close(pipes[3]);
	pm_context();
	OK(cuMemAlloc_v2(&p, 120 * MIB));
	T_CHECK(write(pipes[1], "x", 1) == 1, "no pipe");
	return read(pipes[2], &c, 1) != 0;
}

static void *ask_often(void *argument)
{
	CUdeviceptr p;

	OK(cuCtxSetCurrent(argument));
	for (int i = 0; i < 250; i++) {
		errno = 4242;
		GIVES(cuMemAlloc_v2(&p, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
		T_CHECK(errno == 4242, "errno was changed to %d", errno);
	}
	return NULL;
}

/* The quota is 256 MiB. */
void pm_says(void)
{
	struct gpuarb_event e;
	pthread_t thread[4];
	int pipes[4];
	CUdeviceptr p;
	CUcontext context;
	char text[128], c;
	pid_t pid;

	T_CHECK(!pipe(pipes) && !pipe(pipes + 2), "no pipe");
	pid = t_spawn(member, pipes, 60);
	T_CHECK(read(pipes[0], &c, 1) == 1, "the member failed");
	context = pm_context();
	OK(cuMemAlloc_v2(&p, 80 * MIB));
	listen_to_it();
	for (int i = 0; i < 4; i++)
		T_CHECK(!pthread_create(&thread[i], NULL, ask_often, context), "no thread");
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	T_CHECK(heard() == 1, "a thousand refusals, one sentence: %s", said);
	SAYS("] warn preload: GPU-");
	snprintf(text, sizeof(text),
		": 100 MiB of memory were refused to account 'tenant': its quota is 256 MiB, of which 200 "
		"MiB are in "
		"use ");
	SAYS(text);
	snprintf(text, sizeof(text), "(120 MiB by pid %d memory, 80 MiB by this process)\n", (int)pid);
	SAYS(text);
	/* Nothing is logged for what is within the quota. */
	listen_to_it();
	OK(cuMemAlloc_v2(&p, 50 * MIB));
	T_CHECK(heard() == 0, "%s", said);
	close(pipes[3]);
	T_CHECK(t_wait(pid) == 0, "the member failed");
	OK(cuCtxDestroy_v2(context));
	T_CHECK(in_the_ring(ARB_EVENT_MEM_REFUSED, &e) >= 1, "no event");
	T_CHECK(e.why == ARB_REFUSAL_QUOTA && e.a == 100 * MIB && e.b == 256 * MIB && e.c == 200 * MIB,
		"%u %llu %llu", e.why, (unsigned long long)e.b, (unsigned long long)e.c);
}

/* Each way to ask for memory is refused with a sentence, each in a process of its own. */
static int ask_one_way(void *argument)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle handle;
	CUarray array;
	CUdeviceptr p;
	CUresult result = CUDA_SUCCESS;

	pm_context();
	listen_to_it();
	switch (*(int *)argument) {
	case 0:
		result = cuMemAlloc_v2(&p, 2048 * MIB);
		break;
	case 1:
		result = cuMemAllocManaged(&p, 2048 * MIB, CU_MEM_ATTACH_GLOBAL);
		break;
	case 2:
		result = cuMemAllocAsync(&p, 2048 * MIB, NULL);
		break;
	case 3:
		result = cuMemCreate(&handle, 2048 * MIB, &prop, 0);
		break;
	case 4:
		result = cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){.Width = 65536,
							  .Height = 8192,
							  .Format = CU_AD_FORMAT_FLOAT,
							  .NumChannels = 1});
		break;
	}
	T_CHECK(heard() == 1, "way %d: %s", *(int *)argument, said);
	T_CHECK(result == CUDA_ERROR_OUT_OF_MEMORY, "way %d gives %d", *(int *)argument, (int)result);
	SAYS(" (device 0): 2 GiB of memory were refused to account 'tenant': its quota is 256 MiB, of which 0 B "
	     "are in use\n");
	return 0;
}

void pm_says_ways(void)
{
	for (int way = 0; way < 5; way++)
		T_CHECK(t_run(ask_one_way, &way, 60) == 0, "way %d failed", way);
}

/* A GPU of 1 GiB, and a larger quota. */
static int driver_one_way(void *argument)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p, q;
	CUresult result;

	pm_context();
	OK(cuMemAlloc_v2(&q, 128 * MIB));
	listen_to_it();
	for (int i = 0; i < 100; i++) {
		errno = 4242;
		result = *(int *)argument == 0   ? cuMemAlloc_v2(&p, 2048 * MIB)
			 : *(int *)argument == 1 ? cuMemAllocAsync(&p, 2048 * MIB, NULL)
						 : cuMemCreate(&handle, 2048 * MIB, &prop, 0);
		if (result != CUDA_ERROR_OUT_OF_MEMORY || errno != 4242)
			break;
	}
	T_CHECK(heard() == 1, "way %d: %s", *(int *)argument, said);
	T_CHECK(result == CUDA_ERROR_OUT_OF_MEMORY && errno == 4242, "%d, errno %d", (int)result, errno);
	SAYS(": the driver refused 2 GiB of memory to account 'tenant', although its quota is 4 GiB, of "
	     "which only "
	     "128 MiB are in use: of 1 GiB the GPU has 896 MiB left, other accounts have 0 B\n");
	PM_BOTH(128 * MIB);
	return 0;
}

void pm_says_driver(void)
{
	struct gpuarb_event e;

	for (int way = 0; way < 3; way++)
		T_CHECK(t_run(driver_one_way, &way, 60) == 0, "way %d failed", way);
	T_CHECK(in_the_ring(ARB_EVENT_MEM_DRIVER, &e) >= 3, "one of each at least");
	T_CHECK(e.a == 2048 * MIB && e.b == 4096 * MIB && e.c == 128 * MIB, "%llu", (unsigned long long)e.c);
	T_CHECK(in_the_ring(ARB_EVENT_MEM_REFUSED, &e) == 0, "the quota refused nothing");
}

/* There is no quota and no other program: then the driver's refusal is not logged. */
void pm_says_nothing(void)
{
	CUdeviceptr p;

	listen_to_it();
	GIVES(cuMemAlloc_v2(&p, 2048 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	T_CHECK(heard() == 0, "%s", said);
	setenv("GPUARB_LOG", "error", 1);
	pm_quota("256Mi");
	listen_to_it();
	GIVES(cuMemAlloc_v2(&p, 512 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	T_CHECK(heard() == 0, "%s", said);
}

/* A process is alone and asks for more than the GPU has: that is not called a quota. */
void pm_says_single(void)
{
	struct gpuarb_event e;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 200 * MIB));
	listen_to_it();
	GIVES(cuMemAlloc_v2(&p, 1000 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	T_CHECK(heard() == 1, "%s", said);
	SAYS(": 1000 MiB of memory were refused to account 'tenant': one process may have 1 GiB of this GPU "
	     "(single_oversub = off), and this one has 200 MiB\n");
	T_CHECK(in_the_ring(ARB_EVENT_MEM_REFUSED, &e) == 1 && e.why == ARB_REFUSAL_SINGLE &&
			e.b == 1024 * MIB,
		"%u %llu", e.why, (unsigned long long)e.b);
}

/* A context counts as 300 MiB. */
void pm_says_context(void)
{
	CUcontext context;
	CUdevice device;

	listen_to_it();
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	GIVES(cuCtxCreate_v2(&context, 0, device), CUDA_ERROR_OUT_OF_MEMORY);
	T_CHECK(heard() == 1, "%s", said);
	SAYS(": 300 MiB of memory for a context (context_mb) were refused to account 'tenant': its quota is "
	     "256 MiB");
}

/* Until our client has put right what was written over, and for some time more. */
static void work_until_restored(const struct arb_slot *mine, CUdeviceptr p)
{
	for (int i = 0, behind = 0; i < 5000 && behind < 100; i++) {
		OK(cuMemsetD8Async(p, 0, MIB, NULL));
		OK(cuCtxSynchronize());
		t_sleep_us(1000);
		behind += arb_load32(&mine->restored) != 0;
	}
	T_CHECK(arb_load32(&mine->restored), "nothing was put right");
}

/* Somebody writes over the limit that it asked for, and its bill: it works on, and says so, once. */
void pm_says_restored(void)
{
	struct arb_segment seg = {.header = NULL};
	struct gpuarb_event e;
	struct arb_slot *mine = NULL;
	char text[PATH_MAX + 200];
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, MIB));
	T_CHECK(!arb_segment_open(&seg, getenv("GPUARB_DIR"), pm_uuid(0), true, NULL, NULL), "no segment");
	for (uint32_t i = 0; i < seg.nslots; i++)
		if (arb_load32(&seg.slots[i].state) == ARB_SLOT_LIVE)
			mine = &seg.slots[i];
	T_CHECK(mine, "not joined");
	listen_to_it();
	for (int i = 0; i < 3; i++) {
		arb_store32(&mine->asked_ppm, 10000);
		arb_store64(&mine->base, 1ull << 50);
		arb_store32(&mine->restored, 0);
		work_until_restored(mine, p);
	}
	T_CHECK(heard() == 1, "three times within seconds, one sentence: %s", said);
	snprintf(text, sizeof(text),
		"(device 0): somebody else has written over its bill, the limits that it asks for in %s: it was put right",
		seg.file.path);
	SAYS(text);
	T_CHECK(in_the_ring(ARB_EVENT_RESTORED, &e) >= 1, "no event");
	T_CHECK(e.why == (ARB_RESTORED_BILL | ARB_RESTORED_ASKED), "%u", e.why);
	arb_segment_close(&seg);
}

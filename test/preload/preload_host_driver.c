/* Programs with several contexts and devices, and programs that meet errors. */
#include "test/preload/preload_host.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool place_is(CUcontext context)
{
	CUcontext current = NULL;

	OK(cuCtxGetCurrent(&current));
	return current == context;
}

static void destroys_a_context_with_work(void)
{
	for (int i = 0; i < 5; i++) {
		CUcontext context = host_context(0);
		CUstream stream;

		OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		host_launch(stream, 100, 200);
		host_launch(NULL, 20, 200);
		OK(cuCtxDestroy_v2(context));
	}
	host_must_leave(0);
	host_context(0);
	host_work();
	T_CHECK(host_clients(0) == 1, "joined once");
}

static void resets_its_primary_context(void)
{
	CUcontext context;
	CUdeviceptr p;

	OK(cuInit(0));
	for (int i = 0; i < 5; i++) {
		OK(cuDevicePrimaryCtxRetain(&context, 0));
		OK(cuCtxSetCurrent(context));
		host_launch(NULL, 50, 200);
		OK(cuDevicePrimaryCtxReset_v2(0));
		GIVES(cuMemAlloc_v2(&p, 1 << 20), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	}
	host_must_leave(0);
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	host_work();
}

static void *works_in(void *argument)
{
	CUcontext popped;

	for (int i = 0; i < 20; i++) {
		OK(cuCtxPushCurrent_v2(argument));
		host_work();
		OK(cuCtxPopCurrent_v2(&popped));
		T_CHECK(popped == argument, "another context");
	}
	return NULL;
}

static void has_several_contexts(void)
{
	CUcontext context[24], popped;
	pthread_t thread[24];

	/* These are more than the preload looks after one by one. */
	for (int i = 0; i < 24; i++) {
		context[i] = host_context(0);
		OK(cuCtxPopCurrent_v2(&popped));
	}
	for (int i = 0; i < 24; i++)
		T_CHECK(!pthread_create(&thread[i], NULL, works_in, context[i]), "no thread");
	for (int i = 0; i < 24; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < 24; i++)
		OK(cuCtxDestroy_v2(context[i]));
	host_must_leave(0);
	T_CHECK(host_clients(0) == 1, "one client");
}

static void uses_three_gpus(void)
{
	CUcontext context[3];

	for (int i = 0; i < 3; i++)
		context[i] = host_context(i);
	for (int round = 0; round < 10; round++)
		for (int i = 0; i < 3; i++) {
			OK(cuCtxSetCurrent(context[i]));
			host_launch(NULL, 10, 100);
		}
	for (int i = 0; i < 3; i++) {
		OK(cuCtxSetCurrent(context[i]));
		OK(cuCtxSynchronize());
		T_CHECK(host_clients(i) == 1, "GPU %d", i);
	}
	for (int i = 0; i < 3; i++) {
		host_must_leave(i);
		/* On a busy machine, without a wait, the preload knows only roughly when it ended. */
		T_CHECK(host_picture(i)->busy_ns >= 10 * 10 * 100 * 1000ull / 4,
			"GPU %d was busy for %llu ns", i, (unsigned long long)host_picture(i)->busy_ns);
	}
}

/* Copies, memsets and waits in a stream of the second GPU while the first one is current. */
static void uses_a_stream_of_another_gpu(void)
{
	CUcontext first = host_context(0), second;
	CUstream stream;
	CUdeviceptr p;
	uint64_t billed[2];

	host_work();
	second = host_context(1);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&p, 4 << 20));
	host_work();
	host_must_leave(0);
	host_must_leave(1);
	OK(cuCtxSetCurrent(first));
	for (int i = 0; i < 2; i++)
		billed[i] = host_picture(i)->busy_ns;
	/* Each takes 5.2 us on the simulated GPU; every hundred are waited for. */
	for (int i = 0; i < 2000; i++) {
		OK(cuMemsetD8Async(p, (unsigned char)i, 4 << 20, stream));
		if (i % 100 == 99)
			OK(cuStreamSynchronize(stream));
	}
	host_must_leave(0);
	host_must_leave(1);
	for (int i = 0; i < 2; i++)
		billed[i] = host_picture(i)->busy_ns - billed[i];
	T_CHECK(billed[0] < 1000000, "the GPU that was only current was billed %d us",
		(int)(billed[0] / 1000));
	T_CHECK(billed[1] > 9000000, "the GPU that worked was billed %d us", (int)(billed[1] / 1000));
	T_CHECK(place_is(first), "another context is current");
	(void)second;
}

/* Its UUID says which GPU it is, whatever number it has in this process. */
static void sees_only(const char *visible, int device)
{
	setenv("CUDA_VISIBLE_DEVICES", visible, 1);
	host_context(0);
	host_work();
	for (int i = 0; i < 3; i++)
		T_CHECK(host_clients(i) == (i == device), "GPU %d", i);
}

static void sees_the_third_by_number(void)
{
	sees_only("2,0", 2);
}

static void sees_the_second_by_uuid(void)
{
	sees_only(host_uuid(1), 1);
}

static void sees_an_instance(void)
{
	char name[96], path[512];

	snprintf(name, sizeof(name), "MIG-%s", host_uuid(1) + strlen("GPU-"));
	setenv("GPUSIM_MIG", "1", 1);
	setenv("CUDA_VISIBLE_DEVICES", name, 1);
	host_context(0);
	host_work();
	snprintf(path, sizeof(path), "%s/state/%s", getenv("GPUARB_DIR"), name);
	T_CHECK(access(path, F_OK) == 0, "no segment of the instance: %s", path);
	for (int i = 0; i < 3; i++)
		T_CHECK(host_clients(i) == 0, "GPU %d", i);
}

static void breaks_its_context(void)
{
	CUcontext context = host_context(0);
	CUfunction fault;
	CUmodule module;
	CUdeviceptr p;

	host_work();
	OK(cuModuleLoadData(&module, "any"));
	OK(cuModuleGetFunction(&fault, module, "gpusim_fault"));
	OK(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	/* The error stays, for every call. The preload neither hides it nor waits for work that will not end. */
	for (int i = 0; i < 200; i++) {
		GIVES(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
			CUDA_ERROR_ILLEGAL_ADDRESS);
		GIVES(cuMemAlloc_v2(&p, 1 << 20), CUDA_ERROR_ILLEGAL_ADDRESS);
		GIVES(cuStreamQuery(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	}
	host_must_leave(0);
	(void)context;
}

/* The capture ends with an error, like all else. */
static void breaks_its_context_in_a_capture(void)
{
	CUstream stream, captures;
	CUfunction fault;
	CUmodule module;
	CUgraph graph;

	host_context(0);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&captures, CU_STREAM_NON_BLOCKING));
	OK(cuModuleLoadData(&module, "any"));
	OK(cuModuleGetFunction(&fault, module, "gpusim_fault"));
	host_launch(stream, 500, 50);
	OK(cuStreamBeginCapture_v2(captures, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
	GIVES(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	GIVES(cuStreamEndCapture(captures, &graph), CUDA_ERROR_ILLEGAL_ADDRESS);
	host_must_leave(0);
}

static void asks_for_nonsense(void)
{
	CUdeviceptr p = 0;
	CUcontext context;
	CUevent event = NULL;

	/* Calls before cuInit, calls before there is a context, and wrong calls. */
	GIVES(cuMemAlloc_v2(&p, 1), CUDA_ERROR_NOT_INITIALIZED);
	GIVES(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
	OK(cuInit(0));
	GIVES(cuMemAlloc_v2(&p, 1), CUDA_ERROR_INVALID_CONTEXT);
	GIVES(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	GIVES(cuCtxCreate_v2(&context, 0, 17), CUDA_ERROR_INVALID_DEVICE);
	GIVES(cuCtxCreate_v2(&context, 0, -1), CUDA_ERROR_INVALID_DEVICE);
	GIVES(cuCtxCreate_v2(NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuDevicePrimaryCtxRetain(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	host_context(0);
	GIVES(cuMemAlloc_v2(NULL, 1), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemFree_v2(0x99990000), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	GIVES(cuEventCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuEventRecord(event, NULL), CUDA_ERROR_INVALID_HANDLE);
	GIVES(cuStreamEndCapture(NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	host_work();
}

static void destroys_its_context_in_a_capture(void)
{
	CUcontext context = host_context(0);
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	host_launch(stream, 10, 50);
	OK(cuCtxDestroy_v2(context));
	/* A capture that ended like this does not disturb what follows. */
	host_context(0);
	host_work();
	host_must_leave(0);
}

static void keeps_errno(void)
{
	CUcontext context;
	CUstream stream;
	CUdeviceptr p;

#define KEEPS(call)                                                                                          \
	do {                                                                                                 \
		errno = 4711;                                                                                \
		OK(call);                                                                                    \
		T_CHECK(errno == 4711, "errno is %d", errno);                                                \
	} while (0)
	OK(cuInit(0));
	KEEPS(cuCtxCreate_v2(&context, 0, 0));
	KEEPS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 50; i++) {
		errno = 4711;
		host_launch(stream, 5, 200);
		T_CHECK(errno == 4711, "errno is %d", errno);
		KEEPS(cuMemAlloc_v2(&p, 1 << 20));
		OK(cuMemFree_v2(p)); /* it waits, which the simulated driver shows */
		KEEPS(cuMemAllocAsync(&p, 1 << 20, stream));
		KEEPS(cuMemFreeAsync(p, stream));
	}
	OK(cuCtxDestroy_v2(context));
}

const struct host_case host_driver_cases[] = {
	{"destroys a context with work in it", destroys_a_context_with_work, "50", 0},
	{"destroys a context with work in it, unlimited", destroys_a_context_with_work, NULL, 0},
	{"resets its primary context", resets_its_primary_context, "50", 0},
	{"resets its primary context, unlimited", resets_its_primary_context, NULL, 0},
	{"has several contexts", has_several_contexts, "80", 0},
	{"uses three GPUs", uses_three_gpus, "50", 0},
	{"uses a stream of another GPU", uses_a_stream_of_another_gpu, NULL, 0},
	{"uses a stream of another GPU, limited", uses_a_stream_of_another_gpu, "90", 0},
	{"uses three GPUs, unlimited", uses_three_gpus, NULL, 0},
	{"sees the third GPU by its number", sees_the_third_by_number, "50", 0},
	{"sees the second GPU by its UUID", sees_the_second_by_uuid, "50", 0},
	{"sees an instance of a GPU", sees_an_instance, "50", 0},
	{"breaks its context", breaks_its_context, "50", 0},
	{"breaks its context, unlimited", breaks_its_context, NULL, 0},
	{"breaks its context in a capture", breaks_its_context_in_a_capture, "50", 0},
	{"breaks its context in a capture, unlimited", breaks_its_context_in_a_capture, NULL, 0},
	{"asks for nonsense", asks_for_nonsense, "50", 0},
	{"destroys its context in a capture", destroys_its_context_in_a_capture, "50", 0},
	{"keeps errno", keeps_errno, "50", 0},
	{NULL, NULL, NULL, 0},
};

/* Answers to calls that are wrong, too early or too late; which devices a process sees. */
#include "test/sim/test/simtest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(errors, .fini = sim_remove);

Test(errors, nothing_works_before_initialisation)
{
	CUcontext ctx;
	int n;

	sim_fresh(NULL);
	GIVES(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
	GIVES(cuCtxCreate_v2(&ctx, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
	GIVES(cuInit(1), CUDA_ERROR_INVALID_VALUE);
	OK(cuInit(0));
	OK(cuInit(0));
	GIVES(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
	GIVES(cuCtxCreate_v2(&ctx, 0, 1), CUDA_ERROR_INVALID_DEVICE);
}

Test(errors, a_forked_child_cannot_use_the_parents_driver)
{
	CUdeviceptr p;
	int status;
	pid_t pid;

	sim_fresh(NULL);
	sim_device();
	pid = fork();
	if (pid == 0) {
		bool right = cuMemAlloc_v2(&p, 4096) == CUDA_ERROR_NOT_INITIALIZED &&
			     cuInit(0) == CUDA_ERROR_NOT_INITIALIZED;

		_exit(right ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	cr_assert_eq(status, 0);
	sim_spin(NULL, 1000);
	OK(cuCtxSynchronize());
	cr_assert(sim_truth_of(getpid()).alive);
}

Test(errors, wrong_handles_and_values_are_refused)
{
	CUdeviceptr p;
	CUcontext ctx;
	CUstream s;
	CUevent e, f;
	CUmodule m;
	CUfunction fn;
	float ms;
	char byte;

	sim_fresh(NULL);
	ctx = sim_device();
	s = sim_stream(0);
	GIVES(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemFree_v2((CUdeviceptr)(uintptr_t)&byte), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAlloc_v2(&p, 4096));
	GIVES(cuMemFree_v2(p + 16), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemcpyDtoH_v2(&byte, p + 4096, 1), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemsetD8_v2(p + 4000, 0, 100), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	GIVES(cuLaunchKernel(sim_kernel("x"), 0, 1, 1, 1, 1, 1, 0, s, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuLaunchKernel(sim_kernel("x"), 1, 1, 1, 2048, 1, 1, 0, s, NULL, NULL),
		CUDA_ERROR_INVALID_VALUE);
	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	f = sim_mark(s);
	OK(cuEventRecord(e, s));
	OK(cuStreamSynchronize(s));
	GIVES(cuEventElapsedTime(&ms, f, e), CUDA_ERROR_INVALID_HANDLE);
	sim_gate(s);
	OK(cuEventRecord(f, s));
	GIVES(cuEventElapsedTime(&ms, f, f), CUDA_ERROR_NOT_READY);
	sim_release();
	OK(cuEventDestroy_v2(f));
	GIVES(cuEventQuery(NULL), CUDA_ERROR_INVALID_HANDLE);
	OK(cuModuleLoadData(&m, ".version 8.0\n.visible .entry there(.param .u64 x)\n{ ret; }\n"));
	OK(cuModuleGetFunction(&fn, m, "there"));
	GIVES(cuModuleGetFunction(&fn, m, "missing"), CUDA_ERROR_NOT_FOUND);
	OK(cuCtxDestroy_v2(ctx));
	GIVES(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
	GIVES(cuCtxSetCurrent(ctx), CUDA_ERROR_INVALID_CONTEXT);
}

Test(errors, a_fault_stays)
{
	CUdeviceptr p;

	sim_fresh(NULL);
	sim_device();
	OK(cuLaunchKernel(sim_kernel("gpusim_fault"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	GIVES(cuMemAlloc_v2(&p, 4096), CUDA_ERROR_ILLEGAL_ADDRESS);
	GIVES(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void count_visible(void *arg)
{
	const char *const *a = arg;
	int n = -1;
	CUuuid uuid;

	setenv("CUDA_VISIBLE_DEVICES", a[0], 1);
	if (atoi(a[1]) == 0) {
		GIVES(cuInit(0), CUDA_ERROR_NO_DEVICE);
		return;
	}
	OK(cuInit(0));
	OK(cuDeviceGetCount(&n));
	cr_assert_eq(n, atoi(a[1]));
	OK(cuDeviceGetUuid_v2(&uuid, 0));
	cr_assert_eq((unsigned char)uuid.bytes[0], (unsigned char)strtoul(a[2], NULL, 16));
}

Test(errors, visible_devices_are_chosen_by_number_and_uuid)
{
	static const char *cases[][3] = {
		{"0,1", "2", "aa"},
		{"1,0", "2", "bb"},
		{"1", "1", "bb"},
		{"GPU-bbbbbbbb", "1", "bb"},
		{"GPU-bbbbbbbb-0000-0000-0000-000000000001,0", "2", "bb"},
		{"0,7,1", "1", "aa"},
		{"", "0", ""},
		{"-1", "0", ""},
		{"GPU-cc", "0", ""},
	};

	sim_fresh("GPUSIM_DEVICES", "2", "GPUSIM_UUID",
		"GPU-aaaaaaaa-0000-0000-0000-000000000001,GPU-bbbbbbbb-0000-0000-0000-000000000001", NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_assert_eq(sim_join(sim_child(count_visible, (void *)cases[i])), 0,
			"CUDA_VISIBLE_DEVICES=%s", cases[i][0]);
}

Test(errors, the_primary_context_is_counted_by_its_users)
{
	struct sim_device_state state;
	CUcontext a, b;
	int active;

	sim_fresh(NULL);
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&a, 0));
	OK(cuDevicePrimaryCtxRetain(&b, 0));
	cr_assert_eq(a, b);
	sim_truth(&state, NULL, NULL);
	cr_assert_eq(state.memory_used_bytes, 300ull << 20);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxGetState(0, NULL, &active));
	cr_assert(active);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxGetState(0, NULL, &active));
	cr_assert(!active);
	GIVES(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
	sim_truth(&state, NULL, NULL);
	cr_assert_eq(state.memory_used_bytes, 0);
}

Test(errors, calls_cost_what_the_settings_say)
{
	double start, took;
	CUstream s;

	sim_fresh("GPUSIM_COST_LAUNCH_NS", "20000", NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	start = sim_wall_s();
	for (int i = 0; i < 100; i++)
		sim_spin(s, 1000);
	took = sim_wall_s() - start;
	cr_assert_geq(took, 100 * 20e-6);
}

/* What the driver costs the host: functions and graphs that are loaded at their first launch, late callbacks. */
#include "test/sim/test/simtest.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

TestSuite(host, .fini = sim_remove);

#define LAZY_S  0.03
#define LAZY_US "30000"
#define MANY    100

static double launch_s(CUfunction f)
{
	double from = sim_wall_s();

	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	return sim_wall_s() - from;
}

static CUfunctionLoadingState loaded(CUfunction f)
{
	CUfunctionLoadingState state;

	OK(cuFuncIsLoaded(&state, f));
	return state;
}

Test(host, the_first_launch_of_each_function_loads_it)
{
	double from;

	sim_fresh("GPUSIM_LAZY_US", LAZY_US, "GPUSIM_KERNEL_US", "10", NULL);
	sim_device();
	for (int i = 0; i < 3; i++) {
		CUfunction f;
		char name[16];

		snprintf(name, sizeof(name), "function%d", i);
		f = sim_kernel(name);
		cr_assert_eq(loaded(f), CU_FUNCTION_LOADING_STATE_UNLOADED);
		cr_assert_geq(launch_s(f), LAZY_S);
		cr_assert_eq(loaded(f), CU_FUNCTION_LOADING_STATE_LOADED);
	}
	/* If these were loaded again, they would take at least 3 s. */
	from = sim_wall_s();
	for (int i = 0; i < MANY; i++)
		launch_s(sim_kernel("function1"));
	cr_assert_lt(sim_wall_s() - from, MANY * LAZY_S);
	OK(cuCtxSynchronize());
	/* Time in the driver is not time on the device. */
	cr_assert_eq(sim_truth_of(getpid()).device_ns, (3 + MANY) * 10000);
}

Test(host, a_function_can_be_loaded_before)
{
	CUfunction f;
	double from;

	sim_fresh("GPUSIM_LAZY_US", LAZY_US, NULL);
	sim_device();
	f = sim_kernel("some");
	from = sim_wall_s();
	OK(cuFuncLoad(f));
	cr_assert_geq(sim_wall_s() - from, LAZY_S);
	cr_assert_eq(loaded(f), CU_FUNCTION_LOADING_STATE_LOADED);
}

Test(host, without_the_setting_everything_is_loaded)
{
	sim_fresh(NULL);
	sim_device();
	cr_assert_eq(loaded(sim_kernel("some")), CU_FUNCTION_LOADING_STATE_LOADED);
}

/* The defaults: the first launch of a function takes 1 ms, and a context takes 300 MiB. */
Test(host, by_default_a_first_launch_loads_and_a_context_takes_memory)
{
	CUfunction f;

	sim_fresh("GPUSIM_COST", "1", NULL);
	sim_device();
	f = sim_kernel("some");
	cr_assert_eq(loaded(f), CU_FUNCTION_LOADING_STATE_UNLOADED);
	cr_assert_geq(launch_s(f), 0.001);
	cr_assert_eq(loaded(f), CU_FUNCTION_LOADING_STATE_LOADED);
	cr_assert_eq(sim_truth_of(getpid()).memory_bytes, 300ull << 20);
}

Test(host, a_delay_can_be_a_range)
{
	double least = 1e9, most = 0;

	sim_fresh("GPUSIM_LAZY_US", "1000:20000", NULL);
	sim_device();
	for (int i = 0; i < 30; i++) {
		char name[16];
		double s;

		snprintf(name, sizeof(name), "function%d", i);
		s = launch_s(sim_kernel(name));
		least = s < least ? s : least;
		most = s > most ? s : most;
	}
	cr_assert_geq(least, 0.001);
	/* That all of thirty draws lie in one half of the range happens once in a billion runs. */
	cr_assert_geq(most, 0.0105);
}

Test(host, a_delay_that_makes_no_sense_is_none)
{
	sim_fresh("GPUSIM_LAZY_US", "-5", "GPUSIM_CALLBACK_US", "soon", NULL);
	sim_device();
	cr_assert_eq(loaded(sim_kernel("some")), CU_FUNCTION_LOADING_STATE_LOADED);
}

static void *launch_it(void *f)
{
	static CUcontext ctx;

	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	return NULL;
}

Test(host, whoever_needs_the_same_function_waits_for_it)
{
	pthread_t thread[4];
	CUlibrary library;
	CUkernel k;
	double from;

	sim_fresh("GPUSIM_LAZY_US", LAZY_US, NULL);
	sim_device();
	OK(cuLibraryLoadData(&library, "test", NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&k, library, "some"));
	from = sim_wall_s();
	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, launch_it, k);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		cr_assert_geq(sim_wall_s() - from, LAZY_S);
	}
	cr_assert_eq(loaded((CUfunction)k), CU_FUNCTION_LOADING_STATE_LOADED);
}

static CUgraphExec graph_of(CUfunction f)
{
	CUstream s = sim_stream(CU_STREAM_NON_BLOCKING);
	CUgraphExec x;
	CUgraph g;

	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (int i = 0; i < 5; i++)
		OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
	OK(cuStreamEndCapture(s, &g));
	OK(cuGraphInstantiateWithFlags(&x, g, 0));
	return x;
}

Test(host, the_first_launch_of_each_graph_loads_it)
{
	CUfunction f;
	CUgraphExec x;
	double from;

	sim_fresh("GPUSIM_LAZY_US", LAZY_US, NULL);
	sim_device();
	f = sim_kernel("some");
	x = graph_of(f);
	cr_assert_eq(loaded(f), CU_FUNCTION_LOADING_STATE_UNLOADED, "a capture loads nothing");
	from = sim_wall_s();
	OK(cuGraphLaunch(x, NULL));
	cr_assert_geq(sim_wall_s() - from, LAZY_S);
	cr_assert_eq(loaded(f), CU_FUNCTION_LOADING_STATE_LOADED);
	/* An upload loads the graph before its launch. */
	x = graph_of(f);
	from = sim_wall_s();
	OK(cuGraphUpload(x, NULL));
	cr_assert_geq(sim_wall_s() - from, LAZY_S);
	from = sim_wall_s();
	for (int i = 0; i < MANY; i++)
		OK(cuGraphLaunch(x, NULL));
	cr_assert_lt(sim_wall_s() - from, MANY * LAZY_S);
}

static void called(void *arg)
{
	++*(int *)arg;
}

Test(host, a_callback_comes_later_than_the_work)
{
	CUevent mark[6];
	int calls = 0;
	CUstream s;

	sim_fresh("GPUSIM_CALLBACK_US", "400", NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(s);
	mark[0] = sim_mark(s);
	for (int i = 1; i < 6; i++) {
		sim_spin(s, 1 * MS);
		OK(cuLaunchHostFunc(s, called, &calls));
		mark[i] = sim_mark(s);
	}
	sim_release();
	for (int i = 1; i < 6; i++)
		cr_assert_geq(sim_between_us(mark[i - 1], mark[i]), 1400 - 0.001);
	cr_assert_eq(calls, 5);
	/* The stream stood still meanwhile: the device time is that of the kernels alone. */
	cr_assert_eq(sim_truth_of(getpid()).device_ns, 5 * MS);
}

Test(host, a_callback_comes_later_than_the_slice)
{
	CUevent a, b;
	int calls = 0;
	CUstream s;

	sim_fresh("GPUSIM_CALLBACK_US", "400", "GPUSIM_EVENTS", "slice", NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(s);
	a = sim_mark(s);
	OK(cuLaunchHostFunc(s, called, &calls));
	b = sim_mark(s);
	sim_release();
	cr_assert_geq(sim_between_us(a, b), 400 - 0.001);
	cr_assert_eq(calls, 1);
}

Test(host, an_event_record_costs_the_caller)
{
	CUevent e;
	double from;

	sim_fresh("GPUSIM_COST_EVENT_NS", "100000", NULL);
	sim_device();
	OK(cuEventCreate(&e, 0));
	from = sim_wall_s();
	for (int i = 0; i < 100; i++)
		OK(cuEventRecord(e, NULL));
	cr_assert_geq(sim_wall_s() - from, 0.01);
}

Test(host, a_query_costs_the_caller)
{
	CUevent e;
	double from;

	sim_fresh("GPUSIM_COST_QUERY_NS", "100000", NULL);
	sim_device();
	OK(cuEventCreate(&e, 0));
	from = sim_wall_s();
	for (int i = 0; i < 50; i++) {
		OK(cuEventQuery(e));
		OK(cuStreamQuery(NULL));
	}
	cr_assert_geq(sim_wall_s() - from, 0.01);
}

Test(host, work_reaches_the_device_later_than_the_call)
{
	struct sim_device_state state;
	double from;
	CUstream s;

	sim_fresh("GPUSIM_START_US", "20000", NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	from = sim_wall_s();
	sim_spin(s, 1000000);
	GIVES(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	OK(cuStreamSynchronize(s));
	cr_assert_geq(sim_wall_s() - from, 0.021);
	sim_truth(&state, NULL, NULL);
	cr_assert_eq(state.busy_ns, 1000000, "the way there is no device time");
	/* The later kernels arrive while the first runs. */
	for (int i = 0; i < 5; i++)
		sim_spin(s, 1000000);
	OK(cuStreamSynchronize(s));
	sim_truth(&state, NULL, NULL);
	cr_assert_eq(state.busy_ns, 6000000);
}

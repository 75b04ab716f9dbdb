/* Unkind time slices: long slices, switches that cost time, and queues that wait for their slice. */
#include "test/sim/test/simtest.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

TestSuite(slices, .fini = sim_remove);

#define LONG (40000 * MS)

/* Queues a kernel that outlasts every test, and sleeps, so that the machine's speed does not matter. */
static void hog(void *ready)
{
	sim_device();
	sim_spin(sim_stream(CU_STREAM_NON_BLOCKING), LONG);
	*(volatile int *)ready = 1;
	for (;;)
		pause();
}

static pid_t start_hog(void)
{
	volatile int *ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = sim_child(hog, (void *)(uintptr_t)ready);

	while (!*ready)
		usleep(1000);
	return pid;
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	sim_join(pid);
}

/* Checks at two moments that two processes that always have work get half of the device each. */
static void halves(const char *slice_us, const char *switch_us)
{
	static struct sim_process_state list[2][SIM_MAX_PROCS];
	struct sim_device_state state[2];
	double slice_ns = atof(slice_us) * 1e3, switch_ns = atof(switch_us) * 1e3, elapsed, lost;
	uint64_t switches;
	pid_t pid[2];

	sim_fresh("GPUSIM_SLICE_US", slice_us, "GPUSIM_SWITCH_US", switch_us, NULL);
	for (int i = 0; i < 2; i++)
		pid[i] = start_hog();
	for (int k = 0; k < 2; k++) {
		int found;

		sim_truth(&state[k], list[k], &found);
		cr_assert_eq(found, 2);
		usleep(300000);
	}
	elapsed = (double)(state[1].now_ns - state[0].now_ns);
	lost = (double)(state[1].switch_ns - state[0].switch_ns);
	switches = state[1].switches - state[0].switches;
	/* The device is never idle: it runs a kernel or switches. Both figures are rounded down to a ns. */
	cr_assert_float_eq((double)(state[1].busy_ns - state[0].busy_ns) + lost, elapsed, 2.0);
	cr_assert_float_eq(lost, (double)switches * switch_ns, switch_ns + 1);
	if (switch_ns > 0)
		cr_assert_float_eq((double)switches, elapsed / (slice_ns + switch_ns), 1.001);
	for (int i = 0; i < 2; i++) {
		double got = (double)(list[1][i].device_ns - list[0][i].device_ns);

		cr_assert_float_eq(
			got, (elapsed - lost) / 2, slice_ns / 2 + 2, "%.0f ns of %.0f", got, elapsed);
	}
	for (int i = 0; i < 2; i++)
		stop(pid[i]);
}

Test(slices, of_2_ms_give_half_each)
{
	halves("2000", "0");
}

Test(slices, of_10_ms_give_half_each)
{
	halves("10000", "0");
}

Test(slices, of_30_ms_give_half_each)
{
	halves("30000", "0");
}

Test(slices, switches_cost_time_that_belongs_to_nobody)
{
	halves("2000", "100");
}

Test(slices, long_ones_lose_less_in_switches)
{
	halves("30000", "500");
}

Test(slices, a_process_alone_never_switches)
{
	struct sim_device_state state;
	CUevent a, b;
	CUstream s;

	sim_fresh("GPUSIM_SWITCH_US", "1000", "GPUSIM_EVENTS", "slice", NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_spin(s, 1 * MS);
	OK(cuStreamSynchronize(s));
	sim_gate(s);
	a = sim_mark(s);
	sim_spin(s, 5 * MS);
	b = sim_mark(s);
	sim_release();
	cr_assert_float_eq(sim_between_us(a, b), 5000, 0.6);
	sim_truth(&state, NULL, NULL);
	cr_assert_eq(state.switches, 0);
	cr_assert_eq(state.switch_ns, 0);
}

Test(slices, the_next_process_pays_a_switch_before_its_kernel)
{
	struct sim_device_state state;
	CUevent a, b;
	CUstream s;
	pid_t pid;

	sim_fresh("GPUSIM_SWITCH_US", "700", NULL);
	pid = start_hog();
	sim_truth(&state, NULL,
		NULL); /* work of a killed process counts only up to the last look at the model */
	stop(pid);
	usleep(5000);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(s);
	a = sim_mark(s);
	sim_spin(s, 5 * MS);
	b = sim_mark(s);
	sim_release();
	/* Events do not wait for the engine here, so the first event is before the switch. */
	cr_assert_float_eq(sim_between_us(a, b), 5700, 0.6);
	sim_truth(&state, NULL, NULL);
	cr_assert_eq(state.switches, 1);
	cr_assert_eq(state.switch_ns, 700000);
	cr_assert_eq(sim_truth_of(getpid()).device_ns, 5 * MS);
	cr_assert_eq(sim_reset(), 0);
	sim_truth(&state, NULL, NULL);
	cr_assert_eq(state.switch_ns, 0);
}

/* Checks that the time between two ops that end only in a slice is a number of whole rounds, however late this process
 * asked. */
static void rounds(CUevent a, CUevent b, double slice_us, double extra_us, int least)
{
	double took_us = sim_between_us(a, b) - extra_us;
	double n = round(took_us / slice_us);

	cr_assert_geq(n, least, "%.3f us", took_us);
	cr_assert_float_eq(took_us, n * slice_us, 0.6, "%.3f us are not whole slices", took_us);
}

static CUevent mark_and_wait(CUstream s)
{
	CUevent e = sim_mark(s);

	OK(cuEventSynchronize(e));
	return e;
}

static void nothing(void *arg)
{
	(void)arg;
}

Test(slices, events_wait_for_the_slice)
{
	CUevent a, b, c, d;
	CUstream s, t;
	pid_t pid;

	sim_fresh("GPUSIM_EVENTS", "slice", "GPUSIM_SLICE_US", "10000", NULL);
	pid = start_hog();
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	t = sim_stream(CU_STREAM_NON_BLOCKING);
	a = mark_and_wait(s);
	b = mark_and_wait(s);
	rounds(a, b, 10000, 0, 1);
	/* Events that are queued together end in the same slice. */
	sim_gate(s);
	a = sim_mark(s);
	OK(cuStreamWaitEvent(t, a, 0));
	b = sim_mark(t);
	sim_release();
	cr_assert_float_eq(sim_between_us(a, b), 0, 0.001);
	/* A host function begins in a slice; the event behind it needs another slice. */
	a = mark_and_wait(s);
	OK(cuLaunchHostFunc(s, nothing, NULL));
	c = sim_mark(s);
	rounds(a, c, 10000, 0, 2);
	/* 3 ms of a kernel, and the event in the same slice. */
	a = mark_and_wait(s);
	sim_spin(s, 3 * MS);
	d = sim_mark(s);
	rounds(a, d, 10000, 3000, 1);
	cr_assert_eq(sim_truth_of(getpid()).device_ns, 3 * MS);
	stop(pid);
}

Test(slices, events_wait_for_the_switch_too)
{
	CUevent a, b;
	CUstream s;
	pid_t pid;

	sim_fresh("GPUSIM_EVENTS", "slice", "GPUSIM_SLICE_US", "10000", "GPUSIM_SWITCH_US", "300", NULL);
	pid = start_hog();
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	a = mark_and_wait(s);
	b = mark_and_wait(s);
	/* A round has two switches: to the other process and back. */
	rounds(a, b, 10000, 600, 1);
	stop(pid);
}

Test(slices, copies_begin_in_the_slice_even_those_of_nothing)
{
	const size_t bytes = 25000000; /* 1 ms and the latency of 1.5 us */
	CUdeviceptr p;
	CUevent a, b;
	CUstream s;
	pid_t pid;
	void *h;

	sim_fresh("GPUSIM_EVENTS", "slice", "GPUSIM_SLICE_US", "300000", NULL);
	pid = start_hog();
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAlloc_v2(&p, bytes));
	OK(cuMemHostAlloc(&h, bytes, 0));
	a = mark_and_wait(s);
	/* The other process has just got a new slice. */
	OK(cuMemcpyHtoDAsync_v2(p, h, 0, s));
	GIVES(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	OK(cuMemcpyHtoDAsync_v2(p, h, bytes, s));
	b = sim_mark(s);
	GIVES(cuEventQuery(b), CUDA_ERROR_NOT_READY);
	OK(cuEventSynchronize(b));
	/* The copy begins in the first slice and goes on without one; the event needs the second slice. */
	rounds(a, b, 300000, 0, 2);
	cr_assert_eq(sim_truth_of(getpid()).copy_ns, 1001500);
	cr_assert_eq(sim_truth_of(getpid()).copies, 1);
	stop(pid);
}

Test(slices, a_death_while_others_wait_changes_nothing_for_them)
{
	CUevent a, b;
	CUstream s;
	pid_t pid, other;

	sim_fresh("GPUSIM_EVENTS", "slice", "GPUSIM_SLICE_US", "100000", NULL);
	pid = start_hog();
	other = start_hog();
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	a = sim_mark(s);
	stop(other);
	usleep(5000);
	OK(cuEventSynchronize(a));
	b = mark_and_wait(s);
	rounds(a, b, 100000, 0, 1);
	stop(pid);
}

/* Queues every kind of op that waits for a slice, in two streams, for ever. */
static void busy_for_ever(void *arg)
{
	CUstream s, t;
	CUdeviceptr p;
	CUevent e;
	void *h;

	(void)arg;
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	t = sim_stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAlloc_v2(&p, 4096));
	OK(cuMemHostAlloc(&h, 4096, 0));
	OK(cuEventCreate(&e, 0));
	for (;;) {
		sim_spin_part(s, 5000, 600);
		OK(cuEventRecord(e, s));
		OK(cuStreamWaitEvent(t, e, 0));
		OK(cuMemcpyHtoDAsync_v2(p, h, 4096, t));
		OK(cuLaunchHostFunc(t, nothing, NULL));
		sim_spin_part(t, 3000, 600);
		OK(cuStreamSynchronize(t));
	}
}

/* Checks that after many deaths at any moment the parts add up to the sums, and that the device works. */
static void killed(const char *mode, const char *events)
{
	static struct sim_process_state list[SIM_MAX_PROCS];
	struct sim_device_state state;
	uint64_t sum = 0;
	CUevent a, b;
	CUstream s;
	int n;

	sim_fresh("GPUSIM_MODE", mode, "GPUSIM_EVENTS", events, "GPUSIM_SLICE_US", "200", "GPUSIM_SWITCH_US",
		"20", NULL);
	srand(1);
	for (int round = 0; round < 40; round++) {
		pid_t pid[3];

		for (int i = 0; i < 3; i++)
			pid[i] = sim_child(busy_for_ever, NULL);
		for (int i = 0; i < 3; i++) {
			usleep((unsigned)(rand() % 4000));
			stop(pid[i]);
		}
	}
	usleep(5000);
	sim_truth(&state, list, &n);
	for (int i = 0; i < n; i++) {
		cr_assert(!list[i].alive);
		sum += list[i].device_ns;
	}
	cr_assert_float_eq((double)state.busy_ns, (double)sum, 256.0);
	cr_assert_leq(state.busy_ns + state.switch_ns, state.now_ns - state.since_ns);
	cr_assert_gt(state.switches, 0, "nobody ran");
	cr_assert_leq(state.switch_ns, state.switches * 20000);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(s);
	a = sim_mark(s);
	sim_spin(s, 1 * MS);
	b = sim_mark(s);
	sim_release();
	cr_assert_leq(sim_between_us(a, b), 1000 + 20 + 0.6);
}

Test(slices, processes_killed_at_any_moment_leave_a_working_device)
{
	killed("timeslice", "slice");
}

Test(slices, also_one_that_serves_in_order)
{
	killed("fifo", "engine");
}

/* Processes that run side by side, as under MPS: each as wide as its kernels, and slower only if they do not fit. */
#include "test/sim/test/simtest.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

TestSuite(spatial, .fini = sim_remove);

#define LONG (40000 * MS)

struct wide {
	unsigned permille;
	const char *most; /* CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, or NULL */
	volatile int *ready;
};

/* Queues a kernel that outlasts every test, and sleeps. */
static void hog(void *arg)
{
	struct wide *w = arg;

	if (w->most)
		setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", w->most, 1);
	sim_device();
	sim_spin_part(sim_stream(CU_STREAM_NON_BLOCKING), LONG, w->permille);
	*w->ready = 1;
	for (;;)
		pause();
}

static pid_t start_hog(unsigned permille, const char *most)
{
	struct wide w = {
		permille, most, mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
	pid_t pid = sim_child(hog, &w);

	while (!*w.ready)
		usleep(1000);
	return pid;
}

/* Checks what each of two processes gets, as a part of the time: device time, and width times device time. */
static void pair(unsigned a, unsigned b, const char *most_of_b, const double *time, const double *width)
{
	static struct sim_process_state list[2][SIM_MAX_PROCS];
	struct sim_device_state state[2];
	pid_t pid[2];
	double elapsed;
	int found;

	sim_fresh("GPUSIM_MODE", "spatial", NULL);
	pid[0] = start_hog(a, NULL);
	pid[1] = start_hog(b, most_of_b);
	for (int k = 0; k < 2; k++) {
		sim_truth(&state[k], list[k], &found);
		cr_assert_eq(found, 2);
		usleep(50000);
	}
	elapsed = (double)(state[1].now_ns - state[0].now_ns);
	cr_assert_float_eq((double)(state[1].busy_ns - state[0].busy_ns), elapsed, 2.0);
	for (int i = 0; i < 2; i++) {
		int at = list[0][0].pid == pid[i] ? 0 : 1;
		double got = (double)(list[1][at].device_ns - list[0][at].device_ns);
		double filled = (double)(list[1][at].width_ns - list[0][at].width_ns);

		cr_assert_float_eq(got, elapsed * time[i], 4.0, "process %d: %.0f of %.0f", i, got, elapsed);
		cr_assert_float_eq(filled, elapsed * width[i], 4.0, "process %d: %.0f", i, filled);
		kill(pid[i], SIGKILL);
		sim_join(pid[i]);
	}
}

Test(spatial, what_fits_runs_at_full_speed)
{
	pair(300, 600, NULL, (double[]){1, 1}, (double[]){0.3, 0.6});
}

Test(spatial, what_does_not_fit_slows_everybody_down)
{
	pair(1000, 1000, NULL, (double[]){0.5, 0.5}, (double[]){0.5, 0.5});
}

/* Widths of 0.5 and 1 do not fit: both processes run at two thirds of their speed. */
Test(spatial, the_wide_one_slows_the_narrow_one_down)
{
	pair(500, 1000, NULL, (double[]){2.0 / 3, 2.0 / 3}, (double[]){1.0 / 3, 2.0 / 3});
}

/* The second process may fill 40 percent at most: it takes 2.5 times as long, and does not slow the first. */
Test(spatial, a_process_can_be_kept_narrow)
{
	pair(600, 1000, "40", (double[]){1, 1}, (double[]){0.6, 0.4});
}

Test(spatial, a_kernel_ends_when_its_work_is_done)
{
	CUevent a, b;
	CUstream s;
	pid_t pid;

	sim_fresh("GPUSIM_MODE", "spatial", NULL);
	pid = start_hog(700, NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(s);
	a = sim_mark(s);
	sim_spin_part(s, 10 * MS, 300);
	b = sim_mark(s);
	sim_release();
	cr_assert_float_eq(sim_between_us(a, b), 10000, 0.6);
	sim_gate(s);
	a = sim_mark(s);
	sim_spin_part(s, 10 * MS, 800);
	b = sim_mark(s);
	sim_release();
	cr_assert_float_eq(sim_between_us(a, b), 15000, 0.6);
	cr_assert_float_eq((double)sim_truth_of(getpid()).device_ns, 20e6, 4.0);
	cr_assert_float_eq((double)sim_truth_of(getpid()).width_ns, 11e6, 4.0);
	kill(pid, SIGKILL);
	sim_join(pid);
}

/* A kernel has the width that it says; a kernel that says none has the width of its process. */
Test(spatial, a_process_has_a_width)
{
	int mps = 0;
	CUstream s;

	sim_fresh("GPUSIM_MODE", "spatial", "GPUSIM_WIDTH", "25", NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_spin(s, 8 * MS);
	OK(cuStreamSynchronize(s));
	cr_assert_eq(sim_truth_of(getpid()).device_ns, 8 * MS);
	cr_assert_eq(sim_truth_of(getpid()).width_ns, 2 * MS);
	sim_spin_part(s, 8 * MS, 500);
	OK(cuStreamSynchronize(s));
	cr_assert_eq(sim_truth_of(getpid()).width_ns, 6 * MS);
	OK(cuDeviceGetAttribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0));
	cr_assert_eq(mps, 1);
}

/* In the other modes widths are counted, too; a process that has the engine has it alone. */
Test(spatial, widths_count_in_time_slices_too)
{
	int mps = 1;
	CUstream s;

	sim_fresh("GPUSIM_WIDTH", "so wide", NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_spin(s, 2 * MS);
	sim_spin_part(s, 8 * MS, 500);
	OK(cuStreamSynchronize(s));
	cr_assert_eq(sim_truth_of(getpid()).device_ns, 10 * MS);
	cr_assert_eq(sim_truth_of(getpid()).width_ns, 6 * MS);
	OK(cuDeviceGetAttribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0));
	cr_assert_eq(mps, 0);
}

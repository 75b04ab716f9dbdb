/* Several processes on a device: how they share it, and what is left of a process that dies. */
#include "test/sim/test/simtest.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

TestSuite(share, .fini = sim_remove);

struct job {
	uint64_t kernel_ns;
	int kernels, every;
	volatile int ready; /* all work is queued */
	double took_us;
};

static struct job *shared_jobs(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* Waits after every few launches, or first queues all launches (at most 1024) and then lets them run. */
static void run(void *arg)
{
	struct job *j = arg;
	CUstream s;
	CUevent a, b;

	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	if (!j->every)
		sim_gate(s);
	a = sim_mark(s);
	for (int i = 0; i < j->kernels; i++) {
		sim_spin(s, j->kernel_ns);
		if (j->every && i % j->every == j->every - 1)
			OK(cuStreamSynchronize(s));
	}
	b = sim_mark(s);
	if (!j->every)
		sim_release();
	j->took_us = sim_between_us(a, b);
}

/* Queues work for many seconds and sleeps, so that its progress does not depend on the machine. */
static void queue(void *arg)
{
	struct job *j = arg;
	CUstream s;

	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < j->kernels; i++)
		sim_spin(s, j->kernel_ns);
	j->ready = 1;
	for (;;)
		pause();
}

static pid_t start_queue(struct job *j, uint64_t kernel_ns, int kernels)
{
	pid_t pid;

	*j = (struct job){.kernel_ns = kernel_ns, .kernels = kernels};
	pid = sim_child(queue, j);
	while (!j->ready)
		usleep(1000);
	return pid;
}

static void together(const char *mode, int n, double slice_ns)
{
	static struct sim_process_state list[2][SIM_MAX_PROCS];
	struct sim_device_state state[2];
	struct job *jobs = shared_jobs();
	pid_t pid[8];
	double elapsed;

	sim_fresh("GPUSIM_MODE", mode, NULL);
	for (int i = 0; i < n; i++)
		pid[i] = start_queue(&jobs[i], 7 * MS + (uint64_t)i * 1234567, 1000);
	for (int k = 0; k < 2; k++) {
		int found;

		sim_truth(&state[k], list[k], &found);
		cr_assert_eq(found, n);
		usleep(300000);
	}
	elapsed = (double)(state[1].now_ns - state[0].now_ns);
	cr_assert_eq(state[1].busy_ns - state[0].busy_ns, state[1].now_ns - state[0].now_ns,
		"the device was idle");
	for (int i = 0; i < n; i++) {
		double got = (double)(list[1][i].device_ns - list[0][i].device_ns);

		cr_assert_float_eq(got, elapsed / n, slice_ns, "%.0f ns instead of %.0f", got, elapsed / n);
	}
	for (int i = 0; i < n; i++) {
		kill(pid[i], SIGKILL);
		sim_join(pid[i]);
	}
}

Test(share, timeslice_gives_two_processes_half_each_to_within_a_slice)
{
	together("timeslice", 2, 2 * MS);
}

Test(share, timeslice_gives_five_processes_a_fifth_each_to_within_a_slice)
{
	together("timeslice", 5, 2 * MS);
}

Test(share, sharing_mode_gives_three_processes_a_third_each_to_the_microsecond)
{
	together("share", 3, 1000);
}

Test(share, parts_add_up_to_the_whole)
{
	struct job *jobs = shared_jobs();
	struct sim_device_state state;
	uint64_t sum = 0;
	pid_t pid[3];

	sim_fresh("GPUSIM_MODE", "share", NULL);
	for (int i = 0; i < 3; i++) {
		jobs[i] = (struct job){.kernel_ns = 70001, .kernels = 3000, .every = 10 * (i + 1)};
		pid[i] = sim_child(run, &jobs[i]);
	}
	for (int i = 0; i < 3; i++)
		cr_assert_eq(sim_join(pid[i]), 0);
	sim_truth(&state, NULL, NULL);
	for (int i = 0; i < 3; i++) {
		struct sim_process_state p = sim_truth_of(pid[i]);

		cr_assert_eq(p.launches, 3000);
		/* The end of a kernel is rounded up to a whole ns. */
		cr_assert_float_eq((double)p.device_ns, 3000 * 70001.0, 6000.0);
		sum += p.device_ns;
	}
	cr_assert_float_eq((double)state.busy_ns, (double)sum, 4.0);
}

Test(share, a_long_kernel_is_cut_into_slices)
{
	struct job *jobs = shared_jobs();
	pid_t a, b;

	sim_fresh(NULL);
	a = start_queue(&jobs[0], 40000 * MS, 1);
	jobs[1] = (struct job){.kernel_ns = 1 * MS, .kernels = 50};
	b = sim_child(run, &jobs[1]);
	cr_assert_eq(sim_join(b), 0);
	kill(a, SIGKILL);
	sim_join(a);
	/* 25 slices of its own, and 24 to 25 slices of the other process between them. */
	cr_assert_geq(jobs[1].took_us, 98000 - 1);
	cr_assert_leq(jobs[1].took_us, 100000 + 1);
}

Test(share, a_process_without_work_gives_its_slice_away)
{
	struct job *jobs = shared_jobs();
	pid_t a, b;

	sim_fresh("GPUSIM_SLICE_US", "20000", NULL);
	jobs[0] = (struct job){.kernel_ns = 100000, .kernels = 30, .every = 1};
	jobs[1] = (struct job){.kernel_ns = 1 * MS, .kernels = 300};
	a = sim_child(run, &jobs[0]);
	b = sim_child(run, &jobs[1]);
	cr_assert_eq(sim_join(a), 0);
	cr_assert_eq(sim_join(b), 0);
	/* The second process waits only for the first one's work, not for slices that the first did not use. */
	cr_assert_eq(sim_truth_of(a).device_ns, 3 * MS);
	cr_assert_leq(jobs[1].took_us, 300000 + 3000 + 1);
}

Test(share, the_work_of_a_killed_process_disappears)
{
	struct job *jobs = shared_jobs();
	struct sim_device_state before, after;
	struct sim_process_state p;
	CUevent a, b;
	CUstream s;
	pid_t pid;

	sim_fresh(NULL);
	pid = start_queue(jobs, 10 * MS, 1000);
	sim_truth(&before, NULL, NULL);
	cr_assert_gt(before.memory_used_bytes, 0);
	kill(pid, SIGKILL);
	cr_assert_eq(sim_join(pid), -SIGKILL);
	usleep(5000);
	sim_truth(&after, NULL, NULL);
	cr_assert_eq(after.memory_used_bytes, 0);
	p = sim_truth_of(pid);
	cr_assert(!p.alive);
	cr_assert_gt(p.device_ns, 0);
	cr_assert_lt(p.device_ns, 5000 * MS);

	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(s);
	a = sim_mark(s);
	sim_spin(s, 10 * MS);
	b = sim_mark(s);
	sim_release();
	cr_assert_float_eq(sim_between_us(a, b), 10000, 0.6, "the dead process still has the device");
	cr_assert_eq(sim_truth_of(pid).device_ns, p.device_ns);
}

static void busy_for_ever(void *arg)
{
	CUdeviceptr p;
	CUstream s;

	(void)arg;
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	for (;;) {
		sim_spin(s, 5000);
		OK(cuMemAlloc_v2(&p, 1 << 20));
		OK(cuStreamSynchronize(s));
		OK(cuMemFree_v2(p));
	}
}

Test(share, processes_killed_at_any_moment_leave_a_working_device)
{
	static struct sim_process_state list[SIM_MAX_PROCS];
	struct sim_device_state state;
	uint64_t sum = 0;
	int n;

	sim_fresh(NULL);
	srand(1);
	for (int round = 0; round < 60; round++) {
		pid_t pid[3];

		for (int i = 0; i < 3; i++)
			pid[i] = sim_child(busy_for_ever, NULL);
		for (int i = 0; i < 3; i++) {
			usleep((unsigned)(rand() % 4000));
			kill(pid[i], SIGKILL);
			cr_assert_eq(sim_join(pid[i]), -SIGKILL);
		}
	}
	usleep(5000);
	sim_truth(&state, list, &n);
	for (int i = 0; i < n; i++) {
		cr_assert(!list[i].alive);
		sum += list[i].device_ns;
	}
	cr_assert_eq(state.memory_used_bytes, 0);
	cr_assert_float_eq((double)state.busy_ns, (double)sum, 256.0);
	sim_device();
	sim_spin(NULL, 1 * MS);
	OK(cuCtxSynchronize());
}

Test(share, more_processes_than_slots_come_and_go)
{
	struct job *jobs = shared_jobs();
	struct sim_device_state state;

	sim_fresh(NULL);
	for (int i = 0; i < SIM_MAX_PROCS + 20; i++) {
		jobs[0] = (struct job){.kernel_ns = 1000, .kernels = 10};
		cr_assert_eq(sim_join(sim_child(run, &jobs[0])), 0);
	}
	sim_truth(&state, NULL, NULL);
	cr_assert_eq(state.launches, 10u * (SIM_MAX_PROCS + 20));
	cr_assert_eq(state.busy_ns, 10000u * (SIM_MAX_PROCS + 20));
	cr_assert_eq(sim_reset(), 0);
	sim_truth(&state, NULL, NULL);
	cr_assert_eq(state.busy_ns, 0);
}

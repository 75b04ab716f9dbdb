/* Several processes on one device: how they share, what is left of one that dies. */
#include "simtest.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

TestSuite(share, .fini = sim_remove);

struct job {
	uint64_t kernel_ns;
	int kernels, every;
	volatile int *go; /* shared: counts those who are ready, then lets all start */
	int parties;
	double took_us;
};

static struct job *shared_jobs(int n)
{
	return mmap(NULL, sizeof(struct job) * (size_t)n + 64, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void run(void *arg)
{
	struct job *j = arg;
	CUstream s;
	CUevent a, b;

	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	__atomic_fetch_add(j->go, 1, __ATOMIC_SEQ_CST);
	while (*j->go < j->parties)
		usleep(100);
	a = sim_mark(s);
	for (int i = 0; i < j->kernels; i++) {
		sim_spin(s, j->kernel_ns);
		if (j->every && i % j->every == j->every - 1)
			OK(cuStreamSynchronize(s));
	}
	b = sim_mark(s);
	j->took_us = sim_between_us(a, b);
}

static void together(const char *mode, int n, uint64_t kernel_ns, int kernels)
{
	struct job *jobs = shared_jobs(n);
	struct sim_device_state state;
	pid_t pid[16];
	double alone_us = (double)kernel_ns * kernels / 1000;
	uint64_t sum = 0;

	sim_fresh("GPUSIM_MODE", mode, NULL);
	for (int i = 0; i < n; i++) {
		jobs[i] = (struct job){.kernel_ns = kernel_ns,
			.kernels = kernels,
			.go = (int *)(void *)&jobs[n],
			.parties = n};
		pid[i] = sim_child(run, &jobs[i]);
	}
	for (int i = 0; i < n; i++)
		cr_assert_eq(sim_join(pid[i]), 0);
	sim_truth(&state, NULL, NULL);
	for (int i = 0; i < n; i++) {
		struct sim_process_state p = sim_truth_of(pid[i]);

		cr_assert_eq(p.launches, (uint64_t)kernels);
		/* A share that is not a whole number of ns rounds up at each kernel's end. */
		cr_assert_float_eq((double)p.device_ns, alone_us * 1000, (double)kernels * 2 + 1);
		sum += p.device_ns;
		/* All of them ran at once except for the start and the last slices. */
		cr_assert_geq(jobs[i].took_us, alone_us * (n - 0.5));
		cr_assert_leq(jobs[i].took_us, alone_us * n + 40000);
	}
	cr_assert_float_eq((double)state.busy_ns, (double)sum, 16.0);
}

Test(share, timeslice_gives_two_processes_half_each)
{
	together("timeslice", 2, 300000, 1000);
}

Test(share, timeslice_gives_four_processes_a_quarter_each)
{
	together("timeslice", 4, 70000, 2000);
}

Test(share, sharing_mode_gives_three_processes_a_third_each)
{
	together("share", 3, 100000, 1500);
}

Test(share, a_long_kernel_is_cut_into_slices)
{
	struct job *jobs = shared_jobs(2);
	pid_t a, b;

	sim_fresh(NULL);
	jobs[0] = (struct job){
		.kernel_ns = 400 * MS, .kernels = 1, .go = (int *)(void *)&jobs[2], .parties = 2};
	jobs[1] =
		(struct job){.kernel_ns = 1 * MS, .kernels = 50, .go = (int *)(void *)&jobs[2], .parties = 2};
	a = sim_child(run, &jobs[0]);
	b = sim_child(run, &jobs[1]);
	cr_assert_eq(sim_join(a), 0);
	cr_assert_eq(sim_join(b), 0);
	/* The short ones did not have to wait for the long one's end. */
	cr_assert_lt(jobs[1].took_us, 110000 + 2000);
	cr_assert_geq(jobs[1].took_us, 96000);
}

Test(share, a_process_without_work_gives_its_slice_away)
{
	struct job *jobs = shared_jobs(2);
	struct sim_process_state p;
	pid_t a, b;

	sim_fresh("GPUSIM_SLICE_US", "20000", NULL);
	jobs[0] = (struct job){
		.kernel_ns = 100000, .kernels = 100, .every = 1, .go = (int *)(void *)&jobs[2], .parties = 2};
	jobs[1] = (struct job){
		.kernel_ns = 1 * MS, .kernels = 300, .go = (int *)(void *)&jobs[2], .parties = 2};
	a = sim_child(run, &jobs[0]);
	b = sim_child(run, &jobs[1]);
	cr_assert_eq(sim_join(a), 0);
	cr_assert_eq(sim_join(b), 0);
	/* Each wait of the first costs it a slice of the second; the second loses only the first's work. */
	p = sim_truth_of(a);
	cr_assert_eq(p.device_ns, 10 * MS);
	cr_assert_lt(jobs[1].took_us, 300000 + 10000 + 1000);
}

static void queue_and_sleep(void *arg)
{
	CUstream s;

	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < 1000; i++)
		sim_spin(s, 10 * MS);
	*(volatile int *)arg = 1;
	for (;;)
		pause();
}

Test(share, the_work_of_a_killed_process_disappears)
{
	volatile int *ready = (volatile int *)shared_jobs(1);
	struct sim_device_state before, after;
	struct sim_process_state p;
	CUevent a, b;
	CUstream s;
	pid_t pid;

	sim_fresh(NULL);
	pid = sim_child(queue_and_sleep, (void *)(uintptr_t)ready);
	while (!*ready)
		usleep(1000);
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
	a = sim_mark(s);
	sim_spin(s, 10 * MS);
	b = sim_mark(s);
	cr_assert_lt(sim_between_us(a, b), 10000 + 5000, "the dead process still has the device");
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
	struct job *jobs = shared_jobs(1);
	struct sim_device_state state;

	sim_fresh(NULL);
	for (int i = 0; i < SIM_MAX_PROCS + 20; i++) {
		jobs[0] = (struct job){
			.kernel_ns = 1000, .kernels = 10, .go = (int *)(void *)&jobs[1], .parties = 0};
		cr_assert_eq(sim_join(sim_child(run, &jobs[0])), 0);
	}
	sim_truth(&state, NULL, NULL);
	cr_assert_eq(state.launches, 10u * (SIM_MAX_PROCS + 20));
	cr_assert_eq(state.busy_ns, 10000u * (SIM_MAX_PROCS + 20));
	cr_assert_eq(sim_reset(), 0);
	sim_truth(&state, NULL, NULL);
	cr_assert_eq(state.busy_ns, 0);
}

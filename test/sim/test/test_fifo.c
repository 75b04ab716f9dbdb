/* A device that runs kernels in the order of submission, whichever process submitted them. */
#include "test/sim/test/simtest.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

TestSuite(fifo, .fini = sim_remove);

/* A process that takes its next step when it is told to. */
struct hand {
	volatile int said, done;
	volatile double us[4];
	pid_t pid;
};

static struct hand *hands(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void listen_for(struct hand *h, int n)
{
	while (h->said < n)
		usleep(200);
}

static void say(struct hand *h, int n)
{
	h->said = n;
	while (h->done < n)
		usleep(200);
}

/* Keeps the engine busy until it is killed, so that others can queue their work, however slow the machine is. */
static void hog(void *arg)
{
	struct hand *h = arg;

	sim_device();
	sim_spin(sim_stream(CU_STREAM_NON_BLOCKING), 40000 * MS);
	h->done = 1;
	for (;;)
		pause();
}

static void start_hog(struct hand *h)
{
	struct sim_device_state state;

	h->pid = sim_child(hog, h);
	while (!h->done)
		usleep(200);
	sim_truth(&state, NULL, NULL);
	cr_assert_eq(state.launches, 0);
}

static void stop_hog(struct hand *h)
{
	struct sim_device_state state;

	sim_truth(&state, NULL, NULL);
	kill(h->pid, SIGKILL);
	sim_join(h->pid);
}

/* Step 1: queues two kernels; 2: queues a third; 3: reports how long after the kernel before it each ended. */
static void three_kernels(void *arg)
{
	struct hand *h = arg;
	CUevent a, b, c;
	CUstream s;

	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	listen_for(h, 1);
	sim_spin(s, 20 * MS);
	a = sim_mark(s);
	sim_spin(s, 10 * MS);
	b = sim_mark(s);
	h->done = 1;
	listen_for(h, 2);
	sim_spin(s, 5 * MS);
	c = sim_mark(s);
	h->done = 2;
	listen_for(h, 3);
	h->us[0] = sim_between_us(a, b);
	h->us[1] = sim_between_us(b, c);
	h->done = 3;
}

/* Runs two kernels of the other process, seven of this process, and the third of the other process. */
static struct sim_device_state in_turn(const char *switch_us, double third_us)
{
	struct hand *h = hands(), *first = h + 1;
	struct sim_device_state state;
	uint64_t sum;
	CUstream s;

	sim_fresh("GPUSIM_MODE", "fifo", "GPUSIM_SWITCH_US", switch_us, NULL);
	start_hog(first);
	h->pid = sim_child(three_kernels, h);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	say(h, 1);
	for (int i = 0; i < 7; i++)
		sim_spin(s, 2 * MS);
	say(h, 2);
	stop_hog(first);
	say(h, 3);
	cr_assert_eq(sim_join(h->pid), 0);
	cr_assert_float_eq(h->us[0], 10000, 0.6, "%.3f", h->us[0]);
	cr_assert_float_eq(h->us[1], third_us, 0.6, "%.3f", h->us[1]);
	sim_truth(&state, NULL, NULL);
	cr_assert_eq(sim_truth_of(getpid()).device_ns, 14 * MS);
	cr_assert_eq(sim_truth_of(h->pid).device_ns, 35 * MS);
	sum = 49 * MS + sim_truth_of(first->pid).device_ns;
	cr_assert_eq(state.busy_ns, sum);
	return state;
}

Test(fifo, what_was_queued_first_runs_first)
{
	struct sim_device_state state = in_turn("0", 14000 + 5000);

	cr_assert_eq(state.switch_ns, 0);
}

Test(fifo, a_switch_costs_there_too)
{
	struct sim_device_state state = in_turn("250", 250 + 14000 + 250 + 5000);

	cr_assert_eq(state.switches, 3);
	cr_assert_eq(state.switch_ns, 750000);
}

Test(fifo, one_process_overlaps_as_in_the_other_modes)
{
	CUstream s, t;
	CUevent gate, a, b;

	sim_fresh("GPUSIM_MODE", "fifo", NULL);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	t = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(s);
	gate = sim_mark(s);
	OK(cuStreamWaitEvent(t, gate, 0));
	sim_spin_part(s, 2 * MS, 500);
	sim_spin_part(t, 2 * MS, 500);
	a = sim_mark(s);
	b = sim_mark(t);
	sim_release();
	cr_assert_float_eq(sim_between_us(gate, a), 2000, 0.6);
	cr_assert_float_eq(sim_between_us(gate, b), 2000, 0.6);
	sim_gate(s);
	gate = sim_mark(s);
	OK(cuStreamWaitEvent(t, gate, 0));
	sim_spin(s, 2 * MS);
	sim_spin(t, 1 * MS);
	a = sim_mark(s);
	b = sim_mark(t);
	sim_release();
	cr_assert_float_eq(sim_between_us(gate, a), 3000, 0.6);
	cr_assert_float_eq(sim_between_us(gate, b), 2000, 0.6);
}

/* Queues a kernel in each of two streams: one before the parent's kernel, the other after it. */
static void around(void *arg)
{
	struct hand *h = arg;
	CUstream s, t;
	CUevent a, b;

	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	t = sim_stream(CU_STREAM_NON_BLOCKING);
	listen_for(h, 1);
	sim_spin_part(s, 30 * MS, 100);
	a = sim_mark(s);
	h->done = 1;
	listen_for(h, 2);
	sim_spin_part(t, 4 * MS, 100);
	b = sim_mark(t);
	h->done = 2;
	h->us[0] = sim_between_us(a, b);
	h->done = 3;
}

Test(fifo, nothing_overtakes_another_process_within_its_own)
{
	struct hand *h = hands(), *first = h + 1;
	CUstream s;

	sim_fresh("GPUSIM_MODE", "fifo", NULL);
	start_hog(first);
	h->pid = sim_child(around, h);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	say(h, 1);
	sim_spin(s, 20 * MS);
	say(h, 2);
	stop_hog(first);
	say(h, 3);
	cr_assert_eq(sim_join(h->pid), 0);
	/* The second would fit beside the first, but this process's kernel was submitted between them. */
	cr_assert_float_eq(h->us[0], 24000, 0.6, "%.3f", h->us[0]);
}

Test(fifo, with_the_death_of_whoever_has_the_engine_the_next_begins)
{
	struct hand *h = hands();
	CUevent a, b;
	CUstream s;

	sim_fresh("GPUSIM_MODE", "fifo", NULL);
	start_hog(h);
	sim_device();
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_spin(s, 3 * MS);
	a = sim_mark(s);
	sim_spin(s, 4 * MS);
	b = sim_mark(s);
	usleep(20000);
	GIVES(cuEventQuery(a), CUDA_ERROR_NOT_READY);
	stop_hog(h);
	cr_assert_float_eq(sim_between_us(a, b), 4000, 0.6);
	cr_assert_eq(sim_truth_of(getpid()).device_ns, 7 * MS);
}

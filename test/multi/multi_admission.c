/* Leases of several processes: processes that die or fork, and what the threads of a process share. */
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/multi/multi_leases.h"

TestSuite(leases, .init = open_dir, .fini = close_dir);

static void sample(unsigned percent)
{
	struct arb_usage_rules rules = {.ttl_ns = 600000 * MS, .high_pct = 85, .low_pct = 78};

	arb_usage_publish(&seg, &rules, percent * 100, ARB_SAMPLE_NVML, arb_os_now_ns());
	arb_sampler_wake_waiters(&seg);
}

/* The first call of a process makes it sample once; after that only the test samples. */
static void settle(void)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;

	cr_assert_eq(acquire("asr", &lease), GPUARB_OK);
	gpuarb_release(&lease);
	while (!arb_load64(&seg.header->adm_sample))
		t_sleep_us(1000);
	sample(10);
}

static int hold(void *argument)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;

	(void)argument;
	arb_store32(&say->result, (uint32_t)acquire("asr", &lease));
	arb_store32_release(&say->ready, 1);
	while (!arb_load32_acquire(&say->go))
		t_sleep_us(1000);
	return 0;
}

static pid_t start_holder(void)
{
	pid_t pid;

	say = t_shared(sizeof(*say));
	pid = t_spawn(hold, NULL, 60);
	until(&say->ready);
	cr_assert_eq(arb_load32(&say->result), GPUARB_OK);
	return pid;
}

Test(leases, a_killed_process_holds_none)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	pid_t pid;

	set("policy", "exclusive");
	pid = start_holder();
	cr_assert_neq(arb_admission_next(&seg, seg.header->adm_leased, 0), ARB_NONE);
	cr_assert_eq(acquire("repair", &lease), GPUARB_SKIP);
	kill(pid, SIGKILL);
	cr_assert_eq(t_wait(pid), -SIGKILL);
	/* No other process is there to clean up. */
	cr_assert_eq(acquire("asr", &lease), GPUARB_OK);
	gpuarb_release(&lease);
	cr_assert_eq(arb_admission_next(&seg, seg.header->adm_leased, 0), ARB_NONE);
}

Test(leases, a_killed_holder_ends_the_pressure_for_the_highest_class)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	pid_t pid = start_holder();

	settle();
	sample(100);
	kill(pid, SIGKILL);
	cr_assert_eq(t_wait(pid), -SIGKILL);
	/* The class "top" goes only if no lease is held. The dead process still holds one, until this call has
	 * looked. */
	cr_assert_eq(acquire("top", &lease), GPUARB_OK);
	gpuarb_release(&lease);
}

static int wait_long(void *argument)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;

	(void)argument;
	arb_store32_release(&say->ready, 1);
	return acquire("nmt", &lease);
}

static void until_waiting(unsigned n)
{
	unsigned found;

	do {
		found = 0;
		for (uint32_t i = arb_admission_next(&seg, seg.header->adm_waiting, 0); i != ARB_NONE;
			i = arb_admission_next(&seg, seg.header->adm_waiting, i + 1))
			found++;
		t_sleep_us(500);
	} while (found != n);
}

Test(leases, a_killed_waiter_stands_in_nobodys_way)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	pid_t pid;

	settle();
	sample(100);
	say = t_shared(sizeof(*say));
	pid = t_spawn(wait_long, NULL, 60);
	until_waiting(1);
	kill(pid, SIGKILL);
	cr_assert_eq(t_wait(pid), -SIGKILL);
	sample(10);
	cr_assert_eq(acquire(NULL, &lease), GPUARB_OK, "the waiter behind it looks");
	gpuarb_release(&lease);
	cr_assert_eq(acquire("repair", &lease), GPUARB_OK);
	gpuarb_release(&lease);
}

/* Forbids every system call but exit. (Strict mode would take the clock away as well.) */
static int nothing_but_user_space(void *argument)
{
	struct sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL)};
	struct sock_fprog only_exit = {sizeof(filter) / sizeof(filter[0]), filter};
	struct gpuarb_client *c;
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	struct gpuarb_request request = {.task_class = "nmt"}, low = {.task_class = "repair"};
	int bad = 0;

	(void)argument;
	T_CHECK(t_open(&dir, NULL, &c) == 0, "a client");
	sample(10);
	T_CHECK(arb_admission_acquire(c, &request, &lease) == GPUARB_OK, "the first one");
	arb_admission_release(c, &lease);
	sample(10);
	T_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
	T_CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &only_exit) == 0, "seccomp");
	for (int i = 0; i < 1000; i++) {
		bad += arb_admission_acquire(c, &request, &lease) != GPUARB_OK;
		bad += arb_admission_release(c, &lease) != 0;
	}
	arb_store64(&seg.header->adm_sample, arb_usage_pack(10000, ARB_SAMPLE_NVML, true, arb_os_now_ns()));
	for (int i = 0; i < 1000; i++)
		bad += arb_admission_acquire(c, &low, &lease) != GPUARB_SKIP;
	syscall(SYS_exit, bad != 0);
	return 1;
}

Test(leases, a_lease_that_is_given_at_once_takes_no_system_call)
{
	/* The window must not end meanwhile: a roll may write an event, and probes other clients. */
	set("window_ms", "60000");
	cr_assert_eq(t_run(nothing_but_user_space, NULL, 60), 0, "a system call");
}

static struct gpuarb_lease thread_lease[2];
static int thread_result[2];

static void *wait_low(void *argument)
{
	(void)argument;
	thread_result[0] = acquire("nmt", &thread_lease[0]);
	return NULL;
}

static void *wait_high(void *argument)
{
	(void)argument;
	thread_result[1] = acquire("top", &thread_lease[1]);
	return NULL;
}

static unsigned shown_priority(void)
{
	uint32_t i = arb_admission_next(&seg, seg.header->adm_waiting, 0);

	return i == ARB_NONE ? 0 : arb_load32(&seg.slots[i].adm_want) >> ARB_WANT_PRIORITY_SHIFT & 127;
}

Test(leases, a_process_waits_with_the_highest_class_of_its_threads)
{
	struct gpuarb_lease first = GPUARB_LEASE_INIT;
	struct gpuarb_status status;
	pthread_t low, high;

	settle();
	cr_assert_eq(acquire("asr", &first), GPUARB_OK);
	sample(100);
	pthread_create(&low, NULL, wait_low, NULL);
	while (shown_priority() != 80)
		t_sleep_us(500);
	set("max_wait_ms", "5"); /* and settings may change while they do */
	pthread_create(&high, NULL, wait_high, NULL);
	while (shown_priority() != 99)
		t_sleep_us(500);
	cr_assert_eq(gpuarb_status(NULL, &status), 0);
	cr_assert_eq(status.queue_len, 1, "one process");
	cr_assert_eq(status.state, GPUARB_HIGH_PRESSURE);
	sample(10);
	pthread_join(high, NULL);
	pthread_join(low, NULL);
	cr_assert_eq(thread_result[0], GPUARB_OK);
	cr_assert_eq(thread_result[1], GPUARB_OK);
	cr_assert_eq(gpuarb_status(NULL, &status), 0);
	cr_assert_eq(status.own_leases, 3);
	cr_assert_eq(status.leases, 1, "one process");
	cr_assert_eq(status.core_limit, 100, "it asked for no limit");
	cr_assert_eq(status.quota, 10000);
	cr_assert_eq(status.reason, GPUARB_WHY_NONE);
	cr_assert_gt(status.window_ns, 0);
	gpuarb_release(&first);
	gpuarb_release(&thread_lease[0]);
	gpuarb_release(&thread_lease[1]);
	cr_assert_eq(gpuarb_status(NULL, &status), 0);
	cr_assert_eq(status.leases, 0);
}

Test(leases, a_wait_is_cancelled_by_another_thread)
{
	pthread_t low;

	settle();
	sample(100);
	pthread_create(&low, NULL, wait_low, NULL);
	until_waiting(1);
	gpuarb_cancel(&thread_lease[0]);
	pthread_join(low, NULL);
	cr_assert_eq(thread_result[0], -ECANCELED);
	cr_assert_str_eq(gpuarb_error_text(), "", "the sentence belongs to the other thread");
	until_waiting(0);
}

Test(leases, a_forked_child_has_none_and_takes_none_away)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	struct gpuarb_status status;
	pid_t pid;

	cr_assert_eq(acquire("asr", &lease), GPUARB_OK);
	pid = fork();
	if (pid == 0) {
		struct gpuarb_lease own = GPUARB_LEASE_INIT;
		int bad;

		alarm(60);
		bad = gpuarb_release(&lease) != 0;
		bad |= acquire("asr", &own) != GPUARB_OK;
		bad |= gpuarb_release(&lease) != 0;
		bad |= gpuarb_status(NULL, &status) != 0 || status.own_leases != 1 || status.leases != 2;
		_exit(bad);
	}
	cr_assert_eq(t_wait(pid), 0);
	/* The child has just ended; our own thread may have cleaned its slot already. */
	cr_assert_geq(gpuarb_control_reap(dir.path, T_GPU, NULL, NULL, NULL), 0);
	cr_assert_eq(gpuarb_status(NULL, &status), 0);
	cr_assert_eq(status.own_leases, 1);
	cr_assert_eq(status.leases, 1);
	gpuarb_release(&lease);
}

static arb_u32 interrupted, over;

static void count_signal(int number)
{
	(void)number;
	arb_add32_full(&interrupted, 1);
}

static void *wait_under_signals(void *argument)
{
	struct gpuarb_request request = {.task_class = "nmt", .max_wait_ms = 300};

	(void)argument;
	thread_result[0] = gpuarb_acquire(NULL, &request, &thread_lease[0]);
	arb_store32(&over, 1);
	return NULL;
}

Test(leases, signals_do_not_end_a_wait)
{
	struct sigaction action = {.sa_handler = count_signal};
	pthread_t thread;

	settle();
	sample(100);
	cr_assert_eq(sigaction(SIGUSR1, &action, NULL), 0);
	pthread_create(&thread, NULL, wait_under_signals, NULL);
	until_waiting(1);
	while (!arb_load32(&over)) {
		pthread_kill(thread, SIGUSR1);
		t_sleep_us(200);
	}
	pthread_join(thread, NULL);
	cr_assert_gt(arb_load32(&interrupted), 0);
	cr_assert_eq(thread_result[0], GPUARB_TIMEOUT);
	cr_assert_geq(thread_lease[0].waited_ns, 300 * MS, "not a moment less than it may");
}

static void *acquire_all_the_time(void *argument)
{
	(void)argument;
	while (!arb_load32(&over)) {
		struct gpuarb_lease lease = GPUARB_LEASE_INIT;

		thread_result[0] |= acquire("asr", &lease);
		gpuarb_release(&lease);
	}
	return NULL;
}

Test(leases, children_are_forked_while_threads_ask)
{
	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, acquire_all_the_time, NULL);
	for (int i = 0; i < 40; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			struct gpuarb_lease lease = GPUARB_LEASE_INIT;
			struct gpuarb_status status;
			int bad;

			alarm(60);
			bad = acquire("asr", &lease) != GPUARB_OK;
			bad |= gpuarb_status(NULL, &status) != 0 || status.own_leases != 1;
			bad |= gpuarb_release(&lease) != 0;
			_exit(bad);
		}
		cr_assert_eq(t_wait(pid), 0, "child %d", i);
	}
	arb_store32(&over, 1);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	cr_assert_eq(thread_result[0], GPUARB_OK);
}

Test(leases, a_replaced_segment_is_joined)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	struct gpuarb_client *c;
	char path[PATH_MAX];
	uint32_t n;

	cr_assert_eq(acquire("asr", &lease), GPUARB_OK);
	t_path(&dir, "state", path);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(t_open(&dir, NULL, &c), 0, "makes it anew");
	arb_segment_close(&seg);
	cr_assert_eq(arb_segment_open(&seg, dir.path, T_GPU, true, NULL, NULL), 0);
	do {
		t_sleep_us(5000);
		n = 0;
		for (uint32_t i = 0; i < seg.nslots; i++)
			n += arb_load32(&seg.slots[i].state) == ARB_SLOT_LIVE;
	} while (n != 2);
	cr_assert_eq(gpuarb_release(&lease), 0, "it was of the old one");
	cr_assert_eq(acquire("asr", &lease), GPUARB_OK);
	cr_assert_neq(arb_admission_next(&seg, seg.header->adm_leased, 0), ARB_NONE);
	cr_assert_eq(gpuarb_release(&lease), 0);
	cr_assert_eq(arb_admission_next(&seg, seg.header->adm_leased, 0), ARB_NONE);
	gpuarb_client_close(c);
}

Test(leases, errors_have_a_sentence)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	struct gpuarb_request request = {.task_class = "nonsense"};
	struct gpuarb_status status;

	cr_assert_eq(gpuarb_acquire(NULL, &request, &lease), -ENOENT);
	cr_assert(strstr(gpuarb_error_text(), "'nonsense'"), "%s", gpuarb_error_text());
	cr_assert_eq(gpuarb_acquire("no/such", NULL, &lease), -EINVAL);
	cr_assert(strstr(gpuarb_error_text(), "no/such"), "%s", gpuarb_error_text());
	/* A misspelt name must not make a segment: calls that name no GPU would find it. */
	cr_assert_eq(gpuarb_acquire("GPU-nope", NULL, &lease), -ENODEV);
	cr_assert(strstr(gpuarb_error_text(), "there is no GPU 'GPU-nope': it has no segment"), "%s",
		gpuarb_error_text());
	cr_assert_eq(gpuarb_hint("GPU-nope", &(struct gpuarb_hint){.input_ms = 10000}), -ENODEV);
	cr_assert_not(arb_segment_exists(dir.path, "GPU-nope"));
	cr_assert_eq(gpuarb_acquire(NULL, NULL, NULL), -EINVAL);
	cr_assert_eq(gpuarb_hint(NULL, NULL), -EINVAL);
	cr_assert_eq(gpuarb_status(NULL, NULL), -EINVAL);
	cr_assert_eq(gpuarb_status("GPU-elsewhere", &status), -ENOENT);
	cr_assert_eq(gpuarb_release(&lease), 0);
	cr_assert_eq(gpuarb_release(NULL), 0);
	gpuarb_cancel(NULL);
}

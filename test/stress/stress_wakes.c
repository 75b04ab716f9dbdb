/*
 * No wake-up is ever lost. The library bounds each sleep, so that a waiter goes on after some milliseconds if its
 * waker died. That would hide a forgotten wake-up. Here no process dies, and no waiter looks by itself: a sleep ends
 * by a wake-up or when the time of the whole wait is over. Pressure comes and goes, the policy changes, leases are
 * handed over, and every lease has to be given. Then the pressure stays and all clients are of the highest class:
 * they go in spite of it, one at a time.
 *
 *   stress_wakes [--rounds N] [--seed S]
 */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpuarb/control.h"
#include "units.h"

#include "test/harness.h"

#include "shm/admission/admission.h"
#include "shm/client/client_state.h"
#include "shm/base/os.h"

#define WORKERS     12
#define MAX_WAIT_MS 20000

static const char *const names[] = {"asr", "nmt", "tts"};

static struct {
	arb_u64 given, slept;
	arb_u32 done, failures, inside;
} * board;

static bool pressed; /* the pressure never ends, and all are of the highest class */

static struct t_dir dir;
static uint64_t seed;
static unsigned rounds = 300;

/* When this process's wait ends; no sleep ends sooner by itself. */
static uint64_t wait_end_ns;

static int sleep_until_woken(arb_u32 *word, uint32_t value, uint64_t until_ns)
{
	struct timespec ts = {(time_t)(wait_end_ns / 1000000000u), (long)(wait_end_ns % 1000000000u)};
	int r;

	(void)until_ns;
	arb_add64_full(&board->slept, 1);
	r = (int)syscall(SYS_futex, &word->v, FUTEX_WAIT_BITSET, value, &ts, NULL, FUTEX_BITSET_MATCH_ANY);
	return r == 0 || errno == EAGAIN ? 0 : -errno;
}

static int worker(void *argument)
{
	static const struct arb_os_hooks hooks = {.futex_wait_until = sleep_until_woken};
	uintptr_t number = (uintptr_t)argument;
	struct t_random random = t_seeded(seed + number * 7919);
	struct gpuarb_client *c;

	arb_os_hooks = &hooks;
	T_CHECK(t_open(&dir, NULL, &c) == 0, "a worker cannot join");
	for (unsigned i = 0; i < rounds; i++) {
		struct gpuarb_request request = {
			.task_class = names[pressed ? 0 : t_below(&random, 3)], .max_wait_ms = MAX_WAIT_MS};
		struct gpuarb_lease lease = GPUARB_LEASE_INIT;
		int r;

		wait_end_ns = arb_os_now_ns() + MAX_WAIT_MS * MS;
		/* Some workers do not wait but try again and again, so that two of them may look at the same moment.
		 */
		if (pressed && number % 2)
			request.max_wait_ms = GPUARB_NO_WAIT;
		while ((r = arb_admission_acquire(c, &request, &lease)) == GPUARB_TIMEOUT && pressed &&
			number % 2)
			sched_yield();
		if (r != GPUARB_OK) {
			fprintf(stderr, "worker %u: %s was not woken: %d, reason %u, under %s\n",
				(unsigned)number, request.task_class, r, lease.reason,
				c->turn.taken ? "exclusive" : "concurrent");
			arb_add32_full(&board->failures, 1);
			break;
		}
		arb_add64_full(&board->given, 1);
		if (arb_add32_full(&board->inside, 1) && pressed) {
			fprintf(stderr, "two leases at a time, in spite of the pressure\n");
			arb_add32_full(&board->failures, 1);
		}
		if (t_below(&random, 3) == 0)
			t_sleep_us(t_below(&random, 2000));
		arb_add32_full(&board->inside, (uint32_t)-1);
		T_CHECK(arb_admission_release(c, &lease) == 0, "release");
		/* Some come back at once, some when the others are gone. */
		if (t_below(&random, 4) == 0)
			t_sleep_us(t_below(&random, 4000));
	}
	gpuarb_client_close(c);
	arb_add32_full(&board->done, 1);
	return 0;
}

static void sample(struct gpuarb_client *c, unsigned percent)
{
	if (arb_usage_publish(&c->seg, &c->rules.usage, percent * 100, ARB_SAMPLE_NVML, arb_os_now_ns()))
		arb_sampler_wake_waiters(&c->seg);
}

/* Lets each policy apply for a while: all may go; only one at a time; under pressure only the highest class, one at a
 * time. */
static void direct(struct gpuarb_client *c)
{
	struct t_random random = t_seeded(seed);

	while (arb_load32(&board->done) < WORKERS && !arb_load32(&board->failures)) {
		struct gpuarb_change change = {
			NULL, "policy", t_below(&random, 2) ? "concurrent" : "exclusive"};

		sample(c, pressed || t_below(&random, 2) ? 99 : 20);
		t_sleep_us(1000 + t_below(&random, 10000));
		if (pressed)
			continue;
		sample(c, 20);
		t_sleep_us(1000 + t_below(&random, 10000));
		if (t_below(&random, 4) == 0)
			T_CHECK(gpuarb_control_change(dir.path, T_GPU, &change, 1, NULL) == 0, "policy");
	}
}

static void run(struct gpuarb_client *c)
{
	pid_t pid[WORKERS];

	struct gpuarb_change change = {NULL, "policy", "concurrent"};

	arb_store32(&board->done, 0);
	T_CHECK(gpuarb_control_change(dir.path, T_GPU, &change, 1, NULL) == 0, "policy");
	sample(c, pressed ? 99 : 20);
	for (uintptr_t i = 0; i < WORKERS; i++)
		pid[i] = t_spawn(worker, (void *)i, 300);
	direct(c);
	for (int i = 0; i < WORKERS; i++)
		T_CHECK(t_wait(pid[i]) == 0, "a worker");
	T_CHECK(!arb_load32(&board->failures), "see above; --seed %llu", (unsigned long long)seed);
}

int main(int argc, char **argv)
{
	const struct t_number numbers[] = {{"--rounds", &rounds}, {0}};
	struct gpuarb_client *c;

	seed = t_numbers(argc, argv, numbers);
	board = t_shared(sizeof(*board));
	/* With this grace_ms, a waiter that does not look is not taken for stopped. */
	t_dir_make(&dir,
		"slots = 64\ncache_ttl_ms = 600000\nusage_sample_ms = 60000\ngrace_ms = 600000\n"
		"[class asr]\npriority = 90\n[class nmt]\npriority = 80\n[class tts]\npriority = 70\n");
	T_CHECK(t_open(&dir, NULL, &c) == 0, "the first client");
	run(c);
	pressed = true;
	run(c);
	printf("%llu leases, %llu sleeps, each ended by whoever had to\n",
		(unsigned long long)arb_load64(&board->given), (unsigned long long)arb_load64(&board->slept));
	gpuarb_client_close(c);
	t_dir_remove(&dir);
	return 0;
}

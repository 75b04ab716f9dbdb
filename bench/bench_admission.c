/* Measures what asking for a lease costs, how punctually a wait ends, and how soon a dead sampler is replaced. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuarb.h"
#include "gpuarb/client.h"
#include "gpuarb/control.h"

#include "shm/admission/admission.h"
#include "shm/base/os.h"
#include "bench/report.h"

#define GPU "bench"

static char directory[] = "/dev/shm/gpuarb-bench-XXXXXX";

static void must(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "bench_admission: %s: %s\n", what, gpuarb_error_text());
		exit(1);
	}
}

static void set(const char *key, const char *value)
{
	struct gpuarb_change change = {.key = key, .value = value};
	struct gpuarb_error err = {0};

	if (gpuarb_control_change(NULL, GPU, &change, 1, &err) < 0) {
		fprintf(stderr, "bench_admission: %s\n", err.text);
		exit(1);
	}
}

/* Maps the state segment, to publish samples that nobody measured. */
static void pretend_usage(unsigned percent)
{
	struct arb_usage_rules rules = {.ttl_ns = 1, .high_pct = 85, .low_pct = 78};
	struct arb_segment seg;

	must(arb_segment_open(&seg, directory, GPU, true, NULL, NULL) == 0, "segment");
	arb_usage_publish(&seg, &rules, percent * 100, ARB_SAMPLE_NVML, arb_os_now_ns());
	arb_segment_close(&seg);
}

/* Returns the mean of many calls, each timed by two readings of the clock whose cost is taken off. The best of
 * several turns counts, so that a disturbed turn does not. */
static double call_ns(const char *task_class, int expected)
{
	struct gpuarb_request request = {.task_class = task_class};
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	uint64_t best = UINT64_MAX, best_clock = UINT64_MAX;

	for (int turn = 0; turn < 500; turn++) {
		uint64_t sum = 0, clock = 0;

		for (int i = 0; i < 200; i++) {
			uint64_t a = bench_now_ns(), b = bench_now_ns(), c;
			int r = gpuarb_acquire(GPU, &request, &lease);

			c = bench_now_ns();
			must(r == expected, "acquire");
			gpuarb_release(&lease);
			sum += c - b;
			clock += b - a;
		}
		best = sum < best ? sum : best;
		best_clock = clock < best_clock ? clock : best_clock;
	}
	return ((double)best - (double)best_clock) / 200;
}

static void pairs(void *argument, unsigned iterations)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;

	(void)argument;
	for (unsigned i = 0; i < iterations; i++) {
		gpuarb_acquire(GPU, NULL, &lease);
		gpuarb_release(&lease);
	}
}

static void plain_pairs(void *argument, unsigned iterations)
{
	for (unsigned i = 0; i < iterations; i++) {
		gpuarb_client_enter(argument, NULL);
		gpuarb_client_leave(argument, 0);
	}
}

static struct gpuarb_client *client(void)
{
	struct gpuarb_options options = {.gpu = GPU, .threads = true};
	struct gpuarb_client *c;
	struct gpuarb_error err;

	if (gpuarb_client_open(&options, &c, &err) < 0) {
		fprintf(stderr, "bench_admission: %s\n", err.text);
		exit(1);
	}
	return c;
}

static void acquire(struct bench *b)
{
	struct gpuarb_client *other = client();
	double pair, plain;

	pretend_usage(10);
	bench_ratio(b, "acquire", call_ns(NULL, GPUARB_OK), "ns", 200, 1.0);
	bench_duel(pairs, NULL, plain_pairs, other, 10000, 50, &pair, &plain);
	bench_show(b, "acquire_release", pair, "ns", plain);
	gpuarb_client_close(other);
}

static void acquire_256(struct bench *b)
{
	static struct gpuarb_client *others[254];
	double few, many;

	pretend_usage(10);
	few = call_ns(NULL, GPUARB_OK);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		others[i] = client();
	pretend_usage(10);
	many = call_ns(NULL, GPUARB_OK);
	bench_ratio(b, "acquire_256", many, "ns", few, 1.5);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		gpuarb_client_close(others[i]);
}

static void skip(struct bench *b)
{
	pretend_usage(99);
	bench_ratio(b, "skip", call_ns("repair", GPUARB_SKIP), "ns", 200, 1.0);
	pretend_usage(10);
}

#define WAITS   500
#define WAIT_MS 10

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double late_us(uint64_t began_ns)
{
	return (double)(bench_now_ns() - began_ns) / 1000 - WAIT_MS * 1000;
}

/* Measures how late a wait ends, beside a bare futex with a timeout. Both are measured in turns, so that what
 * disturbs the machine disturbs both. */
static void max_wait(struct bench *b)
{
	struct gpuarb_request request = {.task_class = "default", .max_wait_ms = WAIT_MS};
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	static double late[WAITS], bare[WAITS];
	arb_u32 word = {0};

	pretend_usage(99);
	for (int i = 0; i < WAITS; i++) {
		uint64_t began = bench_now_ns();

		must(gpuarb_acquire(GPU, &request, &lease) == GPUARB_TIMEOUT, "a wait");
		late[i] = late_us(began);
		began = bench_now_ns();
		arb_os_futex_wait(&word, 0, WAIT_MS * 1000000u);
		bare[i] = late_us(began);
	}
	qsort(late, WAITS, sizeof(late[0]), by_size);
	qsort(bare, WAITS, sizeof(bare[0]), by_size);
	bench_ratio(b, "max_wait_p50", late[WAITS / 2], "us", bare[WAITS / 2], 2.0);
	bench_ratio(b, "max_wait_p99", late[WAITS * 99 / 100], "us", bare[WAITS * 99 / 100], 2.0);
	/* The worst of many depends on chance for both. test/stress/stress_admission.c tells what caused each delay.
	 */
	bench_show(b, "max_wait_worst", late[WAITS - 1], "us", bare[WAITS - 1]);
	pretend_usage(10);
}

static uint64_t sample_word(const struct arb_segment *seg)
{
	return arb_load64(&seg->header->adm_sample) >> ARB_SAMPLE_TIME_SHIFT;
}

/* Kills the one of two clients that samples, and measures for how many periods there is no new sample. */
static void takeover(struct bench *b)
{
	struct arb_segment seg;
	double worst = 0;

	set("usage_sample_ms", "200");
	must(arb_segment_open(&seg, directory, GPU, true, NULL, NULL) == 0, "segment");
	for (int turn = 0; turn < 8; turn++) {
		pid_t pid[2];
		uint64_t last, began;

		for (int i = 0; i < 2; i++) {
			pid[i] = fork();
			if (pid[i] == 0) {
				struct gpuarb_lease lease = GPUARB_LEASE_INIT;

				prctl(PR_SET_PDEATHSIG, SIGKILL);
				gpuarb_acquire(GPU, NULL, &lease);
				gpuarb_release(&lease);
				for (;;)
					pause();
			}
			usleep(450000); /* so that the first client is elected */
		}
		last = sample_word(&seg);
		while (sample_word(&seg) == last)
			usleep(1000);
		last = sample_word(&seg);
		began = bench_now_ns();
		kill(pid[0], SIGKILL);
		while (sample_word(&seg) == last)
			usleep(1000);
		if ((double)(bench_now_ns() - began) / 1e6 / 200 > worst)
			worst = (double)(bench_now_ns() - began) / 1e6 / 200;
		kill(pid[1], SIGKILL);
		while (wait(NULL) > 0)
			;
	}
	bench_ratio(b, "takeover", worst, "periods", 2, 1.0);
	arb_segment_close(&seg);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(struct bench *b);
	} cases[] = {{"takeover", takeover}, {"acquire", acquire}, {"acquire_256", acquire_256},
		{"skip", skip}, {"max_wait", max_wait}};
	char command[128], conf[128];
	struct gpuarb_class_change repair[] = {
		{"repair", "priority", "10"}, {"repair", "mode", "skip"}, {"asr", "priority", "90"}};
	struct gpuarb_error err;
	struct bench b;

	bench_begin(&b, "admission",
		"Cases: takeover, acquire, acquire_256, skip, max_wait. acquire: one that is admitted at "
		"once, "
		"against 200 ns.",
		argc, argv);
	if (!mkdtemp(directory)) {
		perror("bench_admission: /dev/shm");
		return 1;
	}
	snprintf(conf, sizeof(conf), "%s/arbiter.conf", directory);
	close(open(conf, O_WRONLY | O_CREAT, 0600));
	setenv("GPUARB_DIR", directory, 1);
	setenv("GPUARB_CONF", conf, 1);
	/* The machine's own NVML must not change what is measured, so the GPU's name does not exist. */
	must(gpuarb_control_change_classes(NULL, GPU, repair, 3, &err) == 0, "classes");
	gpuarb_client_close(client());
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!bench_wants(&b, cases[i].name))
			continue;
		/* Only the takeover needs samples by others. */
		set("usage_sample_ms", "60000");
		set("cache_ttl_ms", "600000");
		cases[i].run(&b);
	}
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command) != 0)
		fprintf(stderr, "bench_admission: %s was not removed\n", directory);
	return bench_end(&b);
}

/*
 * Many processes ask for leases of several classes, some thousand times, while the pressure comes and goes,
 * the policy changes and processes are killed at random. Nobody may wait for long after its time; a class may
 * never go while a higher one that would fit waits; a class that skips never stands in the queue; at the end
 * nothing is left.
 *
 *   stress_admission [--seconds N] [--seed S]
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuarb/control.h"

#include "harness.h"

#include "../shm/admission.h"
#include "../shm/check.h"
#include "../shm/client.h"
#include "../shm/os.h"

#define MS        1000000ull
#define WORKERS   32
#define PERIOD_US (WORKERS * 1000) /* between two acquires of one worker: 1000 a second of all */
/* A wake-up that got lost costs 50 ms; a machine that has no time for us may cost more than that. */
#define HANGS_NS (2000 * MS)
/* A waiter that has not looked for longer may be passed over. */
#define LOOKS_NS (150 * MS)

static const char *const names[] = {"asr", "nmt", "tts", "repair"};

struct board {
	arb_u32 stop;
	arb_u64 asked, given, timed_out, skipped, killed, late;
	arb_u64 checked; /* leases that were given while somebody waited */
	arb_u64 worst_ns;
	arb_u64 slept, sleep_late, sleep_worst_ns; /* what a plain sleep does on this machine just now */
	arb_u32 failures;
};

static struct board *board;
static struct t_dir dir;
static uint64_t seed;

/* Who waits, at one moment; and whether everybody would fit at that moment. */
struct look {
	uint32_t want[ARB_SLOTS_MAX];
	uint64_t since[ARB_SLOTS_MAX];
	bool normal;
	uint64_t sample;
};

static void look_around(struct gpuarb_client *c, struct look *l)
{
	struct arb_segment *seg = &c->seg;
	uint64_t now = arb_os_now_ns();
	struct arb_usage u = arb_usage_read(seg, &c->rules.usage, now);

	memset(l->want, 0, seg->nslots * sizeof(l->want[0]));
	for (uint32_t i = arb_admission_next(seg, seg->header->adm_waiting, 0); i != ARB_NONE;
		i = arb_admission_next(seg, seg->header->adm_waiting, i + 1)) {
		const struct arb_slot *s = &seg->slots[i];

		if (i == c->me.slot || arb_load64(&s->heartbeat_ns) + LOOKS_NS < now)
			continue;
		l->since[i] = arb_load64(&s->adm_since_ns);
		l->want[i] = arb_load32(&s->adm_want);
	}
	l->normal = u.fresh && !u.high;
	l->sample = u.word;
}

/*
 * A lease was given between these two looks. Whoever stood there at both, in one and the same wait, of a
 * higher class and not blocked, under one and the same sample without pressure, would have fitted, and had to
 * go first.
 */
static void check_order(
	struct gpuarb_client *c, const struct look *before, const struct look *after, unsigned priority)
{
	bool any = false;

	for (uint32_t i = 0; i < c->seg.nslots; i++) {
		unsigned theirs = before->want[i] >> ARB_WANT_PRIORITY_SHIFT & 127;

		any |= after->want[i] != 0;
		if (!before->want[i] || before->want[i] != after->want[i] ||
			before->since[i] != after->since[i] || before->want[i] & ARB_WANT_BLOCKED ||
			theirs <= priority)
			continue;
		if (!before->normal || !after->normal || before->sample != after->sample)
			continue;
		fprintf(stderr, "inverted: a lease of priority %u while slot %u waited with %u since %llu\n",
			priority, i, theirs, (unsigned long long)before->since[i]);
		arb_add32_full(&board->failures, 1);
	}
	if (any)
		arb_add64_full(&board->checked, 1);
}

static void note_worst(arb_u64 *worst, uint64_t ns)
{
	uint64_t old;

	do
		old = arb_load64(worst);
	while (ns > old && !arb_cas64_full(worst, old, ns));
}

static void sleep_until(uint64_t ns)
{
	uint64_t now = arb_os_now_ns();

	if (ns <= now)
		return;
	t_sleep_us((unsigned)((ns - now) / 1000));
	now = arb_os_now_ns();
	arb_add64_full(&board->slept, 1);
	if (now > ns + 5 * MS)
		arb_add64_full(&board->sleep_late, 1);
	if (now > ns)
		note_worst(&board->sleep_worst_ns, now - ns);
}

static void ask(struct gpuarb_client *c, struct t_random *random, bool only_skips)
{
	static struct look before, after;
	unsigned which = only_skips ? 3 : t_below(random, 3);
	struct gpuarb_request request = {.task_class = names[which],
		.max_wait_ms = 1 + t_below(random, 40),
		.hint = {.input_ms = t_below(random, 50) ? 0 : 10000}};
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	uint64_t began, waited;
	int r;

	look_around(c, &before);
	began = arb_os_now_ns();
	r = arb_admission_acquire(c, &request, &lease);
	waited = arb_os_now_ns() - began;
	look_around(c, &after);
	arb_add64_full(&board->asked, 1);
	T_CHECK(r >= 0, "acquire: %s", strerror(-r));
	T_CHECK((r == GPUARB_SKIP) <= only_skips, "SKIP for class %s", names[which]);
	if (r == GPUARB_TIMEOUT) {
		T_CHECK(!only_skips, "a class that skips waited");
		T_CHECK(lease.reason, "TIMEOUT without a reason");
		arb_add64_full(&board->timed_out, 1);
	}
	if (only_skips)
		T_CHECK(arb_load32(&arb_client_slot(c)->adm_want) == 0,
			"a class that skips stood in the queue");
	if (waited > (uint64_t)request.max_wait_ms * MS) {
		note_worst(&board->worst_ns, waited - (uint64_t)request.max_wait_ms * MS);
		if (waited > (uint64_t)request.max_wait_ms * MS + 5 * MS)
			arb_add64_full(&board->late, 1);
		T_CHECK(waited < (uint64_t)request.max_wait_ms * MS + HANGS_NS, "%s: waited %llu ms of %lld",
			names[which], (unsigned long long)(waited / MS), (long long)request.max_wait_ms);
	}
	if (r == GPUARB_SKIP)
		arb_add64_full(&board->skipped, 1);
	if (r != GPUARB_OK)
		return;
	arb_add64_full(&board->given, 1);
	check_order(c, &before, &after, (unsigned[]){90, 80, 70, 10}[which]);
	if (t_below(random, 4))
		t_sleep_us(t_below(random, 3000));
	T_CHECK((r = arb_admission_release(c, &lease)) == 0, "release: %s", strerror(-r));
}

static int worker(void *argument)
{
	uintptr_t number = (uintptr_t)argument;
	struct t_random random = t_seeded(seed + number * 7919);
	struct gpuarb_client *c;
	uint64_t next = arb_os_now_ns();

	T_CHECK(t_open(&dir, NULL, &c) == 0, "a worker cannot join");
	while (!arb_load32(&board->stop)) {
		uint64_t now = arb_os_now_ns();

		/* As often as it should, also after it had to wait. */
		next += PERIOD_US * 1000ull;
		ask(c, &random, number % 4 == 3);
		now = arb_os_now_ns();
		sleep_until(next);
		if (next + 100 * MS < now)
			next = now;
	}
	gpuarb_client_close(c);
	return 0;
}

static void sample(struct gpuarb_client *c, unsigned percent)
{
	if (arb_usage_publish(&c->seg, &c->rules.usage, percent * 100, ARB_SAMPLE_NVML, arb_os_now_ns()))
		arb_sampler_wake_waiters(&c->seg);
}

static void reap_one(pid_t *pid, bool killed)
{
	int status;

	T_CHECK(waitpid(*pid, &status, 0) == *pid, "a worker is gone");
	T_CHECK(killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
		       : WIFEXITED(status) && WEXITSTATUS(status) == 0,
		"a worker ended with %x", (unsigned)status);
	*pid = 0;
}

/* The pressure comes and goes, workers die and others come in their place. */
static void direct(struct gpuarb_client *c, pid_t *pid, unsigned seconds)
{
	struct t_random random = t_seeded(seed);
	uint64_t end = arb_os_now_ns() + seconds * 1000 * MS;
	uintptr_t number = WORKERS;
	bool exclusive = false;

	while (arb_os_now_ns() < end && !arb_load32(&board->failures)) {
		unsigned who = t_below(&random, WORKERS);

		sample(c, t_below(&random, 2) ? 50 + t_below(&random, 30) : 86 + t_below(&random, 15));
		t_sleep_us(5000 + t_below(&random, 40000));
		if (t_below(&random, 3) == 0) {
			kill(pid[who], SIGKILL);
			reap_one(&pid[who], true);
			arb_add64_full(&board->killed, 1);
			number++;
			pid[who] = t_spawn(worker, (void *)(number / WORKERS * WORKERS + who), seconds + 60);
		}
		if (t_below(&random, 20) == 0) {
			struct gpuarb_change change = {
				NULL, "policy", exclusive ? "concurrent" : "exclusive"};

			T_CHECK(gpuarb_control_change(dir.path, T_GPU, &change, 1, NULL) == 0, "policy");
			exclusive = !exclusive;
		}
	}
}

int main(int argc, char **argv)
{
	struct gpuarb_client *c;
	unsigned seconds = 6;
	pid_t pid[WORKERS];

	seed = t_seed_of_today();
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--seconds") == 0)
			seconds = (unsigned)atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--seed") == 0)
			seed = strtoull(argv[i + 1], NULL, 0);
	}
	printf("stress_admission --seconds %u --seed %llu\n", seconds, (unsigned long long)seed);
	board = t_shared(sizeof(*board));
	t_dir_make(&dir,
		"slots = 64\ncache_ttl_ms = 600000\nboost_ttl_ms = 20\nusage_sample_ms = 60000\n"
		"[class asr]\npriority = 90\n[class nmt]\npriority = 80\n"
		"[class tts]\npriority = 70\nqueue_limit = 8\n[class repair]\npriority = 10\nmode = skip\n");
	T_CHECK(t_open(&dir, NULL, &c) == 0, "the first client");
	sample(c, 10);
	for (uintptr_t i = 0; i < WORKERS; i++)
		pid[i] = t_spawn(worker, (void *)i, seconds + 60);
	direct(c, pid, seconds);
	arb_store32(&board->stop, 1);
	sample(c, 10);
	for (int i = 0; i < WORKERS; i++)
		reap_one(&pid[i], false);
	T_CHECK(gpuarb_control_reap(dir.path, T_GPU, NULL, NULL, NULL) >= 0, "cleaning up");
	printf("%llu acquires (%.0f a second): %llu leases (%llu given while others waited), %llu timeouts, "
	       "%llu skips; "
	       "%llu killed; %llu waits more than 5 ms too long, at most %.1f ms\n",
		(unsigned long long)arb_load64(&board->asked), (double)arb_load64(&board->asked) / seconds,
		(unsigned long long)arb_load64(&board->given),
		(unsigned long long)arb_load64(&board->checked),
		(unsigned long long)arb_load64(&board->timed_out),
		(unsigned long long)arb_load64(&board->skipped),
		(unsigned long long)arb_load64(&board->killed), (unsigned long long)arb_load64(&board->late),
		(double)arb_load64(&board->worst_ns) / 1e6);
	printf("for comparison, of %llu plain sleeps %llu lasted more than 5 ms too long, at most %.1f ms\n",
		(unsigned long long)arb_load64(&board->slept),
		(unsigned long long)arb_load64(&board->sleep_late),
		(double)arb_load64(&board->sleep_worst_ns) / 1e6);
	T_CHECK(!arb_load32(&board->failures), "see above; --seed %llu", (unsigned long long)seed);
	T_CHECK(arb_admission_next(&c->seg, c->seg.header->adm_waiting, 0) == ARB_NONE,
		"somebody waits for ever");
	T_CHECK(arb_admission_next(&c->seg, c->seg.header->adm_leased, 0) == ARB_NONE, "a lease is left");
	T_CHECK(arb_check(&c->seg, t_say, NULL) == 0, "the invariants");
	gpuarb_client_close(c);
	t_dir_remove(&dir);
	return 0;
}

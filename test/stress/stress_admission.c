/*
 * Many processes ask for leases of several classes, some thousand times, while the pressure comes and goes, the policy
 * changes, processes are killed and stopped at random, and the lock that cleaning up needs is held for longer than any
 * process should hold it.
 *
 * No answer may be late by more than LATE_NS by the library's own doing (see lateness.h). Of ten thousand answers one may
 * be late by up to RAN_NS if its thread seems to have run all the time: that is a processor that was taken away and is in
 * no books. An endless loop would be late more often or for longer, and waiting for a lock shows as a sleep. A class may
 * never go while a higher one that would fit waits; a class that skips never stands in the queue; at the end nothing is
 * left.
 *
 *   stress_admission [--seconds N] [--seed S]
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuarb.h"
#include "gpuarb/control.h"
#include "units.h"

#include "test/harness.h"
#include "test/stress/lateness.h"

#include "shm/admission/admission.h"
#include "shm/segment/check.h"
#include "shm/client/client_state.h"
#include "shm/base/os.h"
#include "shm/segment/slot.h"

#define WORKERS   32
#define THREADED  4                /* every fourth worker has two threads */
#define PERIOD_US (WORKERS * 1000) /* between two acquires of one worker: 1000 a second of all */
#ifdef __SANITIZE_ADDRESS__
#define LATE_NS (100 * MS) /* the sanitizer's locks and pages take time as well */
#else
#define LATE_NS (5 * MS)
#endif
#define TICK_NS (10 * MS)
/* Answers that were late although the thread seemed to run: at most this many of those asked, and each late by at
 * most this. */
#define RAN_MOST(asked) (1 + (asked) / 10000)
#define RAN_NS          (50 * MS)
/* A waiter that has not looked for longer than this may be passed over. */
#define LOOKS_NS (150 * MS)

#define SKIPS 10 /* the priority of the class that skips */
static const char *const names[] = {"asr", "nmt", "tts", "repair"};
static const unsigned priorities[] = {90, 80, 70, SKIPS};

struct board {
	arb_u32 stop;
	arb_u64 asked, given, timed_out, skipped, killed, stopped;
	arb_u64 checked;        /* leases that were given while another client waited */
	arb_u64 late, worst_ns; /* by the clock, which includes what the machine did for others */
	arb_u64 own_worst_ns;
	arb_u64 ran;       /* answers that were late without a sleep */
	arb_u64 stolen_ns; /* lateness_stolen_ns() of some milliseconds ago */
	arb_u32 failures;
	arb_u32 stops[WORKERS]; /* counts stops and continuations; odd: it may be stopped now */
};

static struct board *board;
static struct t_dir dir;
static uint64_t seed;

#define fail(...)                                                                                            \
	do {                                                                                                 \
		fprintf(stderr, __VA_ARGS__);                                                                \
		arb_add32_full(&board->failures, 1);                                                         \
	} while (0)

static unsigned priority_of(uint32_t want)
{
	return want >> ARB_WANT_PRIORITY_SHIFT & 127;
}

/* The clients that wait at one moment, and whether all of them would fit at that moment. */
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
		uint32_t want = arb_load32(&s->adm_want);

		if (priority_of(want) == SKIPS)
			fail("slot %u stands in the queue, and its class skips\n", i);
		if (i == c->me.slot || arb_load64(&s->heartbeat_ns) + LOOKS_NS < now)
			continue;
		l->since[i] = arb_load64(&s->adm_since_ns);
		l->want[i] = want;
	}
	l->normal = u.fresh && !u.high;
	l->sample = u.word;
}

/*
 * Checks that a lease that was given between these two looks did not overtake. A client that stood in the queue at
 * both looks, in the same wait, of a higher class and not blocked, under the same sample without pressure, would have
 * fitted and had to go first.
 */
static void check_order(
	struct gpuarb_client *c, const struct look *before, const struct look *after, unsigned priority)
{
	bool any = false;

	for (uint32_t i = 0; i < c->seg.nslots; i++) {
		unsigned theirs = priority_of(before->want[i]);

		any |= after->want[i] != 0;
		if (!before->want[i] || before->want[i] != after->want[i] ||
			before->since[i] != after->since[i] || before->want[i] & ARB_WANT_BLOCKED ||
			theirs <= priority)
			continue;
		if (!before->normal || !after->normal || before->sample != after->sample)
			continue;
		fail("inverted: a lease of priority %u while slot %u waited with %u since %llu\n", priority,
			i, theirs, (unsigned long long)before->since[i]);
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

/* Checks how late an answer was, and what caused that. */
static void check_time(
	const char *name, uint64_t until_ns, uint64_t now_ns, uint64_t own_ns, uint64_t stolen_ns)
{
	if (now_ns > until_ns)
		note_worst(&board->worst_ns, now_ns - until_ns);
	if (now_ns > until_ns + LATE_NS)
		arb_add64_full(&board->late, 1);
	/* Time that a hypervisor took, from us or from the holder of a lock, is in nobody's books. */
	if (own_ns > LATE_NS) {
		uint64_t stolen = lateness_stolen_ns() - stolen_ns;

		if (stolen)
			own_ns -= own_ns < stolen + TICK_NS ? own_ns : stolen + TICK_NS;
	}
	if (own_ns > LATE_NS && own_ns < RAN_NS && own_ns <= LATE_NS + lateness_ran_ns()) {
		arb_add64_full(&board->ran, 1);
		printf("%s: answered %.1f ms after its time: %s\n", name, (double)(now_ns - until_ns) / 1e6,
			lateness_story());
		fflush(stdout);
		return;
	}
	note_worst(&board->own_worst_ns, own_ns);
	if (own_ns > LATE_NS)
		fail("%s: answered %.1f ms after its time, %.1f of them by its own doing (%s)\n", name,
			(double)(now_ns - until_ns) / 1e6, (double)own_ns / 1e6, lateness_story());
}

static void ask(unsigned me, struct t_random *random, bool only_skips)
{
	static __thread struct look before, after;
	static __thread struct gpuarb_client *c;
	unsigned which = only_skips ? 3 : t_below(random, 3);
	struct gpuarb_request request = {.task_class = names[which],
		.max_wait_ms = 1 + t_below(random, 40),
		.hint = {.input_ms = t_below(random, 50) ? 0 : 10000}};
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	uint32_t stops = arb_load32(&board->stops[me]);
	uint64_t until, now, own, stolen = arb_load64(&board->stolen_ns);
	int r;

	if (c)
		look_around(c, &before);
	until = arb_os_now_ns() + (uint64_t)request.max_wait_ms * MS;
	lateness_begin((uint64_t)request.max_wait_ms * MS);
	r = gpuarb_acquire(NULL, &request, &lease);
	now = arb_os_now_ns();
	own = lateness_end();
	T_CHECK(r >= 0, "acquire: %s", gpuarb_error_text());
	arb_add64_full(&board->asked, 1);
	/* The first call of a process joins, which is no wait; and a worker that was stopped cannot answer in time. */
	if (c && !(stops & 1) && arb_load32(&board->stops[me]) == stops)
		check_time(names[which], until, now, own, stolen);
	T_CHECK((r == GPUARB_SKIP) <= only_skips, "SKIP for class %s", names[which]);
	if (r == GPUARB_TIMEOUT) {
		T_CHECK(!only_skips, "a class that skips waited");
		T_CHECK(lease.reason, "TIMEOUT without a reason");
		arb_add64_full(&board->timed_out, 1);
	}
	if (r == GPUARB_SKIP)
		arb_add64_full(&board->skipped, 1);
	if (r == GPUARB_OK) {
		arb_add64_full(&board->given, 1);
		if (c) {
			look_around(c, &after);
			check_order(c, &before, &after, priorities[which]);
		}
		if (t_below(random, 4))
			t_sleep_us(t_below(random, 3000));
	}
	c = lease.client;
	T_CHECK(!only_skips || arb_load32(&arb_client_slot(c)->adm_want) == 0,
		"a class that skips stood in the queue");
	T_CHECK((r = gpuarb_release(&lease)) == 0, "release: %s", strerror(-r));
}

struct asker {
	unsigned number;
	uint64_t seed;
};

static void *keep_asking(void *argument)
{
	const struct asker *a = argument;
	struct t_random random = t_seeded(a->seed);
	uint64_t next = arb_os_now_ns(), now;

	while (!arb_load32(&board->stop)) {
		/* It asks at a fixed rate, also after it had to wait. */
		next += PERIOD_US * 1000ull;
		ask(a->number % WORKERS, &random, a->number % 4 == 3);
		now = arb_os_now_ns();
		if (next > now)
			t_sleep_us((unsigned)((next - now) / 1000));
		else if (next + 100 * MS < now)
			next = now;
	}
	return NULL;
}

/* Some workers have two threads that ask and share their process's locks; all have the thread that the library
 * starts. */
static int worker(void *argument)
{
	unsigned number = (unsigned)(uintptr_t)argument;
	struct asker askers[2] = {{number, seed + number * 7919}, {number, seed + number * 7919 + 1}};
	pthread_t other;

	lateness_watch();
	if (number % THREADED == 0)
		T_CHECK(pthread_create(&other, NULL, keep_asking, &askers[1]) == 0, "a thread");
	keep_asking(&askers[0]);
	if (number % THREADED == 0)
		pthread_join(other, NULL);
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

/* Stops a worker for a while, wherever it stands and whatever it holds. */
static void stop_for_a_while(pid_t pid, unsigned who, unsigned us)
{
	arb_add32_full(&board->stops[who], 1);
	kill(pid, SIGSTOP);
	t_sleep_us(us);
	kill(pid, SIGCONT);
	arb_add32_full(&board->stops[who], 1);
	arb_add64_full(&board->stopped, 1);
}

static void change_policy(struct t_random *random)
{
	struct gpuarb_change change = {NULL, "policy", t_below(random, 2) ? "concurrent" : "exclusive"};

	T_CHECK(gpuarb_control_change(dir.path, T_GPU, &change, 1, NULL) == 0, "policy");
}

/* Lets pressure come and go, kills workers and starts others in their place. */
static void direct(struct gpuarb_client *c, pid_t *pid, unsigned seconds)
{
	struct t_random random = t_seeded(seed);
	uint64_t end = arb_os_now_ns() + seconds * 1000 * MS;
	uintptr_t number = WORKERS;

	while (arb_os_now_ns() < end && !arb_load32(&board->failures)) {
		unsigned who = t_below(&random, WORKERS), us = 5000 + t_below(&random, 40000);
		struct arb_lock directory = {.fd = -1};
		bool holds = t_below(&random, 5) == 0 &&
			     arb_slot_lock(&c->seg, ARB_BYTE_DIRECTORY(c->seg.nslots), &directory) == 0;
		bool kills = t_below(&random, 3) == 0;

		arb_store64(&board->stolen_ns, lateness_stolen_ns());
		sample(c, t_below(&random, 2) ? 50 + t_below(&random, 30) : 86 + t_below(&random, 15));
		if (kills)
			kill(pid[who], SIGKILL);
		else if (t_below(&random, 5) == 0)
			stop_for_a_while(pid[who], who, us);
		t_sleep_us(us);
		/* The byte is not held while workers are started or waited for: on a busy machine that takes longer
		 * than a client that joins is willing to wait. */
		if (holds)
			arb_slot_unlock(&directory);
		if (kills) {
			reap_one(&pid[who], true);
			arb_add64_full(&board->killed, 1);
			number++;
			pid[who] = t_spawn(worker, (void *)(number / WORKERS * WORKERS + who), seconds + 60);
		}
		if (t_below(&random, 20) == 0)
			change_policy(&random);
	}
}

static unsigned long long count(const arb_u64 *word)
{
	return arb_load64(word);
}

int main(int argc, char **argv)
{
	struct gpuarb_client *c;
	unsigned seconds = 6;
	const struct t_number numbers[] = {{"--seconds", &seconds}, {0}};
	pid_t pid[WORKERS];

	seed = t_numbers(argc, argv, numbers);
	board = t_shared(sizeof(*board));
	t_dir_make(&dir,
		"slots = 64\ncache_ttl_ms = 600000\nboost_ttl_ms = 20\nusage_sample_ms = 60000\n"
		"[class asr]\npriority = 90\n[class nmt]\npriority = 80\n"
		"[class tts]\npriority = 70\nqueue_limit = 8\n[class repair]\npriority = 10\nmode = skip\n");
	setenv("GPUARB_DIR", dir.path, 1);
	setenv("GPUARB_CONF", dir.conf, 1);
	setenv("GPUARB_GPU", T_GPU, 1);
	T_CHECK(t_open(&dir, NULL, &c) == 0, "the first client");
	sample(c, 10);
	arb_store64(&board->stolen_ns, lateness_stolen_ns());
	for (uintptr_t i = 0; i < WORKERS; i++)
		pid[i] = t_spawn(worker, (void *)i, seconds + 60);
	direct(c, pid, seconds);
	arb_store32(&board->stop, 1);
	sample(c, 10);
	for (int i = 0; i < WORKERS; i++)
		reap_one(&pid[i], false);
	T_CHECK(gpuarb_control_reap(dir.path, T_GPU, NULL, NULL, NULL) >= 0, "cleaning up");
	printf("%llu acquires (%.0f a second): %llu leases (%llu given while others waited), %llu timeouts, "
	       "%llu skips; %llu killed, %llu stopped\n",
		count(&board->asked), (double)arb_load64(&board->asked) / seconds, count(&board->given),
		count(&board->checked), count(&board->timed_out), count(&board->skipped),
		count(&board->killed), count(&board->stopped));
	printf("answered after its time by its own doing: at most %.2f ms (allowed: %llu); by the clock, "
	       "with "
	       "what the "
	       "machine had else to do: %llu by more than that, at most %.1f\n",
		(double)arb_load64(&board->own_worst_ns) / 1e6, LATE_NS / MS, count(&board->late),
		(double)arb_load64(&board->worst_ns) / 1e6);
	T_CHECK(arb_load64(&board->ran) <= RAN_MOST(arb_load64(&board->asked)),
		"%llu answers were late without a sleep; --seed %llu", count(&board->ran),
		(unsigned long long)seed);
	T_CHECK(!arb_load32(&board->failures), "see above; --seed %llu", (unsigned long long)seed);
	T_CHECK(arb_admission_next(&c->seg, c->seg.header->adm_waiting, 0) == ARB_NONE,
		"somebody waits for ever");
	T_CHECK(arb_admission_next(&c->seg, c->seg.header->adm_leased, 0) == ARB_NONE, "a lease is left");
	T_CHECK(arb_check(&c->seg, t_say, NULL) == 0, "the invariants");
	gpuarb_client_close(c);
	t_dir_remove(&dir);
	return 0;
}

#include "test/stress/workers.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "units.h"

#include "shm/base/atomic.h"
#include "shm/segment/check.h"

#define SLACK_NS (3000 * MS) /* a waiter that is later than this was not woken */
#define SHARED   6           /* accounts with several members */

struct stress stress = {.seconds = 15, .processes = 64};

void stress_fail(const char *format, ...)
{
	char text[300];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	fprintf(stderr, "stress_random: %s\n", text);
	arb_add32_full(&stress.board->failures, 1);
	arb_store32(&stress.board->stop, 1);
}

static void say(void *argument, const char *sentence)
{
	(void)argument;
	stress_fail("invariant: %s", sentence);
}

/* Checks the answer of an operation against those that it may give; anything else is a finding. */
static int expect(const struct worker *w, const char *operation, int r, const int *allowed)
{
	/* A forked child joins with its first call, and may find all slots taken or the directory locked. */
	static const int joining[] = {-EUSERS, -ENOSPC, -EBUSY, 0};

	arb_add64_full(&stress.board->operations, 1);
	if (r == 0)
		return 0;
	for (; allowed && *allowed; allowed++)
		if (r == *allowed)
			return r;
	for (const int *j = joining; *j; j++)
		if (r == *j)
			return r;
	stress_fail("worker %u/%u: %s answered %d (%s)", w->index, w->serial, operation, r, strerror(-r));
	return r;
}
#define MAY(...) ((const int[]){__VA_ARGS__, 0})

static int open_client(struct worker *w)
{
	char account[32];
	struct gpuarb_options o;
	struct gpuarb_error err = {0};
	int r;

	snprintf(account, sizeof(account), "shared-%u", t_below(&w->random, SHARED));
	o = t_options(&stress.dir, t_below(&w->random, 3) ? account : NULL);
	if (t_below(&w->random, 3) == 0)
		o.core_pct = 1 + t_below(&w->random, 100);
	if (t_below(&w->random, 3) == 0)
		o.mem_bytes = 1 + t_below(&w->random, 1000000);
	o.priority = t_below(&w->random, 101);
	r = gpuarb_client_open(&o, &w->client, &err);
	w->memory = 0;
	if (r < 0)
		arb_add64_full(&stress.board->refused, 1);
	return expect(w, "open", r, NULL);
}

static void wait_for_turn(struct worker *w)
{
	uint64_t max = t_below(&w->random, w->index % 2 ? 30 : 3) * MS, began = t_now_ns(), took;
	uint32_t stops = arb_load32(&stress.board->stops[w->index]);
	struct gpuarb_work work = {
		.weight = t_below(&w->random, 257), .outstanding_ns = t_below(&w->random, 2) * MS};

	expect(w, "wait", gpuarb_client_wait(w->client, &work, max), MAY(-ETIMEDOUT));
	took = t_now_ns() - began;
	arb_add64_full(&stress.board->waits, 1);
	if (took > max + SLACK_NS && arb_load32(&stress.board->stops[w->index]) == stops)
		stress_fail("worker %u/%u: a wait of at most %llu ms took %llu ms", w->index, w->serial,
			(unsigned long long)(max / MS), (unsigned long long)(took / MS));
}

static void use_memory(struct worker *w)
{
	uint64_t bytes = t_below(&w->random, 200000);

	if (w->memory && t_below(&w->random, 2)) {
		bytes = 1 + t_next(&w->random) % w->memory;
		if (expect(w, "release", gpuarb_client_mem_release(w->client, bytes), NULL) == 0)
			w->memory -= bytes;
	} else if (expect(w, "reserve", gpuarb_client_mem_reserve(w->client, bytes), MAY(-ENOMEM)) == 0) {
		w->memory += bytes;
	}
}

static void step(struct worker *w)
{
	struct gpuarb_client_status status;
	struct gpuarb_work work = {
		.begin_ns = t_now_ns() - t_below(&w->random, 3000000), .weight = t_below(&w->random, 257)};

	switch (t_below(&w->random, 12)) {
	case 0:
	case 1:
		expect(w, "enter", gpuarb_client_enter(w->client, &work), MAY(-EAGAIN));
		break;
	case 2:
	case 3:
		wait_for_turn(w);
		break;
	case 4:
		/* It comes back, or says that it does not, or does neither. */
		if (gpuarb_client_pause(w->client, 0, t_below(&w->random, 3000000)) > 0 &&
			t_below(&w->random, 2))
			expect(w, "leave", gpuarb_client_leave(w->client, 0), NULL);
		break;
	case 5:
	case 6:
		expect(w, "leave", gpuarb_client_leave(w->client, t_below(&w->random, 2) ? work.begin_ns : 0),
			NULL);
		break;
	case 7:
		expect(w, "tick", gpuarb_client_tick(w->client), MAY(-EDQUOT, -EAGAIN));
		break;
	case 8:
		use_memory(w);
		break;
	case 9:
		if (t_below(&w->random, 10) == 0)
			expect(w, "set_limits",
				gpuarb_client_set_limits(w->client, t_below(&w->random, 101),
					t_below(&w->random, 2000000), t_below(&w->random, 101)),
				NULL);
		break;
	case 10:
		expect(w, "status", gpuarb_client_status(w->client, &status), NULL);
		break;
	default:
		/* Every second worker makes no pauses: races need both kinds. */
		if (w->index % 2)
			t_sleep_us(t_below(&w->random, 3000));
	}
}

/* The child goes on with the client that it inherited, which makes it a client of its own. */
static void fork_and_go_on(struct worker *w)
{
	pid_t pid = fork();

	if (pid == 0) {
		alarm(stress.seconds + 60);
		w->random = t_seeded(t_next(&w->random));
		w->memory = 0;
		for (unsigned i = t_below(&w->random, 200); i && !arb_load32(&stress.board->stop); i--)
			step(w);
		if (t_below(&w->random, 2))
			gpuarb_client_close(w->client);
		_exit(0);
	}
	/* Sometimes the parent ends first: the child is an orphan then, and goes on. */
	if (pid > 0 && t_below(&w->random, 4))
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
}

int random_worker(void *argument)
{
	struct worker *w = argument;

	prctl(PR_SET_PDEATHSIG, 0);
	while (!arb_load32(&stress.board->stop)) {
		if (open_client(w) < 0) {
			t_sleep_us(2000);
			continue;
		}
		for (unsigned i = t_below(&w->random, 300); i && !arb_load32(&stress.board->stop); i--)
			if (t_below(&w->random, 400) == 0)
				fork_and_go_on(w);
			else
				step(w);
		gpuarb_client_close(w->client);
	}
	return 0;
}

/* One client at a time: the one that runs writes its number down, and must not find another number meanwhile. */
int exclusive_worker(void *argument)
{
	struct worker *w = argument;
	uint64_t me = w->serial + 1, before;

	while (open_client(w) < 0)
		t_sleep_us(2000);
	while (!arb_load32(&stress.board->stop)) {
		bool in = t_below(&w->random, 3) ? gpuarb_client_wait(w->client, NULL, 50 * MS) == 0
						 : gpuarb_client_enter(w->client, NULL) == 0;

		if (!in) {
			t_sleep_us(t_below(&w->random, 500));
			continue;
		}
		before = arb_load64(&stress.board->owner);
		if (before && !arb_load32(&stress.board->doomed[before - 1]))
			stress_fail("exclusive: worker %llu entered while %llu was inside",
				(unsigned long long)me, (unsigned long long)before);
		arb_store64_release(&stress.board->owner, me);
		if (t_below(&w->random, 2))
			t_sleep_us(t_below(&w->random, 300));
		gpuarb_client_tick(w->client);
		if (!arb_cas64_full(&stress.board->owner, me, 0))
			stress_fail("exclusive: worker %llu was not alone", (unsigned long long)me);
		arb_add64_full(&stress.board->holds, 1);
		expect(w, "leave", gpuarb_client_leave(w->client, 0), NULL);
	}
	gpuarb_client_close(w->client);
	return 0;
}

int observer(void *argument)
{
	struct arb_segment seg;

	(void)argument;
	while (arb_segment_open(&seg, stress.dir.path, T_GPU, false, NULL, NULL) < 0)
		t_sleep_us(1000);
	while (!arb_load32(&stress.board->stop)) {
		int r = arb_check(&seg, say, NULL);

		if (r < 0 && r != -EBUSY)
			stress_fail("arb_check answered %d", r);
		arb_add64_full(r == -EBUSY ? &stress.board->busy_checks : &stress.board->checks, 1);
		t_sleep_us(1000);
	}
	arb_segment_close(&seg);
	return 0;
}

int administrator(void *argument)
{
	struct t_random random = t_seeded(stress.seed ^ 0xad317);
	static const int windows[] = {10, 20, 100, 500}, graces[] = {20, 100, 500};

	(void)argument;
	while (!arb_load32(&stress.board->stop)) {
		char account[32];
		int64_t value = 1 + t_below(&random, 100);

		snprintf(account, sizeof(account), "shared-%u", t_below(&random, SHARED));
		switch (t_below(&random, 8)) {
		case 0:
			t_set(&stress.dir, ARB_KEY_POLICY, t_below(&random, 5));
			break;
		case 1:
			t_set(&stress.dir, ARB_KEY_WINDOW_MS, windows[t_below(&random, 4)]);
			break;
		case 2:
			t_set(&stress.dir, ARB_KEY_GRACE_MS, graces[t_below(&random, 3)]);
			break;
		case 3:
			t_set(&stress.dir, ARB_KEY_BILLING, t_below(&random, 2));
			t_set(&stress.dir, ARB_KEY_BORROW, t_below(&random, 2));
			break;
		case 4:
			t_set(&stress.dir, ARB_KEY_CARRYOVER_PERCENT, t_below(&random, 101));
			break;
		case 5:
			value *= 20000;
			t_set_limit(&stress.dir, account, ARB_KEY_MEM, t_below(&random, 2) ? &value : NULL);
			break;
		default:
			t_set_limit(&stress.dir, account, ARB_KEY_CORE, t_below(&random, 2) ? &value : NULL);
		}
		t_sleep_us(20000);
	}
	return 0;
}

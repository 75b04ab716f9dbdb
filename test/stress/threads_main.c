/*
 * Threads use one mapping of the segment, each with a slot of its own, so that the thread sanitizer sees both ends of
 * every ordering. Then threads share one client. It has a plain main, because Criterion does not run under that
 * sanitizer.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb.h"
#include "units.h"

#include "test/harness.h"

#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/segment/check.h"
#include "shm/client/client_state.h"
#include "shm/segment/events.h"
#include "shm/base/os.h"
#include "shm/client/reclaim.h"
#include "shm/segment/running.h"
#include "shm/segment/slot.h"
#include "shm/segment/wait.h"

#define PATIENCE_NS (10000 * MS)
#define THREADS     8
#define ROUNDS      3000

static struct t_dir dir;
static struct arb_segment seg;
static struct arb_rules rules;
static arb_u32 stop, started;
static bool turns; /* a policy of turns, or concurrent */

static uint32_t choose(void *argument, const struct arb_snap *snap, uint64_t now_ns)
{
	(void)argument;
	return arb_wait_choose(&seg, snap, &(struct arb_order){now_ns, rules.max_wait_ns, rules.grace_ns});
}

static uint32_t one_at_a_time(void *argument, const struct arb_snap *snap, uint64_t now_ns)
{
	const struct arb_actor *me = argument;

	if (snap->reserved && (uint32_t)snap->reserved != me->slot + 1 && now_ns < snap->reserved_until)
		return ARB_REASON_QUEUE;
	return arb_bits_count(snap->running, snap->words) ? ARB_REASON_QUEUE : ARB_REASON_NONE;
}

static struct arb_move new_move(struct arb_actor *me)
{
	uint64_t now = arb_os_now_ns() * ARB_TICKS_PER_NS;

	return (struct arb_move){.now = now,
		.at = now,
		.win_ms = rules.win_ms,
		.asked = now, /* all are threads of this process */
		.weight = ARB_WEIGHT_ONE,
		.reserve_ns = rules.reserve_ns,
		.queue = turns,
		.admit = turns ? one_at_a_time : NULL,
		.choose = turns ? choose : NULL,
		.argument = me,
		.next = ARB_NONE};
}

static void wake(const struct arb_move *move)
{
	if (move->next != ARB_NONE)
		arb_os_wake(&seg.slots[move->next].wake);
}

/* Makes one transition, and rolls the account first if the window has moved on. */
static int transition(struct arb_actor *me, uint32_t account,
	int (*fn)(const struct arb_actor *, struct arb_move *, struct arb_snap *))
{
	struct arb_terms terms = {500000, 500000, 100, false};
	struct arb_account_snap acct;
	struct arb_snap snap;
	int r = -EXDEV;

	while (r == -EXDEV) {
		struct arb_move move = new_move(me);

		T_CHECK(arb_running_roll(me, &move, &snap) == 0, "rolling");
		T_CHECK(arb_account_roll(me, account, &snap, &terms, move.now, &acct) == 0,
			"rolling an account");
		move.window = snap.win_number;
		r = fn(me, &move, &snap);
		wake(&move);
	}
	return r;
}

static void enter(struct arb_actor *me, uint32_t account)
{
	uint32_t seen;
	int r;

	do {
		seen = arb_load32_acquire(&seg.slots[me->slot].wake);
		r = transition(me, account, arb_running_enter);
		if (r == -EAGAIN)
			arb_os_futex_wait(&seg.slots[me->slot].wake, seen, 2 * MS);
	} while (r == -EAGAIN);
	T_CHECK(r == 0, "entering: %d", r);
}

static uint32_t join(struct arb_actor *me, void **page, const char *account)
{
	struct arb_os_identity id;
	struct arb_patience patience = {.length_ns = PATIENCE_NS};
	struct arb_lock directory;
	uint32_t a;

	int r;

	do
		r = arb_slot_claim(&seg, &me->slot, page, NULL);
	while (r == -EBUSY && arb_patience_pause(&patience));
	T_CHECK(r == 0, "a slot: %d", r);
	arb_os_identify(&id);
	arb_slot_fill(&seg, me->slot, &id, 50);
	T_CHECK(arb_slot_lock_wait(&seg, ARB_BYTE_DIRECTORY(seg.nslots), PATIENCE_NS, &directory) == 0,
		"directory");
	a = arb_account_find(&seg, account, 1, 100);
	T_CHECK(a != ARB_NONE, "an account");
	arb_store32(&seg.slots[me->slot].account, a);
	T_CHECK(arb_account_attach(&seg, a, me->slot) == 0, "attaching");
	arb_slot_unlock(&directory);
	arb_slot_show(&seg, me->slot);
	return a;
}

static void part(struct arb_actor *me, void *page)
{
	struct arb_patience patience = {.length_ns = PATIENCE_NS};
	struct arb_reclaimed what;
	int r;

	do
		r = arb_reclaim_clean(&seg, me->slot, ARB_GONE_LEFT, &rules, &what);
	while (r == -EBUSY && arb_patience_pause(&patience));
	T_CHECK(r == 0, "leaving for good: %d", r);
	arb_slot_release(&seg, me->slot, page);
}

static void *own_slot(void *argument)
{
	unsigned index = arb_add32_full(&started, 1);
	struct arb_actor me = {&seg, 0};
	void *page;
	uint32_t account = join(&me, &page, index % 2 ? "odd" : "even");
	int r;

	(void)argument;
	for (unsigned i = 0; i < ROUNDS; i++) {
		enter(&me, account);
		r = arb_account_mem(&me, account, 100, 0);
		T_CHECK(r == 0, "reserving: %d", r);
		arb_store64(&seg.slots[me.slot].heartbeat_ns, arb_os_now_ns());
		T_CHECK(transition(&me, account, arb_running_leave) == 0, "leaving");
		T_CHECK(arb_account_mem(&me, account, -100, 0) == 0, "releasing");
		arb_events_write(&seg, ARB_EVENT_WINDOW, me.slot, account, i, 0);
		if (i % 100 == 99) {
			part(&me, page);
			account = join(&me, &page, i % 3 ? "odd" : "even");
		}
	}
	part(&me, page);
	return NULL;
}

/* Takes the place of any client in the set: with a grace of zero, every client counts as silent. */
static void *evictor(void *argument)
{
	struct arb_rules none = rules;
	struct arb_actor me = {&seg, 0};
	struct arb_snap snap;
	void *page;

	(void)argument;
	none.grace_ns = 0;
	join(&me, &page, "evictor");
	while (!arb_load32(&stop)) {
		if (arb_running_read(&seg, &snap) == 0) {
			uint32_t victim = arb_bits_next(snap.running, snap.words, 0);

			if (victim != ARB_NONE)
				arb_reclaim_evict(&seg, me.slot, victim, &none);
		}
		t_sleep_us(200);
	}
	part(&me, page);
	return NULL;
}

static void *reader(void *argument)
{
	(void)argument;
	while (!arb_load32(&stop)) {
		struct arb_event_copy event;
		uint64_t first, end;
		int r = arb_check(&seg, t_say, NULL);

		T_CHECK(r == 0 || r == -EBUSY, "the invariants: %d", r);
		arb_events_range(&seg, &first, &end);
		for (; first < end; first++)
			arb_events_read(&seg, first, &event);
		t_sleep_us(500);
	}
	return NULL;
}

static void run(void *(*fn)(void *), void *argument, unsigned beside)
{
	pthread_t t[THREADS], others[2];
	void *(*const other[2])(void *) = {reader, evictor};

	arb_store32(&stop, 0);
	for (unsigned i = 0; i < beside; i++)
		T_CHECK(pthread_create(&others[i], NULL, other[i], NULL) == 0, "a thread");
	for (int i = 0; i < THREADS; i++)
		T_CHECK(pthread_create(&t[i], NULL, fn, argument) == 0, "a thread");
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	arb_store32(&stop, 1);
	for (unsigned i = 0; i < beside; i++)
		pthread_join(others[i], NULL);
	T_CHECK(arb_check(&seg, t_say, NULL) == 0, "the invariants at rest");
}

static void *shared_client(void *argument)
{
	struct gpuarb_client *c = argument;
	struct gpuarb_client_status status;

	for (unsigned i = 0; i < ROUNDS / 4; i++) {
		int r = gpuarb_client_wait(c, NULL, 10000 * MS);

		T_CHECK(r == 0, "waiting: %d", r);
		T_CHECK(gpuarb_client_mem_reserve(c, 10) == 0, "reserving");
		r = gpuarb_client_tick(c);
		T_CHECK(r == 0 || r == -EDQUOT || r == -EAGAIN, "ticking: %d", r);
		T_CHECK(gpuarb_client_leave(c, 0) == 0, "leaving");
		T_CHECK(gpuarb_client_mem_release(c, 10) == 0, "releasing");
		T_CHECK(gpuarb_client_status(c, &status) == 0, "status");
	}
	return NULL;
}

static void *own_client(void *argument)
{
	struct gpuarb_client *c;

	(void)argument;
	T_CHECK(t_open(&dir, "threads", &c) == 0, "a client of a thread");
	shared_client(c);
	gpuarb_client_close(c);
	return NULL;
}

/* All threads belong to one process, with the thread that looks after their leases; some wait, some are cancelled. */
static void *leases(void *argument)
{
	static const char *const names[] = {"default", "high", "low"};
	struct t_random random = t_seeded((uintptr_t)&random);

	(void)argument;
	for (unsigned i = 0; i < ROUNDS / 8; i++) {
		struct gpuarb_request request = {.task_class = names[t_below(&random, 3)],
			.max_wait_ms = 1 + t_below(&random, 3),
			.hint = {.hold_ms = t_below(&random, 100) ? 0 : 9000}};
		struct gpuarb_lease lease = GPUARB_LEASE_INIT;
		struct gpuarb_status status;
		int r;

		if (t_below(&random, 50) == 0)
			gpuarb_cancel(&lease);
		r = gpuarb_acquire(T_GPU, &request, &lease);
		T_CHECK(r >= 0 || r == -ECANCELED, "acquire: %s", gpuarb_error_text());
		if (t_below(&random, 40) == 0)
			T_CHECK(gpuarb_status(T_GPU, &status) == 0, "status: %s", gpuarb_error_text());
		if (t_below(&random, 40) == 0)
			arb_usage_publish(&seg, &rules.usage, t_below(&random, 10001), ARB_SAMPLE_NVML,
				arb_os_now_ns());
		T_CHECK(gpuarb_release(&lease) == 0, "release");
	}
	return NULL;
}

int main(void)
{
	struct gpuarb_client *c;

	alarm(300);
	t_dir_make(&dir, "slots = 16\nusage_sample_ms = 50\n"
			 "[class high]\npriority = 90\n[class low]\npriority = 10\nmode = skip\n");
	setenv("GPUARB_DIR", dir.path, 1);
	setenv("GPUARB_CONF", dir.conf, 1);
	T_CHECK(t_open(&dir, "threads", &c) == 0, "the first client");
	rules = c->rules;
	T_CHECK(arb_segment_open(&seg, dir.path, T_GPU, true, NULL, NULL) == 0, "mapping");
	run(own_slot, NULL, 2);
	turns = true;
	run(own_slot, NULL, 1);
	run(own_slot, NULL, 2);
	run(shared_client, c, 1);
	run(own_client, NULL, 1);
	run(leases, NULL, 1);
	gpuarb_client_close(c);
	arb_segment_close(&seg);
	t_dir_remove(&dir);
	printf("threads: %d of them, each with a slot, with a client, all with one client, and with leases\n",
		THREADS);
	return 0;
}

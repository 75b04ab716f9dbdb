/*
 * The tracker: one thread in each process that uses a GPU. It keeps the heartbeat, sees when the quota is used up,
 * and notices the end of work that no thread of the program waits for. It sleeps while there is no work.
 */
#include "preload/track/track.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "gpuarb/client.h"

#include "preload/hooks/coverage.h"
#include "preload/process/known.h"
#include "preload/process/log.h"
#include "shm/base/os.h"
#include "preload/process/threads.h"
#include "preload/track/trace.h"
#include "shm/client/watch.h"
#include "shm/base/word.h"

/* The longest wait for the thread when the program ends. */
#define EXIT_NS (200 * MS)
/* How often the other threads are counted after the main thread has ended. */
#define COUNT_NS (20 * MS)
/* A round counts as at most this many times the usual one. */
#define SPENT_MOST 4

enum sleeping {
	AWAKE,
	NAPPING, /* for ALONE_NS at most, unless something is launched */
	SLEEPING,
};

/* Wakes the thread if it sleeps at least as deeply as this. Returns whether it did. */
static bool wake(uint32_t least)
{
	/* If the tracker has just announced its sleep, it must see the work that we have published. */
	arb_word_fence_full();
	if (arb_word_load_full(&arb_own.asleep) < least)
		return false;
	arb_word_store_full(&arb_own.asleep, AWAKE);
	arb_os_unpark(&arb_own.asleep);
	return true;
}

void tracker_wake(void)
{
	wake(SLEEPING);
}

void tracker_launched(void)
{
	wake(NAPPING);
}

void tracker_ring(void)
{
	arb_word_add_full(&arb_own.rung, 1);
	/* It may nap through an interval whose callback was asked for by a launching thread. */
	if (!wake(NAPPING))
		arb_os_unpark(&arb_own.rung);
}

/* Adds to the budget what the thread has earned since the last round, and subtracts what it has spent. */
static void account_for(void)
{
	uint64_t now = track_now(), cpu = arb_os_cpu_ns(), spent, look;

	if (!cpu)
		return;
	if (arb_own.budget.wall_ns) {
		spent = cpu - arb_own.budget.cpu_ns;
		/* Looks cost about the same. More was probably not spent here: time that a hypervisor took from a
		 * virtual machine counts as CPU time. */
		if (arb_own.budget.each_ns && spent > SPENT_MOST * arb_own.budget.each_ns)
			spent = SPENT_MOST * arb_own.budget.each_ns;
		arb_own.budget.left_ns -=
			(int64_t)(arb_word_exchange(&arb_own.budget.charged, 0) * arb_own.budget.each_ns);
		arb_own.budget.left_ns +=
			(int64_t)((now - arb_own.budget.wall_ns) * SPEND_PER_MILLE / 1000) - (int64_t)spent;
		arb_own.budget.each_ns = (15 * arb_own.budget.each_ns + spent) / 16;
	}
	if (arb_own.budget.left_ns > ACT_SAVINGS_NS)
		arb_own.budget.left_ns = ACT_SAVINGS_NS;
	/* Not deeper in debt than it can save up: one expensive moment must not stop looks for long. */
	if (arb_own.budget.left_ns < -ACT_SAVINGS_NS)
		arb_own.budget.left_ns = -ACT_SAVINGS_NS;
	arb_own.budget.wall_ns = now;
	arb_own.budget.cpu_ns = cpu;
	look = arb_own.budget.each_ns * LOOK_COSTS;
	look = look < PAUSE_NS ? PAUSE_NS : look > 4 * PAUSE_NS ? 4 * PAUSE_NS : look;
	arb_word_store(&arb_own.look_ns, look);
}

void tracker_charge(void)
{
	arb_word_add(&arb_own.budget.charged, 1);
}

/* Has one GPU's book look. Returns how long until the next look; 0: there is no work. */
static uint64_t look(struct track *t)
{
	uint32_t steps = 0;
	struct book_action act;

	track_lock(t);
	if (arb_word_exchange_acquire(&t->called, 0))
		steps = CALL_RANG;
	for (;;) {
		struct book_event e = {.kind = EVENT_TIMER, .call = steps};

		act = track_tell(t, &e);
		if (act.what == ACT_LOOK || act.what == ACT_NONE)
			break;
		steps |= act.step;
		track_carry_out(t, act, NULL);
	}
	track_unlock(t);
	if (__builtin_expect(t->trace != NULL, 0))
		trace_write(t);
	return act.ns;
}

/* Sleeps on one of our words, and watches over the neighbours meanwhile unless the sleep is short. */
static void park(uint32_t *word, uint32_t value, uint64_t ns)
{
	struct gpuarb_client *clients[ARB_WATCH_GPUS];
	unsigned n = 0;

	if (!arb_own.watch) {
		arb_os_park(word, value, ns);
		return;
	}
	/* In a shorter sleep none is: the next look finds one that dies in it. */
	if (!ns || ns >= PAUSE_NS)
		for (unsigned i = 0; i < tracks_high() && n < ARB_WATCH_GPUS; i++)
			if (arb_word_load_acquire(&arb_own.tracks[i].device))
				clients[n++] = arb_own.tracks[i].device->client;
	arb_watch_park(arb_own.watch, clients, n, word, value, ns);
}

/* Sleeps until there is work, at most for ns; 0: without end. */
static void sleep_idle(uint32_t how, uint64_t ns)
{
	bool none = true;

	coverage_show();
	arb_word_store_full(&arb_own.asleep, how);
	/* From here on new work wakes us. Work may have come just before. */
	arb_word_fence_full();
	for (unsigned i = 0; i < tracks_high(); i++)
		none &= !arb_word_load(&arb_own.tracks[i].in);
	if (none && !act_thread_main_left() && !arb_word_load(&arb_own.exiting))
		park(&arb_own.asleep, how, ns);
}

/* Whether a second look at the streams is to come on any GPU. */
static bool any_again(void)
{
	bool again = false;

	for (unsigned i = 0; i < tracks_high(); i++)
		again |= arb_word_load(&arb_own.tracks[i].again_ns) != 0;
	return again;
}

/* Returns `most`, or less if a second look at the streams is due earlier. */
static uint64_t until_again(uint64_t now, uint64_t most)
{
	for (unsigned i = 0; i < tracks_high(); i++) {
		uint64_t at = arb_word_load(&arb_own.tracks[i].again_ns);

		if (at && at < now + most)
			most = at > now + LOOK_NS ? at - now : LOOK_NS;
	}
	return most;
}

/* Whether a program begins its next interval as soon as its work has ended. It would wake us each time, for an end that
 * it sees itself. */
static bool any_quick(void)
{
	bool quick = false;

	for (unsigned i = 0; i < tracks_high(); i++)
		quick |= arb_word_load(&arb_own.tracks[i].quick);
	return quick;
}

static void *tracker(void *argument)
{
	uint64_t idle_since = 0, counted_ns = 0, napped_ns = 0;
	enum act_left left = ACT_OTHERS;

	prctl(PR_SET_NAME, "gpuarb");
	act_thread_is_tracker();
	track_relax();
	for (;;) {
		/* Read first: a thread that rings says why before it rings. */
		uint32_t heard = arb_word_load_full(&arb_own.rung);
		uint64_t sleep = 0, follow;

		if (arb_word_load_full(&arb_own.exiting))
			break;
		follow = limits_file_follow();
		arb_word_store_full(&arb_own.asleep, AWAKE);
		account_for();
		/* First, because the driver may hold the looks up. */
		frozen_wake();
		for (unsigned i = 0; i < tracks_high(); i++) {
			uint64_t ns;

			if (!arb_word_load_acquire(&arb_own.tracks[i].device))
				continue;
			ns = look(&arb_own.tracks[i]);
			if (ns && (!sleep || ns < sleep))
				sleep = ns;
		}
		known_free();
		frozen_look();
		coverage_tick(track_now());
		/* A program ends with its last thread, which must not be this one, so threads are counted. */
		if (act_thread_main_left() && track_now() >= counted_ns) {
			left = act_thread_left();
			if (left != ACT_OTHERS)
				break;
			counted_ns = track_now() + COUNT_NS;
		}
		if (sleep) {
			idle_since = 0;
		} else {
			uint64_t now = track_now(), idle;

			if (!idle_since)
				idle_since = now;
			idle = now - idle_since;
			sleep = until_again(now, arb_own.look_ns);
			if (act_thread_main_left()) {
				sleep = COUNT_NS;
			} else if (idle > ALONE_NS && !any_again()) {
				sleep_idle(SLEEPING, follow);
				continue;
			} else if ((arb_own.budget.left_ns > 0 || now - napped_ns > arb_own.look_ns) &&
				   !any_quick()) {
				napped_ns = now;
				sleep_idle(NAPPING, until_again(now, ALONE_NS));
				continue;
			}
		}
		park(&arb_own.rung, heard, sleep);
	}
	if (arb_own.watch)
		arb_watch_end(arb_own.watch);
	if (left != ACT_OTHERS)
		frozen_end();
	arb_word_store_release(&arb_own.running, 0);
	arb_os_unpark(&arb_own.running);
	/* Does what the C library would do when the program's last thread ends; it does not, because the driver
	 * has a thread that it made for us. */
	if (left == ACT_WITH_DRIVER)
		exit(0);
	return argument;
}

/* Whether no client is within an operation. A program may end in a signal handler, in the middle of one. */
static bool all_free(void)
{
	for (unsigned i = 0; i < tracks_high(); i++)
		if (arb_word_load_acquire(&arb_own.tracks[i].device) &&
			!gpuarb_client_free(arb_own.tracks[i].device->client))
			return false;
	return true;
}

/* Runs before the driver's own exit handler: afterwards no thread of ours calls the driver. */
static void at_exit(void)
{
	uint64_t end = track_now() + EXIT_NS;
	int saved = errno;

	arb_word_store_full(&arb_own.exiting, 1);
	gate_free();
	tracker_ring();
	while ((arb_word_load_acquire(&arb_own.running) || arb_word_load_full(&arb_own.frozen.asking)) &&
		track_now() < end)
		arb_os_park(&arb_own.running, arb_word_load(&arb_own.running), MS);
	for (unsigned i = 0; !arb_word_load_acquire(&arb_own.running) && i < tracks_high(); i++)
		if (arb_word_load_acquire(&arb_own.tracks[i].device) && arb_own.tracks[i].trace)
			trace_end(&arb_own.tracks[i]);
	if (all_free()) {
		coverage_show();
		for (unsigned i = 0; i < tracks_high(); i++)
			if (arb_word_load_acquire(&arb_own.tracks[i].device))
				gpuarb_client_part(arb_own.tracks[i].device->client);
	}
	errno = saved;
}

/* Resets everything in a forked child: it has no tracker, no driver and no work. */
static void forget_work(void)
{
	/* The other tracks are zero; writing to them would take memory. */
	memset(arb_own.tracks, 0, tracks_high() * sizeof(*arb_own.tracks));
	arb_mine.locks = arb_mine.number = 0;
	pthread_mutex_init(&arb_own.starting, NULL);
	memset(&arb_own.budget, 0, sizeof(arb_own.budget));
	memset(&arb_own.frozen, 0, sizeof(arb_own.frozen));
	if (arb_own.watch)
		memset(arb_own.watch, 0, sizeof(*arb_own.watch));
	arb_own.running = arb_own.asleep = arb_own.captures = arb_own.gpus = arb_own.tracks_high = 0;
	known_forked();
	gate_forked();
}

static void start_thread(void)
{
	if (arb_own.running)
		return;
	if (!arb_own.prepared) {
		pthread_atfork(NULL, NULL, forget_work);
		atexit(at_exit);
		arb_own.prepared = true;
	}
	arb_own.running = 1;
	if (!act_thread_start(tracker, NULL)) {
		arb_own.running = 0;
		arb_log(ARB_LOG_WARN,
			"no thread for the tracker: work that nobody waits for is billed too long");
		return;
	}
	frozen_begin();
}

struct track *tracker_get(struct arb_device *device)
{
	struct track *t = &arb_own.tracks[arb_device_index(device)];
	struct gpuarb_client_status status;
	bool limited;

	if (__builtin_expect(arb_word_load_acquire(&t->device) != NULL, 1))
		return t;
	pthread_mutex_lock(&arb_own.starting);
	if (!t->device) {
		pthread_mutex_init(&t->lock, NULL);
		limited = gpuarb_client_status(device->client, &status) == 0 &&
			  (status.core_pct < 100 || status.turns);
		book_init(&t->book, limited);
		trace_begin(t, device, limited);
		gate_watch(t, t->book.others.watched);
		t->piece = book_piece(&t->book);
		/* Stored first: loops over the tracks must not stop before this one. */
		if (arb_device_index(device) >= arb_own.tracks_high)
			arb_word_store_release(&arb_own.tracks_high, arb_device_index(device) + 1);
		arb_word_store_release(&t->device, device);
		arb_word_add(&arb_own.gpus, 1);
		gate_join();
		start_thread();
	}
	pthread_mutex_unlock(&arb_own.starting);
	return t;
}

/*
 * One thread for each process that uses a GPU: it keeps the heartbeat, sees when the quota is used up, and
 * notices the end of work that nobody waits for. It sleeps while there is none.
 */
#include "track.h"

#include "compat.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "gpuarb/client.h"

#include "coverage.h"
#include "log.h"
#include "os.h"
#include "threads.h"
#include "watch.h"

COMPAT_WEAK(pthread_create)

/* How often it looks, by what that costs: half of what it may spend. */
#define LOOK_LEAST_NS (2 * MS)
#define LOOK_MOST_NS  (8 * MS)
#define LOOK_COSTS    200
/* And one whose place is kept, as often as that may end: nobody else would know for milliseconds. */
#define KEEP_LOOK_NS    MS
#define KEEP_LOOK_COSTS 100
/* An idle process is looked after for so long before the thread goes to sleep: work may come at once. */
#define LINGER_NS (50 * MS)
#define EXIT_NS   (200 * MS)
/* A neighbour that dies while the thread sleeps for less is found by the next look. */
#define WATCH_LEAST_NS (2 * MS)
#define COUNT_NS  (20 * MS)
/* Of one without a limit and alone, when there is nothing left to spend: nobody else pays for it. */
#define ALONE_NS (50 * MS)
/*
 * What the thread may spend of a core, on average, and how much it can save up for when many ends come at
 * once. Waking costs 2 us on one machine and 25 on another; what is left after what must be done buys looks
 * at the moment when work should have ended.
 */
#define SPEND_PER_MILLE 8
#define SPENT_MOST      4
/* Beside others, or before them in a queue, an end that is noticed late costs them: one may borrow. */
#define LOAN_NS ((int64_t)MS)
/*
 * The driver is asked to say when work has ended, if that cannot be foreseen, or is so much later than
 * expected by now; if it is short, looking at it costs less.
 */
#define LATE_NS (200 * US)
#define LONG_NS (500 * US)
/* No driver rings after an error; then it is looked at after so long. */
#define DEAF_NS (50 * MS)

enum sleeping {
	AWAKE,
	NAPPING, /* for LINGER_NS at most, unless something is launched */
	SLEEPING,
};

/* True: it was asleep. */
static bool wake(uint32_t least)
{
	/* What there is to look after must be seen by one who has just said that it goes to sleep. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&arb_own.asleep, __ATOMIC_SEQ_CST) < least)
		return false;
	__atomic_store_n(&arb_own.asleep, AWAKE, __ATOMIC_SEQ_CST);
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
	__atomic_fetch_add(&arb_own.rung, 1, __ATOMIC_SEQ_CST);
	/* It naps through stays whose bells were set by who launched. */
	if (!wake(NAPPING))
		arb_os_unpark(&arb_own.rung);
}

/* What it earned and what it spent since the last time. */
static void account_for(void)
{
	uint64_t now = track_now(), cpu = arb_os_cpu_ns(), spent, look;

	if (!cpu)
		return;
	if (arb_own.purse.wall_ns) {
		spent = cpu - arb_own.purse.cpu_ns;
		/* One look is like the other. What a virtual machine was robbed of meanwhile counts as CPU
		 * time as well. */
		if (arb_own.purse.each_ns && spent > SPENT_MOST * arb_own.purse.each_ns)
			spent = SPENT_MOST * arb_own.purse.each_ns;
		arb_own.purse.left_ns -=
			(int64_t)(__atomic_exchange_n(&arb_own.purse.charged, 0, __ATOMIC_RELAXED) * arb_own.purse.each_ns);
		arb_own.purse.left_ns += (int64_t)((now - arb_own.purse.wall_ns) * SPEND_PER_MILLE / 1000) - (int64_t)spent;
		arb_own.purse.each_ns = (15 * arb_own.purse.each_ns + spent) / 16;
	}
	if (arb_own.purse.left_ns > ACT_SAVINGS_NS)
		arb_own.purse.left_ns = ACT_SAVINGS_NS;
	if (arb_own.purse.left_ns < -2 * LOAN_NS)
		arb_own.purse.left_ns = -2 * LOAN_NS;
	arb_own.purse.wall_ns = now;
	arb_own.purse.cpu_ns = cpu;
	look = arb_own.purse.each_ns * LOOK_COSTS;
	look = look < LOOK_LEAST_NS ? LOOK_LEAST_NS : look > LOOK_MOST_NS ? LOOK_MOST_NS : look;
	__atomic_store_n(&arb_own.look_ns, look, __ATOMIC_RELAXED);
}

void tracker_charge(void)
{
	__atomic_fetch_add(&arb_own.purse.charged, 1, __ATOMIC_RELAXED);
}

/*
 * How long until this one must be looked at again; 0: it has no work. The driver is only asked when the work
 * should have ended, and if it has not, the less often the longer it takes.
 */
static uint64_t look(struct track *t)
{
	uint64_t now = track_now(), due, late, least, most, next;
	bool unforeseen = false, affordable, settled, rang, checked = false;

	track_lock(t);
	rang = __atomic_load_n(&t->bell, __ATOMIC_ACQUIRE) == BELL_RANG;
	t->quiet = stay_is_quiet(t);
	if (t->phase == TRACK_OUT && t->again_ns && now >= t->again_ns)
		stay_look_again(t, now);
	if (t->phase == TRACK_OUT && t->kept_ns && now >= t->kept_ns)
		stay_give_way(t);
	t->hurry = arb_own.purse.left_ns > (t->turns || stay_in_company(t) ? -LOAN_NS : 0);
	least = t->hurry ? 100 * US : stay_is_rare(t) ? MS : t->watched ? arb_own.look_ns : ALONE_NS;
	most = t->hurry ? 500 * US : least > arb_own.look_ns ? least : arb_own.look_ns;
	/* Whoever is awake need not wake again for it soon. */
	if (t->phase != TRACK_OUT && now + arb_own.look_ns / 2 >= t->check_ns) {
		checked = true;
		stay_check(t, now);
	}
	due = stay_due(t);
	/* Who goes on launching has work; if it has not, and nobody pays for that, it comes back at once. So
	 * it is looked at now and then only. */
	if (!t->watched && !t->quiet && !rang && !checked && due < t->check_ns && !stay_is_whole(t))
		due = t->check_ns;
	if (t->phase != TRACK_OUT && (now >= due || rang) && !stay_leave_if_idle(t)) {
		due = stay_due(t);
		late = now > due ? now - due : 0;
		unforeseen |= late > LATE_NS && now - t->begin_ns > LONG_NS;
		/* Who has nothing left to spend looks after 1, 2, 4 ms and so on. */
		late /= t->hurry ? 8 : 1;
		if (due <= now)
			due = now + (late < least ? least : late > most ? most : late);
	}
	/* One that rings now is for the next look. */
	if (rang)
		bell_heard(t, now, t->phase == TRACK_OUT);
	unforeseen |= bell_is_needed(t);
	/* One that has lasted for longer than a look costs less that way. */
	affordable = t->hurry || bell_is_cheap(t) || now - t->begin_ns > arb_own.look_ns;
	/* What is yet to come ends later. */
	settled = t->quiet || (t->regular ? stay_is_whole(t) : now - t->begin_ns >= LONG_NS);
	if (t->phase != TRACK_OUT &&
		(bell_is_set(t) || (unforeseen && affordable && settled && bell_set(t, now, true))))
		due = t->bell_ns + DEAF_NS > now ? t->bell_ns + DEAF_NS : now + least;
	else if (unforeseen && affordable && !settled && !t->regular && due > t->begin_ns + LONG_NS)
		due = t->begin_ns + LONG_NS;
	else if (unforeseen && affordable && t->bell_next_ns > now && due > t->bell_next_ns)
		due = t->bell_next_ns;
	next = t->check_ns < due ? t->check_ns : due;
	next = next > now + 50 * US ? next - now : 50 * US;
	least = arb_own.purse.each_ns * KEEP_LOOK_COSTS > KEEP_LOOK_NS ? arb_own.purse.each_ns * KEEP_LOOK_COSTS
							       : KEEP_LOOK_NS;
	if (t->keeps && next > least)
		next = least;
	if (t->phase == TRACK_OUT)
		next = !t->kept_ns ? 0 : t->kept_ns > now + 50 * US ? t->kept_ns - now : 50 * US;
	track_unlock(t);
	return next;
}

/* Sleeps on one of our words, and watches over the neighbours meanwhile unless it is back at once. */
static void park(uint32_t *word, uint32_t value, uint64_t ns)
{
	struct gpuarb_client *clients[ARB_WATCH_GPUS];
	unsigned n = 0;

	if (!arb_own.watch) {
		arb_os_park(word, value, ns);
		return;
	}
	if (!ns || ns >= WATCH_LEAST_NS)
		for (unsigned i = 0; i < tracks_high() && n < ARB_WATCH_GPUS; i++)
			if (__atomic_load_n(&arb_own.tracks[i].device, __ATOMIC_ACQUIRE))
				clients[n++] = arb_own.tracks[i].device->client;
	arb_watch_park(arb_own.watch, clients, n, word, value, ns);
}

/* Until there is work, for so long at most; 0: for good. */
static void sleep_idle(uint32_t how, uint64_t ns)
{
	bool none = true;

	coverage_show();
	__atomic_store_n(&arb_own.asleep, how, __ATOMIC_SEQ_CST);
	/* Now that whoever comes would wake us: has somebody come before? */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < tracks_high(); i++)
		none &= __atomic_load_n(&arb_own.tracks[i].phase, __ATOMIC_RELAXED) == TRACK_OUT;
	if (none && !act_thread_main_left() && !__atomic_load_n(&arb_own.exiting, __ATOMIC_RELAXED))
		park(&arb_own.asleep, how, ns);
}

/* A stay may have been over before we woke: there is a second look to come all the same. */
static bool any_again(void)
{
	bool again = false;

	for (unsigned i = 0; i < tracks_high(); i++)
		again |= __atomic_load_n(&arb_own.tracks[i].again_ns, __ATOMIC_RELAXED) != 0;
	return again;
}

/* How long one without work may be left alone: for so long, or until it is looked at again. */
static uint64_t until_again(uint64_t now, uint64_t most)
{
	for (unsigned i = 0; i < tracks_high(); i++) {
		uint64_t at = __atomic_load_n(&arb_own.tracks[i].again_ns, __ATOMIC_RELAXED);

		if (at && at < now + most)
			most = at > now + 50 * US ? at - now : 50 * US;
	}
	return most;
}

/* A program that begins anew as soon as its work has ended would wake us each time, for an end that it sees.
 */
static bool any_quick(void)
{
	bool quick = false;

	for (unsigned i = 0; i < tracks_high(); i++)
		quick |= __atomic_load_n(&arb_own.tracks[i].quick, __ATOMIC_RELAXED);
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
		/* First: whoever rings says why before. */
		uint32_t heard = __atomic_load_n(&arb_own.rung, __ATOMIC_SEQ_CST);
		uint64_t sleep = 0, follow;

		if (__atomic_load_n(&arb_own.exiting, __ATOMIC_SEQ_CST))
			break;
		follow = limits_file_follow();
		__atomic_store_n(&arb_own.asleep, AWAKE, __ATOMIC_SEQ_CST);
		account_for();
		for (unsigned i = 0; i < tracks_high(); i++) {
			uint64_t ns;

			if (!__atomic_load_n(&arb_own.tracks[i].device, __ATOMIC_ACQUIRE))
				continue;
			ns = look(&arb_own.tracks[i]);
			if (ns && (!sleep || ns < sleep))
				sleep = ns;
		}
		coverage_tick(track_now());
		/* A program ends with its last thread, which must not be this one. Nobody tells. */
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
			} else if (idle > LINGER_NS && !any_again()) {
				sleep_idle(SLEEPING, follow);
				continue;
			} else if ((arb_own.purse.left_ns > 0 || now - napped_ns > arb_own.look_ns) && !any_quick()) {
				napped_ns = now;
				sleep_idle(NAPPING, until_again(now, LINGER_NS));
				continue;
			}
		}
		park(&arb_own.rung, heard, sleep);
	}
	if (arb_own.watch)
		arb_watch_end(arb_own.watch);
	__atomic_store_n(&arb_own.running, 0, __ATOMIC_RELEASE);
	arb_os_unpark(&arb_own.running);
	/* What the C library does with the last thread, if there were not the one that the driver made for
	 * us. */
	if (left == ACT_WITH_DRIVER)
		exit(0);
	return argument;
}

/* A program may end in a signal's handler, in the midst of anything. */
static bool all_free(void)
{
	for (unsigned i = 0; i < tracks_high(); i++)
		if (__atomic_load_n(&arb_own.tracks[i].device, __ATOMIC_ACQUIRE) &&
			!gpuarb_client_free(arb_own.tracks[i].device->client))
			return false;
	return true;
}

/* Before the driver's own handler: afterwards nobody of ours calls it. */
static void at_exit(void)
{
	uint64_t end = track_now() + EXIT_NS;
	int saved = errno;

	__atomic_store_n(&arb_own.exiting, 1, __ATOMIC_SEQ_CST);
	gate_free();
	tracker_ring();
	while (__atomic_load_n(&arb_own.running, __ATOMIC_ACQUIRE) && track_now() < end)
		arb_os_park(&arb_own.running, 1, MS);
	if (all_free()) {
		coverage_show();
		for (unsigned i = 0; i < tracks_high(); i++)
			if (__atomic_load_n(&arb_own.tracks[i].device, __ATOMIC_ACQUIRE))
				gpuarb_client_part(arb_own.tracks[i].device->client);
	}
	errno = saved;
}

/* In a forked child there is no tracker, no driver and no work. */
static void start_anew(void)
{
	memset(arb_own.tracks, 0, ARB_DEVICES * sizeof(*arb_own.tracks));
	arb_mine.locks = 0;
	pthread_mutex_init(&arb_own.starting, NULL);
	memset(&arb_own.purse, 0, sizeof(arb_own.purse));
	if (arb_own.watch)
		memset(arb_own.watch, 0, sizeof(*arb_own.watch));
	arb_own.running = arb_own.asleep = arb_own.captures = arb_own.gpus = arb_own.tracks_high = 0;
	gate_forked();
}

static void start_thread(void)
{
	pthread_attr_t attr;
	sigset_t all, before;
	pthread_t thread;

	if (arb_own.running)
		return;
	if (!arb_own.prepared) {
		pthread_atfork(NULL, NULL, start_anew);
		atexit(at_exit);
		arb_own.prepared = true;
	}
	if (arb_os_hooks && arb_os_hooks->thread) {
		arb_own.running = arb_os_hooks->thread(tracker, NULL) == 0;
		return;
	}
	if (!pthread_create || pthread_attr_init(&attr))
		return;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	arb_own.running = 1;
	if (pthread_create(&thread, &attr, tracker, NULL)) {
		arb_own.running = 0;
		arb_log(ARB_LOG_WARN,
			"no thread for the tracker: work that nobody waits for is billed too long");
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
}

struct track *tracker_get(struct arb_device *device)
{
	struct track *t = &arb_own.tracks[arb_device_index(device)];
	struct gpuarb_client_status status;

	if (__builtin_expect(__atomic_load_n(&t->device, __ATOMIC_ACQUIRE) != NULL, 1))
		return t;
	pthread_mutex_lock(&arb_own.starting);
	if (!t->device) {
		pthread_mutex_init(&t->lock, NULL);
		t->window = 1;
		t->bound_ns = TRACK_BOUND_NS;
		if (gpuarb_client_status(device->client, &status) == 0)
			t->limited = t->watched = status.core_pct < 100 || status.turns;
		/* First: who looks for it must not stop before it. */
		if (arb_device_index(device) >= arb_own.tracks_high)
			__atomic_store_n(&arb_own.tracks_high, arb_device_index(device) + 1, __ATOMIC_RELEASE);
		__atomic_store_n(&t->device, device, __ATOMIC_RELEASE);
		__atomic_fetch_add(&arb_own.gpus, 1, __ATOMIC_RELAXED);
		/* Closed, because this one is; and who has credit got it before there was anything to know.
		 */
		gate_renew();
		start_thread();
	}
	pthread_mutex_unlock(&arb_own.starting);
	return t;
}

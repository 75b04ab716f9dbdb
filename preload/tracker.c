/*
 * One thread for each process that uses a GPU: it keeps the heartbeat, sees when the quota is used up, and
 * notices the end of work that nobody waits for. It sleeps while there is none.
 */
#include "track.h"

#include "compat.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gpuarb/client.h"

#include "coverage.h"
#include "log.h"
#include "threads.h"

COMPAT_WEAK(pthread_create)

#define LOOK_NS (4 * MS)
/* An idle process is looked after for so long before the thread goes to sleep: work may come at once. */
#define LINGER_NS (50 * MS)
#define EXIT_NS   (200 * MS)
#define COUNT_NS  (20 * MS)

struct track arb_tracks[ARB_DEVICES];
uint32_t tracker_exiting;
uint32_t tracker_gpus;

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static bool prepared;
static uint32_t running; /* 1: the thread exists */
static uint32_t asleep;  /* futex: 1 while it sleeps for good */

static void futex(uint32_t *word, int op, uint32_t value, uint64_t ns)
{
	struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, ns ? &ts : NULL, NULL, 0);
}

void tracker_wake(void)
{
	/* What there is to look after must be seen by one who has just said that it goes to sleep. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST)) {
		__atomic_store_n(&asleep, 0, __ATOMIC_SEQ_CST);
		futex(&asleep, FUTEX_WAKE, 1, 0);
	}
}

/*
 * How long until this one must be looked at again; 0: it has no work. The driver is only asked when the work
 * should have ended, and if it has not, the less often the longer it takes.
 */
static uint64_t look(struct track *t)
{
	uint64_t now = track_now(), due, late, next;

	track_lock(t);
	if (t->phase != TRACK_OUT && now >= t->check_ns)
		stay_check(t, now);
	due = stay_due(t);
	if (t->phase != TRACK_OUT && now >= due && !stay_leave_if_idle(t)) {
		due = stay_due(t);
		late = now > due ? (now - due) / 8 : 0;
		if (due <= now)
			due = now + (late < 100 * US ? 100 * US : late > LOOK_NS ? LOOK_NS : late);
	}
	next = t->check_ns < due ? t->check_ns : due;
	next = next > now + 50 * US ? next - now : 50 * US;
	if (t->phase == TRACK_OUT)
		next = 0;
	track_unlock(t);
	return next;
}

static void *tracker(void *argument)
{
	uint64_t idle_since = 0, counted_ns = 0;

	prctl(PR_SET_NAME, "gpuarb");
	track_relax();
	while (!__atomic_load_n(&tracker_exiting, __ATOMIC_ACQUIRE)) {
		uint64_t sleep = 0, follow = limits_file_follow();

		__atomic_store_n(&asleep, 0, __ATOMIC_SEQ_CST);
		for (unsigned i = 0; i < ARB_DEVICES; i++) {
			uint64_t ns;

			if (!__atomic_load_n(&arb_tracks[i].device, __ATOMIC_ACQUIRE))
				continue;
			ns = look(&arb_tracks[i]);
			if (ns && (!sleep || ns < sleep))
				sleep = ns;
		}
		coverage_tick(track_now());
		/* A program ends with its last thread, which must not be this one. Nobody tells. */
		if (act_thread_main_left() && track_now() >= counted_ns) {
			if (act_thread_is_last())
				break;
			counted_ns = track_now() + COUNT_NS;
		}
		if (sleep) {
			idle_since = 0;
		} else {
			uint64_t now = track_now();

			if (!idle_since)
				idle_since = now;
			sleep = LOOK_NS;
			if (act_thread_main_left()) {
				sleep = COUNT_NS;
			} else if (now - idle_since > LINGER_NS) {
				bool none = true;

				coverage_show();
				__atomic_store_n(&asleep, 1, __ATOMIC_SEQ_CST);
				for (unsigned i = 0; i < ARB_DEVICES; i++)
					none &= __atomic_load_n(&arb_tracks[i].phase, __ATOMIC_SEQ_CST) ==
						TRACK_OUT;
				if (none && !__atomic_load_n(&tracker_exiting, __ATOMIC_SEQ_CST))
					futex(&asleep, FUTEX_WAIT, 1, follow);
				continue;
			}
		}
		futex(&running, FUTEX_WAIT, 1, sleep);
	}
	__atomic_store_n(&running, 0, __ATOMIC_RELEASE);
	futex(&running, FUTEX_WAKE, 1, 0);
	return argument;
}

/* Before the driver's own handler: afterwards nobody of ours calls it. */
static void at_exit(void)
{
	uint64_t end = track_now() + EXIT_NS;
	int saved = errno;

	__atomic_store_n(&tracker_exiting, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&act_gate.open, 1, __ATOMIC_RELAXED);
	tracker_wake();
	futex(&running, FUTEX_WAKE, 1, 0);
	while (__atomic_load_n(&running, __ATOMIC_ACQUIRE) && track_now() < end)
		futex(&running, FUTEX_WAIT, 1, MS);
	coverage_show();
	for (unsigned i = 0; i < ARB_DEVICES; i++)
		if (__atomic_load_n(&arb_tracks[i].device, __ATOMIC_ACQUIRE))
			gpuarb_client_leave(arb_tracks[i].device->client, 0);
	errno = saved;
}

/* In a forked child there is no tracker, no driver and no work. */
static void start_anew(void)
{
	memset(arb_tracks, 0, sizeof(arb_tracks));
	pthread_mutex_init(&starting, NULL);
	running = asleep = arb_captures = tracker_gpus = 0;
	act_gate.open = 1;
}

static void start_thread(void)
{
	pthread_attr_t attr;
	sigset_t all, before;
	pthread_t thread;

	if (running)
		return;
	if (!prepared) {
		pthread_atfork(NULL, NULL, start_anew);
		atexit(at_exit);
		prepared = true;
	}
	if (!pthread_create || pthread_attr_init(&attr))
		return;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	running = 1;
	if (pthread_create(&thread, &attr, tracker, NULL)) {
		running = 0;
		arb_log(ARB_LOG_WARN,
			"no thread for the tracker: work that nobody waits for is billed too long");
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
}

struct track *tracker_get(struct arb_device *device)
{
	struct track *t = &arb_tracks[arb_device_index(device)];
	struct gpuarb_client_status status;

	if (__builtin_expect(__atomic_load_n(&t->device, __ATOMIC_ACQUIRE) != NULL, 1))
		return t;
	pthread_mutex_lock(&starting);
	if (!t->device) {
		pthread_mutex_init(&t->lock, NULL);
		t->window = 1;
		t->bound_ns = TRACK_BOUND_NS;
		if (gpuarb_client_status(device->client, &status) == 0)
			t->limited = t->watched = status.core_pct < 100 || status.turns;
		__atomic_store_n(&act_gate.open, 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&t->device, device, __ATOMIC_RELEASE);
		__atomic_fetch_add(&tracker_gpus, 1, __ATOMIC_RELAXED);
		start_thread();
	}
	pthread_mutex_unlock(&starting);
	return t;
}

/*
 * The gate: work enters the running set before it goes to the GPU, waits where the quota is used up or the
 * queue is long enough, and leaves the set when the GPU is done with it.
 *
 * A limited client's queue is bounded in measured time. How many launches may pass without coming here
 * (the thread's credit) follows from how many are queued: none where each is waited for, so that every one
 * of them is dated, and a quarter of the queue where the GPU is kept busy.
 */
#include "track.h"

#include <errno.h>
#include <time.h>

#include "gpuarb/client.h"

#include "hooks.h"
#include "log.h"
#include "threads.h"

#define FREE_CREDIT   4096 /* of one without a limit */
#define THREAD_CREDIT 32   /* in a per-thread default stream, which nobody else can look at */
#define CREDIT_LEAST  16   /* with fewer queued, none is given */
#define LOOK_NS       (2 * MS)
#define LOOK_LEAST_NS (50 * US)
#define WAIT_SLICE_NS (200 * MS)
/* Work that waits for work which is not let through would wait for ever. */
#define STUCK_NS   (2000 * MS)
#define SUMMARY_NS (60000 * MS)

/* Between gate_before and gate_after, and from one long way to the next. */
static __thread struct {
	struct track *track;
	CUcontext ctx;
	bool passing;
	uint64_t let_ns;   /* when this call was let through */
	uint64_t begun_ns; /* when the credit was given */
	uint32_t covers;   /* launches that the next marker stands for */
} own;

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t track_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void nap(uint64_t ns)
{
	struct timespec ts = {0, (long)ns};

	nanosleep(&ts, NULL);
}

CUstreamCaptureMode track_relax(void)
{
	__typeof__(cuThreadExchangeStreamCaptureMode) *exchange = arb_real(cuThreadExchangeStreamCaptureMode);
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (exchange && exchange(&mode) == CUDA_SUCCESS)
		return mode;
	return CU_STREAM_CAPTURE_MODE_RELAXED;
}

void track_unrelax(CUstreamCaptureMode mode)
{
	if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
		arb_real(cuThreadExchangeStreamCaptureMode)(&mode);
}

/* One word for all GPUs: open only while every one that is used is. */
void gate_set(struct track *t, bool open)
{
	uint32_t all = 1;

	if (t->open == open)
		return;
	pthread_mutex_lock(&gate_lock);
	__atomic_store_n(&t->open, open, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < ARB_DEVICES; i++)
		if (__atomic_load_n(&arb_tracks[i].device, __ATOMIC_RELAXED) &&
			!__atomic_load_n(&arb_tracks[i].open, __ATOMIC_RELAXED))
			all = 0;
	__atomic_store_n(&act_gate.open, all, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&gate_lock);
}

static void set_phase(struct track *t, enum track_phase phase)
{
	__atomic_store_n(&t->phase, phase, __ATOMIC_RELAXED);
	if (phase != TRACK_IN)
		gate_set(t, false);
}

/* The segment cannot be used any more: another, or none. */
static void give_up(struct track *t, int error)
{
	struct gpuarb_client *client = t->device->client;

	if (t->broken)
		return;
	gpuarb_client_leave(client, 0);
	if (arb_device_rejoin(t->device, error)) {
		t->begin_ns = track_now();
		/* What is queued runs on, and counts in the new set. */
		if (t->phase != TRACK_IN || gpuarb_client_enter(client, NULL) < 0)
			set_phase(t, TRACK_OUT);
		return;
	}
	__atomic_store_n(&t->phase, TRACK_OUT, __ATOMIC_RELAXED);
	__atomic_store_n(&t->broken, 1, __ATOMIC_RELAXED);
	gate_set(t, !t->device->refused);
}

static uint64_t all_seen(void)
{
	uint64_t calls, credited;

	act_thread_gated(&calls, &credited);
	return calls;
}

/*
 * When the work ended that no marker is behind: not before it was last seen busy, and about as long after the
 * last marker's end as so many launches take.
 */
static uint64_t loose_end(const struct track *t, uint64_t now)
{
	uint64_t calls, credited, end;

	act_thread_gated(&calls, &credited);
	if (!t->launch_ns || !t->last_end_ns)
		return t->busy_ns + (now - t->busy_ns) / 2;
	end = t->last_end_ns + credited * t->launch_ns;
	return end < t->busy_ns ? t->busy_ns : end > now ? now : end;
}

/*
 * From entering to the first launch nothing ran. A thread that was held up around the launch leaves open
 * whether before or after it; then the kernel took as long as it takes, as far as that can be.
 */
static uint64_t lead_of(const struct track *t, uint64_t span)
{
	uint64_t alone, least;

	if (t->lead_ns >= t->lead_most_ns || all_seen() - t->stay_seen != 1)
		return t->lead_ns;
	alone = weight_alone(&t->weight, t->stay_handle);
	least = span > t->lead_most_ns ? span - t->lead_most_ns : 0;
	if (!alone)
		return t->lead_ns;
	if (alone < least)
		alone = least;
	return alone < span ? span - alone : 0;
}

static void stay_ended(struct track *t, uint64_t end)
{
	struct gpuarb_stay stay = gpuarb_client_stay(t->device->client);

	weight_learn(&t->weight, &(struct weight_stay){.ns = end > t->begin_ns ? end - t->begin_ns : 0,
					 .calls = all_seen() - t->stay_seen,
					 .handle = t->stay_handle,
					 .others = stay.others,
					 .steady = stay.steady,
					 .held = t->held});
}

bool gate_leave_if_idle(struct track *t)
{
	uint64_t end, now;
	int r;

	if (t->phase == TRACK_OUT)
		return true;
	/* Let through, but perhaps not launched yet, counts as work. */
	if (!marker_collect(t) || t->passing)
		return false;
	if (t->loose) {
		bool was_open = t->open;
		uint64_t seen;

		if (!streams_idle(t))
			return false;
		/* Whoever came through in the meantime has been counted, and is in its stream by the second
		 * look. */
		seen = all_seen();
		gate_set(t, false);
		if (!streams_idle(t) || all_seen() != seen) {
			gate_set(t, was_open);
			return false;
		}
	}
	now = track_now();
	end = t->last_end_ns;
	if (t->loose)
		end = loose_end(t, now);
	if (t->phase == TRACK_DRAIN && t->tail_pct >= 0 && end > t->drain_ns)
		end = t->drain_ns + (end - t->drain_ns) / 100 * (unsigned)t->tail_pct;
	if (end > t->begin_ns)
		end -= lead_of(t, end - t->begin_ns);
	r = gpuarb_client_leave(t->device->client, end > t->begin_ns ? end : t->begin_ns);
	t->loose = false;
	set_phase(t, TRACK_OUT);
	if (r < 0)
		give_up(t, r);
	else
		stay_ended(t, end);
	return true;
}

/* Over its quota, or over its time while others wait. */
static bool must_stop(int r)
{
	return r == -EDQUOT || r == -EAGAIN;
}

/* Once a minute, what the limit did. */
static void summary(struct track *t, const struct gpuarb_client_status *status, uint64_t now)
{
	double seconds = (double)(now - t->said_ns) / 1e9;

	if (t->said_ns && now - t->said_ns < SUMMARY_NS)
		return;
	if (t->said_ns && status->core_pct < 100)
		arb_log(ARB_LOG_INFO,
			"%s: the account used %.1f %% of the last %.0f s (limit %u, now %.1f %%), this "
			"process was "
			"throttled for %.1f s",
			t->device->uuid, (double)(status->total_ns - t->said_used_ns) / 1e7 / seconds,
			seconds, status->core_pct, status->quota_ppm / 1e4,
			(double)(status->throttled_ns - t->said_throttled_ns) / 1e9);
	t->said_ns = now;
	t->said_used_ns = status->total_ns;
	t->said_throttled_ns = status->throttled_ns;
}

void gate_check(struct track *t, uint64_t now)
{
	struct gpuarb_client_status status;
	uint64_t next = LOOK_NS;
	int r = gpuarb_client_tick(t->device->client), s;

	s = gpuarb_client_status(t->device->client, &status);
	if ((r < 0 && !must_stop(r)) || s < 0) {
		give_up(t, r < 0 && !must_stop(r) ? r : s);
		return;
	}
	summary(t, &status, now);
	t->turns = status.turns;
	t->tail_pct = status.tail_pct;
	/* What credit there is was given to one without a limit. */
	if (!t->limited && (status.core_pct < 100 || status.turns))
		gate_set(t, false);
	__atomic_store_n(&t->limited, status.core_pct < 100 || status.turns, __ATOMIC_RELAXED);
	if (t->phase == TRACK_OUT)
		return;
	/* Taken out for not being heard of: what is queued runs all the same. */
	if (!status.running && gpuarb_client_enter(t->device->client, NULL) < 0) {
		set_phase(t, TRACK_OUT);
		return;
	}
	if (must_stop(r) && t->phase == TRACK_IN) {
		t->drain_ns = now;
		t->bound_ns -= (t->bound_ns - TRACK_BOUND_NS) / 16;
		set_phase(t, TRACK_DRAIN);
	} else if (r == 0 && t->phase == TRACK_DRAIN) {
		set_phase(t, TRACK_IN);
	}
	if (status.look_ns)
		next = status.look_ns;
	else if (t->limited && status.left_ns < next)
		next = status.left_ns < LOOK_LEAST_NS ? LOOK_LEAST_NS : status.left_ns;
	t->check_ns = now + next;
}

/* Into the set, waiting for it if need be. Called and left with the lock, which is not held meanwhile. */
static void enter(struct track *t, const struct act_call *call)
{
	struct gpuarb_work work = {.weight = t->weight.now};
	struct gpuarb_client *client = t->device->client;
	uint64_t now = track_now();
	int r = gpuarb_client_enter(client, &work);

	if (r == -EAGAIN) {
		t->waiters++;
		track_unlock(t);
		r = gpuarb_client_wait(client, &work, WAIT_SLICE_NS);
		track_lock(t);
		t->waiters--;
		/* Somebody else may have come and gone since: ask again, with the lock. */
		if (r == 0 || r == -ETIMEDOUT || r == -ECANCELED)
			return;
	}
	if (r < 0) {
		give_up(t, r);
		return;
	}
	t->begin_ns = t->progress_ns = now;
	t->check_ns = now + LOOK_LEAST_NS;
	t->lead_ns = 0;
	t->first_launch = true;
	t->loose = t->held = false;
	t->stay_seen = all_seen() - 1; /* the one that enters has been counted */
	t->stay_handle = call->handle;
	set_phase(t, TRACK_IN);
	tracker_wake();
}

static bool may_pass(const struct track *t, const struct act_call *call)
{
	if (!t->limited || !t->outstanding)
		return true;
	return t->count < TRACK_MARKERS && t->outstanding + own.covers <= t->window &&
	       t->outstanding_ns + marker_expect(t, call->handle, 1) <= t->bound_ns;
}

/* How long to sleep before asking again whether the oldest has finished. */
static uint64_t patience(const struct track *t, uint64_t now)
{
	const struct track_marker *m = &t->ring[t->first];
	uint64_t due, ns;

	if (!t->count)
		return 50 * US;
	due = (m->begun_ns > t->last_end_ns ? m->begun_ns : t->last_end_ns) + m->expected_ns;
	ns = due > now ? (due - now) / 2 : (now - due) / 8;
	return ns < 30 * US ? 30 * US : ns > MS / 2 ? MS / 2 : ns;
}

static bool stuck(const struct track *t, uint64_t now)
{
	uint64_t longest = STUCK_NS;

	for (unsigned i = 0; i < t->count; i++)
		if (8 * t->ring[(t->first + i) % TRACK_MARKERS].expected_ns > longest)
			longest = 8 * t->ring[(t->first + i) % TRACK_MARKERS].expected_ns;
	return now > t->progress_ns + longest;
}

static void admit(struct track *t, const struct act_call *call)
{
	bool entered = false, slept = false;

	while (!t->broken && !tracker_exiting) {
		bool none = marker_collect(t);
		uint64_t now = track_now();

		/* It ran dry while we slept: the machine wakes us too late for so short a queue. */
		if (slept && none && t->phase == TRACK_IN && t->bound_ns < TRACK_BOUND_MOST_NS)
			t->bound_ns += t->bound_ns / 4;
		slept = false;
		if (t->phase != TRACK_OUT && now >= t->check_ns)
			gate_check(t, now);
		/* Queued, but not covered by a marker yet: what follows must see it. */
		if (t->phase != TRACK_OUT && own.covers > 1 &&
			(t->phase == TRACK_DRAIN || !may_pass(t, call))) {
			if (!marker_record(t, call, own.ctx, own.begun_ns, own.covers - 1))
				t->loose = true;
			own.covers = 1;
			continue;
		}
		/* If the GPU has stood still, that time is not ours: out as of its end, and in again as of
		 * now. */
		if (t->phase == TRACK_DRAIN || (t->phase == TRACK_IN && !entered && t->limited && !t->turns &&
						       none && own.covers == 1))
			gate_leave_if_idle(t);
		if (t->phase == TRACK_OUT) {
			enter(t, call);
			entered = t->phase == TRACK_IN;
			continue;
		}
		if (t->phase == TRACK_IN && may_pass(t, call))
			break;
		if (stuck(t, now)) {
			arb_log(ARB_LOG_INFO, "%s: let through, because nothing queued has ended for %u ms",
				t->device->uuid, (unsigned)((now - t->progress_ns) / MS));
			t->loose = true;
			break;
		}
		t->held = true;
		t->waiters++;
		track_unlock(t);
		nap(patience(t, now));
		track_lock(t);
		t->waiters--;
		slept = true;
	}
}

static bool per_thread(const struct act_call *call)
{
	return call->stream == CU_STREAM_PER_THREAD ||
	       (!call->stream && arb_hooks[call->id].variant != VARIANT_LEGACY);
}

void gate_before(struct act_call *call)
{
	__typeof__(cuCtxGetCurrent) *current = arb_real(cuCtxGetCurrent);
	unsigned category = arb_hooks[call->id].category;
	struct act_thread *self = act_thread_get();
	struct arb_device *device;
	CUstreamCaptureMode mode;
	struct track *t;
	int saved;

	own.passing = false;
	/* They cost the GPU nothing, and what is queued may wait for them. */
	if (category == CAT_HOSTFN || category == CAT_MEMOP || category == CAT_INTEROP)
		return;
	device = tracker_exiting ? NULL : arb_device_current();
	t = device ? tracker_get(device) : NULL;
	if (!t || __atomic_load_n(&t->broken, __ATOMIC_RELAXED)) {
		self->credit = FREE_CREDIT;
		return;
	}
	if (!__atomic_load_n(&t->limited, __ATOMIC_RELAXED) && __atomic_load_n(&t->open, __ATOMIC_RELAXED) &&
		!per_thread(call)) {
		self->credit = FREE_CREDIT;
		return;
	}
	if (streams_capturing(call)) {
		self->credit = 0;
		return;
	}
	saved = errno;
	own.covers = 1 + (own.track == t && self->granted > self->credit ? self->granted - self->credit : 0);
	own.track = t;
	self->granted = self->credit = 0;
	if (!current || current(&own.ctx) != CUDA_SUCCESS)
		own.ctx = NULL;
	mode = track_relax();
	track_lock(t);
	streams_context(t, own.ctx);
	admit(t, call);
	if (t->first_launch && t->limited)
		marker_calibrate(t, call, own.ctx);
	t->passing++;
	track_unlock(t);
	track_unrelax(mode);
	own.passing = true;
	own.let_ns = track_now();
	if (own.covers == 1)
		own.begun_ns = own.let_ns;
	errno = saved;
}

/* How many may pass until the next marker. */
static uint32_t credit(struct track *t, const struct act_call *call)
{
	if (!t->limited)
		return per_thread(call) ? THREAD_CREDIT : FREE_CREDIT;
	/* One that waits for a few at a time is seen each time it begins again. */
	if (t->outstanding < CREDIT_LEAST || t->window < CREDIT_LEAST)
		return 0;
	return (t->outstanding < t->window ? t->outstanding : t->window) / 4;
}

/*
 * How long the first launch of a stay took to get to the GPU. If the thread was held up on its way back from
 * the driver it seems longer, so that it is not believed to be much longer than usual.
 */
static void lead(struct track *t, uint64_t now)
{
	uint64_t most = 2 * t->usual_lead_ns + US;

	t->first_launch = false;
	t->lead_ns = t->lead_most_ns = now - t->begin_ns;
	if (!t->usual_lead_ns)
		t->usual_lead_ns = t->lead_ns < 10 * US ? t->lead_ns : 10 * US;
	else if (t->lead_ns > most)
		t->lead_ns = most;
	t->usual_lead_ns = (uint64_t)((int64_t)t->usual_lead_ns +
				      ((int64_t)t->lead_ns - (int64_t)t->usual_lead_ns) / 16);
}

void gate_after(struct act_call *call, CUresult result)
{
	struct track *t = own.track;
	CUstreamCaptureMode mode;
	int saved = errno;
	uint64_t now;

	if (!own.passing || !t)
		return;
	own.passing = false;
	now = track_now();
	mode = track_relax();
	track_lock(t);
	t->passing--;
	if (t->phase != TRACK_OUT && !t->broken) {
		struct act_thread *self = act_thread_get();

		if (t->first_launch)
			lead(t, now);

		if (result != CUDA_SUCCESS)
			t->loose = true;
		else if ((t->limited || per_thread(call)) &&
			 !marker_record(t, call, own.ctx, own.begun_ns, own.covers))
			t->loose = true;
		own.begun_ns = own.let_ns;
		self->granted = self->credit = result == CUDA_SUCCESS ? credit(t, call) : 0;
		if (self->granted) {
			t->loose = true;
			if (t->phase == TRACK_IN)
				gate_set(t, true);
		}
	}
	track_unlock(t);
	track_unrelax(mode);
	errno = saved;
}

void gate_settle(void)
{
	struct arb_device *device = tracker_exiting ? NULL : arb_device_current();
	struct track *t = device ? tracker_get(device) : NULL;
	CUstreamCaptureMode mode;
	int saved = errno;

	if (!t || !__atomic_load_n(&t->limited, __ATOMIC_RELAXED) ||
		__atomic_load_n(&t->phase, __ATOMIC_RELAXED) == TRACK_OUT)
		return;
	mode = track_relax();
	track_lock(t);
	gate_leave_if_idle(t);
	track_unlock(t);
	track_unrelax(mode);
	errno = saved;
}

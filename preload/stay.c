/*
 * A stay in the running set: entered with the first launch, looked at while it lasts, left as of the end of
 * its work.
 */
#include "track.h"

#include <errno.h>

#include "gpuarb/client.h"

#include "log.h"
#include "memory.h"
#include "threads.h"

#define LOOK_NS       __atomic_load_n(&arb_own.look_ns, __ATOMIC_RELAXED)
#define LOOK_FIRST_NS (500 * US)
#define LOOK_LEAST_NS (50 * US)
#define WAIT_SLICE_NS (200 * MS)
#define SUMMARY_NS    (60000 * MS)
/* A stay that begins so soon after the last one was not waited for. */
#define QUICK_NS (500 * US)
/* One that was held up between the gate and the driver has long been there by then. */
#define AGAIN_NS (8 * MS)
/* Who has had work for so long, without a gap, is not one who waits for each piece of it. */
#define LONG_NS (20 * MS)
/* Who is back so soon, on average, keeps its turn meanwhile: for twice as long, and what timers are late. */
#define GAP_NS      (500 * US)
#define GAP_MOST_NS (4 * GAP_NS)
#define KEEP_NS     (100 * US)
/* Others may come back as quickly as they went. */
#define COMPANY_NS (200 * MS)
/* One that rests for longer tells nothing about those to come. */
#define APART_MOST_NS (50 * MS)

/* A launch that is not held up is back from the driver after so long at most. */
#define CALL_NS (10 * US)
/* So many calls in a row that came back when their work had ended wait for it. */
#define INSIDE_SURE 4

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

	if (t->broken || arb_own.exiting)
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

	act_thread_gated(0, &calls, &credited);
	return calls;
}

uint64_t stay_calls(const struct track *t)
{
	return all_seen() - t->stay_seen;
}

bool stay_is_whole(const struct track *t)
{
	return t->regular && stay_calls(t) >= t->calls;
}

bool stay_is_quiet(struct track *t)
{
	uint64_t seen = all_seen(), before = t->seen;

	t->seen = seen;
	return seen == before;
}

/* How many have no marker behind them yet, and how many there were in all. */
static uint64_t uncovered(const struct track *t, uint64_t *calls)
{
	uint64_t credited;

	act_thread_gated(t->stay, calls, &credited);
	return credited + (t->watched ? 0 : __atomic_load_n(&t->uncovered, __ATOMIC_RELAXED));
}

/*
 * When the work ended that no marker is behind: not before it was last seen busy, and about as long after the
 * last marker's end as so many launches take.
 */
static uint64_t loose_end(const struct track *t, uint64_t now)
{
	uint64_t calls, credited = uncovered(t, &calls), end;

	/* Nothing passed on credit: the last marker knows. */
	if (!t->watched && calls - t->stay_seen == 1 && t->last_end_ns > t->begin_ns)
		return t->last_end_ns;
	if (!t->watched && t->waited_ns >= t->begin_ns)
		return t->waited_ns;
	/* Between when it was last seen busy and now. */
	if (!t->launch_ns) {
		end = t->busy_ns > t->begin_ns ? t->busy_ns : t->begin_ns;
		return end + (now - end) / 2;
	}
	/* If no marker of this stay has passed, none of its calls is covered. */
	if (t->last_end_ns > t->begin_ns)
		end = t->last_end_ns + credited * t->launch_ns;
	else
		end = t->begin_ns + (credited + 1) * t->launch_ns;
	return end < t->busy_ns ? t->busy_ns : end > now ? now : end;
}

/*
 * Work that had ended when its call returned has run inside of it: the call waits for it (a synchronous copy,
 * CUDA_LAUNCH_BLOCKING), or its thread was held up. The latter does not happen time after time.
 */
static bool waits(struct track *t, uint64_t span)
{
	bool inside = t->lead_most_ns > t->lead_least_ns + CALL_NS && span <= t->lead_most_ns + CALL_NS;

	t->inside = inside ? t->inside + (t->inside < INSIDE_SURE) : t->inside / 2;
	return inside && (t->stay_waits || t->inside == INSIDE_SURE);
}

/*
 * From entering to the first launch nothing ran. A thread that was held up around the launch leaves open
 * whether before or after it; then the kernel took as long as it takes, as far as that can be.
 */
static uint64_t lead_of(struct track *t, uint64_t span)
{
	uint64_t alone, least;

	if (waits(t, span))
		return t->lead_least_ns;
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
	uint64_t calls = all_seen() - t->stay_seen, ns = end > t->begin_ns ? end - t->begin_ns : 0;

	t->regular = calls == t->calls;
	t->calls = calls;
	if (calls)
		t->call_ns = t->call_ns ? (3 * t->call_ns + ns / calls) / 4 : ns / calls;
	if (stay.others && t->timed_ns && calls == 1)
		probe_learn(t, ns, t->timed_ns);
	weight_learn(&t->weight, &(struct weight_stay){.ns = ns,
					 .calls = calls,
					 .handle = t->stay_handle,
					 .others = stay.others,
					 .steady = stay.steady,
					 .timed_ns = t->timed_ns,
					 .held = t->held});
}

/* How long its place is to be kept. */
static uint64_t keep_ns(const struct track *t)
{
	return t->turns && t->phase == TRACK_IN && t->gap_ns && t->gap_ns < GAP_NS ? 2 * t->gap_ns + KEEP_NS
										   : 0;
}

static void learn_gap(struct track *t, uint64_t now)
{
	uint64_t gap = now > t->left_ns ? now - t->left_ns : 1;

	if (!t->gap_open)
		return;
	t->gap_open = false;
	if (gap > GAP_MOST_NS)
		gap = GAP_MOST_NS;
	t->gap_ns = t->gap_ns ? (7 * t->gap_ns + gap) / 8 : gap;
}

void stay_give_way(struct track *t)
{
	t->kept_ns = 0;
	if (t->phase == TRACK_OUT && !t->broken)
		gpuarb_client_leave(t->device->client, 0);
}

bool stay_leave_if_idle(struct track *t)
{
	uint64_t end, now, keep;
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
	keep = keep_ns(t);
	r = gpuarb_client_pause(t->device->client, end > t->begin_ns ? end : t->begin_ns, keep);
	t->keeps = r > 0;
	__atomic_store_n(&t->kept_ns, t->keeps ? now + keep : 0, __ATOMIC_RELAXED);
	t->left_ns = now;
	t->gap_open = true;
	t->again_seen = all_seen();
	/* Only what passed on credit is not known to be back from the driver. */
	__atomic_store_n(&t->again_ns, t->loose || t->owed ? now + AGAIN_NS : 0, __ATOMIC_RELAXED);
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

bool stay_in_company(const struct track *t)
{
	return t->company_ns && track_now() - t->company_ns < COMPANY_NS;
}

/* Once a minute, what the limit did. */
static void summary(struct track *t, const struct gpuarb_client_status *status, uint64_t now)
{
	double seconds = (double)(now - t->said_ns) / 1e9;

	if (t->said_ns && now - t->said_ns < SUMMARY_NS)
		return;
	if (t->said_ns && status->core_pct < 100)
		arb_log(ARB_LOG_INFO,
			"%s: the account used %.1f %% of the last %.0f s (limit %u, in force %.1f), this "
			"process was throttled for %.1f s",
			t->device->uuid, (double)(status->total_ns - t->said_used_ns) / 1e7 / seconds,
			seconds, status->core_pct, status->quota_ppm / 1e4,
			(double)(status->throttled_ns - t->said_throttled_ns) / 1e9);
	t->said_ns = now;
	t->said_used_ns = status->total_ns;
	t->said_throttled_ns = status->throttled_ns;
}

/*
 * One without a limit and alone is left alone. Beside others it must be in the set while it has work and at
 * no other time, because they pay for what it does not.
 */
static void set_watch(struct track *t, const struct gpuarb_client_status *status, uint64_t now)
{
	bool limited = status->core_pct < 100 || status->turns, watched;

	if (status->others)
		t->company_ns = now;
	watched = limited || stay_in_company(t);
	__atomic_store_n(&t->limited, limited, __ATOMIC_RELAXED);
	/* What credit there is was given to one that nobody watched. */
	if (watched && !t->watched) {
		__atomic_store_n(&t->watched, watched, __ATOMIC_RELAXED);
		gate_set(t, false);
		gate_renew();
	}
	__atomic_store_n(&t->watched, watched, __ATOMIC_RELAXED);
}

/*
 * It is the last stays that a weight comes from. If they were those of one who waits, and this one is not, it
 * must not pay so little until its end, which may be seconds away.
 */
void stay_is_backlogged(struct track *t)
{
	struct gpuarb_client *client = t->device->client;

	if (!t->stay_weight || t->stay_weight >= WEIGHT_ONE)
		return;
	t->stay_weight = WEIGHT_ONE;
	/* Its place is not for anybody else meanwhile. */
	gpuarb_client_pause(client, 0, KEEP_NS);
	if (gpuarb_client_resume(client) < 0)
		set_phase(t, TRACK_OUT);
}

void stay_check(struct track *t, uint64_t now)
{
	struct gpuarb_client_status status;
	uint64_t next, least = t->hurry ? LOOK_LEAST_NS : MS;
	int r, s;

	/* First of all: a look at the quota may roll the window, and nothing can be dated before that. Who
	 * was held up, with nothing on the GPU, would pay for it. */
	if (t->watched)
		stay_leave_if_idle(t);
	r = gpuarb_client_tick(t->device->client);
	s = gpuarb_client_status(t->device->client, &status);
	if ((r < 0 && !must_stop(r)) || s < 0) {
		give_up(t, r < 0 && !must_stop(r) ? r : s);
		return;
	}
	summary(t, &status, now);
	t->turns = status.turns;
	t->tail_pct = status.tail_pct;
	t->core_pct = status.core_pct;
	set_watch(t, &status, now);
	if (t->phase == TRACK_OUT)
		return;
	/* Taken out for not being heard of: what is queued runs all the same. */
	if (!status.running && gpuarb_client_resume(t->device->client) < 0) {
		set_phase(t, TRACK_OUT);
		return;
	}
	if (now - t->begin_ns > LONG_NS)
		stay_is_backlogged(t);
	if (must_stop(r) && t->phase == TRACK_IN) {
		t->drain_ns = now;
		t->bound_ns -= (t->bound_ns - TRACK_BOUND_NS) / 64;
		set_phase(t, TRACK_DRAIN);
	} else if (r == 0 && t->phase == TRACK_DRAIN) {
		set_phase(t, TRACK_IN);
	}
	next = LOOK_NS;
	if (status.look_ns)
		next = status.look_ns;
	else if (t->phase == TRACK_IN && t->limited && status.left_ns < next)
		next = status.left_ns < least ? least : status.left_ns;
	t->check_ns = now + next;
}

bool stay_is_rare(const struct track *t)
{
	return t->apart_ns > (int64_t)LOOK_NS;
}

uint64_t stay_due(const struct track *t)
{
	uint64_t calls, credited, begun, grace = LOOK_LEAST_NS;

	/* Where nobody else pays for it, or the program will see it soon, there is less need to hurry. To
	 * wait for longer only saves something if the next piece of work comes meanwhile. */
	if (!t->hurry && !stay_is_rare(t))
		grace = LOOK_NS;
	else if (!t->hurry || t->quick)
		grace = QUICK_NS;

	/* Whoever stands at the gate looks for itself. */
	if (t->phase == TRACK_OUT || t->waiters)
		return UINT64_MAX;
	if (!t->watched && !t->count && t->quick)
		return t->busy_ns + LOOK_NS;
	if (!t->count && !t->loose)
		return t->progress_ns + grace;
	credited = uncovered(t, &calls);
	begun = t->count && t->ring[t->first].begun_ns > t->last_end_ns ? t->ring[t->first].begun_ns
									: t->last_end_ns;
	return begun + t->outstanding_ns + credited * t->launch_ns + grace;
}

static bool still_in(void *argument)
{
	const struct track *t = argument;

	return __atomic_load_n(&t->phase, __ATOMIC_RELAXED) == TRACK_IN && !arb_own.exiting;
}

static void begin(struct track *t, uint64_t now)
{
	uint64_t apart = now - t->begin_ns;

	t->apart_ns += ((int64_t)(apart < APART_MOST_NS ? apart : APART_MOST_NS) - t->apart_ns) / 8;
	t->begin_ns = t->progress_ns = now;
	__atomic_store_n(&t->stay, __atomic_add_fetch(&arb_own.stays, 1, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	__atomic_store_n(&t->quick, now - t->left_ns < QUICK_NS, __ATOMIC_RELAXED);
	t->check_ns = now + (t->quick ? LOOK_NS : LOOK_FIRST_NS);
	t->lead_ns = t->lead_least_ns = t->lead_most_ns = 0;
	t->first_launch = t->loose = t->held = t->started = false;
	t->owed = t->again_ns != 0;
	__atomic_store_n(&t->uncovered, 0, __ATOMIC_RELAXED);
	t->timed_ns = t->stay_handle = t->stay_weight = 0;
	__atomic_store_n(&t->again_ns, 0, __ATOMIC_RELAXED);
	t->stay_seen = all_seen() - 1; /* the one that enters has been counted */
	set_phase(t, TRACK_IN);
}

void stay_look_again(struct track *t, uint64_t now)
{
	__atomic_store_n(&t->again_ns, 0, __ATOMIC_RELAXED);
	/* If it was called since and is still out, what came costs the GPU nothing. */
	if (t->broken || all_seen() != t->again_seen || streams_idle(t) ||
		gpuarb_client_resume(t->device->client) < 0)
		return;
	begin(t, now);
	/* It may not have been the only one. */
	t->loose = t->owed = true;
}

/* Into the set, waiting for it if need be. Called and left with the lock, which is not held meanwhile. */
void stay_enter(struct track *t, const struct act_call *call)
{
	struct gpuarb_work work = {.weight = t->weight.now};
	struct gpuarb_client *client = t->device->client;
	uint64_t now = track_now();
	int r = gpuarb_client_enter(client, &work);

	learn_gap(t, now);
	__atomic_store_n(&t->kept_ns, 0, __ATOMIC_RELAXED);
	if (r == -EAGAIN) {
		track_unlock(t);
		r = gpuarb_client_wait(client, &work, WAIT_SLICE_NS);
		track_lock(t);
		/* Somebody else may have come and gone since: ask again, with the lock. */
		if (r == 0 || r == -ETIMEDOUT || r == -ECANCELED)
			return;
	}
	if (r < 0) {
		give_up(t, r);
		return;
	}
	begin(t, now);
	t->stay_weight = work.weight;
	t->first_launch = true;
	t->stay_handle = call->handle;
	t->stay_waits = arb_hooks[call->id].category == CAT_COPY_SYNC;
	tracker_wake();
	if (__builtin_expect(!gpuarb_client_oversubscribes(client), 1))
		return;
	/* What others pushed out comes back before the work that needs it. */
	t->passing++;
	track_unlock(t);
	memory_come_back(t->device, still_in, t);
	track_lock(t);
	t->passing--;
}

/*
 * How long the first launch of a stay took to get to the GPU. If the thread was held up on its way back from
 * the driver it seems longer, so that it is not believed to be much longer than usual.
 */
void stay_launched(struct track *t, uint64_t let_ns, uint64_t now)
{
	uint64_t most = 2 * t->usual_lead_ns + US;

	t->first_launch = false;
	t->lead_least_ns = let_ns > t->begin_ns ? let_ns - t->begin_ns : 0;
	t->lead_ns = t->lead_most_ns = now - t->begin_ns;
	if (!t->usual_lead_ns)
		t->usual_lead_ns = t->lead_ns < CALL_NS ? t->lead_ns : CALL_NS;
	else if (t->lead_ns > most)
		t->lead_ns = most;
	if (t->lead_ns > t->lead_least_ns + CALL_NS)
		t->lead_ns = t->lead_least_ns + CALL_NS;
	t->usual_lead_ns = (uint64_t)((int64_t)t->usual_lead_ns +
				      ((int64_t)t->lead_ns - (int64_t)t->usual_lead_ns) / 16);
}

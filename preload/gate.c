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

#include "gpuarb/client.h"

#include "hooks.h"
#include "log.h"
#include "os.h"
#include "threads.h"

#define FREE_CREDIT   4096 /* of one that nobody looks after */
#define THREAD_CREDIT 32   /* in a per-thread default stream, which nobody else can look at */
/* One without a limit and alone has a marker behind so much work. As long as nobody knows how much that is,
 * and where no driver says so, behind twice as many calls each time. */
#define PIECE_NS   MS
#define NEW_CREDIT 16
#define FEW        4
/* Where ends are dated, none is given to who has had work for less than this. */
#define FRESH_NS (5 * MS)
/* To come here costs a call so little that one that comes so rarely does each time. */
#define SPARSE_NS    (400 * US)
#define CREDIT_LEAST 16 /* with fewer queued, none is given */
/* Nor for such long ones in several streams: a marker says nothing of other streams. */
#define SCATTERED_NS (100 * US)
/* Unless they are so short that a marker behind each would keep the program from queueing more; then for so
 * much. */
#define SHORT_NS        (10 * US)
#define SHORT_CREDIT_NS (50 * US)
#define SHORT_LEAST     64 /* launches without a wait among them */
/* How long an event takes to pass that has nothing before it, and how many calls are let go if it did not. */
#define SOON_NS    (20 * US)
#define SOON_PAUSE 16
/* Who waited for longer did wait: otherwise nobody knows when the work ended. */
#define WAITED_NS (10 * US)
/* One without a limit and alone has an end dated when it waited for it, for so small a part of its time. */
#define SETTLE_COSTS 256
uint64_t track_now(void)
{
	return arb_os_local_ns();
}

void track_nap(uint64_t ns)
{
	arb_os_sleep_ns(ns);
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

/* One word for all GPUs: open only while every one that is used is. With the lock. */
static void set_all(void)
{
	uint32_t all = arb_own.gate_number, watched = 0;

	for (unsigned i = 0; i < tracks_high(); i++) {
		if (!__atomic_load_n(&arb_own.tracks[i].device, __ATOMIC_RELAXED))
			continue;
		if (!__atomic_load_n(&arb_own.tracks[i].open, __ATOMIC_RELAXED))
			all = 0;
		watched |= __atomic_load_n(&arb_own.tracks[i].watched, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&arb_own.gate.watched, watched, __ATOMIC_RELAXED);
	__atomic_store_n(&arb_own.gate.open, all, __ATOMIC_SEQ_CST);
}

void gate_set(struct track *t, bool open)
{
	if (t->open == open)
		return;
	pthread_mutex_lock(&arb_own.gate_lock);
	__atomic_store_n(&t->open, open, __ATOMIC_RELAXED);
	set_all();
	pthread_mutex_unlock(&arb_own.gate_lock);
}

void gate_renew(void)
{
	pthread_mutex_lock(&arb_own.gate_lock);
	/* After what made it necessary: see gate_before. 0 means closed. */
	__atomic_store_n(&arb_own.gate_number, arb_own.gate_number + 1 ? arb_own.gate_number + 1 : 1, __ATOMIC_RELEASE);
	set_all();
	pthread_mutex_unlock(&arb_own.gate_lock);
}

void gate_free(void)
{
	__atomic_store_n(&arb_own.gate.open, __atomic_load_n(&arb_own.gate_number, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

void gate_forked(void)
{
	pthread_mutex_init(&arb_own.gate_lock, NULL);
	arb_own.gate.watched = 0;
	gate_free();
}

static void admit(struct track *t, const struct act_call *call)
{
	bool entered = false, slept = false;

	while (!t->broken && !arb_own.exiting) {
		bool none = marker_collect(t);
		uint64_t now = track_now();

		/* It ran dry while we slept: the machine wakes us too late for so short a queue. */
		if (slept && none && t->phase == TRACK_IN && t->bound_ns < TRACK_BOUND_MOST_NS &&
			!stay_in_company(t))
			t->bound_ns += t->bound_ns / 2;
		slept = false;
		/* One that has just entered has nothing queued yet, and would lose its turn. */
		if (t->phase != TRACK_OUT && now >= t->check_ns && !(entered && t->phase == TRACK_IN))
			stay_check(t, now);
		/* Queued, but not covered by a marker yet: what follows must see it. */
		if (t->phase != TRACK_OUT && arb_mine.call.covers > 1 &&
			(t->phase == TRACK_DRAIN || !queue_has_room(t, call, arb_mine.call.ctx, arb_mine.call.covers))) {
			if (!marker_record(t, call, arb_mine.call.ctx, arb_mine.call.begun_ns, arb_mine.call.covers - 1))
				t->loose = true;
			arb_mine.call.covers = 1;
			continue;
		}
		/* If the GPU has stood still, that time is not ours: out as of its end, and in again as of
		 * now. */
		if (t->phase == TRACK_DRAIN ||
			(t->phase == TRACK_IN && !entered && !t->turns && none && arb_mine.call.covers == 1))
			stay_leave_if_idle(t);
		if (t->phase == TRACK_OUT) {
			arb_mine.call.covers = 1; /* what passed on credit has ended */
			stay_enter(t, call);
			entered = t->phase == TRACK_IN;
			continue;
		}
		if (t->phase == TRACK_IN && queue_has_room(t, call, arb_mine.call.ctx, arb_mine.call.covers))
			break;
		if (queue_let_past(t, call, now))
			break;
		t->held = true;
		if (t->phase == TRACK_IN)
			stay_is_backlogged(t);
		__atomic_store_n(&t->waiters, t->waiters + 1, __ATOMIC_RELAXED);
		track_unlock(t);
		track_nap(queue_patience(t, now));
		track_lock(t);
		__atomic_store_n(&t->waiters, t->waiters - 1, __ATOMIC_RELAXED);
		slept = arb_mine.call.slept = true;
	}
	if (t->parked)
		queue_note_need(t, call, arb_mine.call.covers);
}

/* This call, and those that have passed on credit since the last one that came here. */
static uint32_t covered(const struct track *t, const struct act_thread *self)
{
	if (self->stay != __atomic_load_n(&t->stay, __ATOMIC_RELAXED) || self->granted <= self->credit)
		return 1;
	return 1 + self->granted - self->credit;
}

/* How many calls one without a limit makes to a marker. */
static uint32_t piece(const struct track *t)
{
	uint64_t each = __atomic_load_n(&t->launch_ns, __ATOMIC_RELAXED);
	uint32_t blind = __atomic_load_n(&t->blind, __ATOMIC_RELAXED);

	/* As short as can be told, or shorter. */
	if (each && each <= US)
		return FREE_CREDIT;
	if (each)
		return each > PIECE_NS / 4 ? 0 : (uint32_t)(PIECE_NS / each);
	return blind < NEW_CREDIT ? NEW_CREDIT : blind < FREE_CREDIT ? blind : FREE_CREDIT;
}

/* Is the next marker not due yet? Then it goes on, without the lock: who goes from one GPU to another comes
 * here each time. */
static bool is_of_a_piece(struct track *t, struct act_thread *self)
{
	uint32_t most = piece(t), n = __atomic_add_fetch(&t->uncovered, arb_mine.call.covers, __ATOMIC_RELAXED);

	if (n >= most) {
		arb_mine.call.covers = __atomic_exchange_n(&t->uncovered, 0, __ATOMIC_RELAXED);
		/* Another has just taken them. */
		arb_mine.call.covers += !arb_mine.call.covers;
		return false;
	}
	self->granted = self->credit = most - n;
	self->stay = __atomic_load_n(&t->stay, __ATOMIC_RELAXED);
	return true;
}

void gate_before(struct act_call *call)
{
	__typeof__(cuCtxGetCurrent) *current = arb_real(cuCtxGetCurrent);
	unsigned category = arb_hooks[call->id].category;
	struct act_thread *self = act_thread_get();
	struct arb_device *device;
	CUstreamCaptureMode mode;
	/* Before looking whether credit may be given: if that changes meanwhile, this number is no longer
	 * good. */
	uint32_t number = __atomic_load_n(&arb_own.gate_number, __ATOMIC_ACQUIRE);
	struct track *t;
	bool probe;
	int saved;

	/* In the midst of another call: a tool that the driver calls back, or a jump out of it. */
	gate_thread_ended();
	if (category == CAT_HOSTFN)
		bell_before_function();
	/* They cost the GPU nothing, and what is queued may wait for them. */
	if (category == CAT_HOSTFN || category == CAT_MEMOP || category == CAT_INTEROP)
		return;
	device = arb_own.exiting ? NULL : arb_device_current();
	t = device ? tracker_get(device) : NULL;
	self->gate = number;
	if (!t || __atomic_load_n(&t->broken, __ATOMIC_RELAXED)) {
		/* No context, or a GPU that was not joined: the next call may find one that was. */
		self->credit = t || arb_own.exiting || !__atomic_load_n(&arb_own.gpus, __ATOMIC_RELAXED)
				       ? FREE_CREDIT
				       : 0;
		return;
	}
	if (streams_capturing(call)) {
		act_thread_take_back(self);
		return;
	}
	arb_mine.call.covers = covered(t, self);
	if (!__atomic_load_n(&t->watched, __ATOMIC_RELAXED) && __atomic_load_n(&t->open, __ATOMIC_RELAXED) &&
		!track_per_thread(call) && is_of_a_piece(t, self))
		return;
	saved = errno;
	arb_mine.call.slept = false;
	arb_mine.call.track = t;
	self->granted = self->credit = 0;
	if (!current || current(&arb_mine.call.ctx) != CUDA_SUCCESS)
		arb_mine.call.ctx = NULL;
	mode = track_relax();
	track_lock(t);
	streams_context(t, arb_mine.call.ctx);
	/* Others may have made those calls, and this thread none in this stay. */
	if (arb_mine.call.begun_ns < t->begin_ns)
		arb_mine.call.begun_ns = t->begin_ns;
	admit(t, call);
	if (t->first_launch) {
		marker_calibrate(t, call, arb_mine.call.ctx);
		if (t->watched && stay_in_company(t) && !weight_alone(&t->weight, call->handle))
			marker_start(t, call, arb_mine.call.ctx);
	}
	t->passing++;
	probe = probe_wants_memory(t);
	track_unlock(t);
	if (probe)
		probe_give_memory(t, arb_mine.call.ctx);
	track_unrelax(mode);
	arb_mine.call.passing = true;
	arb_mine.call.let_ns = track_now();
	if (arb_mine.call.covers == 1)
		arb_mine.call.begun_ns = arb_mine.call.let_ns;
	errno = saved;
}

static bool waits(const struct act_call *call)
{
	return arb_hooks[call->id].category == CAT_COPY_SYNC;
}

/* Where streams run side by side the last ones end right after each other, however long they took. */
static bool are_short(const struct track *t)
{
	return t->unwaited >= SHORT_LEAST && t->launch_ns && t->launch_ns < SHORT_NS &&
	       t->call_ns < SHORT_NS && !queue_may_wait();
}

/* How many may pass until the next marker. */
static uint32_t credit(struct track *t, const struct act_call *call, uint64_t now)
{
	if (!t->watched)
		return track_per_thread(call) && piece(t) > THREAD_CREDIT ? THREAD_CREDIT : piece(t);
	/* What comes behind a wait is seen to begin. */
	if (waits(call))
		return 0;
	/* One that waits for a few at a time is seen each time it begins again. */
	if (t->outstanding < CREDIT_LEAST || t->window < CREDIT_LEAST)
		return are_short(t) ? (uint32_t)(SHORT_CREDIT_NS / t->launch_ns) : 0;
	if (t->call_ns >= SCATTERED_NS && marker_is_scattered(t))
		return 0;
	/* What is over soon leaves no credit behind: the first of the next finds that it has ended. */
	if (now < t->begin_ns + FRESH_NS)
		return 0;
	return (t->outstanding < t->window ? t->outstanding : t->window) / 4;
}

/* Where it can be foreseen which call is the last of a stay, that one has a marker behind it, and leaves no
 * credit: then the first of the next finds that it has ended. */
static uint32_t up_to_the_last(const struct track *t, uint32_t credit)
{
	uint64_t calls = stay_calls(t);

	if (!t->regular || calls > t->calls)
		return credit;
	return t->calls - calls <= credit ? (uint32_t)(t->calls - calls - (calls < t->calls)) : credit;
}

/*
 * Who launches now and then, or a few calls at a time, gets no credit: so nobody is on the way to the driver
 * when they end, their markers say all, and the next call finds that they have ended. What is captured passes
 * on credit as well.
 */
static bool gets_none(struct track *t, uint64_t now)
{
	/* Another thread may have come by since we looked at the clock. */
	uint64_t apart = now > t->called_ns ? (now - t->called_ns) / arb_mine.call.covers : 0;

	if (now > t->called_ns)
		t->called_ns = now;
	if (apart > 4 * SPARSE_NS)
		apart = 4 * SPARSE_NS;
	t->sparse_ns = (uint64_t)((int64_t)t->sparse_ns + ((int64_t)apart - (int64_t)t->sparse_ns) / 4);
	return t->sparse_ns > SPARSE_NS || (stay_is_rare(t) && stay_calls(t) <= FEW) ||
	       __atomic_load_n(&arb_own.captures, __ATOMIC_RELAXED);
}

/* What was let through is in the driver's hands: a marker behind it, and credit. True: a stay begins with it.
 */
static bool launched(struct track *t, const struct act_call *call, CUresult result, uint64_t now)
{
	struct act_thread *self = act_thread_get();
	bool first = t->first_launch;
	bool none = gets_none(t, now);

	if (result != CUDA_SUCCESS || !marker_record(t, call, arb_mine.call.ctx, arb_mine.call.begun_ns, arb_mine.call.covers))
		t->loose = true;
	arb_mine.call.begun_ns = arb_mine.call.let_ns;
	t->unwaited += arb_mine.call.covers;
	if (!t->launch_ns)
		__atomic_store_n(&t->blind, t->blind + arb_mine.call.covers, __ATOMIC_RELAXED);
	self->granted = self->credit =
		result == CUDA_SUCCESS && !none ? up_to_the_last(t, credit(t, call, now)) : 0;
	self->gate = __atomic_load_n(&arb_own.gate_number, __ATOMIC_RELAXED);
	self->stay = t->stay;
	if (first)
		stay_launched(t, arb_mine.call.let_ns, now);
	if (self->granted) {
		t->loose = true;
		if (t->phase == TRACK_IN)
			gate_set(t, true);
	}
	return first;
}

/* The program has waited. */
static void settle(struct track *t)
{
	t->unwaited = 0;
	stay_leave_if_idle(t);
}

/*
 * Its call has waited for its work; the event behind it passes a moment later, also where nothing is left to
 * do. If nobody waits for that the stay goes on into the next call, and what is between them is billed. Not
 * every such call waits: if it was in vain, so many are let go as before.
 */
static void settle_soon(struct track *t, uint64_t now)
{
	settle(t);
	if (t->phase == TRACK_OUT || t->count != 1)
		return;
	if (t->soon_in_vain) {
		t->soon_in_vain--;
		return;
	}
	while (track_now() - now < SOON_NS)
		if (stay_leave_if_idle(t))
			return;
	t->soon_in_vain = SOON_PAUSE;
}

void gate_after(struct act_call *call, CUresult result)
{
	struct track *t = arb_mine.call.track;
	CUstreamCaptureMode mode;
	bool wake = false;
	int saved = errno;
	uint64_t now;

	if (!arb_mine.call.passing || !t)
		return;
	arb_mine.call.passing = false;
	now = track_now();
	mode = track_relax();
	track_lock(t);
	t->passing--;
	if (t->phase != TRACK_OUT && !t->broken) {
		wake = launched(t, call, result, now);
		wake &= !bell_set_early(t, now);
	}
	/* While it stood at the gate it looked for itself; now nobody does, and it may have been the last. */
	if (arb_mine.call.slept && !t->waiters && t->phase != TRACK_OUT && (!t->regular || stay_is_whole(t)))
		wake |= !t->hurry || !bell_set(t, now, false);
	if (t->watched && result == CUDA_SUCCESS && waits(call))
		settle_soon(t, now);
	track_unlock(t);
	track_unrelax(mode);
	if (wake)
		tracker_launched();
	errno = saved;
}

/* Its last call has not come back from the driver, or nobody will say so. */
void gate_thread_ended(void)
{
	struct track *t = arb_mine.call.track;

	if (!arb_mine.call.passing || !t)
		return;
	arb_mine.call.passing = false;
	track_lock(t);
	t->passing--;
	t->loose = true;
	track_unlock(t);
}

void gate_waits(void)
{
	arb_mine.call.wait_ns = track_now();
}

void gate_settle(void)
{
	int saved = errno;
	struct arb_device *device = arb_own.exiting ? NULL : arb_device_current();
	struct track *t = device ? tracker_get(device) : NULL;
	CUstreamCaptureMode mode;
	uint64_t now;

	errno = saved;
	if (!t || __atomic_load_n(&t->phase, __ATOMIC_RELAXED) == TRACK_OUT)
		return;
	now = track_now();
	if (!__atomic_load_n(&t->watched, __ATOMIC_RELAXED) &&
		now < __atomic_load_n(&t->settle_ns, __ATOMIC_RELAXED))
		return;
	mode = track_relax();
	track_lock(t);
	/* What it waited for ended just now. */
	t->waited_ns = now - arb_mine.call.wait_ns > WAITED_NS ? now : 0;
	settle(t);
	t->waited_ns = 0;
	if (!t->watched) {
		uint64_t after = track_now();

		__atomic_store_n(&t->settle_ns, after + SETTLE_COSTS * (after - now), __ATOMIC_RELAXED);
	}
	track_unlock(t);
	track_unrelax(mode);
	errno = saved;
}

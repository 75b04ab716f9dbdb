/*
 * The gate, in the program's threads: a call that brings work asks the book whether it may go on, waits if it may not, and is
 * fenced after it has returned from the driver.
 */
#include "preload/track/track.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "shm/base/os.h"
#include "preload/hooks/hooks.h"
#include "preload/process/threads.h"
#include "shm/base/word.h"

/* The credit of a thread whose GPU was not joined. After so many calls it looks whether that has changed. */
#define FREE_CALLS 4096

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

/*
 * One word is the gate for all GPUs: in its upper bits the number of GPUs that are closed, in its lower bits a number by which
 * void credit is recognised. A thread compares the word with the number of its credit: they are equal only while every GPU is
 * open and the credit is good. Each GPU adds and subtracts its own part under its own lock, so the word needs no lock.
 */
#define CLOSED (1u << 25)
#define NUMBER (CLOSED - 1)
_Static_assert(ARB_DEVICES < (UINT32_MAX >> 25), "all of them may be closed");

uint32_t gate_number(void)
{
	return arb_word_load_acquire(&arb_own.gate.open) & NUMBER;
}

void gate_set(struct track *t, bool open)
{
	if (t->open == open)
		return;
	arb_word_store(&t->open, open);
	if (open)
		arb_word_add_full(&arb_own.gate.open, -CLOSED);
	else
		arb_word_add_full(&arb_own.gate.open, CLOSED);
}

void gate_watch(struct track *t, bool watched)
{
	if (t->watched == watched)
		return;
	arb_word_store(&t->watched, watched);
	arb_word_add(&arb_own.gate.watched, watched ? 1 : UINT32_MAX);
}

/* Sets another number, and counts so many more GPUs as closed. */
static void renew(uint32_t closed)
{
	uint32_t was = arb_word_load(&arb_own.gate.open), next;

	do {
		next = (was + 1) & NUMBER;
		next = (next ? next : 1) + (was & ~NUMBER) + closed;
		/* A release, so that a thread which sees the new number sees why it was set: see gate_before. */
	} while (!arb_word_cas_release(&arb_own.gate.open, &was, next));
}

void gate_renew(void)
{
	renew(0);
}

void gate_join(void)
{
	renew(CLOSED);
}

void gate_free(void)
{
	arb_word_store(&arb_own.gate.open, gate_number());
}

void gate_forked(void)
{
	arb_own.gate.watched = 0;
	gate_free();
}

/* WITHIN: nothing says so, but the driver was found to do it, with graphs as well. */
enum { UNKNOWN, NO, YES, WITHIN };

/* Whether each launch waits for its kernel: a setting of the driver, for debugging. */
static bool launches_block(void)
{
	uint32_t known = arb_word_load(&arb_own.launches_block);

	if (known == UNKNOWN) {
		const char *value = getenv("CUDA_LAUNCH_BLOCKING");

		known = value && *value && strcmp(value, "0") != 0 ? YES : NO;
		arb_word_store(&arb_own.launches_block, known);
	}
	return known != NO;
}

/* Whether the call certainly returns only when its work has ended. */
static bool waits(const struct act_call *call)
{
	unsigned category = arb_hooks[call->id].category;

	return category == CAT_COPY_SYNC || (category == CAT_LAUNCH && launches_block()) ||
	       (category == CAT_GRAPH && arb_word_load(&arb_own.launches_block) == WITHIN);
}

void gate_launches_within(bool within)
{
	arb_word_store(&arb_own.launches_block, within ? WITHIN : UNKNOWN);
}

bool gate_runs_inside(const struct act_call *call)
{
	/* Asynchronous copies wait as well where the memory is pageable. */
	return arb_hooks[call->id].category == CAT_COPY || waits(call);
}

/* Whether this is a programmatic dependent launch: it may begin before the launch before it in its stream has ended. */
static bool is_dependent(const struct act_call *call)
{
	const CUlaunchConfig *config = call->desc;

	if (arb_hooks[call->id].category != CAT_LAUNCH || !config || !config->attrs)
		return false;
	for (unsigned i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
			config->attrs[i].value.programmaticStreamSerializationAllowed)
			return true;
	return false;
}

void gate_name_work(struct act_call *call)
{
	const CUlaunchConfig *config = arb_hooks[call->id].category == CAT_LAUNCH ? call->desc : NULL;

	if (config)
		call->grid = (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ;
	/* A copy's addresses say nothing about how long it takes; its size does. */
	call->work = durations_key(call->handle, call->grid);
}

static uint32_t flags_of(const struct act_call *call)
{
	return (gate_runs_inside(call) ? CALL_INSIDE : 0) | (waits(call) ? CALL_WAITS : 0) |
	       (track_per_thread(call) ? CALL_PER_THREAD : 0) | (is_dependent(call) ? CALL_DEPENDENT : 0) |
	       (arb_mine.call.peer           ? CALL_PEER
		       : arb_mine.call.start ? CALL_LATE
					     : 0);
}

void gate_admit(struct track *t, const struct act_call *call)
{
	uint32_t flags = flags_of(call), steps = 0;
	bool collected = false;
	uint64_t late = 0;

	while (!t->book.broken && !arb_own.exiting) {
		struct book_event e = {
			.kind = EVENT_ASKED, .work = call->work, .stream = track_stream_key(call)};
		struct book_action act;

		if (!collected)
			events_collect(t);
		collected = true;
		e.ctx = (uintptr_t)arb_mine.call.ctx;
		e.covers = arb_mine.call.covers;
		e.call = flags | steps | STEP_LOOKED;
		e.took_ns = late;
		act = track_tell(t, &e);
		flags &= ~(uint32_t)CALL_AWAKE;
		steps |= act.step;
		switch (act.what) {
		case ACT_PASS:
			return;
		case ACT_WAIT:
			track_unlock(t);
			if (act.ns)
				track_nap(act.ns);
			else
				sched_yield();
			late = act.ns ? track_now() - e.now_ns : 0;
			late = late > act.ns ? late - act.ns : 0;
			track_lock(t);
			arb_mine.call.slept = true;
			arb_mine.call.held = t->book.state == BOOK_RUNNING;
			flags |= CALL_AWAKE;
			steps = 0;
			collected = false;
			break;
		case ACT_FENCE:
			events_record(t, call, arb_mine.call.begun_ns, act.n, CALL_EARLIER);
			arb_mine.call.covers = 1;
			break;
		case ACT_ENTER:
			arb_mine.call.covers = 1; /* launches that passed on credit have ended */
			track_carry_out(t, act, call);
			flags &= ~(uint32_t)CALL_ENTERED;
			if (t->book.state == BOOK_RUNNING)
				flags |= CALL_ENTERED;
			steps = 0;
			collected = false;
			break;
		default:
			track_carry_out(t, act, call);
		}
	}
}

/* Returns how many launches the next fence covers: this one, and those of the thread that have passed on credit. */
static uint32_t covered(const struct track *t, const struct act_thread *self)
{
	if (self->interval != arb_word_load(&t->interval) || self->granted <= self->credit)
		return 1;
	return 1 + self->granted - self->credit;
}

/* Whether the next fence of an unwatched client is not due yet. Then the call goes on without the lock. This matters for
 * programs that change between GPUs: their calls come here each time. */
static bool is_of_a_piece(struct track *t, struct act_thread *self)
{
	uint32_t most = arb_word_load(&t->piece);
	uint32_t n = arb_word_add_then_load(&t->uncovered, arb_mine.call.covers);

	if (n >= most) {
		arb_mine.call.covers = arb_word_exchange(&t->uncovered, 0);
		/* Another thread has just taken them over. */
		arb_mine.call.covers += !arb_mine.call.covers;
		return false;
	}
	self->granted = self->credit = most - n;
	self->interval = arb_word_load(&t->interval);
	return true;
}

/*
 * A host function is called some 100 us after the work before it has ended, and the GPU stands still until it has returned.
 * The fence before it and an event behind it show for how long. So the next launch takes the long way.
 */
static void before_function(const struct act_call *call, struct act_thread *self)
{
	callback_before_function();
	act_thread_take_back(self);
	arb_mine.function = true;
	arb_mine.function_stream = track_stream_key(call);
}

/* Records that event, where bills have to be exact and the next fence will be behind this launch alone. */
static void behind_function(struct track *t, const struct act_call *call)
{
	if (!arb_mine.function || arb_mine.function_stream != track_stream_key(call))
		return;
	arb_mine.function = false;
	if (arb_word_load(&t->watched) && arb_mine.call.covers == 1)
		arb_mine.call.start = events_before(call);
}

void gate_before(struct act_call *call)
{
	__typeof__(cuCtxGetCurrent) *current = arb_real(cuCtxGetCurrent);
	unsigned category = arb_hooks[call->id].category;
	struct act_thread *self = act_thread_get();
	struct book_event let = {.kind = EVENT_LET};
	struct arb_device *device;
	CUstreamCaptureMode mode;
	/* Read before anything else: if the reasons for giving credit change meanwhile, this number is
	 * void. */
	uint32_t number = gate_number();
	struct track *t;
	bool knows, first;
	int saved;

	/* The thread may still have a call in the driver: a tool that the driver calls back launches work, or the program has
	 * jumped out of that call. */
	gate_thread_ended();
	if (category == CAT_HOSTFN)
		before_function(call, self);
	/* These calls cost the GPU nothing, and queued work may wait for them, so they never wait. */
	if (category == CAT_HOSTFN || category == CAT_MEMOP || category == CAT_INTEROP)
		return;
	device = arb_own.exiting ? NULL : arb_device_current();
	t = device ? tracker_get(device) : NULL;
	self->gate = number;
	if (!t || arb_word_load(&t->broken)) {
		/* There is no context, or its GPU was not joined. Another call may find a GPU that was. */
		self->credit = t || arb_own.exiting || !arb_word_load(&arb_own.gpus) ? FREE_CALLS : 0;
		return;
	}
	if (streams_capturing(call)) {
		act_thread_take_back(self);
		return;
	}
	arb_mine.call.covers = covered(t, self);
	if (!arb_word_load(&t->watched) && arb_word_load(&t->open) && !track_per_thread(call) &&
		is_of_a_piece(t, self))
		return;
	saved = errno;
	arb_mine.call.slept = arb_mine.call.held = false;
	arb_mine.call.track = t;
	self->granted = self->credit = 0;
	if (!current || current(&arb_mine.call.ctx) != CUDA_SUCCESS)
		arb_mine.call.ctx = NULL;
	gate_name_work(call);
	mode = track_relax();
	knows = streams_knows(t, arb_mine.call.ctx);
	track_lock(t);
	if (__builtin_expect(!knows, 0))
		streams_context(t, arb_mine.call.ctx);
	/* If this thread has not launched in this interval, its time is older than the interval. */
	if (arb_mine.call.begun_ns < t->book.interval.begin_ns)
		arb_mine.call.begun_ns = t->book.interval.begin_ns;
	gate_admit(t, call);
	first = t->book.interval.first_to_come;
	arb_mine.call.inside = gate_runs_inside(call);
	let.call = arb_mine.call.inside ? CALL_INSIDE : 0;
	track_tell(t, &let);
	arb_mine.call.let_ns = let.now_ns;
	/* Not earlier: from EVENT_LET on this call keeps the interval alive while the lock is released. */
	if (first && events_start(t, call, arb_mine.call.ctx))
		arb_mine.call.let_ns = track_now();
	track_unlock(t);
	behind_function(t, call);
	track_unrelax(mode);
	arb_mine.call.in_driver = true;
	errno = saved;
}

/* The program has waited for work, until at_ns, for took_ns. */
static void waited(struct track *t, uint64_t at_ns, uint64_t took_ns)
{
	struct book_event e = {.kind = EVENT_WAITED, .at_ns = at_ns, .took_ns = took_ns};

	track_finish(t, &e);
}

/*
 * A call has waited for its work, so the event behind it passes a moment later. If nobody waits for that, the interval goes on
 * into the next call, and the time between the two calls is billed. Such a call does not always wait for its work: after a
 * wait in vain the next CREDIT_LEAST calls do not try.
 */
static void settle_soon(struct track *t, uint64_t now)
{
	waited(t, now, 0);
	if (!book_is_in(&t->book) || t->book.queue.count != 1)
		return;
	if (t->in_vain) {
		t->in_vain--;
		return;
	}
	while (track_now() - now < 2 * CALL_NS)
		if (track_settle(t))
			return;
	t->in_vain = (uint32_t)CREDIT_LEAST;
}

/* A call is back from the driver: fences it and gives the thread credit. Returns whether the tracker is to be woken. */
static bool launched(struct track *t, const struct act_call *call, CUresult result, uint64_t now)
{
	struct act_thread *self = act_thread_get();
	struct book_event e = {
		.kind = EVENT_RETURNED,
		.facts = result == CUDA_SUCCESS ? 0 : FACT_FAILED,
		.call = flags_of(call) | (now - arb_mine.call.let_ns > 2 * CALL_NS ? CALL_LONG : 0),
		.covers = arb_mine.call.covers,
		.now_ns = now,
		.work = call->work,
		.stream = track_stream_key(call),
		.at_ns = arb_mine.call.let_ns,
	};
	struct book_action act = track_tell(t, &e);
	bool wake;

	if (act.what == ACT_RESUME) {
		track_carry_out(t, act, call);
		e.call |= act.step;
		act = track_tell(t, &e);
	}
	wake = act.wake;
	/* A driver submits work just before it returns, whatever it does first. */
	if (arb_mine.call.covers == 1)
		arb_mine.call.begun_ns = arb_mine.call.inside ? arb_mine.call.let_ns : now;
	if (act.what == ACT_FENCE) {
		uint32_t flags = e.call | (wake ? CALL_FIRST : 0) | (arb_mine.call.slept ? CALL_SLEPT : 0) |
				 (arb_mine.call.held ? CALL_HELD : 0);

		act = events_record(t, call, arb_mine.call.begun_ns, act.n, flags);
		wake = act.wake;
	}
	if (!act.carry)
		arb_mine.call.begun_ns = now;
	self->granted = act.carry ? arb_mine.call.covers : act.n;
	self->credit = act.carry ? 0 : act.n;
	self->gate = gate_number();
	self->interval = t->interval;
	if (act.callback)
		wake |= !callback_ask(t, false);
	if (act.soon)
		settle_soon(t, now);
	return wake;
}

void gate_after(struct act_call *call, CUresult result)
{
	struct track *t = arb_mine.call.track;
	CUstreamCaptureMode mode;
	bool wake;
	int saved = errno;
	uint64_t now;

	if (!arb_mine.call.in_driver || !t)
		return;
	arb_mine.call.in_driver = false;
	now = track_now();
	mode = track_relax();
	track_lock(t);
	wake = launched(t, call, result, now);
	arb_mine.call.covers = 0;
	track_unlock(t);
	/* Still here: no fence has taken this event over. */
	if (arb_mine.call.start)
		arb_real(cuEventDestroy_v2)(arb_mine.call.start);
	arb_mine.call.start = NULL;
	track_unrelax(mode);
	if (wake)
		tracker_launched();
	errno = saved;
}

/* The thread's last call will not come back from the driver, or its return will not be seen. */
void gate_abandon(void)
{
	struct track *t = arb_mine.call.track;
	struct book_event e = {.kind = EVENT_ABANDONED, .covers = 1};

	if (!arb_mine.call.in_driver || !t)
		return;
	arb_mine.call.in_driver = false;
	arb_mine.call.start = NULL;
	track_lock(t);
	e.call = arb_mine.call.inside ? CALL_INSIDE : 0;
	track_tell(t, &e);
	track_unlock(t);
}

void gate_thread_ended(void)
{
	gate_abandon();
	peers_abandon();
}

void gate_waits(void)
{
	arb_mine.call.wait_ns = track_now();
}

static void settle_here(void)
{
	int saved = errno;
	struct arb_device *device = arb_own.exiting ? NULL : arb_device_current();
	struct track *t = device ? tracker_get(device) : NULL;
	CUstreamCaptureMode mode;
	uint64_t now;

	errno = saved;
	if (!t || !arb_word_load(&t->in))
		return;
	now = track_now();
	if (!arb_word_load(&t->watched) && now < arb_word_load(&t->settle_ns))
		return;
	mode = track_relax();
	track_lock(t);
	waited(t, now, now - arb_mine.call.wait_ns);
	if (!t->book.others.watched) {
		uint64_t after = track_now();

		arb_word_store(&t->settle_ns, after + LOOK_COSTS * (after - now));
	}
	track_unlock(t);
	track_unrelax(mode);
	errno = saved;
}

void gate_settle(void)
{
	settle_here();
	if (__builtin_expect(arb_word_load(&arb_own.peers), 0))
		peers_settle();
}

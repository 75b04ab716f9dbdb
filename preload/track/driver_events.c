/* Fences in the driver: events behind launches. They are asked about here, and dated on the host's clock. */
#include "preload/track/track.h"

#include "preload/hooks/hooks.h"

/* cuEventElapsedTime returns a float of milliseconds: for longer times it is coarser than 1 us. */
#define BASE_AGE_NS (4000 * MS)
/* The first fences of at most this many streams are asked about at a time. */
#define ASKED 8

/* It is not hooked, so it is not in the table of hooks. */
static __typeof__(cuEventElapsedTime) *elapsed_time(void)
{
	static void *found;
	void *f = arb_word_load(&found);

	if (!f) {
		f = arb_driver_symbol("cuEventElapsedTime");
		/* The newer version differs only for events of two contexts. */
		if (!f)
			f = arb_driver_symbol("cuEventElapsedTime_v2");
		arb_word_store(&found, f);
	}
	return (__typeof__(cuEventElapsedTime) *)f;
}

/* Returns the clock of a context, or NULL if there are more contexts than clocks. */
static struct track_clock *clock_of(struct track *t, CUcontext ctx)
{
	struct track_clock *free = NULL;

	for (unsigned i = 0; ctx && i < TRACK_CONTEXTS; i++) {
		if (t->clocks[i].ctx == ctx)
			return &t->clocks[i];
		if (!t->clocks[i].ctx && !free)
			free = &t->clocks[i];
	}
	if (free)
		*free = (struct track_clock){.ctx = ctx};
	return free;
}

/* Finds the time between two events that have taken place. False: it is not known. */
static bool between(CUevent from, CUevent to, uint64_t *ns)
{
	__typeof__(cuEventElapsedTime) *elapsed = elapsed_time();
	float ms;

	if (!from || !to || !elapsed || elapsed(&ms, from, to) != CUDA_SUCCESS || ms < 0)
		return false;
	*ns = (uint64_t)((double)ms * 1e6);
	return true;
}

/* Makes this event, which has taken place, the base of a clock. Returns the old base. */
static CUevent rebase(struct track_clock *clock, CUevent event, uint64_t gpu_ns, uint64_t now)
{
	CUevent old = clock->base;

	clock->base = event;
	clock->base_gpu_ns = gpu_ns;
	clock->since_ns = now;
	return old;
}

static __typeof__(cuEventRecord) *recorder(const struct act_call *call)
{
	return arb_hooks[call->id].variant == VARIANT_LEGACY ? arb_real(cuEventRecord)
							     : arb_real(cuEventRecord_ptsz);
}

/* Whether the call's stream is idle. Then an event in it has nothing to wait for, and the stream is not full. */
static bool is_idle(const struct act_call *call)
{
	__typeof__(cuStreamQuery) *query = arb_hooks[call->id].variant == VARIANT_LEGACY
						   ? arb_real(cuStreamQuery)
						   : arb_real(cuStreamQuery_ptsz);

	return query && query(call->stream) == CUDA_SUCCESS;
}

/* Whether the stream becomes idle within most_ns. In a program that never waits, the last kernel is often just ending. */
static bool is_idle_soon(const struct act_call *call, uint64_t since_ns, uint64_t most_ns)
{
	while (!is_idle(call))
		if (track_now() - since_ns >= most_ns)
			return false;
	return true;
}

/*
 * Records an event before a launch into an idle stream. If it takes place at once, it shows the GPU's clock. If it takes place
 * later, it has waited for another client, so the GPU serves its clients one after the other.
 */
bool events_start(struct track *t, const struct act_call *call, CUcontext ctx)
{
	__typeof__(cuEventRecord) *record = recorder(call);
	__typeof__(cuEventCreate) *create = arb_real(cuEventCreate);
	struct track_clock *clock = clock_of(t, ctx);
	struct track_ask ask = {.ctx = ctx};
	uint64_t before = track_now(), after = 0;
	bool contended = t->book.others.contended_ns && before - t->book.others.contended_ns < CONTENDED_NS;
	CUevent event;

	if (!clock || !clock->base || clock->started || clock->starting || !record || !create ||
		(!(contended && !t->book.others.turns && before - clock->start_ns > QUICK_NS) &&
			!gputime_is_old(&clock->time, before)))
		return false;
	clock->starting = true;
	event = clock->start;
	ask_begin(t, &ask);
	if (is_idle_soon(call, before, contended ? 0 : CALL_NS) &&
		(event || create(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS)) {
		before = track_now();
		if (record(event, call->stream) == CUDA_SUCCESS)
			after = track_now();
	}
	ask_end(t, &ask);
	if (ask.gone)
		return true;
	clock->starting = false;
	clock->start = event;
	clock->started = after != 0;
	clock->start_ns = after;
	clock->start_record_ns = after - before;
	return true;
}

CUevent events_before(const struct act_call *call)
{
	__typeof__(cuEventRecord) *record = recorder(call);
	__typeof__(cuEventCreate) *create = arb_real(cuEventCreate);
	__typeof__(cuEventDestroy_v2) *destroy = arb_real(cuEventDestroy_v2);
	CUevent event;

	if (!record || !create || !destroy || create(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
		return NULL;
	if (record(event, call->stream) == CUDA_SUCCESS)
		return event;
	destroy(event);
	return NULL;
}

/* What the driver says of a fence. */
struct answer {
	CUresult result;
	uint64_t asked_ns, noticed_ns;
	bool dated;          /* since_ns is known */
	uint64_t since_ns;   /* from the base of the context's clock to the fence */
	uint64_t start_ns;   /* when the event before the first launch was recorded; 0: there is none */
	bool start_dated;    /* started_ns is known */
	uint64_t started_ns; /* from the base of the clock to that event */
	uint64_t took_ns;    /* duration of the copy or launch alone; 0: unknown */
};

static void ask_about(
	const struct track_event *v, const struct track_clock *clock, CUevent start, struct answer *a)
{
	__typeof__(cuEventQuery) *query = arb_real(cuEventQuery);

	a->asked_ns = track_now();
	a->result = query ? query(v->event) : CUDA_SUCCESS;
	if (a->result != CUDA_SUCCESS)
		return;
	a->noticed_ns = track_now();
	a->dated = between(clock->base, v->event, &a->since_ns);
	/* The fence behind `start` has passed, so `start` has passed too. */
	a->start_dated = between(clock->base, start, &a->started_ns);
	if (!between(v->start, v->event, &a->took_ns))
		a->took_ns = 0;
}

/* The first fence behind an event in an idle stream has passed. Finds when that event took place, and tells the book if that
 * was late. */
static void started(struct track *t, struct track_clock *clock, const struct answer *a)
{
	struct book_event e = {.kind = EVENT_STARTED, .now_ns = a->noticed_ns};
	uint64_t gpu_ns = clock->base_gpu_ns + a->started_ns, at, contended_ns = t->book.others.contended_ns;
	bool contended = contended_ns && a->noticed_ns - contended_ns < CONTENDED_NS;

	/* Another thread has done this already, and the event may have been recorded again. */
	if (!a->start_ns || !clock->started || clock->start_ns != a->start_ns)
		return;
	clock->started = false;
	if (!a->start_dated)
		return;
	gputime_recorded(&clock->time, gpu_ns, clock->start_record_ns, clock->start_ns,
		contended ? GPUTIME_OTHERS : GPUTIME_FREE);
	gputime_noticed(&clock->time, gpu_ns, a->noticed_ns);
	at = gputime_host(&clock->time, gpu_ns, a->noticed_ns);
	if (at <= clock->start_ns)
		return;
	e.took_ns = at - clock->start_ns;
	track_tell(t, &e);
}

/* Returns when an event that has passed took place, on the host's clock. `alone`: no other question uses the clock's base,
 * so it may be replaced. */
static uint64_t when(struct track_clock *clock, struct track_event *v, const struct answer *a, bool alone)
{
	uint64_t gpu_ns = clock->base_gpu_ns + a->since_ns;

	if (!a->dated) {
		/* It is the first event of the context, or the driver cannot compare the two. */
		if (!alone)
			return a->noticed_ns;
		clock->time = (struct gputime){0};
		gpu_ns = 1;
		v->event = rebase(clock, v->event, gpu_ns, a->noticed_ns);
	} else if (alone && a->noticed_ns - clock->since_ns >= BASE_AGE_NS) {
		v->event = rebase(clock, v->event, gpu_ns, a->noticed_ns);
	}
	gputime_recorded(&clock->time, gpu_ns, v->record_ns, v->recorded_ns, GPUTIME_WORK);
	gputime_noticed(&clock->time, gpu_ns, a->noticed_ns);
	return gputime_host(&clock->time, gpu_ns, a->noticed_ns);
}

/* Asks about one fence and tells the book. Returns whether it has passed. */
static bool collect(struct track *t, unsigned at, struct track_current *current)
{
	struct track_event *v = &t->events[at];
	const struct track_event asked = *v;
	struct track_clock *clock = clock_of(t, v->ctx), none = {0};
	const struct track_clock then = clock ? *clock : none;
	bool first = then.started && v->recorded_ns >= then.start_ns;
	struct track_ask ask = {.ctx = v->ctx, .places = 1ull << at};
	struct answer a = {.start_ns = first ? then.start_ns : 0};
	struct book_event e = {.kind = EVENT_UNFINISHED, .fence = (uint8_t)at};
	bool entered;

	ask_begin(t, &ask);
	entered = ask_enter(current, asked.ctx);
	ask_about(&asked, &then, first ? then.start : NULL, &a);
	ask_leave(entered);
	ask_end(t, &ask);
	/* Another thread has seen meanwhile that it has passed. */
	if (ask.gone || v->number != asked.number || !t->book.queue.fence[at].launches)
		return true;
	e.at_ns = a.asked_ns;
	if (a.result != CUDA_ERROR_NOT_READY) {
		e.kind = EVENT_PASSED;
		e.facts = a.result == CUDA_SUCCESS ? 0 : FACT_FAILED;
	}
	if (a.result == CUDA_SUCCESS) {
		e.at_ns = a.noticed_ns;
		e.took_ns = peers_copy_ns(&asked.copy, a.took_ns);
		if (clock) {
			started(t, clock, &a);
			e.at_ns = when(clock, v, &a, ask_is_alone(t, &ask));
		}
	}
	track_tell(t, &e);
	return e.kind == EVENT_PASSED;
}

/* A fence that has not passed. */
struct seen {
	uint64_t stream, ctx, number;
};

/* Whether a fence is one of those that have not passed, or behind one of them in its stream. The default streams of threads
 * cannot be told apart. */
static bool is_behind(const struct seen *seen, unsigned n, const struct book_fence *f, uint64_t number)
{
	for (unsigned i = 0; i < n; i++)
		if (seen[i].number == number || (seen[i].stream == f->stream && seen[i].ctx == f->ctx &&
							f->stream != BOOK_PER_THREAD))
			return true;
	return false;
}

static unsigned next_fence(const struct track *t, uint64_t last, const struct seen *seen, unsigned n)
{
	const struct book_queue *q = &t->book.queue;

	for (unsigned i = 0; i < q->count; i++) {
		unsigned at = q->order[i];

		if (t->events[at].number <= last && !is_behind(seen, n, &q->fence[at], t->events[at].number))
			return at;
	}
	return BOOK_NO_FENCE;
}

/*
 * Streams overtake each other, so the first fence of each stream is asked about, not only the oldest of all. They are asked
 * one at a time, because other threads may see fences pass meanwhile. Fences recorded meanwhile are left for the next time.
 */
void events_collect(struct track *t)
{
	uint64_t last = t->fenced;
	struct track_current current = {NULL, false};
	struct seen seen[ASKED];
	unsigned n = 0, at;

	while (n < ASKED && (at = next_fence(t, last, seen, n)) != BOOK_NO_FENCE) {
		const struct book_fence *f = &t->book.queue.fence[at];
		struct seen s = {f->stream, f->ctx, t->events[at].number};

		if (collect(t, at, &current))
			continue;
		seen[n++] = s;
		/* If all fences are in one stream, the others are behind this one. */
		if (!t->book.queue.mixed && s.stream != BOOK_PER_THREAD)
			break;
	}
}

/* Returns a free place, if possible one with an event of this context. No question about its old event is under way. */
static unsigned find_place(const struct track *t, CUcontext ctx)
{
	unsigned free = BOOK_NO_FENCE;
	uint64_t asked = ask_places(t);

	for (unsigned i = 0; i < BOOK_FENCES; i++) {
		if (t->book.queue.fence[i].launches || t->events[i].recorded_ns == UINT64_MAX ||
			asked >> i & 1)
			continue;
		if (t->events[i].event && t->events[i].ctx == ctx)
			return i;
		if (free == BOOK_NO_FENCE || (t->events[free].event && !t->events[i].event))
			free = i;
	}
	return free;
}

/* Destroys the events of a place that cannot be used again in this context. */
static void clear(struct track *t, struct track_event *v, CUcontext ctx)
{
	__typeof__(cuEventDestroy_v2) *destroy = arb_real(cuEventDestroy_v2);
	struct track_ask ask = {.ctx = v->ctx};
	CUevent event = v->ctx == ctx ? NULL : v->event, start = v->start;

	if (v->ctx != ctx)
		v->event = NULL;
	v->start = NULL;
	v->ctx = ctx;
	if (!event && !start)
		return;
	ask_begin(t, &ask);
	if (event)
		destroy(event);
	if (start)
		destroy(start);
	ask_end(t, &ask);
}

/*
 * If the stream is full, the driver makes this thread wait for room, and what makes room may have to be launched by another
 * thread. So the lock is not held meanwhile; the launch that is not fenced yet keeps the interval from ending.
 */
struct book_action events_record(
	struct track *t, const struct act_call *call, uint64_t begun_ns, uint32_t launches, uint32_t flags)
{
	__typeof__(cuEventRecord) *record = recorder(call);
	__typeof__(cuEventCreate) *create = arb_real(cuEventCreate);
	CUcontext ctx = arb_mine.call.ctx;
	bool can = record && create && arb_real(cuEventDestroy_v2), recorded = false;
	unsigned at = can ? find_place(t, ctx) : BOOK_NO_FENCE;
	struct track_event *v = at == BOOK_NO_FENCE ? NULL : &t->events[at];
	struct track_ask ask = {.ctx = NULL};
	struct book_event e = {
		.kind = EVENT_FENCED,
		.fence = (uint8_t)at,
		.facts = FACT_FAILED,
		.call = flags,
		.covers = launches,
		.work = call->work,
		.stream = track_stream_key(call),
		.ctx = (uintptr_t)ctx,
		.at_ns = begun_ns,
	};
	uint64_t before;
	CUevent event;

	if (!v)
		return track_tell(t, &e);
	v->recorded_ns = UINT64_MAX; /* the place is taken */
	clear(t, v, ctx);
	event = v->event;
	v->start = arb_mine.call.start;
	v->copy = arb_mine.call.copy;
	arb_mine.call.start = NULL;
	ask_begin(t, &ask);
	if (!event && create(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
		event = NULL;
	before = track_now();
	recorded = event && record(event, call->stream) == CUDA_SUCCESS;
	e.now_ns = track_now();
	ask_end(t, &ask);
	v->recorded_ns = e.now_ns;
	v->record_ns = e.took_ns = e.now_ns - before;
	/* The context may have been destroyed meanwhile, and the event with it. */
	if (v->ctx == ctx) {
		v->event = event;
		v->number = ++t->fenced;
		e.facts = recorded ? 0 : FACT_FAILED;
	} else {
		v->start = NULL;
	}
	return track_tell(t, &e);
}

/* A context is destroyed, and its events with it. */
void events_forget(struct track *t, CUcontext ctx)
{
	struct book_event e = {.kind = EVENT_FORGOTTEN, .ctx = (uintptr_t)ctx};

	ask_forget(t, ctx);
	track_tell(t, &e);
	for (unsigned i = 0; i < BOOK_FENCES; i++)
		if (t->events[i].ctx == ctx) {
			t->events[i].event = t->events[i].start = NULL;
			t->events[i].ctx = NULL;
		}
	for (unsigned i = 0; i < TRACK_CONTEXTS; i++)
		if (t->clocks[i].ctx == ctx)
			t->clocks[i] = (struct track_clock){0};
}

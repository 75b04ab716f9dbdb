/* Fences in the driver: events behind launches, asked about and dated on our clock. */
#include "preload/track/track.h"

#include "preload/hooks/hooks.h"

/* cuEventElapsedTime gives a float of ms: after so long it would be coarser than 1 us. */
#define BASE_AGE_NS (4000 * MS)
/* Of so many streams the first fence is asked about; more are left for the next time. */
#define ASKED 8

/* Nobody gates it, so it is not in the table. */
static __typeof__(cuEventElapsedTime) *elapsed_time(void)
{
	static void *found;
	void *f = arb_word_load(&found);

	if (!f) {
		f = arb_driver_symbol("cuEventElapsedTime");
		/* The newer one differs in what it says of events of two contexts. */
		if (!f)
			f = arb_driver_symbol("cuEventElapsedTime_v2");
		arb_word_store(&found, f);
	}
	return (__typeof__(cuEventElapsedTime) *)f;
}

/* A context's own clock; NULL: there are more contexts than clocks. */
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

/* What the GPU's clock said at an event that has taken place, on a scale of the context's own. False: unknown. */
static bool gpu_time(struct track_clock *clock, CUevent event, uint64_t *gpu_ns)
{
	__typeof__(cuEventElapsedTime) *elapsed = elapsed_time();
	float ms;

	if (!clock->base || !elapsed || elapsed(&ms, clock->base, event) != CUDA_SUCCESS || ms < 0)
		return false;
	*gpu_ns = clock->base_gpu_ns + (uint64_t)((double)ms * 1e6);
	return true;
}

/* From now on times are counted from this event, which has taken place; the old one comes back. */
static CUevent rebase(struct track_clock *clock, CUevent event, uint64_t gpu_ns, uint64_t now)
{
	CUevent old = clock->base;

	clock->base = event;
	clock->base_gpu_ns = gpu_ns;
	clock->since_ns = now;
	return old;
}

/* When an event that has passed took place, on our clock. */
static uint64_t when(struct track *t, struct track_event *v, uint64_t noticed_ns)
{
	struct track_clock *clock = clock_of(t, v->ctx);
	uint64_t gpu_ns;

	if (!clock)
		return noticed_ns;
	if (!gpu_time(clock, v->event, &gpu_ns)) {
		/* The first of a context, or a driver that cannot compare the two. */
		clock->time = (struct gputime){0};
		gpu_ns = 1;
		v->event = rebase(clock, v->event, gpu_ns, noticed_ns);
	} else if (noticed_ns - clock->since_ns >= BASE_AGE_NS) {
		v->event = rebase(clock, v->event, gpu_ns, noticed_ns);
	}
	gputime_recorded(&clock->time, gpu_ns, v->record_ns, v->recorded_ns, false);
	gputime_noticed(&clock->time, gpu_ns, noticed_ns);
	return gputime_host(&clock->time, gpu_ns, noticed_ns);
}

/* How long a copy took that has an event before it, too; 0: it has not. In its context, before its event is taken away. */
static uint64_t copied_ns(struct track_event *v)
{
	__typeof__(cuEventElapsedTime) *elapsed = elapsed_time();
	__typeof__(cuEventDestroy_v2) *destroy = arb_real(cuEventDestroy_v2);
	float ms = 0;

	if (!v->start)
		return 0;
	if (!elapsed || elapsed(&ms, v->start, v->event) != CUDA_SUCCESS || ms < 0)
		ms = 0;
	if (destroy)
		destroy(v->start);
	v->start = NULL;
	return (uint64_t)((double)ms * 1e6);
}

static __typeof__(cuEventRecord) *recorder(const struct act_call *call)
{
	return arb_hooks[call->id].variant == VARIANT_LEGACY ? arb_real(cuEventRecord)
							     : arb_real(cuEventRecord_ptsz);
}

/* Then there is room in it: nobody has to wait in the driver, with the lock. */
static bool is_idle(const struct act_call *call)
{
	__typeof__(cuStreamQuery) *query = arb_hooks[call->id].variant == VARIANT_LEGACY
						   ? arb_real(cuStreamQuery)
						   : arb_real(cuStreamQuery_ptsz);

	return query && query(call->stream) == CUDA_SUCCESS;
}

/*
 * An event before a launch into an idle stream. It takes place at once, so that it says what the GPU's clock shows now;
 * or others have the GPU, and it waits for them: then the GPU serves its clients one after the other.
 */
void events_start(struct track *t, const struct act_call *call, CUcontext ctx)
{
	__typeof__(cuEventRecord) *record = recorder(call);
	__typeof__(cuEventCreate) *create = arb_real(cuEventCreate);
	struct track_clock *clock = clock_of(t, ctx);
	uint64_t before = track_now();
	bool contended = t->book.others.contended_ns && before - t->book.others.contended_ns < CONTENDED_NS;

	if (!clock || !clock->base || clock->started ||
		(!(contended && !t->book.others.turns) && !gputime_is_old(&clock->time, before)))
		return;
	if (!record || !create || !is_idle(call))
		return;
	if (!clock->start && create(&clock->start, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
		clock->start = NULL;
		return;
	}
	before = track_now();
	if (record(clock->start, call->stream) != CUDA_SUCCESS)
		return;
	clock->started = true;
	clock->start_ns = track_now();
	clock->start_record_ns = clock->start_ns - before;
}

CUevent events_before_copy(const struct act_call *call)
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

/* The first fence behind such an event has passed, so it has passed too. */
static void started(struct track *t, const struct track_event *v, uint64_t now)
{
	struct track_clock *clock = clock_of(t, v->ctx);
	uint64_t gpu_ns, at, contended_ns = t->book.others.contended_ns;
	bool contended = contended_ns && now - contended_ns < CONTENDED_NS;
	struct book_event e;

	if (!clock || !clock->started || v->recorded_ns < clock->start_ns)
		return;
	clock->started = false;
	if (!gpu_time(clock, clock->start, &gpu_ns))
		return;
	gputime_recorded(&clock->time, gpu_ns, clock->start_record_ns, clock->start_ns, !contended);
	gputime_noticed(&clock->time, gpu_ns, now);
	at = gputime_host(&clock->time, gpu_ns, now);
	if (at <= clock->start_ns)
		return;
	e = (struct book_event){.kind = EVENT_STARTED, .now_ns = now, .took_ns = at - clock->start_ns};
	track_tell(t, &e);
}

/*
 * Events are asked about in their own context, which is current in the thread that launched but not in the tracker, nor in
 * one that has gone over to another: without one a driver need not answer, and in another it answers with that one's
 * errors.
 */
struct place {
	CUcontext current;
	bool pushed;
};

static void come_back(struct place *place)
{
	__typeof__(cuCtxPopCurrent_v2) *pop = arb_real(cuCtxPopCurrent_v2);
	CUcontext popped;

	if (place->pushed && pop)
		pop(&popped);
	place->pushed = false;
}

static void go_to(struct place *place, CUcontext ctx)
{
	__typeof__(cuCtxPushCurrent_v2) *push = arb_real(cuCtxPushCurrent_v2);

	if (place->current == ctx)
		return;
	come_back(place);
	place->current = ctx;
	place->pushed = push && push(ctx) == CUDA_SUCCESS;
}

/* Is it behind one that has not passed? Threads' default streams are not known apart. */
static bool is_behind(const struct book_fence *const *busy, unsigned n, const struct book_fence *f)
{
	for (unsigned i = 0; i < n; i++)
		if (busy[i]->stream == f->stream && busy[i]->ctx == f->ctx && f->stream != BOOK_PER_THREAD)
			return true;
	return false;
}

/* Most programs have one stream in use, so that all the others are behind the first that has not passed. */
static unsigned skip_behind(const struct book_queue *q, unsigned i, const struct book_fence *f)
{
	uint64_t stream = f->stream, ctx = f->ctx;

	while (stream != BOOK_PER_THREAD && i < q->count && q->fence[q->order[i]].stream == stream &&
		q->fence[q->order[i]].ctx == ctx)
		i++;
	return i;
}

void events_collect(struct track *t)
{
	__typeof__(cuCtxGetCurrent) *current = arb_real(cuCtxGetCurrent);
	__typeof__(cuEventQuery) *query = arb_real(cuEventQuery);
	const struct book_queue *q = &t->book.queue;
	const struct book_fence *busy[ASKED];
	struct place place = {NULL, false};
	unsigned nbusy = 0;

	if (!q->count)
		return;
	if (!current || current(&place.current) != CUDA_SUCCESS)
		place.current = NULL;
	/* Streams overtake each other, so not only the oldest is asked, but of each stream only the first. */
	for (unsigned i = 0; i < q->count && nbusy < ASKED;) {
		unsigned at = q->order[i];
		const struct book_fence *f = &q->fence[at];
		struct track_event *v = &t->events[at];
		struct book_event e;
		CUresult r;

		if (is_behind(busy, nbusy, f)) {
			i++;
			continue;
		}
		go_to(&place, v->ctx);
		e = (struct book_event){.fence = (uint8_t)at, .at_ns = track_now()};
		r = query ? query(v->event) : CUDA_SUCCESS;
		if (r == CUDA_ERROR_NOT_READY) {
			e.kind = EVENT_UNFINISHED;
			busy[nbusy++] = f;
			i = skip_behind(q, i + 1, f);
		} else {
			/* The book takes it out of its order. */
			e.kind = EVENT_PASSED;
			e.facts = r == CUDA_SUCCESS ? 0 : FACT_FAILED;
			e.now_ns = track_now();
			if (r == CUDA_SUCCESS) {
				started(t, v, e.now_ns);
				e.took_ns = copied_ns(v);
				e.at_ns = when(t, v, e.now_ns);
			}
		}
		track_tell(t, &e);
	}
	come_back(&place);
}

/* A free place, if possible one that has an event of this context. */
static unsigned find_place(const struct track *t, CUcontext ctx)
{
	unsigned free = BOOK_NO_FENCE;

	for (unsigned i = 0; i < BOOK_FENCES; i++) {
		if (t->book.queue.fence[i].launches || t->events[i].recorded_ns == UINT64_MAX)
			continue;
		if (t->events[i].event && t->events[i].ctx == ctx)
			return i;
		if (free == BOOK_NO_FENCE || (t->events[free].event && !t->events[i].event))
			free = i;
	}
	return free;
}

/*
 * Where the stream is full the driver makes us wait until there is room, and what that takes another thread may have to
 * launch: so not with the lock. What is let through and not fenced yet keeps the interval.
 */
struct book_action events_record(
	struct track *t, const struct act_call *call, uint64_t begun_ns, uint32_t launches, uint32_t flags)
{
	__typeof__(cuEventRecord) *record = recorder(call);
	__typeof__(cuEventCreate) *create = arb_real(cuEventCreate);
	__typeof__(cuEventDestroy_v2) *destroy = arb_real(cuEventDestroy_v2);
	CUcontext ctx = arb_mine.call.ctx;
	unsigned at = record && create && destroy ? find_place(t, ctx) : BOOK_NO_FENCE;
	struct track_event *v = at == BOOK_NO_FENCE ? NULL : &t->events[at];
	uint64_t forgotten = t->forgotten, before;
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
	bool recorded;

	if (v && v->event && v->ctx != ctx) {
		destroy(v->event);
		v->event = NULL;
	}
	if (!v || (!v->event && create(&v->event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)) {
		if (v)
			v->event = NULL;
		return track_tell(t, &e);
	}
	v->ctx = ctx;
	v->start = arb_mine.call.start;
	arb_mine.call.start = NULL;
	v->recorded_ns = UINT64_MAX; /* taken */
	track_unlock(t);
	before = track_now();
	recorded = record(v->event, call->stream) == CUDA_SUCCESS;
	e.now_ns = track_now();
	track_lock(t);
	v->recorded_ns = e.now_ns;
	v->record_ns = e.took_ns = e.now_ns - before;
	/* A context may have gone meanwhile, and the event with it. */
	if (t->forgotten == forgotten && recorded)
		e.facts = 0;
	return track_tell(t, &e);
}

/* The context goes, and its events with it. */
void events_forget(struct track *t, CUcontext ctx)
{
	struct book_event e = {.kind = EVENT_FORGOTTEN, .ctx = (uintptr_t)ctx};

	t->forgotten++;
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

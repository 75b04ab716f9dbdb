/* Events behind launches: what is still queued, when it ended, and how long a launch takes. */
#include "track.h"

#include "hooks.h"

/* cuEventElapsedTime gives a float of ms: after so long it would be coarser than 1 us. */
#define BASE_AGE_NS (4000 * MS)
/* Where an idle stream allows it, the clocks are compared so often: they drift apart by some us in that time.
 */
#define CALIBRATE_NS (100 * MS)
/* If it took longer to record an event, it is not known when it took place. */
#define CALIBRATE_MOST_NS (20 * US)

/* So long after others were last seen, nobody is there. */
#define ALONE_NS (20 * MS)
/* What they may have queued, three of them. */
#define OTHERS_NS (3 * TRACK_BOUND_BESIDE_NS)

/* Nothing went on for so long, and then at once, or so soon. */
#define STALL_NS      (100 * MS)
#define STALL_SOON_NS (50 * MS)

/* The clocks are never so far apart. */
#define WRONG_NS (100 * US)

static unsigned hash(uint64_t handle)
{
	return (unsigned)((handle * 0x9e3779b97f4a7c15u) >> 58);
}

uint64_t marker_expect(const struct track *t, uint64_t handle, uint32_t launches)
{
	unsigned h = hash(handle);

	if (launches == 1 && handle && t->known[h].handle == handle)
		return t->known[h].ns;
	return t->launch_ns * launches;
}

uint64_t marker_own(const struct track *t, uint64_t handle, uint32_t launches)
{
	unsigned h = hash(handle);

	if (launches == 1 && handle && t->known[h].handle == handle)
		return t->known[h].own_ns;
	return t->launch_own_ns * launches;
}

/* By how much that may be wrong. */
static uint64_t expect_off(const struct track *t, uint64_t handle, uint32_t launches)
{
	unsigned h = hash(handle);

	if (launches > 1 || !handle)
		return t->launch_off_ns;
	/* What was never seen may take any time; if all is short here, that is soon known. */
	return t->known[h].handle == handle ? t->known[h].off_ns : t->launch_ns / 2;
}

/* Towards the last by a quarter of the difference. */
static void follow(uint64_t *average, uint64_t last)
{
	*average = (uint64_t)((int64_t)*average + ((int64_t)last - (int64_t)*average) / 4);
}

/*
 * Beside others, quickly down and hardly up: the shortest are those that nobody came into. By what they seem
 * to take, who has less in a common queue than others would need more time for each, and queue less and less.
 * Only what is more than all others can have queued is its own.
 */
static void follow_own(const struct track *t, const struct track_marker *m, uint64_t *own, uint64_t last)
{
	if (m->begun_ns > t->company_ns + ALONE_NS)
		follow(own, last);
	else if (last < *own)
		*own -= (*own - last) / 2;
	else if (last > *own + OTHERS_NS)
		*own = last - OTHERS_NS;
	else
		*own += (last - *own) / 64;
}

static uint64_t difference(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

static void learn(struct track *t, const struct track_marker *m, uint64_t took_ns)
{
	uint64_t each = took_ns / m->launches;

	if (m->launches == 1 && m->handle) {
		unsigned h = hash(m->handle);

		if (t->known[h].handle != m->handle) {
			t->known[h].handle = m->handle;
			t->known[h].ns = each;
			t->known[h].off_ns = 0;
			t->known[h].own_ns = each;
		}
		follow(&t->known[h].off_ns, difference(each, t->known[h].ns));
		follow(&t->known[h].ns, each);
		follow_own(t, m, &t->known[h].own_ns, each);
	}
	if (!t->launch_ns)
		t->launch_ns = t->launch_own_ns = each;
	follow(&t->launch_off_ns, difference(each, t->launch_ns));
	follow(&t->launch_ns, each);
	follow_own(t, m, &t->launch_own_ns, each);
	if (t->launch_ns < US)
		t->launch_ns = US;
	if (t->launch_own_ns < US)
		t->launch_own_ns = US;
}

/* The queue may double with every quarter of it that comes back, up to the bound. */
static void widen(struct track *t, const struct track_marker *m)
{
	uint64_t most = queue_bound(t) / t->launch_own_ns;

	t->back += m->launches;
	if (t->back * 4 >= t->window) {
		t->window *= 2;
		t->back = 0;
	}
	if (t->window > most)
		t->window = (uint32_t)most;
	if (t->window < 1)
		t->window = 1;
}

/* Nobody gates it, so it is not in the table. */
static __typeof__(cuEventElapsedTime) *elapsed_time(void)
{
	static void *found;
	void *f = __atomic_load_n(&found, __ATOMIC_RELAXED);

	if (!f) {
		f = arb_driver_symbol("cuEventElapsedTime");
		/* The newer one differs in what it says of events of two contexts. */
		if (!f)
			f = arb_driver_symbol("cuEventElapsedTime_v2");
		__atomic_store_n(&found, f, __ATOMIC_RELAXED);
	}
	return (__typeof__(cuEventElapsedTime) *)f;
}

/* A context's own clock; NULL: there are more contexts than clocks. */
static struct track_clock *clock_of(struct track *t, CUcontext ctx)
{
	struct track_clock *free = NULL;

	for (unsigned i = 0; i < TRACK_CONTEXTS; i++) {
		if (t->clocks[i].ctx == ctx)
			return &t->clocks[i];
		if (!t->clocks[i].ctx && !free)
			free = &t->clocks[i];
	}
	if (free)
		*free = (struct track_clock){.ctx = ctx};
	return free;
}

/* When a finished marker's event took place, on our clock. */
static uint64_t when(struct track *t, struct track_marker *m, uint64_t noticed_ns)
{
	__typeof__(cuEventElapsedTime) *elapsed = elapsed_time();
	struct track_clock *clock = m->ctx ? clock_of(t, m->ctx) : NULL;
	uint64_t passed, end = noticed_ns;
	CUevent old;
	float ms;

	if (!clock)
		return end;
	if (clock->base && elapsed && elapsed(&ms, clock->base, m->event) == CUDA_SUCCESS && ms >= 0) {
		passed = (uint64_t)((double)ms * 1e6);
		/* Whoever notices is late: the earliest that was ever noticed is nearest to the truth. */
		if (noticed_ns - passed < clock->base_ns)
			clock->base_ns = noticed_ns - passed;
		if (!clock->next_ns || noticed_ns - passed < clock->next_ns)
			clock->next_ns = noticed_ns - passed;
		end = clock->base_ns + passed;
		if (noticed_ns - clock->since_ns < BASE_AGE_NS)
			return end;
		/* What was noticed since the base was taken says where it really was; clocks drift. */
		end = clock->next_ns + passed;
	}
	old = clock->base;
	clock->base = m->event;
	clock->base_ns = end;
	clock->next_ns = 0;
	clock->since_ns = noticed_ns;
	clock->good = false;
	m->event = old;
	return end;
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
 * If the stream is idle an event recorded now takes place now: when the record returns, just as a kernel
 * begins when its launch does. If we are held up on the way, that is not known: again with the next launch.
 */
void marker_calibrate(struct track *t, const struct act_call *call, CUcontext ctx)
{
	__typeof__(cuEventRecord) *record = recorder(call);
	__typeof__(cuEventCreate) *create = arb_real(cuEventCreate);
	struct track_clock *clock = ctx ? clock_of(t, ctx) : NULL;
	uint64_t before = track_now(), after;
	CUevent old;

	if (!clock || (clock->base && clock->good && before - clock->since_ns < CALIBRATE_NS))
		return;
	if (!record || !create || !is_idle(call))
		return;
	if (!clock->spare && create(&clock->spare, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
		clock->spare = NULL;
		return;
	}
	before = track_now();
	if (record(clock->spare, call->stream) != CUDA_SUCCESS)
		return;
	after = track_now();
	if (after - before > CALIBRATE_MOST_NS)
		return;
	old = clock->base;
	clock->base = clock->spare;
	clock->spare = old;
	clock->base_ns = clock->since_ns = after;
	clock->next_ns = 0;
	clock->good = true;
}

/*
 * Before the first launch of a stay beside others, of something that was never seen alone: if in a device
 * that gives time slices this event waits for ours (probe.c), then from there to the marker it is the kernel
 * that takes the time.
 */
void marker_start(struct track *t, const struct act_call *call, CUcontext ctx)
{
	__typeof__(cuEventRecord) *record = recorder(call);
	__typeof__(cuEventCreate) *create = arb_real(cuEventCreate);
	__typeof__(cuEventDestroy_v2) *destroy = arb_real(cuEventDestroy_v2);

	if (!record || !create || !destroy || !is_idle(call))
		return;
	if (t->start && t->start_ctx != ctx) {
		destroy(t->start);
		t->start = NULL;
	}
	if (!t->start && create(&t->start, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
		t->start = NULL;
		return;
	}
	t->start_ctx = ctx;
	probe_begin(t, call, ctx);
	t->started = record(t->start, call->stream) == CUDA_SUCCESS;
}

static void timed(struct track *t, const struct track_marker *m)
{
	__typeof__(cuEventElapsedTime) *elapsed = elapsed_time();
	float ms;

	if (t->started && m->ctx == t->start_ctx && elapsed &&
		elapsed(&ms, t->start, m->event) == CUDA_SUCCESS && ms >= 0)
		t->timed_ns = (uint64_t)((double)ms * 1e6);
	t->started = false;
}

static bool let_past_behind(const struct track *t, const struct track_marker *m)
{
	return m->stream == t->needed_stream && m->stream != CU_STREAM_PER_THREAD;
}

/*
 * It has ended right after another was let past it: it has waited for that one. In its own stream that cannot
 * be, but for a program that lets it go on when it has queued enough behind it: right after a long time in
 * which nothing went on. That is believed the second time, because a kernel that is just long may end then.
 */
static bool has_waited(struct track *t, const struct track_marker *m, uint64_t end)
{
	uint64_t soon = t->stall_ns / 20 < STALL_SOON_NS ? t->stall_ns / 20 : STALL_SOON_NS;

	if (!m->parked)
		return false;
	if (!let_past_behind(t, m))
		return end < t->needed_ns;
	if (t->chance_ns == t->stalled_ns)
		return true;
	if (t->stall_ns < STALL_NS || end > t->stalled_ns + soon) {
		t->chances = 0;
		return false;
	}
	t->chance_ns = t->stalled_ns;
	t->chances++;
	return true;
}

static void finished(struct track *t, struct track_marker *m, uint64_t now)
{
	uint64_t end, begin = m->begun_ns;

	timed(t, m);
	end = when(t, m, now);
	/* Before its launch: what this driver says about events is not to be believed. */
	if (end > now || end + WRONG_NS < m->begun_ns)
		end = now;
	if (end < m->begun_ns)
		end = m->begun_ns;
	if (end < m->busy_ns)
		end = m->busy_ns;
	if (t->last_end_ns > begin)
		begin = t->last_end_ns;
	if (has_waited(t, m, end)) {
		/* It was waiting, which says nothing about how long it takes. */
		if (t->least < t->needed && (t->chances > 1 || !let_past_behind(t, m)))
			t->least = t->needed < TRACK_MARKERS ? t->needed : TRACK_MARKERS;
	} else {
		learn(t, m, end > begin ? end - begin : 0);
		widen(t, m);
	}
	if (end > t->last_end_ns)
		t->last_end_ns = end;
	t->progress_ns = now;
}

static void put_aside(struct track *t, const struct track_marker *m)
{
	t->outstanding -= m->launches;
	t->outstanding_ns -= m->expected_ns;
	t->outstanding_off_ns -= m->off_ns;
	t->outstanding_own_ns -= m->own_ns;
}

static void take_away(struct track *t, struct track_marker *m)
{
	if (m->parked)
		t->parked -= m->launches;
	else
		put_aside(t, m);
	m->launches = 0;
}

void marker_park(struct track *t)
{
	for (unsigned i = 0; i < t->count; i++) {
		struct track_marker *m = &t->ring[(t->first + i) % TRACK_MARKERS];

		if (!m->launches || m->parked)
			continue;
		put_aside(t, m);
		t->parked += m->launches;
		m->parked = true;
	}
}

static void shorten(struct track *t)
{
	while (t->count && !t->ring[t->first].launches) {
		t->first = (t->first + 1) % TRACK_MARKERS;
		t->count--;
	}
}

/* Room behind one that does not end. */
static void pack(struct track *t)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->count; i++) {
		struct track_marker *from = &t->ring[(t->first + i) % TRACK_MARKERS];
		struct track_marker *to = &t->ring[(t->first + n) % TRACK_MARKERS], m = *to;

		if (!from->launches)
			continue;
		*to = *from;
		if (from != to)
			*from = m;
		n++;
	}
	t->count = n;
}

/* Is it behind one that has not finished? Threads' default streams have one name, and are not known apart. */
static bool is_behind(const struct track_marker *const *busy, unsigned n, const struct track_marker *m)
{
	for (unsigned i = 0; i < n; i++)
		if (busy[i]->stream == m->stream && busy[i]->ctx == m->ctx &&
			m->stream != CU_STREAM_PER_THREAD)
			return true;
	return false;
}

/*
 * Events are asked about in their own context, which is current in the thread that launched but not in the
 * tracker, nor in one that has gone over to another: without one a driver need not answer, and in another it
 * answers with that one's errors.
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

bool marker_collect(struct track *t)
{
	__typeof__(cuCtxGetCurrent) *current = arb_real(cuCtxGetCurrent);
	__typeof__(cuEventQuery) *query = arb_real(cuEventQuery);
	const struct track_marker *busy[8];
	unsigned left = 0, nbusy = 0;
	struct place place = {NULL, false};

	if (!t->count)
		return true;
	if (!current || current(&place.current) != CUDA_SUCCESS)
		place.current = NULL;
	/* Streams overtake each other, so not only the oldest is asked, but of each stream only the first. */
	for (unsigned i = 0; i < t->count && left < 8; i++) {
		struct track_marker *m = &t->ring[(t->first + i) % TRACK_MARKERS];
		uint64_t asked = track_now();
		CUresult r;

		if (!m->launches || is_behind(busy, nbusy, m))
			continue;
		go_to(&place, m->ctx);
		r = query ? query(m->event) : CUDA_SUCCESS;
		if (r == CUDA_ERROR_NOT_READY) {
			left += !m->parked;
			t->busy_ns = m->busy_ns = asked;
			if (nbusy < 8)
				busy[nbusy++] = m;
			continue;
		}
		if (r == CUDA_SUCCESS)
			finished(t, m, track_now());
		take_away(t, m);
	}
	come_back(&place);
	shorten(t);
	if (t->count == TRACK_MARKERS)
		pack(t);
	return t->count == 0;
}

/*
 * Where the stream is full the driver makes us wait until there is room, and what that takes another thread
 * may have to launch: so not with the lock. What is let through and not covered yet keeps the stay.
 */
bool marker_record(
	struct track *t, const struct act_call *call, CUcontext ctx, uint64_t begun_ns, uint32_t launches)
{
	__typeof__(cuEventRecord) *record = recorder(call);
	__typeof__(cuEventCreate) *create = arb_real(cuEventCreate);
	__typeof__(cuEventDestroy_v2) *destroy = arb_real(cuEventDestroy_v2);
	struct track_marker *m = &t->ring[(t->first + t->count) % TRACK_MARKERS];
	uint64_t forgotten = t->forgotten;
	CUevent event = NULL;
	bool recorded;

	if (t->count == TRACK_MARKERS || !record || !create || !destroy)
		return false;
	if (m->ctx == ctx) {
		event = m->event;
		m->event = NULL;
	}
	if (!event && create(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
		return false;
	t->passing++;
	track_unlock(t);
	recorded = record(event, call->stream) == CUDA_SUCCESS;
	track_lock(t);
	t->passing--;
	/* A context may have gone meanwhile, and the event with it. */
	if (t->forgotten != forgotten)
		return false;
	m = &t->ring[(t->first + t->count) % TRACK_MARKERS];
	if (!recorded || t->count == TRACK_MARKERS) {
		destroy(event);
		return false;
	}
	if (m->event)
		destroy(m->event);
	m->event = event;
	m->ctx = ctx;
	m->stream = track_per_thread(call) ? CU_STREAM_PER_THREAD : call->stream;
	m->begun_ns = begun_ns;
	m->busy_ns = 0;
	m->launches = launches;
	m->parked = false;
	m->handle = launches == 1 ? call->handle : 0;
	m->expected_ns = marker_expect(t, m->handle, launches);
	m->off_ns = expect_off(t, m->handle, launches);
	m->own_ns = marker_own(t, m->handle, launches);
	t->singles = t->outstanding ? 0 : t->singles + 1;
	t->outstanding += launches;
	t->outstanding_ns += m->expected_ns;
	t->outstanding_off_ns += m->off_ns;
	t->outstanding_own_ns += m->own_ns;
	t->count++;
	return true;
}

bool marker_is_scattered(const struct track *t)
{
	const struct track_marker *last = &t->ring[(t->first + t->count + TRACK_MARKERS - 1) % TRACK_MARKERS];
	const struct track_marker *other =
		&t->ring[(t->first + t->count + TRACK_MARKERS - 2) % TRACK_MARKERS];

	return t->count > 1 && (last->stream != other->stream || last->ctx != other->ctx);
}

/* The context goes, and its events with it. */
void marker_forget(struct track *t, CUcontext ctx)
{
	t->forgotten++;
	for (unsigned i = 0; i < TRACK_MARKERS; i++) {
		struct track_marker *m = &t->ring[i];

		if (m->ctx != ctx)
			continue;
		if (m->launches)
			take_away(t, m);
		m->event = NULL;
		m->ctx = NULL;
	}
	shorten(t);
	probe_forget(t, ctx);
	if (t->start_ctx == ctx) {
		t->start = NULL;
		t->start_ctx = NULL;
		t->started = false;
	}
	for (unsigned i = 0; i < TRACK_CONTEXTS; i++)
		if (t->clocks[i].ctx == ctx)
			t->clocks[i] = (struct track_clock){0};
}

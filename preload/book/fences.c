/* Fences behind launches: what is queued, when it ended, and what that says about how long things take. */
#include <string.h>

#include "preload/book/parts.h"

/* Returns the fence that an event is about, or NULL if it names no place of the table. */
static struct book_fence *fence_told(struct book *b, const struct book_event *e)
{
	return e->fence < BOOK_FENCES ? &b->queue.fence[e->fence] : NULL;
}

/* Whether two fences, by their places in the order, are in different streams. */
static bool differ(const struct book *b, unsigned at, unsigned behind)
{
	const struct book_fence *f, *g;

	if (at >= b->queue.count || behind >= b->queue.count)
		return false;
	f = fence_of(b, at);
	g = fence_of(b, behind);
	return f->stream != g->stream || f->ctx != g->ctx;
}

void fence_put(struct book *b, const struct book_event *e)
{
	struct book_queue *q = &b->queue;
	struct book_fence *f = fence_told(b, e);

	if (!f || f->launches || !e->covers)
		return;
	*f = (struct book_fence){
		.ctx = e->ctx,
		.stream = e->stream,
		.begun_ns = e->at_ns,
		.recorded_ns = e->now_ns,
		.work = e->covers == 1 ? e->work : 0,
		.launches = e->covers,
		.calls = e->calls,
		.unfenced = e->unfenced,
		.held = e->call & CALL_HELD,
		.peer = e->call & CALL_PEER,
		.crowded = b->interval.crowded,
		.inside = e->call & CALL_INSIDE,
		.waits = e->call & CALL_WAITS,
		.is_long = e->call & CALL_LONG,
	};
	/* The sample is taken, unless other launches without a fence may have run before it. */
	b->program.sample = f->crowded || (b->program.sample && f->launches > 1);
	b->interval.crowded = false;
	f->expected_ns = durations_expect(&b->durations, f->work, f->launches);
	f->unsure_ns = durations_unsure(&b->durations, f->work, f->launches);
	q->order[q->count++] = e->fence;
	q->mixed += differ(b, q->count - 2, q->count - 1);
	q->launches += f->launches;
	q->ns += f->expected_ns;
	q->unsure_ns += f->unsure_ns;
}

static void put_aside(struct book *b, const struct book_fence *f)
{
	b->queue.launches -= f->launches;
	b->queue.ns -= f->expected_ns;
	b->queue.unsure_ns -= f->unsure_ns;
}

static void take_away(struct book *b, struct book_fence *f)
{
	struct book_queue *q = &b->queue;
	unsigned at = 0;

	if (f->parked)
		q->parked -= f->launches;
	else
		put_aside(b, f);
	f->launches = 0;
	while (at < q->count && fence_at(b, at) != f)
		at++;
	if (at == q->count)
		return;
	q->mixed += differ(b, at - 1, at + 1);
	q->mixed -= differ(b, at - 1, at) + differ(b, at, at + 1);
	memmove(&q->order[at], &q->order[at + 1], q->count - at - 1);
	q->count--;
}

void fence_park_all(struct book *b)
{
	for (unsigned i = 0; i < b->queue.count; i++) {
		struct book_fence *f = fence_at(b, i);

		if (f->parked)
			continue;
		put_aside(b, f);
		b->queue.parked += f->launches;
		f->parked = true;
	}
}

void fence_forget(struct book *b, uint64_t ctx)
{
	for (unsigned i = 0; i < BOOK_FENCES; i++)
		if (b->queue.fence[i].launches && b->queue.fence[i].ctx == ctx)
			take_away(b, &b->queue.fence[i]);
}

bool fence_is_scattered(const struct book *b)
{
	return differ(b, b->queue.count - 2, b->queue.count - 1);
}

void fence_unfinished(struct book *b, const struct book_event *e)
{
	struct book_fence *f = fence_told(b, e);

	/* Two threads that ask at the same time may tell their answers in the other order. */
	if (e->at_ns > b->queue.busy_ns)
		b->queue.busy_ns = e->at_ns;
	if (f && f->launches && e->at_ns > f->busy_ns)
		f->busy_ns = e->at_ns;
	/* Beside others an event may wait for them. A copy says nothing about kernels. */
	if (f && f->launches && f->inside <= f->waits && e->at_ns > f->recorded_ns + CALL_NS &&
		!others_contended(b, e->now_ns))
		b->program.afterwards = true;
	/* A stream that was busy twice, without a call in between, was busy all the time. */
	if (e->fence == BOOK_NO_FENCE) {
		if (b->interval.busy_calls == b->interval.asked_calls)
			b->interval.steady_ns = e->at_ns;
		b->interval.busy_calls = b->interval.asked_calls;
	}
}

/* Learns from the time that a fenced launch took. Time spent waiting for others is not its duration. */
static void learn(struct book *b, const struct book_fence *f, uint64_t end, uint64_t took, bool whole,
	uint64_t now, uint8_t *alternates)
{
	struct book_queue *q = &b->queue;
	uint64_t known = f->expected_ns;

	/* A length that may be nothing but a wait does not hide another wait, unless the kernel stood behind other work or was
	 * longer than any slice. */
	if (!whole && known > WAITED_MORE_NS && took < OUTLAST_NS &&
		durations_may_be_wait(&b->durations, f->work))
		known = WAITED_MORE_NS;
	if (partner_passed(b, f, end, took)) {
		/* Its length is known from before. */
	} else if (queue_has_waited(b, f, end)) {
		if (q->least < q->needed && (q->chances > 1 || !queue_let_past_behind(b, f)))
			q->least = q->needed < BOOK_FENCES ? q->needed : BOOK_FENCES;
		return;
	} else if (b->others.stalls) {
		/* The kernel has waited for a partner or is just long. At most twice of what was known is learned: a kernel
		 * that is always long is soon known to be, one that waits now and then is not. */
		durations_raise(
			&b->durations, f->work, took < 2 * f->expected_ns ? took : 2 * f->expected_ns);
	} else if (!f->expected_ns || !others_contended(b, now) ||
		   !others_waited(b, took, known, now, alternates)) {
		others_slowed(b, f, took, now, alternates);
		if (whole && f->launches == 1)
			durations_behind(&b->durations, f->work, took);
		/* If the launches did not all wait for each other, the time from the first to the last is only an
		 * upper bound of what they took. */
		if (whole || (f->launches == 1 && !f->crowded))
			durations_learn(&b->durations, f->work, f->launches, took, !b->others.beside);
		else
			durations_bound(&b->durations, f->launches, took);
	}
	queue_widen(b, f->launches, now);
}

/*
 * A copy in another GPU's stream begins when the earlier work of that GPU has ended. Until then this GPU did not work on it.
 * If nothing but such copies is queued here, this GPU was idle until then. A launch behind a host function begins when that
 * has returned (stood_still).
 */
static void begun_late(struct book *b, struct book_fence *f, uint64_t end, uint64_t took)
{
	struct book_interval *i = &b->interval;
	uint64_t from = i->begin_ns + i->lead_least_ns;

	if (!took || end < f->begun_ns + took)
		return;
	f->begun_ns = end - took;
	if (from < b->queue.last_end_ns)
		from = b->queue.last_end_ns;
	for (unsigned at = 0; at < b->queue.count; at++)
		if (!fence_of(b, at)->peer)
			return;
	if (!i->unfenced && f->begun_ns > from)
		i->idle_ns += f->begun_ns - from;
}

/* Returns how many calls of all threads the interval had until the fence was recorded. */
static uint64_t calls_until(const struct book *b, const struct book_fence *f)
{
	return f->calls > b->interval.calls_before ? f->calls - b->interval.calls_before : 0;
}

/* Returns how many launches may have run between the last measured end and the end of this fence: those until it was
 * recorded that no busy time is accounted for yet. */
static uint64_t may_have_run(const struct book *b, const struct book_fence *f)
{
	uint64_t calls = calls_until(b, f), most = f->launches + f->unfenced;

	if (!calls)
		return f->launches; /* it was recorded before the interval began */
	calls = calls > b->interval.ran ? calls - b->interval.ran : 0;
	return calls < most ? calls : most;
}

/* Notes that the GPU was busy for so long until the end of this fence. All launches that had a fence by then have ended. */
static void account_for(struct book *b, const struct book_fence *f, uint64_t busy_ns)
{
	struct book_interval *i = &b->interval;
	uint64_t calls = calls_until(b, f), least = calls > f->unfenced ? calls - f->unfenced : 0;

	if (b->durations.each_ns)
		i->ran += busy_ns / b->durations.each_ns;
	i->ran = i->ran < least ? least : i->ran > calls ? calls : i->ran;
}

/*
 * Counts how long the GPU has stood still since the last measured end. It stood still until the first launch that the fence
 * covers was submitted, if nothing else was on the way then. It may also have stood still between the launches: only if all
 * of them were submitted before the last measured end is it known that none came too late. Otherwise the launches are taken
 * to have run for as long as so many launches usually do; so are launches of other threads that have no fence yet. With
 * others in the set a launch may have waited for them, so that time is not counted as a pause.
 *
 * A launch that was submitted at `submitted` may have begun later, behind a host function. Then the GPU has stood still until
 * it began only if nothing in another stream, and nothing without a fence, can have run meanwhile.
 */
static void stood_still(
	struct book *b, const struct book_fence *f, uint64_t submitted, uint64_t end, bool whole)
{
	struct book_interval *i = &b->interval;
	uint64_t from = i->begin_ns + i->lead_ns, each = b->durations.each_ns, n = may_have_run(b, f);
	uint64_t others = n > f->launches ? (n - f->launches) * each : 0, before, span, busy, idle;
	bool alone = f->launches == 1 && !b->queue.mixed && !i->unfenced;
	uint64_t begun = alone ? f->begun_ns : submitted;

	if (!book_is_in(b) || i->first_to_come || f->peer || fence_of(b, 0) != f || b->in_driver ||
		b->recording) {
		account_for(b, f, 0);
		return;
	}
	if (from < b->queue.last_end_ns)
		from = b->queue.last_end_ns;
	span = end > from ? end - from : 0;
	before = begun > from ? begun - from : 0;
	idle = before > others ? before - others : 0;
	if (f->launches > 1 && !whole && span > before) {
		i->dry = b->program.sample = true;
		busy = n * each - (before - idle);
		if (busy > span - before)
			busy = span - before;
		if (each && !others_contended(b, f->recorded_ns)) {
			idle += span - before - busy;
			i->guessed_ns += busy;
		}
	}
	i->idle_ns += idle;
	account_for(b, f, span > idle ? span - idle : 0);
}

bool book_runs_within(const struct book *b)
{
	return !b->program.afterwards && b->program.within >= WITHIN_LEAST;
}

/*
 * Nothing announces a driver that runs a kernel within the call that launches it: NVIDIA's does so under some profilers,
 * and simple simulated ones do. Such a call takes long, and the event behind it passes at once. A call that was held up for
 * another reason may look the same (its thread did not run, a new kernel was loaded), so only several in a row count, and
 * none of a kernel that is new. A single event that does not pass at once shows that the driver is not of this kind.
 */
static void ran_within(struct book *b, const struct book_fence *f, uint64_t end)
{
	struct book_program *p = &b->program;

	if (f->inside || f->launches != 1 || p->within >= WITHIN_LEAST ||
		!durations_find(&b->durations, f->work))
		return;
	p->within = f->is_long && end <= f->recorded_ns + CALL_NS ? p->within + 1 : 0;
}

void fence_passed(struct book *b, const struct book_event *e, uint8_t *alternates)
{
	struct book_queue *q = &b->queue;
	struct book_fence *f = fence_told(b, e);
	uint64_t end = e->at_ns, submitted, begin, took;
	bool whole;

	if (!f || !f->launches)
		return;
	if (e->facts & FACT_FAILED) {
		take_away(b, f);
		return;
	}
	ran_within(b, f, end);
	submitted = f->begun_ns;
	begun_late(b, f, end, e->took_ns);
	begin = f->begun_ns;
	if (end < begin)
		end = begin;
	if (end < f->busy_ns)
		end = f->busy_ns;
	whole = q->last_end_ns >= f->recorded_ns;
	if (begin < q->last_end_ns)
		begin = q->last_end_ns;
	took = end > begin ? end - begin : 0;
	stood_still(b, f, submitted, end, whole);
	learn(b, f, end, took, whole, e->now_ns, alternates);
	others_below_passed(b, f, took, e->now_ns);
	q->prompt = end < f->recorded_ns + 2 * b->durations.mean_ns + CALL_NS / 2;
	if (end > q->last_end_ns)
		q->last_end_ns = end;
	if (e->now_ns > q->progress_ns)
		q->progress_ns = e->now_ns;
	take_away(b, f);
}

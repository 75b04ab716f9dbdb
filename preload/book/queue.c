/* How much of a process's work may be queued on the GPU, and what if that does not end: it may wait for what stands
 * at the gate. */
#include "preload/book/parts.h"

static uint64_t bound(const struct book *b, uint64_t now)
{
	if (b->others.above)
		return b->others.below_ns;
	if (b->others.lent)
		return QUEUE_NS / 2; /* whoever has a request waits for what is queued */
	return others_contended(b, now) ? QUEUE_CONTENDED_NS : b->queue.bound_ns;
}

/* Has it nothing of its own before it in its stream? */
static bool is_first(const struct book *b, const struct book_event *e)
{
	for (unsigned i = 0; i < b->queue.count; i++)
		if (fence_of(b, i)->stream == e->stream && fence_of(b, i)->ctx == e->ctx)
			return false;
	return true;
}

bool queue_has_room(const struct book *b, const struct book_event *e)
{
	const struct book_queue *q = &b->queue;
	uint64_t expected = durations_expect(&b->durations, e->work, 1);
	uint32_t queued = q->launches + e->covers;

	/* An unlimited client is bounded where it is contended: in a common queue it would come before all others. */
	if ((!b->others.limited && !b->others.above && !b->others.lent && !others_contended(b, e->now_ns)) ||
		!q->launches)
		return true;
	if (q->count == BOOK_FENCES)
		return false;
	/* Of what waits for something behind it, as much again each time. What is known to be long is let past only when it
	 * is seen to be stuck: an account never owes more than a window for what has waited once. */
	if ((queued <= q->least && q->ns + expected <= b->others.window_ns) || queued <= q->parked)
		return true;
	/* Without a limit its streams do not wait for each other: one may be there for what is urgent. */
	if (b->others.core_pct >= 100 && !b->others.above && is_first(b, e))
		return true;
	/* One behind the one that runs: else the GPU stands still from its end until that is noticed. Beside others a
	 * kernel takes longer than alone, by as many times as there are clients, so that two of them do not fit into the
	 * bound. Where the GPU alternates one that has nothing behind it waits longer still, and would stay too long. And
	 * one whose length may be a wait for others, once: behind another it is seen how long it takes. If it is as long,
	 * no more than a window is owed. */
	if (queued == 2 && b->durations.mean_ns && !b->others.above &&
		(expected <= (b->others.others + 1) * QUEUE_CONTENDED_NS ||
			(others_contended(b, e->now_ns) && !is_first(b, e) &&
				q->ns + expected <= b->others.window_ns &&
				durations_may_be_wait(&b->durations, e->work))))
		return true;
	return queued <= q->window && q->ns + expected <= bound(b, e->now_ns);
}

void queue_widen(struct book *b, uint32_t launches, uint64_t now)
{
	struct book_queue *q = &b->queue;
	uint64_t most = bound(b, now) / (b->durations.mean_ns ? b->durations.mean_ns : US);

	/* It may double with every quarter of it that comes back. */
	q->back += launches;
	if (q->back * 4 >= q->window) {
		q->window *= 2;
		q->back = 0;
	}
	if (q->window > most)
		q->window = (uint32_t)most;
	if (q->window < 1)
		q->window = 1;
}

/* When the oldest that is waited for should end. */
static uint64_t due(const struct book *b)
{
	for (unsigned i = 0; i < b->queue.count; i++) {
		const struct book_fence *f = fence_of(b, i);

		if (!f->parked)
			return (f->begun_ns > b->queue.last_end_ns ? f->begun_ns : b->queue.last_end_ns) +
			       f->expected_ns;
	}
	return b->queue.progress_ns;
}

uint64_t queue_patience(const struct book *b, uint64_t now)
{
	uint64_t at = due(b), ns = at > now ? (at - now) / 2 : (now - at) / 8;
	uint64_t least = LOOK_NS / 2, most = now > at + STUCK_SOON_NS ? 4 * LONG_NS : LONG_NS;

	return others_below_patience(b, at, now, ns < least ? least : ns > most ? most : ns);
}

static bool is_stuck(const struct book *b, const struct book_event *e)
{
	/* Where that was seen to happen: twice what a whole queue takes. */
	uint64_t longest = b->queue.least ? 2 * QUEUE_NS : STUCK_SOON_NS;

	if (e->now_ns <= b->queue.progress_ns + longest)
		return false;
	if (!b->queue.least && !(e->facts & FACT_HOST_WORK))
		longest = STUCK_NS;
	/* How long a launch takes that may have waited is only a guess. An unlimited client is held up for the others'
	 * sake only, not for as long as its work takes; nor is what passed on credit waited for as if it were all to
	 * come. */
	for (unsigned i = 0; b->others.limited && i < b->queue.count; i++) {
		const struct book_fence *f = fence_of(b, i);

		if (f->launches == 1 && !f->parked && 8 * f->expected_ns > longest)
			longest = 8 * f->expected_ns;
	}
	if (longest > 2 * STUCK_NS)
		longest = 2 * STUCK_NS;
	return e->now_ns > b->queue.progress_ns + longest;
}

/*
 * Nothing that is queued has ended for long. It may be a long kernel; or it waits for what comes behind it, which would
 * wait for it here. So it is no longer waited for. Where the quota is used up, and cannot come back because what is
 * queued is billed, what comes behind goes as fast as the limit allows.
 */
bool queue_let_past(struct book *b, const struct book_event *e)
{
	struct book_queue *q = &b->queue;
	uint64_t expected = durations_expect(&b->durations, e->work, 1), now = e->now_ns;
	bool stuck = is_stuck(b, e);

	if (stuck && q->launches) {
		fence_park_all(b);
		q->stalled_ns = now;
		q->stall_ns = now - q->progress_ns;
		q->progress_ns = now;
	}
	if (b->state != BOOK_DRAINING || q->launches || !(q->parked || stuck) || now < q->pace_ns)
		return false;
	if (expected < KEEP_NS)
		expected = KEEP_NS;
	q->pace_ns = now + expected * 100 / (b->others.core_pct ? b->others.core_pct : 1);
	/* What ends right behind this has waited for it, however long that was held up here: its length would be learned
	 * else, and the next one held up for twice as long. */
	if (now - q->stalled_ns >= STUCK_SOON_NS) {
		q->stall_ns = now - q->stalled_ns;
		q->stalled_ns = now;
	}
	b->interval.unfenced = true;
	return true;
}

/*
 * If what is parked ends right after this one, it has waited for it. How soon is that? If one is let past every now and
 * then, a kernel that is just long ends behind one of them as well: by half the time between them.
 */
void queue_note_need(struct book *b, const struct book_event *e)
{
	struct book_queue *q = &b->queue;
	uint64_t soon = (e->now_ns - q->noted_ns) / 2, span = 2 * durations_expect(&b->durations, e->work, 1);

	if (soon > STUCK_SOON_NS / 2)
		soon = STUCK_SOON_NS / 2;
	if (soon < span)
		soon = span;
	q->needed = q->parked + q->launches + e->covers;
	if (q->needed_ns < e->now_ns + soon)
		q->needed_ns = e->now_ns + soon;
	q->noted_ns = e->now_ns;
	q->needed_stream = e->stream;
}

bool queue_let_past_behind(const struct book *b, const struct book_fence *f)
{
	return f->stream == b->queue.needed_stream && f->stream != BOOK_PER_THREAD;
}

/*
 * It has ended right after another was let past it: it has waited for that one. In its own stream that cannot be, but
 * for a program that lets it go on when it has queued enough behind it: right after a long time in which nothing went
 * on. That is believed the second time, because a kernel that is just long may end then.
 */
bool queue_has_waited(struct book *b, const struct book_fence *f, uint64_t end)
{
	struct book_queue *q = &b->queue;
	uint64_t soon = q->stall_ns / 20 < STUCK_SOON_NS / 2 ? q->stall_ns / 20 : STUCK_SOON_NS / 2;

	if (!f->parked)
		return false;
	if (!queue_let_past_behind(b, f))
		return end < q->needed_ns;
	if (q->chance_ns == q->stalled_ns)
		return true;
	if (q->stall_ns < STUCK_SOON_NS || end > q->stalled_ns + soon) {
		q->chances = 0;
		return false;
	}
	q->chance_ns = q->stalled_ns;
	q->chances++;
	return true;
}

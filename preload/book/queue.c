/* How much work of a process may be queued on the GPU, and what happens if that work does not end: it may be waiting for a
 * launch that stands at the gate. */
#include "preload/book/parts.h"

/* Returns how much work may be queued. */
static uint64_t bound(const struct book *b, uint64_t now)
{
	if (b->others.above)
		return b->others.below_ns;
	if (b->others.lent)
		return QUEUE_NS / 2; /* the account with the request waits for what is queued */
	return others_contended(b, now) ? QUEUE_CONTENDED_NS : b->queue.bound_ns;
}

/* Returns the oldest fence that is waited for, or NULL. */
static const struct book_fence *oldest(const struct book *b)
{
	for (unsigned i = 0; i < b->queue.count; i++)
		if (!fence_of(b, i)->parked)
			return fence_of(b, i);
	return NULL;
}

/* Returns when the oldest launch that is waited for should end. */
static uint64_t due(const struct book *b)
{
	const struct book_fence *f = oldest(b);

	if (!f)
		return b->queue.progress_ns;
	return (f->begun_ns > b->queue.last_end_ns ? f->begun_ns : b->queue.last_end_ns) + f->expected_ns;
}

/* Returns how much work is queued behind the oldest launch. */
static uint64_t behind(const struct book *b)
{
	const struct book_fence *f = oldest(b);

	return f && f->expected_ns < b->queue.ns ? b->queue.ns - f->expected_ns : 0;
}

/*
 * Returns for how long a client of a higher priority may have to wait for what is queued. Of the kernel that runs only what
 * should be left of it counts. So the next kernel is queued shortly before this one ends, by as much as launches need to lose
 * no time, and not as soon as this one begins.
 */
static uint64_t left_below(const struct book *b, uint64_t now)
{
	uint64_t end = due(b);

	return behind(b) + (end > now ? end - now : 0);
}

/* Whether nothing is queued before this call in its stream. */
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

	/* An unlimited client is bounded only while it is contended: on a GPU with one queue it would displace all others. */
	if ((!b->others.limited && !b->others.above && !b->others.lent && !others_contended(b, e->now_ns)) ||
		!q->launches)
		return true;
	if (q->count == BOOK_FENCES)
		return false;
	/* Where work has waited for later work, as much may be queued as was needed then, if it takes at most a window: an
	 * account then owes at most a window for it. Longer work is let past only when the queue is seen to be stuck. Behind
	 * parked work as much again may be queued each time. */
	if ((queued <= q->least && q->ns + expected <= b->others.window_ns) || queued <= q->parked)
		return true;
	/* Without a limit, streams do not wait for each other: one of them may be there for urgent work. */
	if (b->others.core_pct >= 100 && !b->others.above && is_first(b, e))
		return true;
	/* A second launch may stand behind the one that runs, or the GPU would stand still from each end until that is
	 * noticed. While others run, a kernel takes as many times longer as there are clients, so two of them would not fit
	 * into the bound. A kernel whose known length may be nothing but a wait for others may stand there once as well: behind
	 * another kernel its length can be measured. If it is really that long, at most a window is owed. */
	if (queued == 2 && b->durations.mean_ns && !b->others.above &&
		(expected <= (b->others.others + 1) * QUEUE_CONTENDED_NS ||
			(others_contended(b, e->now_ns) && !is_first(b, e) &&
				q->ns + expected <= b->others.window_ns &&
				durations_may_be_wait(&b->durations, e->work))))
		return true;
	if (b->others.above)
		return queued <= q->window && left_below(b, e->now_ns) + expected <= b->others.below_ns;
	return queued <= q->window && q->ns + expected <= bound(b, e->now_ns);
}

void queue_widen(struct book *b, uint32_t launches, uint64_t now)
{
	struct book_queue *q = &b->queue;
	uint64_t most = bound(b, now) / (b->durations.mean_ns ? b->durations.mean_ns : SHORTEST_NS);

	/* Below a higher priority the kernel that runs is not counted as a whole, so one more may be queued. */
	most += b->others.above;

	/* The window may double whenever a quarter of it has ended: that is fast enough for a queue that starts with one. */
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

/* This machine wakes threads too late for so short a queue. */
void queue_ran_dry(struct book *b, uint64_t now)
{
	if (b->queue.bound_ns < 5 * QUEUE_NS && !others_contended(b, now))
		b->queue.bound_ns += b->queue.bound_ns / 2;
}

/* Returns the longest sleep before an end that is expected in rest_ns. Each of many clients that share the GPU gets little
 * of it, so its ends are far apart: the sleep grows with the number of clients, up to an eighth of rest_ns. */
static uint64_t longest_sleep(const struct book *b, uint64_t rest_ns)
{
	uint64_t most = LONG_NS * (b->others.others / 2);

	most = most < rest_ns / 8 ? most : rest_ns / 8;
	return most > LONG_NS ? most : LONG_NS;
}

uint64_t queue_patience(const struct book *b, uint64_t expected_ns, uint64_t now)
{
	uint64_t at = due(b), ns = at > now ? (at - now) / 2 : (now - at) / 8;
	uint64_t least = LOOK_NS / 2,
		 most = now > at + STUCK_SOON_NS ? 4 * LONG_NS : longest_sleep(b, at > now ? at - now : 0);
	uint64_t early = behind(b) + expected_ns, until = at + behind(b);

	/* The thread waits until there is room for its launch; or, where no launch may be queued, until all work has ended
	 * and the place can be handed over. */
	if (b->state == BOOK_RUNNING) {
		early = early < b->others.below_ns ? b->others.below_ns - early : 0;
		until = at > early ? at - early : 0;
	}
	return others_patience(b, until, now, ns < least ? least : ns > most ? most : ns);
}

static bool is_stuck(const struct book *b, const struct book_event *e)
{
	/* Where the queue was stuck before, twice as long as a whole queue takes is enough. */
	uint64_t longest = b->queue.least ? 2 * QUEUE_NS : STUCK_SOON_NS;

	if (e->now_ns <= b->queue.progress_ns + longest)
		return false;
	if (!b->queue.least && !(e->facts & FACT_HOST_WORK))
		longest = 20 * STUCK_SOON_NS;
	/* The known length of a launch may include waits, so it is only a guess, and eight times as long is waited for. An
	 * unlimited client is held up only for the sake of others, so it does not wait for that. Fences of several launches
	 * do not count, because most of those launches have ended already. */
	for (unsigned i = 0; b->others.limited && i < b->queue.count; i++) {
		const struct book_fence *f = fence_of(b, i);

		if (f->launches == 1 && !f->parked && 8 * f->expected_ns > longest)
			longest = 8 * f->expected_ns;
	}
	if (longest > 40 * STUCK_SOON_NS)
		longest = 40 * STUCK_SOON_NS;
	return e->now_ns > b->queue.progress_ns + longest;
}

/*
 * Nothing that is queued has ended for long. Either a kernel is long, or the queued work waits for a launch that stands here
 * and waits for it. So the queued work is parked: it is not waited for any longer. If the quota is used up, it cannot come back
 * while queued work is billed, so launches are let past at the pace that the limit allows.
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
	/* Work that ends right behind this launch has waited for it. That wait must not be learned as its duration, or the
	 * next launch would be held up for twice as long. */
	if (now - q->stalled_ns >= STUCK_SOON_NS) {
		q->stall_ns = now - q->stalled_ns;
		q->stalled_ns = now;
	}
	b->interval.unfenced = true;
	return true;
}

/*
 * If parked work ends soon after this launch, it has waited for it. "Soon" is at most half the time between two launches that
 * are let past: by chance, a kernel that is just long ends so soon behind one of them only half of the time.
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
 * Work that ends right after a launch was let past it has waited for that launch. If both are in one stream that cannot be,
 * except in a program that lets the work go on when it has queued enough behind it: then it ends right after a long time in
 * which nothing ended. That is believed the second time in a row, because a kernel that is just long may end then by chance.
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

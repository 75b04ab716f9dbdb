/*
 * How the end of the work is seen. The cheapest way that applies is taken: a thread of the program waits for it; the next
 * call comes to the gate; the tracker looks at the expected end; the driver calls back, if the end cannot be foreseen; the
 * tracker looks again and again, as rarely as its CPU budget demands.
 */
#include "preload/book/parts.h"

/* Whether a callback is expected. */
static bool is_set(const struct book *b)
{
	/* A callback that was asked for in an earlier interval is late, or will never come. */
	return b->observer.set && b->observer.set_interval == b->interval.number;
}

bool observer_may_ask(const struct book *b, const struct book_event *e, bool anew)
{
	return !(e->facts & (FACT_NO_CALLBACK | FACT_CAPTURES)) && e->now_ns >= b->observer.next_ns &&
	       !(b->interval.unfenced && !(anew && b->observer.quiet)) && !b->waiters && b->queue.count;
}

/* Whether it can be foreseen which launch is the last of the interval: then one callback an interval is enough. */
static bool is_cheap(const struct book *b, const struct book_event *e)
{
	return b->interval.regular && !b->others.turns && b->program.unwaited >= 2 * CREDIT_LEAST &&
	       interval_is_rare(b, e);
}

/* Whether the end of the work cannot be foreseen, or the tracker has no budget to look then. */
static bool is_needed(const struct book *b, const struct book_event *e)
{
	return b->queue.unsure_ns > (others_contended(b, e->now_ns) ? UNSURE_NS / 3 : UNSURE_NS) ||
	       (!b->observer.hurry && is_cheap(b, e));
}

/* A callback is not asked for while a thread of the program waits for work: that thread would have to wait for the callback
 * as well. */
bool observer_asks_early(const struct book *b, const struct book_event *e)
{
	return is_cheap(b, e) && is_needed(b, e) && interval_is_whole(b, e) && !(e->facts & FACT_UNCALLED) &&
	       b->queue.ns < e->look_ns && (is_set(b) || observer_may_ask(b, e, false));
}

void observer_callback(struct book *b, const struct book_event *e)
{
	struct book_observer *o = &b->observer;

	if (e->result < 0)
		return;
	o->set = true;
	o->set_ns = e->now_ns;
	o->set_interval = b->interval.number;
}

/* The driver has called back. A callback that comes before the end is in vain. From the third in one interval on, the next
 * one is asked for after a pause, which doubles each time. */
static void called(struct book *b, const struct book_event *e)
{
	struct book_observer *o = &b->observer;

	o->set = false;
	if (o->vain_interval != b->interval.number)
		o->vain = 0;
	o->vain_interval = b->interval.number;
	o->vain += o->vain < 12;
	o->next_ns = !book_is_in(b) || o->vain < 3 ? 0 : e->now_ns + (IN_DRIVER_NS << (o->vain - 3));
}

/* Returns when to look whether the work has ended. */
static uint64_t due(const struct book *b, const struct book_event *e)
{
	const struct book_queue *q = &b->queue;
	uint64_t begun, grace = LOOK_NS;

	/* There is less hurry without budget, and where the program will soon see the end itself. Looking later saves something
	 * only if the next work comes meanwhile. */
	if (!b->observer.hurry && !interval_is_rare(b, e))
		grace = e->look_ns;
	else if (!b->observer.hurry || b->interval.quick)
		grace = QUICK_NS;
	/* Threads that wait at the gate look themselves. */
	if (!book_is_in(b) || b->waiters)
		return UINT64_MAX;
	if (!b->others.watched && !q->count && b->interval.quick)
		return q->busy_ns + e->look_ns;
	if (!q->count && !b->interval.unfenced)
		return q->progress_ns + grace;
	begun = q->count && fence_of(b, 0)->begun_ns > q->last_end_ns ? fence_of(b, 0)->begun_ns
								      : q->last_end_ns;
	return begun + q->ns + e->unfenced * b->durations.mean_ns + grace;
}

static struct book_action sleep_until(const struct book *b, const struct book_event *e, uint64_t at_ns)
{
	uint64_t now = e->now_ns, next = b->others.check_ns < at_ns ? b->others.check_ns : at_ns;

	if (b->state == BOOK_KEPT)
		next = b->interval.kept_ns;
	else if (!book_is_in(b))
		return (struct book_action){.what = ACT_LOOK};
	next = next > now + LOOK_NS ? next - now : LOOK_NS;
	/* Others wait for the place that this client keeps, and only this client knows when it gives it up. */
	if (book_is_in(b) && b->interval.keeps && next > e->look_ns / 2)
		next = e->look_ns / 2;
	return (struct book_action){.what = ACT_LOOK, .ns = next};
}

/* The work was looked at and has not ended. Returns when to look again: the later the end, the longer the pause. */
static uint64_t look_again(const struct book *b, const struct book_event *e, bool *unforeseen)
{
	uint64_t at = due(b, e), now = e->now_ns, late = now > at ? now - at : 0;
	uint64_t least = b->observer.hurry        ? 2 * LOOK_NS
			 : interval_is_rare(b, e) ? PAUSE_NS / 2
			 : b->others.watched      ? e->look_ns
						  : ALONE_NS;
	uint64_t most = b->observer.hurry ? LONG_NS : least > e->look_ns ? least : e->look_ns;

	*unforeseen |= late > IN_DRIVER_NS && now - b->interval.begin_ns > LONG_NS;
	late /= b->observer.hurry ? 8 : 1;
	return at > now ? at : now + (late < least ? least : late > most ? most : late);
}

struct book_action observer_timer(struct book *b, const struct book_event *e)
{
	struct book_observer *o = &b->observer;
	uint64_t now = e->now_ns, at, begin = b->interval.begin_ns;
	bool rang = e->call & CALL_RANG, settled = e->call & STEP_SETTLED, unforeseen = false, affordable,
	     known;
	struct book_action act;

	at = due(b, e);
	/* A program that goes on launching has work. If it pauses, it comes back at once, and nobody else pays for that. So it is
	 * looked at only when a check is due. */
	if (!b->others.watched && !o->quiet && !rang && !(e->call & STEP_CHECKED) &&
		at < b->others.check_ns && !interval_is_whole(b, e))
		at = b->others.check_ns;
	if (book_is_in(b) && !settled && (now >= at || rang || (e->call & STEP_LOOKED))) {
		act = interval_settle(b, e, false);
		if (act.what)
			return act;
		settled = true;
	}
	if (book_is_in(b) && settled)
		at = look_again(b, e, &unforeseen);
	if (rang && !(e->call & STEP_CALLBACK))
		called(b, e);
	unforeseen |= is_needed(b, e);
	/* In an interval that lasts longer than the pause between looks, one callback costs less than the looks. */
	affordable = o->hurry || is_cheap(b, e) || now - begin > e->look_ns;
	/* A callback is in vain if more launches follow. */
	known = o->quiet || (b->interval.regular ? interval_is_whole(b, e) : now - begin >= LONG_NS);
	if (book_is_in(b) && !is_set(b) && unforeseen && affordable && known && !(e->call & STEP_CALLBACK) &&
		observer_may_ask(b, e, true))
		return (struct book_action){.what = ACT_CALLBACK, .step = STEP_CALLBACK, .n = 1};
	if (book_is_in(b) && is_set(b))
		at = o->set_ns + ALONE_NS > now ? o->set_ns + ALONE_NS : now + PAUSE_NS / 2;
	else if (unforeseen && affordable && !known && !b->interval.regular && at > begin + LONG_NS)
		at = begin + LONG_NS;
	else if (unforeseen && affordable && o->next_ns > now && at > o->next_ns)
		at = o->next_ns;
	return sleep_until(b, e, at);
}

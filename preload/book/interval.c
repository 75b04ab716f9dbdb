/* The busy interval: it begins with a launch while the process has no work on the GPU, and ends when its last work has ended.
 * Time that no fence has measured is estimated, and counted as estimated. */
#include "preload/book/parts.h"

/* Why the set is left: the work has ended; the work has gaps; the work waits for a partner on another GPU; the process is
 * frozen by a checkpoint. */
enum { WHY_IDLE, WHY_GAPS, WHY_STALLED, WHY_FROZEN };

uint64_t interval_calls(const struct book *b, const struct book_event *e)
{
	return e->calls - b->interval.calls_before;
}

bool interval_is_whole(const struct book *b, const struct book_event *e)
{
	return b->interval.regular && interval_calls(b, e) >= b->interval.calls;
}

bool interval_is_rare(const struct book *b, const struct book_event *e)
{
	return b->interval.apart_ns > (int64_t)e->look_ns;
}

void interval_begin(struct book *b, const struct book_event *e)
{
	struct book_interval *i = &b->interval;
	uint64_t now = e->now_ns, apart = now - i->begin_ns;

	/* A single long rest must not outweigh many short ones. */
	i->apart_ns += ((int64_t)(apart < ALONE_NS ? apart : ALONE_NS) - i->apart_ns) / 8;
	i->begin_ns = now;
	/* Work may still be queued, because it waited for a partner. Entering again is no progress of that work. */
	if (!b->queue.count)
		b->queue.progress_ns = now;
	i->number++;
	i->quick = now - i->left_ns < QUICK_NS;
	b->others.check_ns = now + (i->quick ? e->look_ns : QUICK_NS);
	i->lead_ns = i->lead_least_ns = i->idle_ns = i->ran = i->guessed_ns = i->steady_ns = i->busy_calls =
		0;
	i->dry = i->uncounted = false;
	i->crowded = i->leaving.why == WHY_GAPS;
	i->first_to_come = i->unfenced = false;
	i->owed = i->again_ns != 0;
	i->again_ns = 0;
	i->first_work = 0;
	i->kept_ns = 0;
	i->calls_before = e->calls - 1; /* the call that enters is counted already */
	b->state = BOOK_RUNNING;
}

void interval_learn_gap(struct book *b, uint64_t now)
{
	struct book_interval *i = &b->interval;
	uint64_t gap = now > i->left_ns ? now - i->left_ns : 1;

	if (!i->gap_open)
		return;
	i->gap_open = false;
	if (gap > 4 * QUICK_NS)
		gap = 4 * QUICK_NS;
	i->gap_ns = i->gap_ns ? (7 * i->gap_ns + gap) / 8 : gap;
}

void interval_launched(struct book *b, uint64_t let_ns, uint64_t now)
{
	struct book_interval *i = &b->interval;

	i->first_to_come = false;
	i->lead_least_ns = let_ns > i->begin_ns ? let_ns - i->begin_ns : 0;
	i->lead_ns = now > i->begin_ns ? now - i->begin_ns : 0;
}

/* Returns the launches of the asking thread before the one at the gate. They are not counted in e->unfenced any more. */
static uint64_t before_it(const struct book_event *e)
{
	return e->kind == EVENT_ASKED && e->covers ? e->covers - 1 : 0;
}

/* Returns how many launches have no fence behind them. */
static uint64_t unfenced(const struct book *b, const struct book_event *e)
{
	return e->unfenced + (e->kind == EVENT_IDLE ? b->interval.asked_before : before_it(e));
}

/*
 * Returns when work without a fence has ended, as far as that can be estimated: about as long after the last measured end as
 * so many launches take, and not before the work was last seen busy.
 */
static uint64_t estimated_end(const struct book *b, const struct book_event *e)
{
	const struct book_queue *q = &b->queue;
	uint64_t begin = b->interval.begin_ns, end, now = e->now_ns, each = b->durations.each_ns;

	/* There was only one call, and its fence has passed: the end is measured. */
	if (!b->others.watched && interval_calls(b, e) == 1 && q->last_end_ns > begin)
		return q->last_end_ns;
	if (!b->others.watched && b->program.waited_ns >= begin)
		now = b->program.waited_ns;
	/* Some launches were not counted. All that is known of them is when the program stopped waiting for them. */
	if (b->interval.uncounted && now < e->now_ns)
		return now;
	/* No duration is known: take the middle between the last moment it was seen busy and now. */
	if (!each) {
		end = q->busy_ns > begin ? q->busy_ns : begin;
		return now > end ? end + (now - end) / 2 : end;
	}
	/* If no fence of this interval has passed, no fence covers any of its calls. */
	if (q->last_end_ns > begin)
		end = q->last_end_ns + unfenced(b, e) * each;
	else
		end = begin + (unfenced(b, e) + 1) * each;
	end = end < b->interval.steady_ns ? b->interval.steady_ns : end;
	if (b->interval.uncounted && end < q->busy_ns)
		end = q->busy_ns;
	return end > now ? now : end;
}

/*
 * Returns how long nothing ran at the beginning of the interval: from entering until the driver returned from the first
 * launch, because a driver submits work just before it returns. If that call returned late, the thread may have been held up
 * behind the submission. Then the kernel is taken to have run for its usual time, within what is possible.
 */
static uint64_t lead(const struct book *b, const struct book_event *e, uint64_t span)
{
	const struct book_interval *i = &b->interval;
	const struct duration *known = durations_find(&b->durations, i->first_work);
	uint64_t rest = span > i->lead_ns ? span - i->lead_ns : 0;
	uint64_t most = span > i->lead_least_ns ? span - i->lead_least_ns : 0, usual;

	if (i->first_inside)
		return i->lead_least_ns;
	if (i->lead_ns <= i->lead_least_ns + CALL_NS || interval_calls(b, e) != 1 || !known ||
		!known->mean_ns)
		return i->lead_ns;
	usual = known->mean_ns < rest ? rest : known->mean_ns > most ? most : known->mean_ns;
	return span - usual;
}

/* Returns how long the place in the turn is to be kept. */
static uint64_t keep(const struct book *b)
{
	const struct book_interval *i = &b->interval;

	return b->others.turns && b->state == BOOK_RUNNING && i->gap_ns && i->gap_ns < QUICK_NS
		       ? 2 * i->gap_ns + KEEP_NS
		       : 0;
}

static struct book_action leave(struct book *b, uint64_t end_ns, uint64_t keep_ns, uint32_t why)
{
	b->interval.leaving.end_ns = end_ns;
	b->interval.leaving.keep_ns = keep_ns;
	b->interval.leaving.why = why;
	return (struct book_action){.what = ACT_LEAVE, .step = STEP_SETTLED, .at_ns = end_ns, .ns = keep_ns};
}

struct book_action interval_settle(struct book *b, const struct book_event *e, bool idle)
{
	struct book_interval *i = &b->interval;
	uint64_t end;

	if (!book_is_in(b))
		return (struct book_action){.what = ACT_NONE};
	if (b->queue.count && !(e->call & STEP_LOOKED)) {
		i->looked_ns = e->now_ns;
		return (struct book_action){.what = ACT_FENCES, .step = STEP_LOOKED};
	}
	i->settled_ns = e->now_ns;
	/* A call in the driver counts as work on the GPU, unless it has been there for so long that the driver must be doing
	 * something else first. */
	if (b->queue.count || b->recording || b->inside ||
		(b->in_driver && e->now_ns - b->passed_ns < IN_DRIVER_NS))
		return (struct book_action){.what = ACT_NONE};
	if (i->unfenced && !idle) {
		i->asked_calls = e->calls;
		i->asked_before = before_it(e);
		return (struct book_action){.what = ACT_STREAMS, .step = STEP_SETTLED};
	}
	end = i->first_to_come ? i->begin_ns : b->queue.last_end_ns;
	if (i->unfenced)
		end = estimated_end(b, e);
	if (b->state == BOOK_DRAINING && b->others.tail_pct >= 0 && end > i->drain_ns)
		end = i->drain_ns + (end - i->drain_ns) / 100 * (unsigned)b->others.tail_pct;
	if (end > i->begin_ns && !i->first_to_come)
		end -= lead(b, e, end - i->begin_ns);
	end -= i->idle_ns < end ? i->idle_ns : end;
	return leave(b, end > i->begin_ns ? end : i->begin_ns, keep(b), WHY_IDLE);
}

/* Returns how long the GPU was busy since the interval began, with this many launches that have no fence. */
static uint64_t worked(const struct book *b, uint64_t launches)
{
	const struct book_interval *i = &b->interval;
	uint64_t from = i->begin_ns + i->lead_ns, ns = 0;

	if (b->queue.last_end_ns > from)
		ns = b->queue.last_end_ns - from;
	ns -= i->idle_ns < ns ? i->idle_ns : ns;
	return ns + launches * b->durations.each_ns;
}

struct book_action interval_leave_gaps(struct book *b, const struct book_event *e)
{
	const struct book_interval *i = &b->interval;
	uint64_t busy = worked(b, unfenced(b, e));

	if (!b->queue.prompt || !b->durations.each_ns || b->queue.count || b->in_driver || b->recording ||
		b->inside || i->begin_ns + busy + busy / (4 * CREDIT_LEAST) >= e->now_ns ||
		i->steady_ns > i->begin_ns + busy)
		return (struct book_action){.what = ACT_NONE};
	/* The client enters again at once, and so keeps its turn. */
	return leave(b, i->begin_ns + busy, b->others.turns ? KEEP_NS : 0, WHY_GAPS);
}

struct book_action interval_leave_stalled(struct book *b, const struct book_event *e)
{
	(void)e;
	return leave(b, partner_end(b), 0, WHY_STALLED);
}

/*
 * A driver locks a process when all work of the process has ended, and no thread could see when that was. The end is
 * estimated: as long after the last known end as the queued work should take, but not before work was last seen unfinished,
 * nor before the driver last answered that the process was not locked.
 */
struct book_action interval_leave_frozen(struct book *b, const struct book_event *e)
{
	const struct book_queue *q = &b->queue;
	uint64_t begin = b->interval.begin_ns, end = q->last_end_ns > begin ? q->last_end_ns : begin;

	if (b->interval.first_to_come)
		return leave(b, begin, 0, WHY_FROZEN);
	end += q->ns;
	end = end < q->busy_ns ? q->busy_ns : end;
	end = end < e->at_ns ? e->at_ns : end;
	return leave(b, end < e->now_ns ? end : e->now_ns, 0, WHY_FROZEN);
}

static void ended(struct book *b, const struct book_event *e)
{
	struct book_interval *i = &b->interval;
	uint64_t calls = interval_calls(b, e);
	uint64_t ns = i->leaving.end_ns > i->begin_ns ? i->leaving.end_ns - i->begin_ns : 0;

	i->regular = calls == i->calls;
	i->calls = calls;
	if (calls)
		i->call_ns = i->call_ns ? (3 * i->call_ns + ns / calls) / 4 : ns / calls;
	/* Up to the last fence the time was measured; the rest was estimated. */
	if (i->unfenced || i->leaving.why == WHY_GAPS || i->leaving.why == WHY_FROZEN) {
		uint64_t from = b->queue.last_end_ns > i->begin_ns && i->leaving.why != WHY_GAPS
					? b->queue.last_end_ns
					: i->begin_ns;
		uint64_t end = i->leaving.end_ns + i->idle_ns;
		uint64_t guessed = i->guessed_ns + (end > from ? end - from : 0);

		i->estimated_ns += guessed < ns ? guessed : ns;
	}
}

struct book_action interval_left(struct book *b, const struct book_event *e)
{
	struct book_interval *i = &b->interval;
	uint64_t now = e->now_ns;

	if (b->state == BOOK_RUNNING && b->waiters && i->leaving.why == WHY_IDLE)
		queue_ran_dry(b, now);
	i->left_ns = now;
	b->program.waited_ns = 0;
	b->open = false;
	b->state = BOOK_OUT;
	if (i->leaving.why == WHY_IDLE) {
		i->keeps = e->result > 0;
		i->kept_ns = i->keeps ? now + i->leaving.keep_ns : 0;
		if (i->keeps)
			b->state = BOOK_KEPT;
		i->gap_open = true;
		i->again_calls = e->calls;
		/* Of launches that passed on credit it is not known whether they have reached the driver. */
		i->again_ns = i->unfenced || i->owed ? now + 4 * e->look_ns : 0;
		others_outlasted(b, now);
		b->others.stalls = false;
	}
	if (e->result < 0)
		return (struct book_action){.what = ACT_GIVE_UP};
	if (i->leaving.why != WHY_STALLED)
		ended(b, e);
	i->unfenced = false;
	return (struct book_action){.what = ACT_NONE};
}

/* The transition table: what each event does in each state. */
#include "preload/book/book.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "preload/book/parts.h"

static const struct book_action nothing = {.what = ACT_NONE};

/* Whether the window is over: the next check of the quota rolls it, if no other client has. */
static bool is_window_over(const struct book *b, const struct book_event *e)
{
	return b->interval.unfenced && e->now_ns >= b->others.window_end_ns;
}

/*
 * Pauses between launches are subtracted at the end of the interval, but only back to the beginning of the window. So an
 * unwatched client that has made pauses is to end its interval before the window is rolled. Returns whether to wait a little
 * longer for its next pause.
 */
static bool is_pause_near(struct book *b, const struct book_event *e)
{
	struct book_interval *i = &b->interval;

	if (b->others.watched || !i->dry || !is_window_over(b, e) || !b->observer.hurry)
		return false;
	if (i->over_ns < b->others.window_end_ns)
		i->over_ns = e->now_ns;
	return e->now_ns < i->over_ns + PIECE_NS;
}

/* Asks the segment about quota and turn. Before that it looks whether the work has ended: the check may roll the window, and
 * an end before that can then not be dated any more. A client that was held up without work would pay for that time. */
static struct book_action check(struct book *b, const struct book_event *e)
{
	struct book_action act = nothing;

	if ((b->others.watched || is_window_over(b, e)) && !(e->call & STEP_SETTLED))
		act = interval_settle(b, e, false);
	if (act.what)
		return act;
	act.step = STEP_CHECKED;
	if (partner_waits(b, e->now_ns)) {
		act = interval_leave_stalled(b, e);
		act.step |= STEP_CHECKED;
		return act;
	}
	act.what = ACT_CHECK;
	act.at_ns = e->now_ns;
	return act;
}

static bool is_check_due(const struct book *b, const struct book_event *e)
{
	if (e->call & STEP_CHECKED)
		return false;
	/* A client that has just entered has nothing queued yet, and a check would end its turn. */
	if (e->now_ns >= b->others.check_ns && !((e->call & CALL_ENTERED) && b->state == BOOK_RUNNING))
		return true;
	return b->others.gated && b->state == BOOK_RUNNING && (e->facts & FACT_CLOSED);
}

static struct book_action pass(struct book *b, const struct book_event *e)
{
	/* This work may begin before the end of the launch before it, so no fence may be between the two from now on. */
	if ((e->call & CALL_DEPENDENT) && b->program.last_stream == e->stream)
		durations_mark_primary(&b->durations, b->program.last_work);
	if (b->queue.parked)
		queue_note_need(b, e);
	return (struct book_action){.what = ACT_PASS};
}

static struct book_action on_asked_out(struct book *b, const struct book_event *e)
{
	if (e->call & CALL_AWAKE)
		b->waiters--;
	return b->broken ? pass(b, e) : (struct book_action){.what = ACT_ENTER};
}

static struct book_action on_asked_in(struct book *b, const struct book_event *e)
{
	struct book_action act = nothing;
	bool none = !b->queue.count;

	if (e->call & CALL_AWAKE) {
		b->waiters--;
		others_slept(b, e->took_ns);
	}
	if ((e->call & CALL_AWAKE) && none && b->state == BOOK_RUNNING)
		queue_ran_dry(b, e->now_ns);
	if (is_check_due(b, e))
		return check(b, e);
	/* The two launches of a programmatic dependent launch are one piece of work. */
	if (e->call & CALL_DEPENDENT)
		return pass(b, e);
	/* Launches before this one are queued without a fence. The decisions below need to know of them. */
	if (e->covers > 1 && (b->state == BOOK_DRAINING || !queue_has_room(b, e))) {
		b->recording++;
		return (struct book_action){.what = ACT_FENCE, .n = e->covers - 1};
	}
	/* If the GPU stands still, that time is not billed: leave as of the end of the work, and enter again now. */
	if (!(e->call & STEP_SETTLED)) {
		if (b->state == BOOK_DRAINING ||
			(!(e->call & CALL_ENTERED) && none && (e->covers == 1 || !b->others.watched)))
			act = interval_settle(b, e, false);
		else if (!(e->call & CALL_ENTERED) && none)
			act = interval_leave_gaps(b, e);
		if (act.what)
			return act;
	}
	if (b->state == BOOK_RUNNING && queue_has_room(b, e))
		return pass(b, e);
	if (queue_let_past(b, e))
		return pass(b, e);
	b->waiters++;
	return (struct book_action){.what = ACT_WAIT,
		.ns = queue_patience(b, durations_expect(&b->durations, e->work, 1), e->now_ns)};
}

static struct book_action on_let(struct book *b, const struct book_event *e)
{
	b->in_driver++;
	b->inside += (e->call & CALL_INSIDE) != 0;
	b->passed_ns = e->now_ns;
	return nothing;
}

/* A call is back from the driver: a fence is to be recorded behind it. */
static struct book_action fence(struct book *b, const struct book_event *e)
{
	const struct duration *known = durations_find(&b->durations, e->work);
	bool first = b->interval.first_to_come;

	if (first)
		interval_launched(b, e->at_ns, e->now_ns);
	b->program.last_work = e->work;
	b->program.last_stream = e->stream;
	/* A programmatic dependent launch usually follows; a fence between the two would make it wait. */
	if ((e->facts & FACT_FAILED) || (known && known->primary)) {
		b->interval.unfenced = true;
		return (struct book_action){
			.what = ACT_CREDIT, .carry = !(e->facts & FACT_FAILED), .wake = first};
	}
	b->recording++;
	return (struct book_action){.what = ACT_FENCE, .n = e->covers, .wake = first};
}

static void come_back(struct book *b, const struct book_event *e)
{
	if (e->call & STEP_RESUMED)
		return;
	b->in_driver -= b->in_driver > 0;
	b->inside -= (e->call & CALL_INSIDE) && b->inside;
}

static struct book_action on_returned_out(struct book *b, const struct book_event *e)
{
	come_back(b, e);
	/* The set was left while the driver had other things to do; now the work is on the GPU. */
	if (b->broken || (e->facts & FACT_FAILED) || (e->call & STEP_RESUMED))
		return nothing;
	return (struct book_action){.what = ACT_RESUME, .step = STEP_RESUMED};
}

static struct book_action on_returned_in(struct book *b, const struct book_event *e)
{
	come_back(b, e);
	return fence(b, e);
}

static struct book_action on_abandoned(struct book *b, const struct book_event *e)
{
	if (e->covers)
		come_back(b, e);
	b->interval.unfenced |= book_is_in(b);
	b->interval.uncounted |= book_is_in(b);
	return nothing;
}

static struct book_action on_fenced(struct book *b, const struct book_event *e)
{
	struct book_action act = {.what = ACT_CREDIT};
	bool failed = e->facts & FACT_FAILED;

	b->recording -= b->recording > 0;
	if (!failed)
		fence_put(b, e);
	if (!book_is_in(b))
		return nothing;
	b->interval.unfenced |= failed;
	b->interval.uncounted |= failed;
	if (e->call & CALL_EARLIER)
		return nothing;
	b->program.unwaited += e->covers;
	act.n = credit_for(b, e);
	if (act.n) {
		b->interval.unfenced = true;
		b->open |= b->state == BOOK_RUNNING;
	}
	/* The tracker wakes up for the first launch of an interval. It also wakes up behind a launch that slept at the gate:
	 * that thread looked for ends itself, and does not any more. Neither is needed if the driver calls back. */
	if (e->call & CALL_FIRST)
		act.wake = true;
	if (act.wake && observer_asks_early(b, e)) {
		act.wake = false;
		act.callback = true;
	}
	if ((e->call & CALL_SLEPT) && !b->waiters && (!b->interval.regular || interval_is_whole(b, e))) {
		act.callback |= b->observer.hurry && observer_may_ask(b, e, false);
		act.wake |= !act.callback;
	}
	act.soon = b->others.watched && (e->call & CALL_WAITS);
	return act;
}

static struct book_action on_passed(struct book *b, const struct book_event *e)
{
	struct book_action act = nothing;

	fence_passed(b, e, &act.alternates);
	return act;
}

static struct book_action on_unfinished(struct book *b, const struct book_event *e)
{
	fence_unfinished(b, e);
	return nothing;
}

/* Launches that passed on credit had not reached the driver when the interval ended, and have reached it since. */
static struct book_action on_unfinished_out(struct book *b, const struct book_event *e)
{
	fence_unfinished(b, e);
	if (e->fence != BOOK_NO_FENCE || b->broken)
		return nothing;
	return (struct book_action){.what = ACT_RESUME, .n = 1};
}

static struct book_action on_started(struct book *b, const struct book_event *e)
{
	struct book_action act = nothing;

	if (others_contended(b, e->now_ns))
		others_waited(b, e->took_ns, 0, e->now_ns, &act.alternates);
	return act;
}

static struct book_action on_settle(struct book *b, const struct book_event *e)
{
	return e->call & STEP_SETTLED ? nothing : interval_settle(b, e, false);
}

/* The program has waited for work. */
static struct book_action on_waited(struct book *b, const struct book_event *e)
{
	struct book_action act;

	if (b->program.unwaited)
		b->program.run = b->program.unwaited;
	b->program.unwaited = 0;
	b->program.waited_ns = e->at_ns;
	act = on_settle(b, e);
	if (!act.what)
		b->program.waited_ns = 0;
	return act;
}

static struct book_action on_idle(struct book *b, const struct book_event *e)
{
	return interval_settle(b, e, true);
}

static struct book_action on_entered(struct book *b, const struct book_event *e)
{
	bool resumed = e->call & STEP_RESUMED;

	if (!resumed)
		interval_learn_gap(b, e->now_ns);
	b->interval.kept_ns = 0;
	b->state = e->result == -EAGAIN ? BOOK_WAITING : BOOK_OUT;
	if (e->result == -EAGAIN || (resumed && e->result < 0))
		return nothing;
	if (e->result < 0)
		return (struct book_action){.what = ACT_GIVE_UP};
	interval_begin(b, e);
	b->others.beside = (e->status.others + 255) / 256;
	others_met(b, e);
	b->interval.first_to_come = !(e->call & CALL_EARLIER);
	b->interval.first_work = resumed ? 0 : e->work;
	b->interval.first_inside = !resumed && (e->call & CALL_INSIDE);
	/* The work was found by a second look at the streams. There may be more of it. */
	if (e->call & CALL_EARLIER)
		b->interval.unfenced = b->interval.owed = true;
	return (struct book_action){.what = ACT_NONE, .wake = !resumed};
}

/* The client was taken out of the set because it gave no sign of life, and has entered again or failed to. */
static struct book_action on_entered_in(struct book *b, const struct book_event *e)
{
	if (e->result < 0) {
		b->state = BOOK_OUT;
		b->open = false;
	}
	return nothing;
}

static struct book_action on_left(struct book *b, const struct book_event *e)
{
	others_met(b, e);
	return interval_left(b, e);
}

static struct book_action on_status(struct book *b, const struct book_event *e)
{
	return others_status(b, e);
}

static void look(struct book *b, const struct book_event *e)
{
	if (!(e->call & ~(uint32_t)CALL_RANG))
		b->observer.quiet = e->calls == b->observer.calls;
	b->observer.calls = e->calls;
	b->observer.hurry = e->budget_ns > 0;
}

static struct book_action on_timer_out(struct book *b, const struct book_event *e)
{
	look(b, e);
	if (b->interval.again_ns && e->now_ns >= b->interval.again_ns) {
		b->interval.again_ns = 0;
		/* If calls have come since and the client is still out, they brought no work to the GPU. */
		if (!b->broken && e->calls == b->interval.again_calls)
			return (struct book_action){.what = ACT_STREAMS, .step = STEP_SETTLED};
	}
	if (b->state == BOOK_KEPT && e->now_ns >= b->interval.kept_ns) {
		b->state = BOOK_OUT;
		b->interval.kept_ns = 0;
		return (struct book_action){.what = ACT_GIVE_WAY};
	}
	return observer_timer(b, e);
}

/*
 * Whether the tracker was held up since it looked at the fences. Then what it saw is outdated, and a check of the quota would
 * bill all of that time, so it looks at them again. It does so only once, because a slow driver may take that long for each
 * answer.
 */
static bool is_outdated(const struct book *b, const struct book_event *e)
{
	return (e->call & STEP_LOOKED) && !(e->call & STEP_AGAIN) &&
	       e->now_ns - b->interval.looked_ns > 4 * e->look_ns;
}

static struct book_action on_timer_in(struct book *b, const struct book_event *told)
{
	struct book_event e = *told;
	struct book_action act;

	look(b, &e);
	/* A check that is due soon is made now, because the tracker is awake. */
	if ((e.call & STEP_CHECKED) || e.now_ns + e.look_ns / 2 < b->others.check_ns)
		return observer_timer(b, &e);
	if (is_outdated(b, &e)) {
		e.call &= ~(uint32_t)(STEP_LOOKED | STEP_SETTLED);
		act = check(b, &e);
		act.step |= STEP_AGAIN;
		return act;
	}
	if (b->interval.settled_ns < b->interval.looked_ns)
		e.call &= ~(uint32_t)STEP_SETTLED;
	act = check(b, &e);
	if (act.what == ACT_CHECK && is_pause_near(b, &e))
		return (struct book_action){.what = ACT_LOOK, .ns = LOOK_NS};
	return act;
}

static struct book_action on_callback(struct book *b, const struct book_event *e)
{
	observer_callback(b, e);
	return nothing;
}

static struct book_action on_forgotten(struct book *b, const struct book_event *e)
{
	fence_forget(b, e->ctx);
	return nothing;
}

/* The work of a context that is being destroyed cannot be asked about. It counts as busy until that call returns. */
static struct book_action on_held(struct book *b, const struct book_event *e)
{
	if (e->covers) {
		b->inside++;
		return nothing;
	}
	b->inside -= b->inside > 0;
	if (e->at_ns > b->queue.last_end_ns)
		b->queue.last_end_ns = e->at_ns;
	return nothing;
}

/* The segment was lost. Another one was joined, perhaps with work still on the GPU, or there is none. */
static struct book_action on_lost(struct book *b, const struct book_event *e)
{
	b->broken = e->result < 0;
	b->open = b->broken && e->covers;
	b->state = e->result > 0 ? BOOK_RUNNING : BOOK_OUT;
	b->interval.kept_ns = 0;
	if (e->result >= 0)
		b->interval.begin_ns = e->now_ns;
	return nothing;
}

static struct book_action on_frozen(struct book *b, const struct book_event *e)
{
	return interval_leave_frozen(b, e);
}

static struct book_action ignored(struct book *b, const struct book_event *e)
{
	(void)b, (void)e;
	return nothing;
}

static struct book_action (*const table[EVENT_KINDS][BOOK_STATES])(
	struct book *, const struct book_event *) = {
	/*                    OUT               WAITING           RUNNING         DRAINING        KEPT */
	[EVENT_ASKED] = {on_asked_out, on_asked_out, on_asked_in, on_asked_in, on_asked_out},
	[EVENT_LET] = {on_let, on_let, on_let, on_let, on_let},
	[EVENT_RETURNED] = {on_returned_out, on_returned_out, on_returned_in, on_returned_in,
		on_returned_out},
	[EVENT_ABANDONED] = {on_abandoned, on_abandoned, on_abandoned, on_abandoned, on_abandoned},
	[EVENT_FENCED] = {on_fenced, on_fenced, on_fenced, on_fenced, on_fenced},
	[EVENT_PASSED] = {on_passed, on_passed, on_passed, on_passed, on_passed},
	[EVENT_UNFINISHED] = {on_unfinished_out, on_unfinished, on_unfinished, on_unfinished,
		on_unfinished_out},
	[EVENT_STARTED] = {on_started, on_started, on_started, on_started, on_started},
	[EVENT_WAITED] = {ignored, ignored, on_waited, on_waited, ignored},
	[EVENT_SETTLE] = {ignored, ignored, on_settle, on_settle, ignored},
	[EVENT_IDLE] = {ignored, ignored, on_idle, on_idle, ignored},
	[EVENT_ENTERED] = {on_entered, on_entered, on_entered_in, on_entered_in, on_entered},
	[EVENT_LEFT] = {ignored, ignored, on_left, on_left, ignored},
	[EVENT_STATUS] = {on_status, on_status, on_status, on_status, on_status},
	[EVENT_TIMER] = {on_timer_out, on_timer_out, on_timer_in, on_timer_in, on_timer_out},
	[EVENT_CALLBACK] = {on_callback, on_callback, on_callback, on_callback, on_callback},
	[EVENT_FORGOTTEN] = {on_forgotten, on_forgotten, on_forgotten, on_forgotten, on_forgotten},
	[EVENT_HELD] = {on_held, on_held, on_held, on_held, on_held},
	[EVENT_LOST] = {on_lost, on_lost, on_lost, on_lost, on_lost},
	[EVENT_FROZEN] = {ignored, ignored, on_frozen, on_frozen, ignored},
};

struct book_action book_tell(struct book *b, const struct book_event *e)
{
	return table[e->kind % EVENT_KINDS][b->state](b, e);
}

void book_init(struct book *b, bool limited)
{
	memset(b, 0, sizeof(*b));
	b->queue.window = 1;
	b->queue.bound_ns = QUEUE_NS;
	b->others.limited = b->others.watched = limited;
	b->others.late_ns = QUEUE_BELOW_MOST_NS / 4;
}

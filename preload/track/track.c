/* Tells the book events and carries out its actions, for the gate and the tracker alike. */
#include "preload/track/track.h"

#include <errno.h>

#include "gpuarb/client.h"

#include "preload/memory/memory.h"
#include "preload/process/log.h"
#include "preload/process/threads.h"
#include "preload/track/trace.h"

/* A thread that waits for its turn looks this often whether the program ends. */
#define WAIT_SLICE_NS (200 * MS)
/* The time between two summaries in the log. */
#define SUMMARY_NS (60000 * MS)

bool track_is_closed(const struct track *t)
{
	return t->book.others.gated && t->book.state == BOOK_RUNNING &&
	       !gpuarb_client_may_launch(t->device->client);
}

/* Whether an event only adds a fact: it changes nothing that is published. */
static bool is_plain(const struct book_event *e)
{
	return e->kind == EVENT_LET || e->kind == EVENT_PASSED || e->kind == EVENT_UNFINISHED ||
	       e->kind == EVENT_STARTED;
}

/* Whether work comes, ends or is let through by an event, or the interval begins or ends. */
static bool is_change(const struct book_event *e)
{
	switch (e->kind) {
	case EVENT_LET:
	case EVENT_RETURNED:
	case EVENT_ABANDONED:
	case EVENT_FENCED:
	case EVENT_ENTERED:
	case EVENT_LEFT:
	case EVENT_FORGOTTEN:
	case EVENT_HELD:
	case EVENT_LOST:
		return true;
	default:
		return false;
	}
}

/* Adds to an event what the executor knows: time, calls, facts, budget. */
static void know(struct track *t, struct book_event *e)
{
	uint64_t calls, credited;

	if (!e->now_ns)
		e->now_ns = track_now();
	if (is_plain(e) || e->kind == EVENT_RETURNED)
		return;
	act_thread_gated(t->interval, &calls, &credited);
	e->calls = calls;
	e->unfenced = credited + (t->book.others.watched ? 0 : arb_word_load(&t->uncovered));
	e->look_ns = arb_word_load(&arb_own.look_ns);
	if (arb_word_load(&arb_own.captures))
		e->facts |= FACT_CAPTURES;
	if (e->kind != EVENT_ASKED && e->kind != EVENT_FENCED && e->kind != EVENT_TIMER)
		return;
	if (act_thread_host_work())
		e->facts |= FACT_HOST_WORK;
	if (e->kind == EVENT_ASKED) {
		if (track_is_closed(t))
			e->facts |= FACT_CLOSED;
		return;
	}
	/* Only the tracker may read its budget. */
	if (e->kind == EVENT_TIMER)
		e->budget_ns = arb_own.budget.left_ns;
	if (callback_is_prevented(t))
		e->facts |= FACT_NO_CALLBACK;
	if (callback_is_owed(t))
		e->facts |= FACT_UNCALLED;
}

/* Publishes what other threads and the segment need to know of the book. */
static void publish(struct track *t)
{
	const struct book *b = &t->book;
	uint64_t interval = b->interval.number * ARB_DEVICES + arb_device_index(t->device);
	bool watched = b->others.watched;

	if (t->interval != interval) {
		arb_word_store(&t->uncovered, 0);
		arb_word_store(&t->interval, interval);
	}
	arb_word_store(&t->in, book_is_in(b));
	arb_word_store(&t->waiters, b->waiters);
	arb_word_store(&t->quick, b->interval.quick);
	if (!watched)
		arb_word_store(&t->piece, book_piece(b));
	arb_word_store(&t->again_ns, b->interval.again_ns);
	arb_word_store(&t->broken, b->broken);
	if (t->watched != watched) {
		gate_watch(t, watched);
		/* Credit that was given while the client was not watched is void. */
		if (watched) {
			gate_set(t, false);
			gate_renew();
		}
	}
	gate_set(t, b->open);
	if (t->outlasts != b->others.outlasts) {
		t->outlasts = b->others.outlasts;
		gpuarb_client_outlasts(t->device->client, t->outlasts);
	}
	if (t->estimated_ns != b->interval.estimated_ns) {
		gpuarb_client_estimated(t->device->client, b->interval.estimated_ns - t->estimated_ns);
		t->estimated_ns = b->interval.estimated_ns;
	}
	if (t->within != book_runs_within(b)) {
		t->within = book_runs_within(b);
		gate_launches_within(t->within);
	}
	if (t->stalls != b->others.stalls) {
		t->stalls = b->others.stalls;
		gpuarb_client_stalls(t->device->client, t->stalls);
	}
}

struct book_action track_tell(struct track *t, struct book_event *e)
{
	struct book_action act;

	know(t, e);
	t->changes += is_change(e);
	act = book_tell(&t->book, e);
	if (__builtin_expect(t->trace != NULL, 0))
		trace_told(t, e, &act);
	if (!is_plain(e))
		publish(t);
	if (act.alternates)
		gpuarb_client_alternates(t->device->client, act.alternates == ALTERNATES_TRIAL);
	return act;
}

/* The segment cannot be used any more: joins another one, or goes on without. */
static void give_up(struct track *t, int error)
{
	struct gpuarb_client *client = t->device->client;
	struct book_event e = {.kind = EVENT_LOST, .result = -1};
	bool running = t->book.state == BOOK_RUNNING;

	if (t->book.broken || arb_own.exiting)
		return;
	gpuarb_client_leave(client, 0);
	/* Queued work runs on, and counts in the new set. */
	if (arb_device_rejoin(t->device, error))
		e.result = running && gpuarb_client_enter(client, NULL) == 0;
	else
		e.covers = !t->device->refused;
	track_tell(t, &e);
	frozen_moved();
}

/* Its segment was lost, and can be used again. */
static bool come_back(struct track *t)
{
	struct gpuarb_client *client = t->device->client;
	struct book_event e = {.kind = EVENT_LOST};
	bool running = t->book.state == BOOK_RUNNING;
	int r;

	if (!gpuarb_client_may_return(client) || t->book.broken || arb_own.exiting)
		return false;
	gpuarb_client_leave(client, 0);
	r = arb_device_return(t->device);
	e.now_ns = track_now();
	e.result = r < 0 ? -1 : running && gpuarb_client_enter(client, NULL) == 0;
	e.covers = !t->device->refused;
	track_tell(t, &e);
	frozen_moved();
	return true;
}

/* Logs once a minute what the limit did. */
static void summary(struct track *t, const struct gpuarb_client_status *status, uint64_t now)
{
	double seconds = (double)(now - t->said_ns) / 1e9;

	if (t->said_ns && now - t->said_ns < SUMMARY_NS)
		return;
	if (t->said_ns && status->core_pct < 100)
		arb_log(ARB_LOG_INFO,
			"%s: the account used %.1f %% of the last %.0f s (limit %u, in force %.1f), this "
			"process was "
			"throttled for %.1f s",
			t->device->name, (double)(status->total_ns - t->said_used_ns) / 1e7 / seconds,
			seconds, status->core_pct, status->quota_ppm / 1e4,
			(double)(status->throttled_ns - t->said_throttled_ns) / 1e9);
	t->said_ns = now;
	t->said_used_ns = status->total_ns;
	t->said_throttled_ns = status->throttled_ns;
}

/*
 * Returns how long the quota lasts if half of those that share the GPU now leave at once. Looks that come as often as if this
 * client were alone would be a hundred for each window where sixty clients share the GPU.
 */
static uint64_t lasts(const struct gpuarb_client_status *s)
{
	return s->slower > 2 ? s->left_ns * (s->slower / 2) : s->left_ns;
}

/* Shows the heartbeat and asks the segment about quota, turn and others, as of at_ns. */
static void check(struct track *t, uint64_t at_ns)
{
	struct gpuarb_client_status s;
	struct book_event e = {.kind = EVENT_STATUS};
	bool shares; /* no limit, but others want the GPU, so a share by requests and weights is in force */
	int failed = 0, r;

	if (__builtin_expect(gpuarb_client_is_alone(t->device->client), 0) && come_back(t))
		return;
	r = gpuarb_client_tick_status(t->device->client, at_ns, &s, &failed);
	if (r < 0 && r != -EDQUOT && r != -EAGAIN)
		failed = r;
	if (failed < 0) {
		give_up(t, failed);
		return;
	}
	shares = s.shares && s.quota_ppm < 1000000;
	e.now_ns = track_now();
	summary(t, &s, e.now_ns);
	if (__builtin_expect(s.restored != t->device->restored, 0))
		arb_device_say_restored(t->device, s.restored);
	e.status = (struct book_status){
		.verdict = r,
		.tail_pct = s.tail_pct,
		.core_pct = shares ? (s.quota_ppm + 9999) / 10000 : s.core_pct,
		.shares = shares,
		.others = s.others,
		.turns = s.turns,
		.running = s.running,
		.gated = s.gated,
		.above_present = s.above_present,
		.request_present = s.request_present,
		.window_ns = s.window_ns,
		.window_end_ns = s.window_end_ns,
		.left_ns = lasts(&s),
		.look_ns = s.look_ns,
		.turn_left_ns = s.turn_left_ns,
	};
	track_carry_out(t, track_tell(t, &e), NULL);
}

static void leave(struct track *t, const struct book_action *act)
{
	struct book_event e = {.kind = EVENT_LEFT};

	e.result = gpuarb_client_pause(t->device->client, act->at_ns, act->ns);
	e.status.others = gpuarb_client_beside(t->device->client);
	if (track_tell(t, &e).what == ACT_GIVE_UP)
		give_up(t, e.result);
}

static void resume(struct track *t, bool earlier)
{
	struct book_event e = {.kind = EVENT_ENTERED, .call = STEP_RESUMED | (earlier ? CALL_EARLIER : 0)};

	e.now_ns = track_now();
	e.result = gpuarb_client_resume(t->device->client);
	e.status.others = gpuarb_client_beside(t->device->client);
	track_tell(t, &e);
}

static bool still_in(void *argument)
{
	const struct track *t = argument;

	return arb_word_load(&t->in) && !arb_own.exiting;
}

/* Brings memory that others have pushed out back to the GPU, before the work that needs it. */
static void fetch_memory(struct track *t)
{
	struct book_event e = {.kind = EVENT_HELD, .covers = 1};

	track_tell(t, &e);
	track_unlock(t);
	memory_come_back(t->device, still_in, t);
	track_lock(t);
	e = (struct book_event){.kind = EVENT_HELD};
	track_tell(t, &e);
}

/* Enters the running set. If that is refused, waits for quota or turn with the lock released. */
static void enter(struct track *t, const struct act_call *call)
{
	struct gpuarb_client *client = t->device->client;
	struct book_event e = {
		.kind = EVENT_ENTERED, .call = gate_runs_inside(call) ? CALL_INSIDE : 0, .work = call->work};
	struct book_action act;
	uint64_t number;

	e.now_ns = track_now();
	e.result = gpuarb_client_enter(client, NULL);
	e.status.others = gpuarb_client_beside(client);
	act = track_tell(t, &e);
	if (e.result == -EAGAIN) {
		number = t->book.interval.number;
		arb_mine.call.held = false;
		track_unlock(t);
		e.result = gpuarb_client_wait(client, NULL, WAIT_SLICE_NS);
		track_lock(t);
		/* The wait ends in the set. If another thread has entered and left it since, the book is asked again. */
		if (e.result == -ETIMEDOUT || e.result == -ECANCELED || t->book.state != BOOK_WAITING ||
			t->book.interval.number != number)
			return;
		e.now_ns = track_now();
		e.status.others = gpuarb_client_beside(client);
		act = track_tell(t, &e);
	}
	if (act.what == ACT_GIVE_UP)
		give_up(t, e.result);
	if (act.wake)
		tracker_wake();
	if (__builtin_expect(book_is_in(&t->book) && gpuarb_client_oversubscribes(client), 0))
		fetch_memory(t);
}

/*
 * Asks twice whether all streams are idle, the second time with the gate closed: a launch that passed on credit meanwhile has
 * been counted, or is in its stream by then. The lock is not held while streams are asked. If work came or the interval ended
 * meanwhile, the answer is outdated, and the book is not told.
 */
static void ask_streams(struct track *t)
{
	struct book_event e = {.kind = EVENT_UNFINISHED, .fence = BOOK_NO_FENCE};
	uint64_t changes = t->changes, before, after, credited;
	enum streams_state state = streams_ask(t, &e.at_ns);

	if (t->changes != changes)
		return;
	if (state == STREAMS_BUSY)
		track_carry_out(t, track_tell(t, &e), NULL);
	if (state != STREAMS_IDLE || !book_is_in(&t->book))
		return;
	act_thread_gated(0, &before, &credited);
	gate_set(t, false);
	state = streams_ask(t, &e.at_ns);
	act_thread_gated(0, &after, &credited);
	if (t->changes != changes || before != after || state == STREAMS_UNKNOWN) {
		gate_set(t, t->book.open);
		return;
	}
	e.kind = state == STREAMS_IDLE ? EVENT_IDLE : EVENT_UNFINISHED;
	track_carry_out(t, track_tell(t, &e), NULL);
}

void track_carry_out(struct track *t, struct book_action act, const struct act_call *call)
{
	switch (act.what) {
	case ACT_FENCES:
		events_collect(t);
		break;
	case ACT_STREAMS:
		ask_streams(t);
		break;
	case ACT_LEAVE:
		leave(t, &act);
		break;
	case ACT_GIVE_WAY:
		gpuarb_client_leave(t->device->client, 0);
		break;
	case ACT_CHECK:
		check(t, act.at_ns);
		break;
	case ACT_RESUME:
		resume(t, act.n);
		break;
	case ACT_ENTER:
		enter(t, call);
		break;
	case ACT_CALLBACK:
		callback_ask(t, act.n);
		break;
	default:
		break;
	}
}

void track_finish(struct track *t, struct book_event *e)
{
	struct book_action act;

	while ((act = track_tell(t, e)).what != ACT_NONE) {
		e->call |= act.step;
		e->facts = 0;
		e->now_ns = 0;
		track_carry_out(t, act, NULL);
	}
}

bool track_settle(struct track *t)
{
	struct book_event e = {.kind = EVENT_SETTLE};

	if (book_is_in(&t->book))
		track_finish(t, &e);
	return !book_is_in(&t->book);
}

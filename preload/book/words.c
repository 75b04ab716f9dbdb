/* Says events and decisions in words, for gpuarb-replay and for GPUARB_LOG=debug. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "preload/book/book.h"
#include "preload/book/parts.h"

const char *book_state_name(unsigned state)
{
	static const char *const names[BOOK_STATES] = {"out", "waiting", "running", "draining", "kept"};

	return state < BOOK_STATES ? names[state] : "?";
}

const char *book_event_name(unsigned kind)
{
	static const char *const names[EVENT_KINDS] = {"asked", "let", "returned", "abandoned", "fenced",
		"passed", "unfinished", "started", "waited", "settle", "idle", "entered", "left", "status",
		"timer", "callback", "forgotten", "held", "lost", "frozen"};

	return kind < EVENT_KINDS ? names[kind] : "?";
}

const char *book_action_name(unsigned what)
{
	static const char *const names[ACT_KINDS] = {"none", "pass", "wait", "enter", "resume", "leave",
		"give-way", "check", "fences", "streams", "fence", "credit", "callback", "look", "give-up"};

	return what < ACT_KINDS ? names[what] : "?";
}

/* A text that grows until its buffer is full. */
struct sentence {
	char *to;
	size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void say(struct sentence *s, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(s->to + s->used, s->size - s->used, format, args);
	va_end(args);
	if (n > 0)
		s->used = s->used + (size_t)n < s->size ? s->used + (size_t)n : s->size - 1;
}

static void say_time(struct sentence *s, uint64_t ns)
{
	if (ns < 10 * US)
		say(s, "%.1f us", (double)ns / 1e3);
	else if (ns < MS)
		say(s, "%.0f us", (double)ns / 1e3);
	else
		say(s, "%.2f ms", (double)ns / 1e6);
}

static void say_ago(struct sentence *s, uint64_t now, uint64_t at)
{
	say_time(s, now > at ? now - at : at - now);
	say(s, now >= at ? " ago" : " from now");
}

static void say_fence(struct sentence *s, const struct book_event *e, const char *what)
{
	if (e->fence == BOOK_NO_FENCE)
		say(s, "a stream %s", what);
	else
		say(s, "fence %u %s", e->fence, what);
}

static void say_status(struct sentence *s, const struct book_event *e)
{
	const struct book_status *t = &e->status;

	say(s, "the segment says: %s %u percent", t->shares ? "share" : "limit", t->core_pct);
	if (t->left_ns != UINT64_MAX && t->core_pct < 100) {
		say(s, ", ");
		say_time(s, t->left_ns);
		say(s, " left");
	}
	if (t->others)
		say(s, ", %u beside it", t->others);
	if (t->verdict == -EDQUOT)
		say(s, ", the quota is used up");
	else if (t->verdict == -EAGAIN)
		say(s, ", it is another's turn");
	if (t->above_present)
		say(s, ", somebody of a higher priority has work");
}

static void say_event(struct sentence *s, const struct book_event *e)
{
	bool failed = e->facts & FACT_FAILED;

	switch (e->kind) {
	case EVENT_ASKED:
		say(s, e->call & CALL_AWAKE ? "a call asks again" : "a call asks to launch work");
		if (e->covers > 1)
			say(s, ", %u before it have no fence", e->covers - 1);
		break;
	case EVENT_LET:
		say(s, "the call goes to the driver");
		break;
	case EVENT_RETURNED:
		say(s, "the call is back from the driver%s", failed ? ", with an error" : "");
		break;
	case EVENT_ABANDONED:
		say(s, "a call will not come back");
		break;
	case EVENT_FENCED:
		if (failed)
			say(s, "no fence could be recorded");
		else
			say(s, "fence %u is behind %u launch%s", e->fence, e->covers,
				e->covers == 1 ? "" : "es");
		break;
	case EVENT_PASSED:
		say_fence(s, e, failed ? "is lost" : "passed ");
		if (!failed)
			say_ago(s, e->now_ns, e->at_ns);
		break;
	case EVENT_UNFINISHED:
		say_fence(s, e, e->fence == BOOK_NO_FENCE ? "has work" : "has not passed");
		break;
	case EVENT_STARTED:
		say(s, "the GPU began it after ");
		say_time(s, e->took_ns);
		break;
	case EVENT_WAITED:
		say(s, "the program has waited for its work, for ");
		say_time(s, e->took_ns);
		break;
	case EVENT_SETTLE:
		say(s, "has all work ended?");
		break;
	case EVENT_IDLE:
		say(s, "no stream has work");
		break;
	case EVENT_ENTERED:
		if (e->result == -EAGAIN)
			say(s, "no quota, or another's turn");
		else if (e->result < 0)
			say(s, "the running set cannot be entered (error %d)", -e->result);
		else
			say(s, "entered the running set");
		break;
	case EVENT_LEFT:
		say(s, e->result > 0 ? "left the running set, others wait" : "left the running set");
		break;
	case EVENT_STATUS:
		say_status(s, e);
		break;
	case EVENT_TIMER:
		say(s, e->call & CALL_RANG ? "the driver has called, the tracker looks"
					   : "the tracker looks");
		break;
	case EVENT_CALLBACK:
		say(s, e->result < 0 ? "no callback can be had" : "the driver was asked to call");
		break;
	case EVENT_FORGOTTEN:
		say(s, "a context is gone");
		break;
	case EVENT_HELD:
		say(s, e->covers ? "the busy interval must not end" : "the busy interval may end again");
		break;
	case EVENT_LOST:
		say(s, e->result < 0 ? "there is no segment any more" : "another segment was joined");
		break;
	case EVENT_FROZEN:
		say(s, "the process is frozen by a checkpoint");
		break;
	default:
		say(s, "?");
	}
}

static void say_action(struct sentence *s, const struct book_event *e, const struct book_action *a)
{
	switch (a->what) {
	case ACT_NONE:
		say(s, "nothing to do");
		break;
	case ACT_PASS:
		say(s, "it may go on");
		break;
	case ACT_WAIT:
		say(s, a->ns ? "it sleeps for " : "it spins");
		if (a->ns)
			say_time(s, a->ns);
		break;
	case ACT_ENTER:
		say(s, "enter the running set");
		break;
	case ACT_RESUME:
		say(s, "back into the running set, work is on the GPU");
		break;
	case ACT_LEAVE:
		say(s, "leave the running set as of ");
		say_ago(s, e->now_ns, a->at_ns);
		if (a->ns) {
			say(s, ", its turn is kept for ");
			say_time(s, a->ns);
		}
		break;
	case ACT_GIVE_WAY:
		say(s, "its turn is kept no longer");
		break;
	case ACT_CHECK:
		say(s, "ask the segment");
		break;
	case ACT_FENCES:
		say(s, "look at the fences");
		break;
	case ACT_STREAMS:
		say(s, "look at the streams");
		break;
	case ACT_FENCE:
		say(s, "record a fence behind %u", a->n);
		break;
	case ACT_CREDIT:
		if (a->carry)
			say(s, "the next fence covers it");
		else
			say(s, "%u more may pass without asking", a->n);
		break;
	case ACT_CALLBACK:
		say(s, "ask the driver to call");
		break;
	case ACT_LOOK:
		say(s, a->ns ? "look again in " : "sleep until there is work");
		if (a->ns)
			say_time(s, a->ns);
		break;
	case ACT_GIVE_UP:
		say(s, "give the segment up");
		break;
	default:
		say(s, "?");
	}
	if (a->wake)
		say(s, ", wake the tracker");
	if (a->callback)
		say(s, ", ask the driver to call");
	if (a->alternates == ALTERNATES_SEEN)
		say(s, ", the GPU serves one client after the other");
	else if (a->alternates == ALTERNATES_TRIAL)
		say(s, ", turns are to show how long its work takes alone");
}

void book_words(char *to, size_t size, const struct book_event *e, const struct book_action *a)
{
	struct sentence s = {.to = to, .size = size};

	if (!size)
		return;
	to[0] = '\0';
	say_event(&s, e);
	say(&s, ": ");
	say_action(&s, e, a);
}

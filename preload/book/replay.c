#include "preload/book/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "preload/book/parts.h"

bool replay_begin(struct replay *p, const uint8_t *data, size_t size)
{
	int n;

	memset(p, 0, sizeof(*p));
	n = codec_take_header(data, size, &p->header);
	if (n <= 0)
		return false;
	p->at = data + n;
	p->end = data + size;
	codec_begin(&p->codec, &p->header);
	book_init(&p->book, p->header.limited);
	return true;
}

/* No clock and no count of a real program gets so far, and a sum of a few such numbers does not overflow. */
static bool is_small(uint64_t n)
{
	return n < 1ull << 60;
}

static bool is_amount(uint64_t n)
{
	return is_small(n) || n == UINT64_MAX;
}

/* Whether the executors can have told this. The book trusts them, so it must not be told anything else. */
static bool can_be(const struct book_event *e)
{
	const struct book_status *s = &e->status;

	return is_small(e->now_ns) && is_small(e->calls) && is_small(e->unfenced) && is_small(e->look_ns) &&
	       e->unfenced < 1u << 30 && is_small(e->at_ns) && is_small(e->took_ns) && e->covers < 1u << 30 &&
	       e->budget_ns > -(1ll << 60) && e->budget_ns < 1ll << 60 && is_small(s->window_ns) &&
	       is_small(s->window_end_ns) && is_amount(s->left_ns) && is_amount(s->look_ns) &&
	       is_amount(s->turn_left_ns) && s->tail_pct <= 100;
}

/* Compares field by field, because the padding between fields is undefined. */
static bool is_same(const struct book_action *a, const struct book_action *b)
{
	return a->what == b->what && a->wake == b->wake && a->soon == b->soon && a->callback == b->callback &&
	       a->carry == b->carry && a->alternates == b->alternates && a->n == b->n && a->step == b->step &&
	       a->at_ns == b->at_ns && a->ns == b->ns;
}

static void decide_again(struct replay *p, const struct trace_record *r)
{
	struct book_action act = book_tell(&p->book, &r->event);
	uint8_t outcome = codec_outcome(&p->book);

	p->events++;
	if (p->differs || (is_same(&act, &r->action) && outcome == r->outcome))
		return;
	p->differs = true;
	p->at_event = p->events;
	p->recorded = *r;
	p->decided = act;
	p->outcome = outcome;
}

bool replay_next(struct replay *p, struct trace_record *r)
{
	int n;

	if (p->note || p->torn || p->garbage || p->at == p->end)
		return false;
	n = codec_take(&p->codec, p->at, (size_t)(p->end - p->at), r);
	p->torn = n == 0;
	p->garbage = n < 0 || (n > 0 && !r->note && !can_be(&r->event));
	if (p->torn || p->garbage)
		return false;
	p->at += n;
	p->note = r->note;
	if (p->note)
		return false;
	decide_again(p, r);
	return true;
}

static const char *how_it_ended(const struct replay *p)
{
	if (p->garbage)
		return "then the file holds garbage";
	if (p->note == TRACE_ENDED)
		return "until the program ended";
	if (p->note == TRACE_FULL)
		return "until the trace was full";
	if (p->note == TRACE_SLOW)
		return "until they came faster than the file could be written";
	return p->torn ? "then the file ends within one: the program was killed, or the disk was full"
		       : "then the file ends: the program was killed, or still runs";
}

bool replay_verdict(const struct replay *p, char *words, size_t size)
{
	const char *thresholds = p->header.thresholds == codec_thresholds()
					 ? ""
					 : "; it was recorded with other thresholds than these";
	char recorded[256], decided[256];

	if (!p->differs) {
		snprintf(words, size, "%" PRIu64 " events, every decision is the same; %s%s", p->events,
			how_it_ended(p), thresholds);
		return !p->garbage;
	}
	book_words(recorded, sizeof(recorded), &p->recorded.event, &p->recorded.action);
	book_words(decided, sizeof(decided), &p->recorded.event, &p->decided);
	snprintf(words, size,
		"event %" PRIu64
		" is decided otherwise: recorded was \"%s\" [%s%s], now it is \"%s\" [%s%s]%s",
		p->at_event, recorded, book_state_name(p->recorded.outcome & 7),
		p->recorded.outcome & 8 ? ", open" : "", decided, book_state_name(p->outcome & 7),
		p->outcome & 8 ? ", open" : "", thresholds);
	return false;
}

/*
 * Credit: how many launches may pass without a fence. One rule: only behind fenced work that has not ended, so that the
 * end of an interval is fenced or bounded. How many follows from how much is queued.
 */
#include "preload/book/parts.h"

uint32_t book_piece(const struct book *b)
{
	uint64_t each = b->durations.mean_ns;

	if (b->program.sample)
		return 0;
	/* As short as can be told, or shorter. */
	if (each && each <= US)
		return (uint32_t)CREDIT_MOST;
	if (each)
		return each > PIECE_NS / 4 ? 0 : (uint32_t)(PIECE_NS / each);
	/* As long as nobody knows, behind twice as many calls each time. */
	return b->program.blind < CREDIT_LEAST  ? (uint32_t)CREDIT_LEAST
	       : b->program.blind < CREDIT_MOST ? b->program.blind
						: (uint32_t)CREDIT_MOST;
}

/* Kernels so short, and so close behind each other, that a fence behind each would slow the program down. */
static bool are_short(const struct book *b, const struct book_event *e)
{
	const struct book_program *p = &b->program;

	return (p->unwaited >= 4 * CREDIT_LEAST || p->run >= 4 * CREDIT_LEAST) && b->durations.mean_ns &&
	       b->durations.mean_ns < SHORT_NS && b->interval.call_ns < SHORT_NS &&
	       p->apart_ns < 2 * SHORT_NS && !(e->facts & FACT_HOST_WORK);
}

static uint32_t watched(const struct book *b, const struct book_event *e)
{
	const struct book_queue *q = &b->queue;

	/* What comes behind a wait is seen to begin. Below somebody, each looks at the gate. */
	if ((e->call & CALL_WAITS) || b->others.above || b->program.sample)
		return 0;
	/* One that waits for a few at a time is seen each time it begins again. */
	if (q->launches < CREDIT_LEAST || q->window < CREDIT_LEAST)
		return are_short(b, e) ? (uint32_t)(SHORT_CREDIT_NS / b->durations.mean_ns) : 0;
	/* A fence says nothing of other streams. */
	if (b->interval.call_ns >= KEEP_NS && fence_is_scattered(b))
		return 0;
	if (e->now_ns < b->interval.begin_ns + FRESH_NS)
		return 0;
	return (q->launches < q->window ? q->launches : q->window) / 4;
}

/* Where it can be foreseen which call is the last of an interval, that one has a fence behind it, and leaves no credit:
 * then the first of the next finds that it has ended. */
static uint32_t up_to_the_last(const struct book *b, const struct book_event *e, uint32_t credit)
{
	const struct book_interval *i = &b->interval;
	uint64_t calls = interval_calls(b, e);

	/* Not where each call would come here for it, one right behind the other. */
	if (!i->regular || calls > i->calls || (i->calls <= FEW && b->program.apart_ns < 2 * SHORT_NS))
		return credit;
	return i->calls - calls <= credit ? (uint32_t)(i->calls - calls - (calls < i->calls)) : credit;
}

/* Who launches now and then, or a few calls at a time, gets none: then their fences say all, and the next call finds that
 * they have ended. What is captured passes on credit as well, so nobody gets any while a stream captures. Nor for a copy in
 * another GPU's stream: what follows may be work of that one alone. */
static bool gets_none(struct book *b, const struct book_event *e)
{
	struct book_program *p = &b->program;
	/* Those that passed on credit count, also if an interval has ended since. */
	uint64_t calls = e->calls > p->calls ? e->calls - p->calls : 1;
	/* Another thread may have come by since we looked at the clock. */
	uint64_t apart = e->now_ns > p->called_ns ? (e->now_ns - p->called_ns) / calls : 0;

	if (e->now_ns > p->called_ns)
		p->called_ns = e->now_ns;
	if (e->calls > p->calls)
		p->calls = e->calls;
	if (apart > 4 * SPARSE_NS)
		apart = 4 * SPARSE_NS;
	durations_follow(&p->apart_ns, apart);
	return p->apart_ns > SPARSE_NS || (interval_is_rare(b, e) && interval_calls(b, e) <= FEW) ||
	       (e->facts & FACT_CAPTURES) || (e->call & CALL_PEER);
}

uint32_t credit_for(struct book *b, const struct book_event *e)
{
	uint32_t credit;

	if (gets_none(b, e))
		return 0;
	if (b->others.watched)
		credit = watched(b, e);
	else
		credit = book_piece(b);
	if (!b->others.watched && (e->call & CALL_PER_THREAD) && credit > 2 * CREDIT_LEAST)
		credit = 2 * (uint32_t)CREDIT_LEAST;
	return up_to_the_last(b, e, credit);
}

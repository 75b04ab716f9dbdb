/*
 * Credit: how many launches may pass without a fence: as many as take a certain time. If that is less than a quarter of
 * CREDIT_LEAST, each launch has a fence. An unwatched client has PIECE_NS. A watched client has a quarter of what is queued
 * behind fences that have not passed, so that the end of its busy interval has a fence or is bounded by one.
 */
#include "preload/book/parts.h"

/* Returns how many launches take this time together. */
static uint32_t launches_in(const struct book *b, uint64_t ns)
{
	uint64_t each = b->durations.mean_ns;

	/* While no duration is known, each credit is as large as all launches before it. */
	if (!each && b->program.unwaited < CREDIT_LEAST)
		return (uint32_t)CREDIT_LEAST;
	if (!each)
		return b->program.unwaited < ns / SHORTEST_NS ? b->program.unwaited
							      : (uint32_t)(ns / SHORTEST_NS);
	return ns / each < CREDIT_LEAST / 4 ? 0 : (uint32_t)(ns / each);
}

uint32_t book_piece(const struct book *b)
{
	return b->program.sample ? 0 : launches_in(b, PIECE_NS);
}

static uint32_t watched(const struct book *b, const struct book_event *e)
{
	const struct book_queue *q = &b->queue;
	const struct book_program *p = &b->program;
	bool rows = p->unwaited >= 4 * CREDIT_LEAST || p->run >= 4 * CREDIT_LEAST;

	/* The launch behind a call that waits must be seen to begin. Below a higher priority each launch asks the gate. */
	if ((e->call & CALL_WAITS) || b->others.above || p->sample)
		return 0;
	/* A program that waits for a few launches at a time comes to the gate whenever it begins again. Rows of kernels that
	 * are shorter than a fence takes would be slowed down by a fence behind each. */
	if (q->launches < CREDIT_LEAST || q->window < CREDIT_LEAST)
		return rows && b->durations.mean_ns < CALL_NS ? launches_in(b, SHORT_CREDIT_NS) : 0;
	/* A fence says nothing about work in other streams. */
	if (b->interval.call_ns >= KEEP_NS && fence_is_scattered(b))
		return 0;
	return launches_in(b, q->ns / 4);
}

/* Where it can be foreseen which call is the last of an interval, that call gets a fence and leaves no credit. Then the
 * first call of the next interval comes to the gate and finds that the work has ended. */
static uint32_t up_to_the_last(const struct book *b, const struct book_event *e, uint32_t credit)
{
	const struct book_interval *i = &b->interval;
	uint64_t calls = interval_calls(b, e);

	if (!i->regular || calls > i->calls)
		return credit;
	return i->calls - calls <= credit ? (uint32_t)(i->calls - calls - (calls < i->calls)) : credit;
}

uint32_t credit_for(const struct book *b, const struct book_event *e)
{
	/* A program that launches a few times and then pauses gets none: then fences say everything, and its next call finds
	 * that the work has ended. While a stream captures nobody gets credit, because captured launches would use it up. Nor
	 * does a copy in a stream of another GPU leave any: what follows may be work of that GPU alone. Nor does a
	 * launch behind a host function: the GPU may stand still before the next one as well. */
	if ((interval_is_rare(b, e) && interval_calls(b, e) <= CREDIT_LEAST) || (e->facts & FACT_CAPTURES) ||
		(e->call & (CALL_PEER | CALL_LATE)))
		return 0;
	return up_to_the_last(b, e, b->others.watched ? watched(b, e) : book_piece(b));
}

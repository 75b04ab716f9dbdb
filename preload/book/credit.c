/*
 * Credit: how many launches may pass without a fence. There is one rule: they pass only behind fenced work that has not
 * ended, so that the end of a busy interval has a fence or is bounded by one. The number follows from how much is queued.
 */
#include "preload/book/parts.h"

uint32_t book_piece(const struct book *b)
{
	uint64_t each = b->durations.mean_ns;

	if (b->program.sample)
		return 0;
	if (each)
		return each > PIECE_NS / 4 ? 0 : (uint32_t)(PIECE_NS / each);
	/* While no duration is known, each credit is as large as all launches before it. */
	if (b->program.blind < CREDIT_LEAST)
		return (uint32_t)CREDIT_LEAST;
	return b->program.blind < PIECE_NS / SHORTEST_NS ? b->program.blind
							 : (uint32_t)(PIECE_NS / SHORTEST_NS);
}

/* Whether kernels are so short and follow each other so closely that a fence behind each would slow the program down. */
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

	/* The launch behind a call that waits must be seen to begin. Below a higher priority each launch asks the gate. */
	if ((e->call & CALL_WAITS) || b->others.above || b->program.sample)
		return 0;
	/* A program that waits for a few launches at a time comes to the gate whenever it begins again. */
	if (q->launches < CREDIT_LEAST || q->window < CREDIT_LEAST)
		return are_short(b, e) ? (uint32_t)(SHORT_CREDIT_NS / b->durations.mean_ns) : 0;
	/* A fence says nothing about work in other streams. */
	if (b->interval.call_ns >= KEEP_NS && fence_is_scattered(b))
		return 0;
	return (q->launches < q->window ? q->launches : q->window) / 4;
}

/* Where it can be foreseen which call is the last of an interval, that call gets a fence and leaves no credit. Then the
 * first call of the next interval comes to the gate and finds that the work has ended. */
static uint32_t up_to_the_last(const struct book *b, const struct book_event *e, uint32_t credit)
{
	const struct book_interval *i = &b->interval;
	uint64_t calls = interval_calls(b, e);

	/* Not for short intervals of calls in quick succession: nearly every call would come to the gate. */
	if (!i->regular || calls > i->calls || (i->calls <= FEW && b->program.apart_ns < 2 * SHORT_NS))
		return credit;
	return i->calls - calls <= credit ? (uint32_t)(i->calls - calls - (calls < i->calls)) : credit;
}

/*
 * Whether this call leaves no credit. A program that launches a few times in a row and then pauses gets none: then fences say
 * everything, and its next call finds that the work has ended. While a stream captures nobody gets credit, because captured
 * launches would use it up. A copy in a stream of another GPU leaves none, because what follows may be work of that GPU
 * alone. A launch behind a host function leaves none: the GPU may stand still before the next one as well.
 */
static bool gets_none(struct book *b, const struct book_event *e)
{
	struct book_program *p = &b->program;
	/* Calls that passed on credit count too, also if an interval has ended since. */
	uint64_t calls = e->calls > p->calls ? e->calls - p->calls : 1;
	/* Another thread may have been here since this event was dated. */
	uint64_t apart = e->now_ns > p->called_ns ? (e->now_ns - p->called_ns) / calls : 0;

	if (e->now_ns > p->called_ns)
		p->called_ns = e->now_ns;
	if (e->calls > p->calls)
		p->calls = e->calls;
	/* A single long pause must not outweigh many short ones: four times the bound that are_short() compares with. */
	if (apart > 8 * SHORT_NS)
		apart = 8 * SHORT_NS;
	durations_follow(&p->apart_ns, apart);
	return (interval_is_rare(b, e) && interval_calls(b, e) <= FEW) || (e->facts & FACT_CAPTURES) ||
	       (e->call & (CALL_PEER | CALL_LATE));
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

/*
 * What the segment says: the limit, the turn, and who else is in the running set. Also: whether the GPU serves its clients
 * one after the other, work that outlasts its turn, and the queue of a client while another of a higher priority has work.
 */
#include <errno.h>

#include "preload/book/parts.h"

/* Whether the quota is used up, or the turn is over while others wait. */
static bool must_stop(const struct book_status *s)
{
	return s->verdict == -EDQUOT || s->verdict == -EAGAIN;
}

bool others_waited(struct book *b, uint64_t took_ns, uint64_t expected_ns, uint64_t now, uint8_t *alternates)
{
	struct book_others *o = &b->others;

	/* If nobody else was in the set at the last check, it has waited for its own work: before the queue was bounded, not
	 * every launch got a fence. */
	if (o->turns || !o->others || took_ns < WAITED_MORE_NS + (o->others + 2) * expected_ns)
		return false;
	if (now - o->waits_ns > 5 * CONTENDED_NS) {
		o->waits_ns = now;
		o->waits = 0;
		o->waits_all_ns = 0;
	}
	o->waits_all_ns += took_ns;
	if (++o->waits >= 2 && o->waits_all_ns > 4 * WAITED_MORE_NS)
		*alternates = ALTERNATES_SEEN;
	return true;
}

/*
 * A wait for a client whose kernels are short, or not longer than this one, is too short to be told from the variation of
 * kernels (others_waited). But the sums of many show it: kernels that take longer beside others than with an equal part of
 * the GPU have waited for more than their part. One that was never measured alone has to be, or its waits look like its length.
 */
void others_slowed(
	struct book *b, const struct book_fence *f, uint64_t took_ns, uint64_t now, uint8_t *alternates)
{
	struct book_others *o = &b->others;
	const struct duration *known = f->launches == 1 ? durations_find(&b->durations, f->work) : NULL;
	uint64_t fair;

	if (!known || !f->work || !o->beside)
		return;
	if (now - o->slow_since_ns > 5 * CONTENDED_NS) {
		o->slow_since_ns = now;
		o->slow_ns = o->slow_alone_ns = o->slow_unknown_ns = o->slow_others = 0;
	}
	if (!known->alone_ns) {
		o->slow_unknown_ns += took_ns;
		if (o->slow_unknown_ns < 4 * WAITED_MORE_NS ||
			(o->trial_ns && now - o->trial_ns < TRIAL_APART_NS))
			return;
		o->trial_ns = now;
		*alternates = ALTERNATES_TRIAL;
		return;
	}
	if (o->slow_others < o->beside)
		o->slow_others = o->beside;
	o->slow_ns += took_ns;
	o->slow_alone_ns += known->alone_ns;
	fair = (o->slow_others + 1) * o->slow_alone_ns;
	if (o->slow_ns > fair + fair / SLOWED_PART + 4 * WAITED_MORE_NS)
		*alternates = ALTERNATES_SEEN;
}

void others_outlasted(struct book *b, uint64_t now)
{
	struct book_others *o = &b->others;

	if (!o->outlasts)
		return;
	/* Work that ends within a fifth of that time after others were let in has waited for them, as collectives do. So the
	 * next time others are let in after half the time, down to a sixteenth: a few slices of 2 ms. */
	if (now - o->outlasts_ns > OUTLAST_NS / 5)
		o->outlast_shift -= o->outlast_shift > 0;
	else
		o->outlast_shift += o->outlast_shift < 4;
	o->outlasts = false;
}

/*
 * The turn or the quota is over, others wait, and the oldest queued work has not ended for long: lets the others in until it
 * has ended.
 */
static void outlast(struct book *b, const struct book_event *e)
{
	struct book_others *o = &b->others;
	const struct book_fence *f = b->queue.count ? fence_of(b, 0) : NULL;
	uint64_t now = e->now_ns, patience = OUTLAST_NS >> o->outlast_shift;
	uint64_t usual = f && f->expected_ns < OUTLAST_NS ? f->expected_ns : OUTLAST_NS;
	bool outlasts = false, stalls = false;

	if (f && f->recorded_ns != o->oldest_ns) {
		o->oldest_ns = f->recorded_ns;
		o->oldest_since_ns = now;
	} else if (f) {
		outlasts = o->outlasts || (o->turns && must_stop(&e->status) && b->state == BOOK_DRAINING &&
						  now - b->interval.drain_ns > patience &&
						  now - o->oldest_since_ns > patience + 2 * usual);
		/* Longer than a window, so that the time of a kernel that is longer than usual now and then is owed. Where
		 * work has waited for work at the gate, parked work says nothing about a partner. */
		stalls = o->stalls ||
			 (must_stop(&e->status) && f->expected_ns && !(f->parked && b->queue.least) &&
				 now - o->oldest_since_ns > OUTLAST_NS + 2 * f->expected_ns);
	}
	o->stalls = stalls;
	if (outlasts && !o->outlasts) {
		o->outlasts = true;
		o->outlasts_ns = now;
		/* Launches go on, unless the quota is used up as well. */
		if (e->status.verdict == -EAGAIN)
			b->state = BOOK_RUNNING;
	} else if (!outlasts) {
		others_outlasted(b, now);
	}
}

void others_met(struct book *b, const struct book_event *e)
{
	struct book_others *o = &b->others;

	if (!e->status.others)
		return;
	o->contended_ns = e->now_ns;
	/* Credit that was given while the client was not watched is taken back. */
	if (!o->watched)
		b->open = false;
	o->watched = true;
}

/*
 * An unlimited client that is alone is not watched: the ends of its work need not be exact. While others run it must be in the
 * set exactly as long as it has work, because the others are billed for the time that it is not billed for.
 */
static void watch(struct book *b, const struct book_status *s, uint64_t now)
{
	struct book_others *o = &b->others;
	bool watched;

	o->others = o->beside = s->others;
	if (s->others)
		o->contended_ns = now;
	if (s->above_present && !o->below_ns)
		o->below_ns = QUEUE_BELOW_NS;
	o->gated = s->gated;
	o->above = s->above_present;
	o->lent = s->request_present;
	o->limited = s->core_pct < 100 || s->turns || s->shares;
	watched = o->limited || o->above || o->lent || others_contended(b, now);
	/* Credit that was given while the client was not watched is taken back. */
	if (watched && !o->watched)
		b->open = false;
	o->watched = watched;
}

/* Whether the queued work takes as long as what is left of the turn. Launches stop then, so that the client that waits
 * for the turn waits for one slice and not for a queue behind it. */
static bool turn_ends(const struct book *b, const struct book_status *s)
{
	return s->turn_left_ns != UINT64_MAX && (b->state == BOOK_DRAINING || s->turn_left_ns <= b->queue.ns);
}

struct book_action others_status(struct book *b, const struct book_event *told)
{
	struct book_event copy = *told, *e = &copy;
	struct book_status *s = &e->status;
	struct book_others *o = &b->others;
	uint64_t next = e->look_ns, least = b->observer.hurry ? LOOK_NS : PAUSE_NS / 2;

	o->turns = s->turns;
	o->tail_pct = s->tail_pct;
	o->core_pct = s->core_pct;
	o->window_end_ns = s->window_end_ns;
	o->window_ns = s->window_ns;
	watch(b, s, e->now_ns);
	if (!book_is_in(b))
		return (struct book_action){.what = ACT_NONE};
	if (s->verdict == 0 && turn_ends(b, s))
		s->verdict = -EAGAIN;
	outlast(b, e);
	if (must_stop(s) && b->state == BOOK_RUNNING && !(o->outlasts && s->verdict == -EAGAIN)) {
		b->interval.drain_ns = e->now_ns;
		b->queue.bound_ns -= (b->queue.bound_ns - QUEUE_NS) / 64;
		b->state = BOOK_DRAINING;
		b->open = false;
	} else if (s->verdict == 0 && b->state == BOOK_DRAINING) {
		b->state = BOOK_RUNNING;
	}
	if (s->look_ns)
		next = s->look_ns;
	else if (b->state == BOOK_RUNNING && o->limited && s->left_ns < next)
		next = s->left_ns < least ? least : s->left_ns;
	if (b->state == BOOK_RUNNING && s->turn_left_ns - b->queue.ns < next)
		next = s->turn_left_ns < b->queue.ns + LOOK_NS ? LOOK_NS : s->turn_left_ns - b->queue.ns;
	o->check_ns = e->now_ns + next;
	/* The client was taken out because it gave no sign of life, but its work is on the GPU. */
	return (struct book_action){.what = s->running ? ACT_NONE : ACT_RESUME};
}

/*
 * While a client of a higher priority has work, little work is queued; how little is learned here. With one kernel queued at
 * a time the GPU stands still from the end of each kernel until the next one arrives. That loses next to nothing with kernels
 * of a millisecond, but a fifth of the time with kernels of 20 us. So the bound grows while more than BELOW_LOST_PER_MILLE of
 * the time is lost, and shrinks while less than a quarter of that is lost.
 */
static void learn_below(struct book_others *o, uint64_t now)
{
	uint64_t all = o->below_busy_ns + o->below_lost_ns, lost = o->below_lost_ns * 1000;

	if (lost > all * BELOW_LOST_PER_MILLE) {
		o->below_tried_ns = o->below_ns;
		o->below_until_ns = now + 5 * CONTENDED_NS;
		o->below_ns += o->below_ns / 2;
	} else if (lost * 4 < all * BELOW_LOST_PER_MILLE) {
		uint64_t less = o->below_ns - o->below_ns / 16;

		/* A bound that was found too small is not tried again within a second. */
		if (less > o->below_tried_ns || now >= o->below_until_ns)
			o->below_ns = less;
	}
	if (o->below_ns > QUEUE_BELOW_MOST_NS)
		o->below_ns = QUEUE_BELOW_MOST_NS;
	if (o->below_ns < QUEUE_BELOW_NS)
		o->below_ns = QUEUE_BELOW_NS;
	o->below_busy_ns = o->below_lost_ns = 0;
}

void others_below_passed(struct book *b, const struct book_fence *f, uint64_t took_ns, uint64_t now)
{
	struct book_others *o = &b->others;

	if (!o->above)
		return;
	o->below_busy_ns += took_ns;
	/* This launch had waited for room, and the GPU stood still until it was submitted. A longer gap has another cause. */
	if (f->held && f->begun_ns > b->queue.last_end_ns &&
		f->begun_ns - b->queue.last_end_ns < IN_DRIVER_NS)
		o->below_lost_ns += f->begun_ns - b->queue.last_end_ns;
	if (o->below_busy_ns >= QUEUE_CONTENDED_NS)
		learn_below(o, now);
}

/*
 * A thread that sleeps until its launch has room wakes up late, and the GPU stands still meanwhile. A longer queue would help,
 * but it would delay the client of a higher priority: with kernels of 20 us two are queued, and a sleep that is 30 us late
 * would need five. So for ends within the usual lateness of sleeps the thread polls, and yields the processor after each look.
 * A thread also polls for the end of a turn, because others wait for it, and for the end of work when the quota is used up and
 * others run: they pay less than they use while this client is in the set without work. The lateness of sleeps is learned: the
 * learned value rises fast and falls slowly, so that nearly all sleeps are less late than that.
 */
void others_slept(struct book *b, uint64_t late_ns)
{
	uint64_t *late = &b->others.late_ns;

	if (!late_ns)
		return;
	if (late_ns > *late)
		*late += (late_ns - *late) / 4;
	else
		*late -= (*late - late_ns) / 32;
	if (*late < QUEUE_BELOW_MOST_NS / 64)
		*late = QUEUE_BELOW_MOST_NS / 64;
	if (*late > QUEUE_BELOW_MOST_NS / 2)
		*late = QUEUE_BELOW_MOST_NS / 2;
}

uint64_t others_patience(const struct book *b, uint64_t due_ns, uint64_t now, uint64_t otherwise_ns)
{
	uint64_t late = b->others.late_ns, ns = due_ns > now + late ? due_ns - now - late : 0;
	/* Others wait for the end, or pay less than they use while it is not seen. It is enough if one thread polls. */
	bool hands_over =
		b->state == BOOK_DRAINING && b->waiters < 2 && (b->others.turns || others_contended(b, now));

	if (!book_is_in(b) || now > due_ns + QUEUE_BELOW_MOST_NS / 2)
		return otherwise_ns;
	if (b->others.above)
		return ns;
	return hands_over && ns < otherwise_ns ? ns : otherwise_ns;
}

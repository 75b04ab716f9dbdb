/*
 * What the segment says: the limit, the turn, and who else is in the running set. Whether the GPU serves its clients one
 * after the other; work that outlasts its turn; how little may be queued below somebody of a higher priority.
 */
#include <errno.h>

#include "preload/book/parts.h"

/* Over its quota, or over its time while others wait. */
static bool must_stop(const struct book_status *s)
{
	return s->verdict == -EDQUOT || s->verdict == -EAGAIN;
}

/*
 * Beside others in the set, work that should take expected_ns took took_ns. True: it has waited for the others' work.
 * Twice within a second, and it is said to all clients that the GPU alternates.
 */
bool others_waited(struct book *b, uint64_t took_ns, uint64_t expected_ns, uint64_t now, uint8_t *alternates)
{
	struct book_others *o = &b->others;

	/* Where nobody was beside it at the last look it has waited for its own work: of what was queued before that was
	 * bounded not every launch has a fence. */
	if (o->turns || !o->others || took_ns < WAITED_MORE_NS + (o->others + 2) * expected_ns)
		return false;
	if (now - o->waits_ns > 5 * CONTENDED_NS) {
		o->waits_ns = now;
		o->waits = 0;
		o->waits_all_ns = 0;
	}
	o->waits_all_ns += took_ns;
	if (++o->waits >= 2 && o->waits_all_ns > 4 * WAITED_MORE_NS)
		*alternates = 1;
	return true;
}

void others_outlasted(struct book *b, uint64_t now)
{
	struct book_others *o = &b->others;

	if (!o->outlasts)
		return;
	/* Work that ends so soon after others were let in beside it has waited for them, as collectives do: the next
	 * time they are let in after half the time, down to a few slices of 2 ms. */
	if (now - o->outlasts_ns > OUTLAST_NS / 5)
		o->outlast_shift -= o->outlast_shift > 0;
	else
		o->outlast_shift += o->outlast_shift < 4;
	o->outlasts = false;
}

/*
 * Its turn or its quota is over, others wait, and the oldest of what it has queued has not ended for long: they need not
 * wait any longer, until it has.
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
		/* For longer than a window, so that a kernel that is now and then longer than usual pays for itself. Where
		 * work has waited for work at the gate, what is parked says nothing of a partner. */
		stalls = o->stalls ||
			 (must_stop(&e->status) && f->expected_ns && !(f->parked && b->queue.least) &&
				 now - o->oldest_since_ns > OUTLAST_NS + 2 * f->expected_ns);
	}
	o->stalls = stalls;
	if (outlasts && !o->outlasts) {
		o->outlasts = true;
		o->outlasts_ns = now;
		/* One whose quota is used up as well launches nothing more. */
		if (e->status.verdict == -EAGAIN)
			b->state = BOOK_RUNNING;
	} else if (!outlasts) {
		others_outlasted(b, now);
	}
}

/*
 * An unlimited client that is alone is not watched: its ends need not be exact. Beside others it must be in the set
 * while it has work and at no other time, because they pay for what it does not.
 */
static void watch(struct book *b, const struct book_status *s, uint64_t now)
{
	struct book_others *o = &b->others;
	bool watched;

	o->others = s->others;
	if (s->others)
		o->contended_ns = now;
	if (s->above_present && !o->below_ns) {
		o->below_ns = QUEUE_BELOW_NS;
		o->below_late_ns = QUEUE_BELOW_MOST_NS / 4;
	}
	o->gated = s->gated;
	o->above = s->above_present;
	o->lent = s->request_present;
	o->limited = s->core_pct < 100 || s->turns || s->shares;
	watched = o->limited || o->above || o->lent || others_contended(b, now);
	/* What credit there is was given to one that nobody watched. */
	if (watched && !o->watched)
		b->open = false;
	o->watched = watched;
}

/* What is queued takes as long as the turn does: who waits for it waits for a slice, not for what is queued behind. */
static bool turn_ends(const struct book *b, const struct book_status *s)
{
	return s->turn_left_ns != UINT64_MAX && (b->state == BOOK_DRAINING || s->turn_left_ns <= b->queue.ns);
}

struct book_action others_status(struct book *b, const struct book_event *told)
{
	struct book_event copy = *told, *e = &copy;
	struct book_status *s = &e->status;
	struct book_others *o = &b->others;
	uint64_t next = e->look_ns, least = b->observer.hurry ? LOOK_NS : MS;

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
	/* Taken out for not being heard of: what is queued runs all the same. */
	return (struct book_action){.what = s->running ? ACT_NONE : ACT_RESUME};
}

/*
 * Below somebody of a higher priority little is queued. How little is learned: with one kernel queued at a time the GPU
 * stands still from its end until the next one is there, next to nothing for a kernel of a millisecond, a fifth of the
 * time for one of 20 us. So the bound grows while too much is lost in that way, and shrinks while a quarter of that is.
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

		/* One that was found too small is not tried again soon. */
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
	/* The GPU had nothing to do from the end of the last one until this one was submitted, which had waited for room.
	 * A longer gap was not made by that. */
	if (f->held && f->begun_ns > b->queue.last_end_ns &&
		f->begun_ns - b->queue.last_end_ns < IN_DRIVER_NS)
		o->below_lost_ns += f->begun_ns - b->queue.last_end_ns;
	if (o->below_busy_ns >= QUEUE_CONTENDED_NS)
		learn_below(o, now);
}

/*
 * A thread that sleeps until the next launch has room wakes up late, and the GPU stands still meanwhile. To have more queued
 * instead would be in the way of whoever is above: with kernels of 20 us two are queued, and a sleep that is late by 30 us
 * would need five. So what ends within the time that sleeps are usually late by is waited for without sleeping, and the
 * processor is offered to others at each look. How late they are is learned: as late as nearly all are.
 */
void others_below_slept(struct book *b, uint64_t late_ns)
{
	uint64_t *late = &b->others.below_late_ns;

	if (!b->others.above || !late_ns)
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

uint64_t others_below_patience(const struct book *b, uint64_t due_ns, uint64_t now, uint64_t otherwise_ns)
{
	uint64_t late = b->others.below_late_ns;

	if (!b->others.above || b->state != BOOK_RUNNING || now > due_ns + QUEUE_BELOW_MOST_NS / 2)
		return otherwise_ns;
	return due_ns > now + late ? due_ns - now - late : 0;
}

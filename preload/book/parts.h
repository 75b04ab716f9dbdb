/* What the parts of the book ask of each other, downwards: book, then observer and credit, then interval and queue,
 * then fences, then partner and others, then durations. Everything here is pure. */
#ifndef PRELOAD_TRACK_PARTS_H
#define PRELOAD_TRACK_PARTS_H

#include "preload/book/book.h"
#include "preload/book/thresholds.h"

/* fences.c */
static inline struct book_fence *fence_at(struct book *b, unsigned i)
{
	return &b->queue.fence[b->queue.order[i]];
}
static inline const struct book_fence *fence_of(const struct book *b, unsigned i)
{
	return &b->queue.fence[b->queue.order[i]];
}
/* A fence was recorded at this place of the table; false: there is one already. */
void fence_put(struct book *b, const struct book_event *e);
/* It has passed. Whether the GPU is seen to alternate is added to *alternates. */
void fence_passed(struct book *b, const struct book_event *e, uint8_t *alternates);
void fence_unfinished(struct book *b, const struct book_event *e);
/* What is queued is not waited for any longer. */
void fence_park_all(struct book *b);
void fence_forget(struct book *b, uint64_t ctx);
/* The last two are in different streams. */
bool fence_is_scattered(const struct book *b);

/* queue.c */
bool queue_has_room(const struct book *b, const struct book_event *e);
/* How long to sleep before asking again whether what is queued has ended; 0: spin. */
uint64_t queue_patience(const struct book *b, uint64_t now);
/* Nothing has ended for so long that this call is let past what is queued. */
bool queue_let_past(struct book *b, const struct book_event *e);
/* It was, and may be what the others have waited for. */
void queue_note_need(struct book *b, const struct book_event *e);
/* So many have come back: more may be queued. */
void queue_widen(struct book *b, uint32_t launches, uint64_t now);
/* Does its end so soon after another was let past it show that it had waited for that one? */
bool queue_has_waited(struct book *b, const struct book_fence *f, uint64_t end);
bool queue_let_past_behind(const struct book *b, const struct book_fence *f);

/* credit.c */
uint32_t credit_for(struct book *b, const struct book_event *e);

/* interval.c */
void interval_begin(struct book *b, const struct book_event *e);
void interval_learn_gap(struct book *b, uint64_t now);
/* What to do about the end of the work: nothing yet, ask the streams, or leave. */
struct book_action interval_settle(struct book *b, const struct book_event *e, bool idle);
/* Launches took longer than their kernels: leave as of when those would have ended one behind the other. */
struct book_action interval_leave_gaps(struct book *b, const struct book_event *e);
struct book_action interval_leave_stalled(struct book *b, const struct book_event *e);
struct book_action interval_left(struct book *b, const struct book_event *e);
void interval_launched(struct book *b, uint64_t let_ns, uint64_t now);
uint64_t interval_calls(const struct book *b, const struct book_event *e);
/* As many calls as the last two had. */
bool interval_is_whole(const struct book *b, const struct book_event *e);
/* They begin so rarely that to look at each end costs no more than to look from time to time. */
bool interval_is_rare(const struct book *b, const struct book_event *e);

/* others.c */
static inline bool others_contended(const struct book *b, uint64_t now)
{
	return b->others.contended_ns && now - b->others.contended_ns < CONTENDED_NS;
}
struct book_action others_status(struct book *b, const struct book_event *e);
bool others_waited(struct book *b, uint64_t took_ns, uint64_t expected_ns, uint64_t now, uint8_t *alternates);
/* What outlasted its turn has ended. */
void others_outlasted(struct book *b, uint64_t now);
void others_below_passed(struct book *b, const struct book_fence *f, uint64_t took_ns, uint64_t now);
/* A thread that waited for room has slept for so much longer than it wanted to. */
void others_below_slept(struct book *b, uint64_t late_ns);
uint64_t others_below_patience(const struct book *b, uint64_t due_ns, uint64_t now, uint64_t otherwise_ns);

/* partner.c */
/* The gate is closed, and the oldest of what is queued waits for a partner: leave as of partner_end. */
bool partner_waits(struct book *b, uint64_t now);
uint64_t partner_end(const struct book *b);
/* A fence has passed. True: its kernel has waited for a partner, so that it says nothing about its length. */
bool partner_passed(struct book *b, const struct book_fence *f, uint64_t end, uint64_t took_ns);

/* observer.c */
struct book_action observer_timer(struct book *b, const struct book_event *e);
void observer_callback(struct book *b, const struct book_event *e);
/* May the driver be asked to call? */
bool observer_may_ask(const struct book *b, const struct book_event *e, bool anew);
/* By who launched, so that the tracker need not wake for it. */
bool observer_asks_early(const struct book *b, const struct book_event *e);

#endif

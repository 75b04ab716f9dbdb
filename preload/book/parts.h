/* What the parts of the book call of each other. Calls go downwards: book, then observer and credit, then interval and
 * queue, then fences, then partner and others, then durations. Everything here is pure. */
#ifndef PRELOAD_TRACK_PARTS_H
#define PRELOAD_TRACK_PARTS_H

#include "preload/book/book.h"
#include "preload/book/thresholds.h"

/* fences.c. The i-th fence, the oldest first. */
static inline struct book_fence *fence_at(struct book *b, unsigned i)
{
	return &b->queue.fence[b->queue.order[i]];
}
static inline const struct book_fence *fence_of(const struct book *b, unsigned i)
{
	return &b->queue.fence[b->queue.order[i]];
}
/* Notes that a fence was recorded, at the event's place of the table. A place that is in use is left as it is. */
void fence_put(struct book *b, const struct book_event *e);
/* Notes that the event's fence has passed, and learns from it. Sets *alternates if the GPU is seen to alternate. */
void fence_passed(struct book *b, const struct book_event *e, uint8_t *alternates);
/* Notes that the event's fence or stream has not ended. */
void fence_unfinished(struct book *b, const struct book_event *e);
/* Stops waiting for the queued work. */
void fence_park_all(struct book *b);
/* Drops the fences of a context that is destroyed. */
void fence_forget(struct book *b, uint64_t ctx);
/* Whether the last two fences are in different streams. */
bool fence_is_scattered(const struct book *b);

/* queue.c. Whether the call at the gate may be queued as well. */
bool queue_has_room(const struct book *b, const struct book_event *e);
/* Returns how long a thread at the gate sleeps before it asks again whether queued work has ended; 0: it polls. */
uint64_t queue_patience(const struct book *b, uint64_t expected_ns, uint64_t now);
/* Whether nothing has ended for so long that the call at the gate is let past the queued work. */
bool queue_let_past(struct book *b, const struct book_event *e);
/* Notes that a call was let past queued work, which may have waited for it. */
void queue_note_need(struct book *b, const struct book_event *e);
/* Notes that all queued work ended while a thread slept because there was no room. */
void queue_ran_dry(struct book *b, uint64_t now);
/* Notes that this many launches have ended: more may be queued. */
void queue_widen(struct book *b, uint32_t launches, uint64_t now);
/* Whether the end of this fence shows that its work had waited for a launch that was let past it. */
bool queue_has_waited(struct book *b, const struct book_fence *f, uint64_t end);
/* Whether the last launch that was let past is in this fence's own stream. */
bool queue_let_past_behind(const struct book *b, const struct book_fence *f);

/* credit.c. Returns how many launches the thread may make behind this fence without coming to the gate. */
uint32_t credit_for(const struct book *b, const struct book_event *e);

/* interval.c. Begins a busy interval. */
void interval_begin(struct book *b, const struct book_event *e);
/* Learns the time since the last interval. */
void interval_learn_gap(struct book *b, uint64_t now);
/* Returns what to do about the end of the work: ask about fences or streams, leave, or nothing yet. `idle`: no stream has work. */
struct book_action interval_settle(struct book *b, const struct book_event *e, bool idle);
/* If launches took longer than their kernels: leaves the set as of when the kernels would have ended without gaps. */
struct book_action interval_leave_gaps(struct book *b, const struct book_event *e);
/* Leaves the set although work is queued, because that waits for a partner. */
struct book_action interval_leave_stalled(struct book *b, const struct book_event *e);
/* Leaves the set because the process is frozen: the queued work has ended. */
struct book_action interval_leave_frozen(struct book *b, const struct book_event *e);
/* Notes that the set was left. */
struct book_action interval_left(struct book *b, const struct book_event *e);
/* Notes that the interval's first launch, let through at let_ns, is back from the driver. */
void interval_launched(struct book *b, uint64_t let_ns, uint64_t now);
/* Returns how many calls the interval has had. */
uint64_t interval_calls(const struct book *b, const struct book_event *e);
/* Whether the interval has had as many calls as the last two, which had equally many. */
bool interval_is_whole(const struct book *b, const struct book_event *e);
/* Whether intervals begin so rarely that a look at each end costs no more than regular looks. */
bool interval_is_rare(const struct book *b, const struct book_event *e);

/* others.c. Whether others are in the running set, or were lately. */
static inline bool others_contended(const struct book *b, uint64_t now)
{
	return b->others.contended_ns && now - b->others.contended_ns < CONTENDED_NS;
}
/* Takes over what the segment says. */
struct book_action others_status(struct book *b, const struct book_event *e);
/* The set was entered or left. If others were in it then, the client is contended: a program whose intervals are shorter than
 * the pause between two questions to the segment would not learn it otherwise. */
void others_met(struct book *b, const struct book_event *e);
/*
 * Whether work that should take expected_ns, and took took_ns while others were in the set, has waited for theirs. Sets
 * *alternates when that has happened twice within a second.
 */
bool others_waited(struct book *b, uint64_t took_ns, uint64_t expected_ns, uint64_t now, uint8_t *alternates);
/* Compares a kernel beside others with its length alone. Sets *alternates as others_waited() does, or asks for a trial. */
void others_slowed(
	struct book *b, const struct book_fence *f, uint64_t took_ns, uint64_t now, uint8_t *alternates);
/* Notes that work which outlasted its turn has ended. */
void others_outlasted(struct book *b, uint64_t now);
/* Learns from a fence that has passed how much time is lost between kernels. */
void others_below_passed(struct book *b, const struct book_fence *f, uint64_t took_ns, uint64_t now);
/* Learns that the sleep of a thread which waited for room ended late_ns too late. */
void others_slept(struct book *b, uint64_t late_ns);
/* Returns how long to sleep for an end expected at due_ns: shorter by what sleeps are late, or otherwise_ns. */
uint64_t others_patience(const struct book *b, uint64_t due_ns, uint64_t now, uint64_t otherwise_ns);

/* partner.c. Whether the gate is closed and the oldest queued kernel waits for a partner. */
bool partner_waits(struct book *b, uint64_t now);
/* Returns when that kernel would have ended without the wait. */
uint64_t partner_end(const struct book *b);
/* Notes that a fence has passed. True: its kernel has waited for a partner, so its length is not learned. */
bool partner_passed(struct book *b, const struct book_fence *f, uint64_t end, uint64_t took_ns);

/* observer.c. Returns what the tracker does next. */
struct book_action observer_timer(struct book *b, const struct book_event *e);
/* Notes that the driver was asked to call back, or cannot be. */
void observer_callback(struct book *b, const struct book_event *e);
/* Whether the driver may be asked to call back. `anew`: also while launches may have no fence, if the program is quiet. */
bool observer_may_ask(const struct book *b, const struct book_event *e, bool anew);
/* Whether the launching thread asks the driver to call back, so that the tracker need not wake up. */
bool observer_asks_early(const struct book *b, const struct book_event *e);

#endif

/*
 * The head and its records: reading, counting on, publishing. Inline, because every transition is made of
 * these and little else. For the files of the running set alone.
 */
#ifndef ARB_SNAPSHOT_H
#define ARB_SNAPSHOT_H

#include <errno.h>

#include "shm/base/atomic.h"
#include "shm/segment/publish.h"
#include "shm/segment/running.h"

/* A time this far ahead of ours was not written by a client. */
#define ARB_AHEAD_TICKS (60ull * 1000000000u * ARB_TICKS_PER_NS)
#define ARB_WIN_MS_MAX  3600000u

/* Stores the parts of a record that are rarely there; returns their flags. */
uint32_t arb_snapshot_store_rest(struct arb_record *r, const struct arb_snap *s);
/* Rolls the window: its boundary lies before `to`. */
void arb_snapshot_roll(struct arb_snap *s, uint64_t to, uint32_t win_ms);
/* Returns the sum of the weights, from the slots themselves, for a record whose own sum cannot be right. */
uint32_t arb_snapshot_weights(const struct arb_segment *seg, const struct arb_snap *s);
/* Returns the highest level of a member, from the slots themselves. */
uint32_t arb_snapshot_top(const struct arb_segment *seg, const struct arb_snap *s);

static inline struct arb_record *snap_record_of(const struct arb_segment *seg, uint64_t head)
{
	struct arb_slot *slot = arb_segment_slot(seg, publish_owner(head));

	return slot ? &slot->record[head & 1] : NULL;
}

/* The time of a record lies in its window, or before it by what waits for the next division by W. */
#define SNAP_REMAINDER ((uint64_t)ARB_WEIGHT_ONE * ARB_SLOTS_MAX)

/* Parts of a record that are rarely there. */
#define SNAP_REST (ARB_SHAPE_RESERVED | ARB_SHAPE_WAITING | ARB_SHAPE_EVICTED)

/*
 * Copies the head's record. False if no client can have written this: a head that points nowhere, or a
 * record against its own invariants. What was copied may be torn; then the head has changed.
 *
 * A plain record has one word of running slots and none of the rare parts. With `plain` anything else is
 * false as well; what is left for the compiler then stays in registers, which a launch after a pause feels.
 */
__attribute__((always_inline)) static inline bool snap_copy(
	const struct arb_segment *seg, struct arb_snap *s, const bool plain)
{
	const struct arb_record *r;
	uint64_t shape, overlap = 0, running = 0;

	s->head = arb_load64_acquire(
		&seg->header->head); /* pairs SNAPSHOT_PUBLISH: the record it names is complete */
	r = snap_record_of(seg, s->head);
	if (__builtin_expect(!r, 0)) {
		s->words = 0;
		return false;
	}
	shape = arb_load64(&r->shape);
	s->t = arb_load64(&r->t);
	s->v = arb_load64(&r->v);
	s->busy = arb_load64(&r->busy);
	s->win_number = arb_load64(&r->win_number);
	s->win_start = arb_load64(&r->win_start);
	s->win_v = arb_load64(&r->win_v);
	s->win_busy = arb_load64(&r->win_busy);
	s->weight = (uint32_t)shape & ((1u << ARB_SHAPE_WEIGHT_BITS) - 1);
	s->words = (uint32_t)shape >> ARB_SHAPE_WORDS_SHIFT & 31;
	s->win_ms = (uint32_t)(shape >> ARB_SHAPE_WIN_SHIFT) & ((1u << ARB_SHAPE_WIN_BITS) - 1);
	s->top = (uint32_t)(shape >> ARB_SHAPE_TOP_SHIFT);
	s->win_ticks = s->win_ms * ARB_TICKS_PER_MS;
	s->reserved = s->reserved_until = 0;
	s->any_waiting = s->any_evicted = 0;
	if (plain && (s->words != 1 || shape & SNAP_REST))
		return false;
	if (__builtin_expect(s->words - 1 >= seg->nwords, 0)) {
		s->words = 0;
		return false;
	}
	for (uint32_t w = 0; w < (plain ? 1 : s->words); w++) {
		running |= s->running[w] = arb_load64(&r->running[w]);
		s->waiting[w] = s->evicted[w] = 0;
	}
	if (__builtin_expect(!plain && shape & SNAP_REST, 0)) {
		if (shape & ARB_SHAPE_RESERVED) {
			s->reserved = arb_load64(&r->reserved);
			s->reserved_until = arb_load64(&r->reserved_until);
		}
		for (uint32_t w = 0; w < s->words; w++) {
			if (shape & ARB_SHAPE_WAITING)
				s->any_waiting |= s->waiting[w] = arb_load64(&r->waiting[w]);
			if (shape & ARB_SHAPE_EVICTED)
				s->any_evicted |= s->evicted[w] = arb_load64(&r->evicted[w]);
			overlap |= s->running[w] & (s->waiting[w] | s->evicted[w]);
		}
		/* A reservation counts only for a slot that waits; for any other slot it would keep all clients
		 * waiting. */
		if (s->reserved) {
			uint32_t slot = (uint32_t)s->reserved - 1;

			overlap |= slot >= 64 * s->words || !arb_bit_test(s->waiting, slot);
		}
	}
	if (s->words == seg->nwords &&
		(s->running[plain ? 0 : s->words - 1] | s->waiting[plain ? 0 : s->words - 1] |
			s->evicted[plain ? 0 : s->words - 1]) &
			seg->beyond)
		return false;
	return !overlap && (running != 0) == (s->weight != 0) && s->top <= (running ? ARB_LEVEL_MOST : 0) &&
	       s->weight <= ARB_WEIGHT_ONE * 64 * s->words && s->win_ms - 1 < ARB_WIN_MS_MAX &&
	       s->t + SNAP_REMAINDER - s->win_start < s->win_ticks + SNAP_REMAINDER;
}

/*
 * Windows begin at multiples of their length, on every GPU alike. Ranks of one job on several GPUs wait for each
 * other inside their kernels, and would be billed for that if the windows of the GPUs began at different times.
 */
static inline uint64_t arb_snapshot_aligned(uint64_t ticks, uint32_t win_ms)
{
	return ticks - ticks % (win_ms * ARB_TICKS_PER_MS);
}

static inline bool snap_copy_in(const struct arb_segment *seg, struct arb_snap *s)
{
	return snap_copy(seg, s, false);
}

static inline bool snap_unchanged(const struct arb_segment *seg, const struct arb_snap *s)
{
	return publish_unchanged(&seg->header->head, s->head);
}

/* Reads the snapshot for a transition. There is no second look at the head, because the CAS is that look. -EBADMSG
 * only if the head has stayed the same. */
static inline int snap_load(const struct arb_segment *seg, struct arb_snap *s)
{
	for (int i = 0; __builtin_expect(!snap_copy_in(seg, s), 0); i++)
		if (snap_unchanged(seg, s) || i == ARB_TRIES)
			return -EBADMSG;
	return 0;
}

/* Publishes *s through the actor's buffer that is not the head. any_* say whether there is a rest to store.
 */
__attribute__((always_inline)) static inline bool snap_publish_as(
	const struct arb_actor *me, struct arb_snap *s, const bool plain)
{
	struct arb_segment *seg = me->seg;
	uint64_t next = publish_next(s->head, me->slot);
	struct arb_record *r = &seg->slots[me->slot].record[next & 1];
	uint32_t shape = s->weight | s->words << ARB_SHAPE_WORDS_SHIFT;

	arb_fence_release(); /* SNAPSHOT_REUSE: a process that sees one of these stores sees the head that we saw */
	if (!plain && __builtin_expect((s->any_waiting | s->any_evicted | s->reserved) != 0, 0))
		shape |= arb_snapshot_store_rest(r, s);
	arb_store64(&r->t, s->t);
	arb_store64(&r->v, s->v);
	arb_store64(&r->busy, s->busy);
	arb_store64(&r->shape,
		shape | (uint64_t)s->win_ms << ARB_SHAPE_WIN_SHIFT | (uint64_t)s->top << ARB_SHAPE_TOP_SHIFT);
	arb_store64(&r->win_number, s->win_number);
	arb_store64(&r->win_start, s->win_start);
	arb_store64(&r->win_v, s->win_v);
	arb_store64(&r->win_busy, s->win_busy);
	for (uint32_t w = 0; w < (plain ? 1 : s->words); w++)
		arb_store64(&r->running[w], s->running[w]);
	return publish_commit(&seg->header->head, &s->head, next);
}

static inline bool snap_publish(const struct arb_actor *me, struct arb_snap *s)
{
	return snap_publish_as(me, s, false);
}

static inline void snap_count_on(struct arb_snap *s, uint64_t to)
{
	uint64_t steps;

	if ((int64_t)(to - s->t) <= 0)
		return;
	if (s->weight == 0) {
		s->t = to;
		return;
	}
	/* t grows by exactly W * dV; the remainder waits for the next transition. Mostly one runs, or two. */
	steps = to - s->t;
	steps = s->weight == ARB_WEIGHT_ONE       ? steps / ARB_WEIGHT_ONE
		: s->weight == 2 * ARB_WEIGHT_ONE ? steps / (2 * ARB_WEIGHT_ONE)
						  : steps / s->weight;
	s->v += steps;
	s->t += steps * s->weight;
	s->busy += steps * s->weight;
}

static inline void snap_advance(struct arb_snap *s, uint64_t to, uint32_t win_ms)
{
	if ((int64_t)(to - s->t) < 0)
		to = s->t;
	if ((int64_t)(to - s->win_start - s->win_ticks) >= 0)
		arb_snapshot_roll(s, to, win_ms);
	snap_count_on(s, to);
}

static inline uint32_t snap_clamp_weight(uint64_t w)
{
	return w < 1 ? 1 : w > ARB_WEIGHT_ONE ? ARB_WEIGHT_ONE : (uint32_t)w;
}

static inline int snap_too_far_ahead(const struct arb_snap *s, uint64_t now)
{
	return (int64_t)(s->t - now) > (int64_t)ARB_AHEAD_TICKS;
}

#endif

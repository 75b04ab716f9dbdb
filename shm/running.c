#include "running.h"

#include <errno.h>
#include <string.h>

#include "atomic.h"

/* Losing a CAS means that somebody else got on; this many in a row means that something is wrong. */
#define TRIES 1000000
/* A time this far ahead of ours was not written by a client. */
#define AHEAD_TICKS (60ull * 1000000000u * ARB_TICKS_PER_NS)
#define WIN_MS_MAX 3600000u

uint32_t arb_bits_next(const uint64_t *words, uint32_t nwords, uint32_t from)
{
	uint32_t w = from / 64;
	uint64_t rest;

	if (w >= nwords)
		return ARB_NONE;
	rest = words[w] & (~0ull << (from % 64));
	while (!rest) {
		if (++w >= nwords)
			return ARB_NONE;
		rest = words[w];
	}
	return w * 64 + (uint32_t)__builtin_ctzll(rest);
}

uint32_t arb_bits_count(const uint64_t *words, uint32_t nwords)
{
	uint32_t n = 0;

	for (uint32_t w = 0; w < nwords; w++)
		n += (uint32_t)__builtin_popcountll(words[w]);
	return n;
}

static inline struct arb_record *record_of(const struct arb_segment *seg, uint64_t head)
{
	struct arb_slot *slot =
		arb_segment_slot(seg, (uint32_t)(head >> ARB_HEAD_BUFFER_BITS) & ((1u << ARB_HEAD_INDEX_BITS) - 1));

	return slot ? &slot->record[head & 1] : NULL;
}

/*
 * Copies the head's record. False if no client can have written this: a head that points nowhere, or a
 * record against its own invariants. What was copied may be torn; then the head has changed.
 */
static inline bool copy_in(const struct arb_segment *seg, struct arb_snap *s)
{
	const struct arb_record *r;
	uint64_t shape, overlap = 0, running = 0;

	s->head = arb_load64_acquire(&seg->header->head); /* pairs SNAPSHOT_PUBLISH: the record it names is complete */
	r = record_of(seg, s->head);
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
	s->win_ms = (uint32_t)(shape >> ARB_SHAPE_WIN_SHIFT);
	s->win_ticks = s->win_ms * ARB_TICKS_PER_MS;
	s->reserved = s->reserved_until = 0;
	s->any_waiting = s->any_evicted = 0;
	if (__builtin_expect(s->words - 1 >= seg->nwords, 0)) {
		s->words = 0;
		return false;
	}
	for (uint32_t w = 0; w < s->words; w++) {
		running |= s->running[w] = arb_load64(&r->running[w]);
		s->waiting[w] = s->evicted[w] = 0;
	}
	if (__builtin_expect(shape & (ARB_SHAPE_RESERVED | ARB_SHAPE_WAITING | ARB_SHAPE_EVICTED), 0)) {
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
	}
	if (s->words == seg->nwords &&
		(s->running[s->words - 1] | s->waiting[s->words - 1] | s->evicted[s->words - 1]) & seg->beyond)
		return false;
	return !overlap && (running != 0) == (s->weight != 0) && s->weight <= ARB_WEIGHT_ONE * 64 * s->words &&
	       s->win_ms - 1 < WIN_MS_MAX &&
	       (int64_t)(s->win_start - s->t) <= (int64_t)(ARB_WEIGHT_ONE * ARB_SLOTS_MAX);
}

static inline bool unchanged(const struct arb_segment *seg, const struct arb_snap *s)
{
	arb_fence_acquire(); /* pairs SNAPSHOT_REUSE: a field of a later record brings its head with it */
	return arb_load64(&seg->header->head) == s->head;
}

/* For a transition: no second look at the head, because its CAS is one. -EBADMSG only if it stands. */
static inline int load(const struct arb_segment *seg, struct arb_snap *s)
{
	for (int i = 0; __builtin_expect(!copy_in(seg, s), 0); i++)
		if (unchanged(seg, s) || i == TRIES)
			return -EBADMSG;
	return 0;
}

int arb_running_read(const struct arb_segment *seg, struct arb_snap *s)
{
	for (int i = 0; i < TRIES; i++) {
		bool good = copy_in(seg, s);

		if (unchanged(seg, s))
			return good ? 0 : -EBADMSG;
		arb_pause();
	}
	return -EBUSY;
}

/* The parts of a record that are rarely there. */
__attribute__((noinline)) static uint32_t store_rest(struct arb_record *r, const struct arb_snap *s)
{
	uint64_t waiting = 0, evicted = 0;

	arb_store64(&r->reserved, s->reserved);
	arb_store64(&r->reserved_until, s->reserved_until);
	for (uint32_t w = 0; w < s->words; w++) {
		arb_store64(&r->waiting[w], s->waiting[w]);
		arb_store64(&r->evicted[w], s->evicted[w]);
		waiting |= s->waiting[w];
		evicted |= s->evicted[w];
	}
	return (s->reserved ? ARB_SHAPE_RESERVED : 0) | (waiting ? ARB_SHAPE_WAITING : 0) |
	       (evicted ? ARB_SHAPE_EVICTED : 0);
}

/* Publishes *s through the actor's buffer that is not the head. any_* say whether there is a rest to store. */
static inline bool publish(const struct arb_actor *me, struct arb_snap *s)
{
	struct arb_segment *seg = me->seg;
	uint32_t own = me->slot << ARB_HEAD_BUFFER_BITS;
	/* The other one of mine if the head is one of mine; either, if not. */
	uint32_t where = ((uint32_t)s->head & ((1u << ARB_HEAD_SEQ_SHIFT) - 1)) == own ? own | 1 : own;
	uint64_t next = (((s->head >> ARB_HEAD_SEQ_SHIFT) + 1) << ARB_HEAD_SEQ_SHIFT) | where;
	struct arb_record *r = &seg->slots[me->slot].record[where & 1];
	uint32_t shape = s->weight | s->words << ARB_SHAPE_WORDS_SHIFT;

	arb_fence_release(); /* SNAPSHOT_REUSE: who sees one of these stores sees the head that we saw */
	if (__builtin_expect((s->any_waiting | s->any_evicted | s->reserved) != 0, 0))
		shape |= store_rest(r, s);
	arb_store64(&r->t, s->t);
	arb_store64(&r->v, s->v);
	arb_store64(&r->busy, s->busy);
	arb_store64(&r->shape, shape | (uint64_t)s->win_ms << ARB_SHAPE_WIN_SHIFT);
	arb_store64(&r->win_number, s->win_number);
	arb_store64(&r->win_start, s->win_start);
	arb_store64(&r->win_v, s->win_v);
	arb_store64(&r->win_busy, s->win_busy);
	for (uint32_t w = 0; w < s->words; w++)
		arb_store64(&r->running[w], s->running[w]);
	if (!arb_cas64_full(&seg->header->head, s->head, next)) /* SNAPSHOT_PUBLISH */
		return false;
	s->head = next;
	return true;
}

static inline void count_on(struct arb_snap *s, uint64_t to)
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
	steps = s->weight == ARB_WEIGHT_ONE	  ? steps / ARB_WEIGHT_ONE
		: s->weight == 2 * ARB_WEIGHT_ONE ? steps / (2 * ARB_WEIGHT_ONE)
						  : steps / s->weight;
	s->v += steps;
	s->t += steps * s->weight;
	s->busy += steps * s->weight;
}

__attribute__((noinline)) static void roll(struct arb_snap *s, uint64_t to, uint32_t win_ms)
{
	/* Twice at most: windows of the old length, then of the new one. */
	for (int i = 0; i < 2 && to - s->win_start >= s->win_ticks; i++) {
		uint64_t n = (to - s->win_start) / s->win_ticks;

		s->win_start += n * s->win_ticks;
		s->win_number += n;
		count_on(s, s->win_start);
		s->win_v = s->v;
		s->win_busy = s->busy;
		s->win_ms = win_ms;
		s->win_ticks = win_ms * ARB_TICKS_PER_MS;
	}
}

static inline void advance(struct arb_snap *s, uint64_t to, uint32_t win_ms)
{
	if ((int64_t)(to - s->t) < 0)
		to = s->t;
	if ((int64_t)(to - s->win_start - s->win_ticks) >= 0)
		roll(s, to, win_ms);
	count_on(s, to);
}

void arb_running_advance(struct arb_snap *snap, uint64_t to, uint32_t win_ms)
{
	advance(snap, to, win_ms);
}

static inline uint32_t clamp_weight(uint64_t w)
{
	return w < 1 ? 1 : w > ARB_WEIGHT_ONE ? ARB_WEIGHT_ONE : (uint32_t)w;
}

/* Which of three words counts is decided by the bitmaps alone; `rate` times the clock while it runs. */
static uint64_t counted(const struct arb_snap *s, uint32_t i, const arb_u64 *acc, const arb_u64 *total,
	const arb_u64 *evicted_at, uint64_t rate, uint64_t clock)
{
	uint64_t stop;

	if (i / 64 >= s->words)
		return arb_load64(total);
	if (arb_bit_test(s->running, i))
		return arb_load64(acc) + rate * clock;
	if (!arb_bit_test(s->evicted, i))
		return arb_load64(total);
	stop = arb_load64(evicted_at);
	return arb_load64(acc) + rate * ((int64_t)(clock - stop) < 0 ? clock : stop);
}

uint64_t arb_running_usage_at(const struct arb_segment *seg, const struct arb_snap *s, uint32_t i, uint64_t v)
{
	const struct arb_slot *slot = &seg->slots[i];

	return counted(s, i, &slot->acc, &slot->total, &slot->evicted_v, clamp_weight(arb_load64(&slot->weight)), v);
}

uint64_t arb_running_wall_at(const struct arb_segment *seg, const struct arb_snap *s, uint32_t i, uint64_t busy)
{
	const struct arb_slot *slot = &seg->slots[i];

	return counted(s, i, &slot->wall_acc, &slot->wall_total, &slot->evicted_busy, 1, busy);
}

uint64_t arb_running_usage(const struct arb_segment *seg, const struct arb_snap *s, uint32_t i)
{
	return arb_running_usage_at(seg, s, i, s->v);
}

/* The sum of the weights, from the slots themselves: where the record's cannot be right. */
static uint32_t add_weights(const struct arb_segment *seg, const struct arb_snap *s)
{
	uint32_t sum = 0;

	for (uint32_t i = arb_bits_next(s->running, s->words, 0); i != ARB_NONE;
		i = arb_bits_next(s->running, s->words, i + 1))
		sum += clamp_weight(arb_load64(&seg->slots[i].weight));
	return sum;
}

/* W after one has gone: checked, because a wrong W would be divided by. */
static inline void lighten(const struct arb_segment *seg, struct arb_snap *s, uint32_t by)
{
	uint64_t any = 0;

	for (uint32_t w = 0; w < s->words; w++)
		any |= s->running[w];
	s->weight -= by;
	if (__builtin_expect(s->weight >> 31 || (s->weight == 0) != (any == 0), 0))
		s->weight = add_weights(seg, s);
}

/* Takes a running slot out: its bill goes to `total`, which counts once the bit is gone. */
static inline void take_out(const struct arb_segment *seg, struct arb_snap *s, uint32_t i)
{
	struct arb_slot *slot = &seg->slots[i];
	uint32_t w = clamp_weight(arb_load64(&slot->weight));

	arb_store64(&slot->total, arb_load64(&slot->acc) + w * s->v);
	arb_store64(&slot->wall_total, arb_load64(&slot->wall_acc) + s->busy);
	s->running[i / 64] &= ~(1ull << (i % 64));
	lighten(seg, s, w);
}

/* The set must know the slot's word of the bitmaps. */
static inline void widen(struct arb_snap *s, uint32_t i)
{
	while (__builtin_expect(s->words <= i / 64, 0)) {
		s->running[s->words] = s->waiting[s->words] = s->evicted[s->words] = 0;
		s->words++;
	}
}

static uint64_t reservation(const struct arb_segment *seg, uint32_t slot)
{
	return (uint64_t)(slot + 1) | (uint64_t)arb_load32(&seg->slots[slot].generation) << 32;
}

/*
 * A place has become free: chooses a waiter and reserves it, or finds the one it is reserved for already.
 * Whoever it is must be woken after the CAS.
 */
static inline void choose(const struct arb_segment *seg, struct arb_move *move, struct arb_snap *s)
{
	uint64_t now_ns = move->now / ARB_TICKS_PER_NS;

	move->next = ARB_NONE;
	if (__builtin_expect(!s->any_waiting || !move->choose, 1))
		return;
	if (s->reserved && now_ns < s->reserved_until) {
		move->next = (uint32_t)s->reserved - 1;
	} else {
		s->reserved = s->reserved_until = 0;
		move->next = move->choose(move->argument, s, now_ns);
	}
	if (move->next >= seg->nslots) {
		move->next = ARB_NONE;
		return;
	}
	s->reserved = reservation(seg, move->next);
	s->reserved_until = now_ns + move->reserve_ns;
}

static inline void drop_reservation_of(struct arb_snap *s, uint32_t slot)
{
	if ((uint32_t)s->reserved == slot + 1)
		s->reserved = s->reserved_until = 0;
}

static inline int too_far_ahead(const struct arb_snap *s, const struct arb_move *move)
{
	return (int64_t)(s->t - move->now) > (int64_t)AHEAD_TICKS;
}

/* What an evicted slot owes goes to `total`, which counts once the bit is gone. */
static void take_bill(const struct arb_segment *seg, const struct arb_snap *s, uint32_t i)
{
	arb_store64(&seg->slots[i].total, arb_running_usage(seg, s, i));
	arb_store64(&seg->slots[i].wall_total, arb_running_wall_at(seg, s, i, s->busy));
}

int arb_running_settle(const struct arb_actor *me, struct arb_snap *s)
{
	for (int i = 0; i < TRIES; i++) {
		int r = load(me->seg, s);

		if (r < 0)
			return r;
		if (me->slot / 64 >= s->words || !arb_bit_test(s->evicted, me->slot))
			return 0;
		arb_fence_release();
		take_bill(me->seg, s, me->slot);
		s->evicted[me->slot / 64] &= ~(1ull << (me->slot % 64));
		if (publish(me, s))
			return 1;
	}
	return -EBUSY;
}

int arb_running_enter(const struct arb_actor *me, struct arb_move *move, struct arb_snap *s)
{
	struct arb_segment *seg = me->seg;
	struct arb_slot *slot = &seg->slots[me->slot];
	uint32_t word = me->slot / 64;
	uint64_t bit = 1ull << (me->slot % 64);

	move->reason = ARB_REASON_NONE;
	move->next = ARB_NONE;
	for (int i = 0; i < TRIES; i++) {
		int r = load(seg, s);

		if (r < 0)
			return r;
		widen(s, me->slot);
		if (__builtin_expect(s->evicted[word] & bit, 0)) {
			r = arb_running_settle(me, s);
			if (r < 0)
				return r;
			continue;
		}
		if (s->running[word] & bit)
			return 0;
		if (__builtin_expect(too_far_ahead(s, move), 0)) {
			if (unchanged(seg, s))
				return -EBADMSG;
			continue;
		}
		advance(s, move->at, move->win_ms);
		if (__builtin_expect(s->win_number != move->window, 0))
			return -EXDEV;
		if (move->admit && (move->reason = move->admit(move->argument, s, move->now / ARB_TICKS_PER_NS)) != 0) {
			/* Who lacks quota is in nobody's way: he does not stand in the queue. */
			bool queue = move->queue && move->reason != ARB_REASON_QUOTA;

			if (queue == !!(s->waiting[word] & bit)) {
				if (unchanged(seg, s))
					return -EAGAIN;
				continue;
			}
			s->waiting[word] ^= bit;
			s->any_waiting |= bit;
			if (!queue) {
				drop_reservation_of(s, me->slot);
				choose(seg, move, s);
			}
			if (publish(me, s))
				return -EAGAIN;
			continue;
		}
		arb_fence_release(); /* SNAPSHOT_REUSE, for the slot's words */
		arb_store64(&slot->weight, move->weight);
		arb_store64(&slot->acc, arb_load64(&slot->total) - (uint64_t)move->weight * s->v);
		arb_store64(&slot->wall_acc, arb_load64(&slot->wall_total) - s->busy);
		s->running[word] |= bit;
		s->waiting[word] &= ~bit;
		s->weight += move->weight;
		drop_reservation_of(s, me->slot);
		/* Where more than one may fit, each who enters lets the next one try. */
		if (move->more && !s->reserved)
			choose(seg, move, s);
		if (publish(me, s))
			return 0;
	}
	return -EBUSY;
}

int arb_running_leave(const struct arb_actor *me, struct arb_move *move, struct arb_snap *s)
{
	struct arb_segment *seg = me->seg;
	uint32_t word = me->slot / 64;
	uint64_t bit = 1ull << (me->slot % 64);

	move->next = ARB_NONE;
	for (int i = 0; i < TRIES; i++) {
		int r = load(seg, s);

		if (r < 0)
			return r;
		if (word >= s->words || !((s->running[word] | s->evicted[word]) & bit))
			return 0;
		if (__builtin_expect(s->evicted[word] & bit, 0))
			return arb_running_settle(me, s) < 0 ? -EBADMSG : 0;
		if (__builtin_expect(too_far_ahead(s, move), 0)) {
			if (unchanged(seg, s))
				return -EBADMSG;
			continue;
		}
		advance(s, move->at, move->win_ms);
		if (__builtin_expect(s->win_number != move->window, 0))
			return -EXDEV;
		arb_fence_release();
		take_out(seg, s, me->slot);
		choose(seg, move, s);
		if (publish(me, s))
			return 0;
	}
	return -EBUSY;
}

int arb_running_unqueue(const struct arb_actor *me, struct arb_move *move, struct arb_snap *s)
{
	uint32_t word = me->slot / 64;
	uint64_t bit = 1ull << (me->slot % 64);

	move->next = ARB_NONE;
	for (int i = 0; i < TRIES; i++) {
		int r = load(me->seg, s);

		if (r < 0)
			return r;
		if (word >= s->words || !(s->waiting[word] & bit))
			return 0;
		s->waiting[word] &= ~bit;
		drop_reservation_of(s, me->slot);
		choose(me->seg, move, s);
		if (publish(me, s))
			return 0;
	}
	return -EBUSY;
}

int arb_running_drop(const struct arb_actor *me, struct arb_move *move, struct arb_snap *s)
{
	uint32_t word = me->slot / 64;
	uint64_t bit = 1ull << (me->slot % 64);

	move->next = ARB_NONE;
	for (int i = 0; i < TRIES; i++) {
		int r = load(me->seg, s);

		if (r < 0)
			return r;
		if (word >= s->words ||
			(!((s->running[word] | s->waiting[word] | s->evicted[word]) & bit) &&
				(uint32_t)s->reserved != me->slot + 1))
			return 0;
		advance(s, move->at, move->win_ms);
		if (s->running[word] & bit && s->win_number != move->window)
			return -EXDEV;
		arb_fence_release();
		if (s->running[word] & bit)
			take_out(me->seg, s, me->slot);
		else if (s->evicted[word] & bit)
			take_bill(me->seg, s, me->slot);
		s->evicted[word] &= ~bit;
		s->waiting[word] &= ~bit;
		drop_reservation_of(s, me->slot);
		choose(me->seg, move, s);
		if (publish(me, s))
			return 0;
	}
	return -EBUSY;
}

int arb_running_roll(const struct arb_actor *me, struct arb_move *move, struct arb_snap *s)
{
	for (int i = 0; i < TRIES; i++) {
		int r = load(me->seg, s);
		uint64_t before = s->win_number;

		if (r < 0)
			return r;
		if (too_far_ahead(s, move) && unchanged(me->seg, s))
			return -EBADMSG;
		advance(s, move->at, move->win_ms);
		if (s->win_number == before) {
			if (unchanged(me->seg, s))
				return 0;
		} else if (publish(me, s)) {
			return 0;
		}
	}
	return -EBUSY;
}

int arb_running_evict(const struct arb_actor *me, struct arb_move *move, uint32_t victim, uint32_t generation,
	uint64_t stale_before_ns, struct arb_snap *s)
{
	struct arb_slot *slot = &me->seg->slots[victim];
	uint32_t word = victim / 64;
	uint64_t bit = 1ull << (victim % 64);

	move->next = ARB_NONE;
	for (int i = 0; i < TRIES; i++) {
		int r = load(me->seg, s);
		uint32_t w;

		if (r < 0)
			return r;
		/* Still that owner, still silent: asked at every attempt, because it may just have woken up. */
		if (word >= s->words || !(s->running[word] & bit) || arb_load32(&slot->generation) != generation ||
			arb_load64(&slot->heartbeat_ns) >= stale_before_ns)
			return 0;
		advance(s, move->at, move->win_ms);
		w = clamp_weight(arb_load64(&slot->weight));
		arb_fence_release();
		arb_store64(&slot->evicted_v, s->v);
		arb_store64(&slot->evicted_busy, s->busy);
		s->running[word] &= ~bit;
		s->evicted[word] |= bit;
		s->any_evicted |= bit;
		lighten(me->seg, s, w);
		choose(me->seg, move, s);
		if (publish(me, s))
			return 1;
	}
	return -EBUSY;
}

int arb_running_repair(const struct arb_actor *me, uint64_t now, uint32_t win_ms)
{
	struct arb_segment *seg = me->seg;
	struct arb_snap s;

	for (int i = 0; i < TRIES; i++) {
		bool good = copy_in(seg, &s);
		uint64_t busy = 0;

		if (good && (int64_t)(s.t - now) <= (int64_t)AHEAD_TICKS) {
			if (unchanged(seg, &s))
				return 0;
			continue;
		}
		/* Members keep their place where it can be read; who loses it finds out at his next transition. */
		if (s.words == 0) {
			uint64_t head = s.head;

			memset(&s, 0, sizeof(s));
			s.head = head;
			s.words = seg->nwords;
		}
		for (uint32_t w = 0; w < s.words; w++) {
			uint64_t valid = ~0ull;

			if (w == seg->nwords - 1)
				valid = ~seg->beyond;
			s.running[w] &= valid;
			s.evicted[w] &= valid & ~s.running[w];
			s.waiting[w] &= valid & ~s.running[w];
			s.any_waiting |= s.waiting[w];
			s.any_evicted |= s.evicted[w];
		}
		s.weight = add_weights(seg, &s);
		s.t = now;
		s.reserved = s.reserved_until = 0;
		s.win_number++;
		s.win_start = now;
		s.win_ms = win_ms;
		s.win_v = s.v;
		/* The law holds again from here on. */
		for (uint32_t slot = 0; slot < seg->nslots; slot++)
			busy += arb_running_usage(seg, &s, slot);
		s.busy = s.win_busy = busy;
		if (publish(me, &s))
			return 1;
	}
	return -EBUSY;
}

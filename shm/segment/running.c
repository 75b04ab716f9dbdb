/* The transitions of the running set: each is one CAS of the head. */
#include "shm/segment/running.h"

#include "shm/base/os.h"
#include "shm/segment/ledger.h"
#include "shm/segment/lost.h"
#include "shm/segment/snapshot.h"

/* Takes a client's weight off W. The result is checked, because a wrong W would be divided by. */
static inline void lighten(const struct arb_segment *seg, struct arb_snap *s, uint32_t by)
{
	uint64_t any = 0;

	for (uint32_t w = 0; w < s->words; w++)
		any |= s->running[w];
	s->weight -= by;
	if (__builtin_expect(s->weight >> 31 || (s->weight == 0) != (any == 0), 0))
		s->weight = arb_snapshot_weights(seg, s);
}

/* Takes a running slot out: its bill goes to `total`, which counts once the bit is gone. */
static inline void take_out(const struct arb_segment *seg, struct arb_snap *s, uint32_t i)
{
	struct arb_slot *slot = &seg->slots[i];
	struct arb_ledger *own = arb_ledger_of(seg, i);
	uint32_t w = snap_clamp_weight(ARB_LEDGER_LOAD(own, slot, weight));

	ARB_LEDGER_STORE(own, slot, total, ARB_LEDGER_LOAD(own, slot, acc) + w * s->v);
	ARB_LEDGER_STORE(own, slot, wall_total, ARB_LEDGER_LOAD(own, slot, wall_acc) + s->busy);
	s->running[i / 64] &= ~(1ull << (i % 64));
	lighten(seg, s, w);
}

/* A client has gone: finds out whether it kept others from running. */
static inline void lower(const struct arb_segment *seg, struct arb_move *move, struct arb_snap *s)
{
	uint32_t before = s->top;

	if (__builtin_expect(before != 0, 0))
		s->top = arb_snapshot_top(seg, s);
	move->fell = s->any_waiting && !move->choose && (s->top < before || (move->lends && !s->weight));
}

/* A client is about to enter: finds out whether it keeps others from running. Its level counts once its bit is in the
 * set. */
static inline void raise_to(
	const struct arb_segment *seg, struct arb_move *move, struct arb_snap *s, uint32_t slot)
{
	if (arb_load32(&seg->slots[slot].level) != move->level)
		arb_store32(&seg->slots[slot].level, move->level);
	move->rose = move->level > s->top && s->weight;
	if (move->level > s->top)
		s->top = move->level;
}

/* Makes the record long enough for the slot's word of the bitmaps. */
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
 * Chooses a waiter and reserves a place for it, or finds the waiter that a place is reserved for already. That
 * reservation starts again only if a place has just become free (`freed`): otherwise it would never lapse where
 * others come and go. The chosen waiter must be woken after the CAS.
 */
static inline void choose(
	const struct arb_segment *seg, struct arb_move *move, struct arb_snap *s, const bool freed)
{
	uint64_t now_ns = move->now / ARB_TICKS_PER_NS;
	bool fresh = freed;

	move->next = ARB_NONE;
	if (__builtin_expect(!s->any_waiting || !move->choose, 1))
		return;
	/* Where one client runs at a time there is no free place before that client has left: a place that was given
	 * away now would end its turn. */
	if (s->weight && !move->more)
		return;
	if (arb_snap_reserved(s, now_ns)) {
		move->next = (uint32_t)s->reserved - 1;
	} else {
		s->reserved = s->reserved_until = 0;
		move->next = move->choose(move->argument, s, now_ns);
		fresh = true;
	}
	if (move->next >= seg->nslots) {
		move->next = ARB_NONE;
		return;
	}
	s->reserved = reservation(seg, move->next);
	if (fresh)
		s->reserved_until = now_ns + move->reserve_ns;
}

static inline void drop_reservation_of(struct arb_snap *s, uint32_t slot)
{
	if ((uint32_t)s->reserved == slot + 1)
		s->reserved = s->reserved_until = 0;
}

/* Would counting on to `at` bill a member for a time in which it may have been dead? A record that is younger than `young`
 * is counted on without a look: most are. */
static inline bool over_silence_of(const struct arb_actor *me, struct arb_move *move,
	const struct arb_snap *s, const int64_t young, const int64_t heard)
{
	const uint64_t now_ns = move->now / ARB_TICKS_PER_NS, at = move->at;
	const struct arb_slot *slots = me->seg->slots;
	const uint32_t mine = me->slot;
	uint64_t silent = 0; /* the longest silence of a member */

	if (__builtin_expect(!s->weight || (int64_t)(move->at - s->t) <= young, 1))
		return false;
	if ((int64_t)(move->at - move->asked) <= heard)
		return false;
	/* While a record stays unchanged for longer, every look of every client comes here. Signs of life only become
	 * younger, so that one look at all members is good for a while. */
	if (s->head == move->heard && (int64_t)(at - move->heard_until) <= 0)
		return false;
	for (uint32_t w = 0; w < s->words; w++)
		for (uint64_t rest = s->running[w]; rest; rest &= rest - 1) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(rest);
			uint64_t beat = arb_load64(&slots[i].heartbeat_ns);

			beat = arb_ledger_heard(me->seg, i, beat, now_ns) * ARB_TICKS_PER_NS;
			if (i == mine || (int64_t)(at - beat) <= 0)
				continue;
			if ((int64_t)(at - beat) > heard)
				return true;
			silent = at - beat > silent ? at - beat : silent;
		}
	move->heard = s->head;
	move->heard_until = at + (uint64_t)heard - silent;
	return false;
}

static bool over_silence(const struct arb_actor *me, struct arb_move *move, const struct arb_snap *s)
{
	const int64_t heard = (int64_t)ARB_HEARD_NS * ARB_TICKS_PER_NS;

	return over_silence_of(me, move, s, heard, heard);
}

/* For a process that takes a dead client out, as of that client's last sign of life and ARB_DEATH_NS. Members whose last
 * sign of life is older have to be taken out first: otherwise each such step would bill them for a little more time. */
static bool over_the_dead(const struct arb_actor *me, struct arb_move *move, const struct arb_snap *s)
{
	const int64_t death = (int64_t)ARB_DEATH_NS * ARB_TICKS_PER_NS;

	return move->in_order ? over_silence_of(me, move, s, 0, death) : over_silence(me, move, s);
}

/* What an evicted slot owes goes to `total`, which counts once the bit is gone. */
static void take_bill(const struct arb_segment *seg, const struct arb_snap *s, uint32_t i)
{
	struct arb_slot *slot = &seg->slots[i];
	struct arb_ledger *own = arb_ledger_of(seg, i);

	ARB_LEDGER_STORE(own, slot, total, arb_running_usage(seg, s, i));
	ARB_LEDGER_STORE(own, slot, wall_total, arb_running_wall_at(seg, s, i, s->busy));
}

/* What was published puts this client into the set, or takes it out. Its ledger notes that. */
static inline void entered(const struct arb_actor *me, const struct arb_snap *s)
{
	struct arb_ledger *own = arb_ledger_of(me->seg, me->slot);

	if (own)
		arb_ledger_entered(own, s);
}

static inline void left(const struct arb_actor *me)
{
	struct arb_ledger *own = arb_ledger_of(me->seg, me->slot);

	if (own)
		own->inside = false;
}

/* The record is the head and lacks this client. If the client had not left, another process has written that. */
static inline void not_there(const struct arb_actor *me, const struct arb_move *move)
{
	struct arb_ledger *own = arb_ledger_of(me->seg, me->slot);

	if (__builtin_expect(own && own->inside, 0))
		arb_ledger_lost(me->seg, me->slot, own, move->at);
}

int arb_running_settle(const struct arb_actor *me, uint64_t at, struct arb_snap *s)
{
	struct arb_ledger *own = arb_ledger_of(me->seg, me->slot);
	bool forged = false;

	for (int i = 0; i < ARB_TRIES; i++) {
		int r = snap_load(me->seg, s);

		if (r < 0)
			return r;
		if (me->slot / 64 >= s->words || !arb_bit_test(s->evicted, me->slot)) {
			if (snap_unchanged(me->seg, s))
				return 0;
			continue;
		}
		arb_fence_release();
		if (__builtin_expect(arb_ledger_not_evicted(own, arb_os_now_ns()), 0) &&
			snap_unchanged(me->seg, s)) {
			arb_ledger_lost_to(me->seg, me->slot, own, at, s->weight);
			forged = true;
		}
		if (!forged)
			take_bill(me->seg, s, me->slot);
		s->evicted[me->slot / 64] &= ~(1ull << (me->slot % 64));
		if (snap_publish(me, s)) {
			left(me);
			return 1;
		}
	}
	return -EBUSY;
}

/* The words of a slot that is about to be in the set; they count once its bit is there. */
static inline void open_bill(const struct arb_actor *me, const struct arb_snap *s, uint32_t weight)
{
	struct arb_slot *slot = &me->seg->slots[me->slot];
	struct arb_ledger *own = arb_ledger_of(me->seg, me->slot);

	arb_fence_release(); /* SNAPSHOT_REUSE, for the slot's words */
	ARB_LEDGER_STORE(own, slot, weight, weight);
	ARB_LEDGER_STORE(own, slot, acc, ARB_LEDGER_LOAD(own, slot, total) - (uint64_t)weight * s->v);
	ARB_LEDGER_STORE(own, slot, wall_acc, ARB_LEDGER_LOAD(own, slot, wall_total) - s->busy);
}

/*
 * The first attempt at a transition, for a plain record within one window: most are. False: not that simple,
 * or the CAS was lost; nothing has happened.
 */
static inline bool plain_move(const struct arb_actor *me, struct arb_move *move, const bool entering)
{
	uint64_t bit = 1ull << (me->slot % 64);
	struct arb_snap s;

	if (me->slot >= 64 || !snap_copy(me->seg, &s, true) || !(s.running[0] & bit) != entering || s.top ||
		s.win_number != move->window || snap_too_far_ahead(&s, move->now) ||
		(int64_t)(move->at - s.win_start - s.win_ticks) >= 0 ||
		(s.running[0] & ~bit && over_silence(me, move, &s)))
		return false;
	snap_count_on(&s, move->at);
	if (entering) {
		if (!snap_unchanged(me->seg, &s))
			return false; /* as in arb_running_enter */
		not_there(me, move);
		open_bill(me, &s, move->weight);
		s.running[0] |= bit;
		s.weight += move->weight;
	} else {
		arb_fence_release();
		take_out(me->seg, &s, me->slot);
	}
	if (!snap_publish_as(me, &s, true))
		return false;
	move->others = entering ? s.weight - move->weight : s.weight;
	if (entering)
		entered(me, &s);
	else
		left(me);
	return true;
}

/* Brings the snapshot to the time of the move. 1: it was torn, or is not the head any more; the caller looks
 * again. */
static inline int advance_to(const struct arb_actor *me, struct arb_move *move, struct arb_snap *s)
{
	if (__builtin_expect(snap_too_far_ahead(s, move->now), 0))
		return snap_unchanged(me->seg, s) ? -EBADMSG : 1;
	if (__builtin_expect(over_silence(me, move, s), 0))
		return snap_unchanged(me->seg, s) ? -EOWNERDEAD : 1;
	snap_advance(s, move->at, move->win_ms);
	return __builtin_expect(s->win_number != move->window, 0) ? -EXDEV : 0;
}

int arb_running_enter(const struct arb_actor *me, struct arb_move *move, struct arb_snap *s)
{
	struct arb_segment *seg = me->seg;
	uint32_t word = me->slot / 64;
	uint64_t bit = 1ull << (me->slot % 64);

	move->reason = ARB_REASON_NONE;
	move->next = ARB_NONE;
	move->rose = false;
	if (__builtin_expect(!move->admit && !move->level && plain_move(me, move, true), 1))
		return 0;
	for (int i = 0; i < ARB_TRIES; i++) {
		int r = snap_load(seg, s);
		bool lost;
		uint64_t from;

		if (r < 0)
			return r;
		widen(s, me->slot);
		if (__builtin_expect(s->evicted[word] & bit, 0)) {
			r = arb_running_settle(me, move->at, s);
			if (r < 0)
				return r;
			move->returned |= r == 1;
			continue;
		}
		if (s->running[word] & bit) {
			if (snap_unchanged(seg, s))
				return 0;
			continue;
		}
		lost = arb_lost_begins(seg, move, s);
		from = s->t;
		r = advance_to(me, move, s);
		if (__builtin_expect(r, 0)) {
			if (r < 0)
				return r;
			continue;
		}
		if (move->admit &&
			(move->reason = move->admit(move->argument, s, move->now / ARB_TICKS_PER_NS)) != 0) {
			/* A client without quota does not stand in the queue, so that no other client waits for
			 * it. */
			bool queue = move->queue && (move->reason != ARB_REASON_QUOTA || move->lends) &&
				     !(move->reason == ARB_REASON_ABOVE && move->more);

			if (queue == !!(s->waiting[word] & bit)) {
				if (snap_unchanged(seg, s))
					return -EAGAIN;
				continue;
			}
			s->waiting[word] ^= bit;
			s->any_waiting |= bit;
			if (!queue) {
				drop_reservation_of(s, me->slot);
				choose(seg, move, s, false);
			}
			if (snap_publish(me, s)) {
				arb_lost_add(seg, lost ? s->t - from : 0);
				return -EAGAIN;
			}
			continue;
		}
		/* A torn copy may hide that we are in the set: then acc and weight count, and must not change. One
		 * clean look is enough, because no other process puts us in. */
		if (!snap_unchanged(seg, s))
			continue;
		not_there(me, move);
		open_bill(me, s, move->weight);
		if (__builtin_expect(move->level, 0))
			raise_to(seg, move, s, me->slot);
		move->busy = s->busy;
		s->running[word] |= bit;
		s->waiting[word] &= ~bit;
		s->weight += move->weight;
		drop_reservation_of(s, me->slot);
		/* If more than one may fit, each client that enters lets the next one try. */
		if (move->more && !s->reserved)
			choose(seg, move, s, false);
		if (snap_publish(me, s)) {
			entered(me, s);
			move->others = s->weight - move->weight;
			arb_lost_add(seg, lost ? s->t - from : 0);
			return 0;
		}
	}
	return -EBUSY;
}

/* Takes the client out of the set, and puts it into the queue with the place reserved for itself: none is woken, and
 * others that look wait until it is back or the reservation has lapsed. If none waits, there is nothing to keep. */
static inline bool keep_place(const struct arb_actor *me, struct arb_move *move, struct arb_snap *s)
{
	uint64_t now_ns = move->now / ARB_TICKS_PER_NS, bit = 1ull << (me->slot % 64);

	if (!move->keep_ns || !s->any_waiting || s->weight || arb_snap_reserved(s, now_ns))
		return false;
	s->waiting[me->slot / 64] |= bit;
	s->any_waiting |= bit;
	s->reserved = reservation(me->seg, me->slot);
	s->reserved_until = now_ns + move->keep_ns;
	move->busy = s->busy;
	return true;
}

int arb_running_leave(const struct arb_actor *me, struct arb_move *move, struct arb_snap *s)
{
	struct arb_segment *seg = me->seg;
	uint32_t word = me->slot / 64;
	uint64_t bit = 1ull << (me->slot % 64);

	move->next = ARB_NONE;
	move->kept = false;
	move->fell = false;
	if (__builtin_expect(plain_move(me, move, false), 1))
		return 0;
	for (int i = 0; i < ARB_TRIES; i++) {
		int r = snap_load(seg, s);

		if (r < 0)
			return r;
		if (word >= s->words || !((s->running[word] | s->evicted[word]) & bit)) {
			if (!snap_unchanged(seg, s))
				continue;
			not_there(me, move);
			return 0;
		}
		if (__builtin_expect(s->evicted[word] & bit, 0)) {
			r = arb_running_settle(me, move->at, s);
			if (r < 0)
				return r;
			move->returned |= r == 1;
			if (r)
				return 0;
			continue; /* another process tried an eviction, and gave it up: we still run */
		}
		r = advance_to(me, move, s);
		if (__builtin_expect(r, 0)) {
			if (r < 0)
				return r;
			continue;
		}
		arb_fence_release();
		take_out(seg, s, me->slot);
		lower(seg, move, s);
		move->kept = keep_place(me, move, s);
		if (!move->kept)
			choose(seg, move, s, true);
		if (snap_publish(me, s)) {
			left(me);
			move->others = s->weight;
			return 0;
		}
		move->kept = false;
	}
	return -EBUSY;
}

int arb_running_unqueue(const struct arb_actor *me, struct arb_move *move, struct arb_snap *s)
{
	uint32_t word = me->slot / 64;
	uint64_t bit = 1ull << (me->slot % 64);

	move->next = ARB_NONE;
	for (int i = 0; i < ARB_TRIES; i++) {
		int r = snap_load(me->seg, s);

		if (r < 0)
			return r;
		if (word >= s->words || !(s->waiting[word] & bit)) {
			if (snap_unchanged(me->seg, s))
				return 0;
			continue;
		}
		s->waiting[word] &= ~bit;
		drop_reservation_of(s, me->slot);
		choose(me->seg, move, s, false);
		if (snap_publish(me, s))
			return 0;
	}
	return -EBUSY;
}

int arb_running_drop(const struct arb_actor *me, struct arb_move *move, struct arb_snap *s)
{
	uint32_t word = me->slot / 64;
	uint64_t bit = 1ull << (me->slot % 64);

	move->next = ARB_NONE;
	move->fell = false;
	for (int i = 0; i < ARB_TRIES; i++) {
		int r = snap_load(me->seg, s);
		bool runs;

		if (r < 0)
			return r;
		if (word >= s->words || (!((s->running[word] | s->waiting[word] | s->evicted[word]) & bit) &&
						(uint32_t)s->reserved != me->slot + 1)) {
			if (snap_unchanged(me->seg, s))
				return 0;
			continue;
		}
		if (__builtin_expect(over_the_dead(me, move, s), 0)) {
			if (snap_unchanged(me->seg, s))
				return -EOWNERDEAD;
			continue;
		}
		snap_advance(s, move->at, move->win_ms);
		if (s->running[word] & bit && s->win_number != move->window)
			return -EXDEV;
		arb_fence_release();
		runs = s->running[word] & bit;
		if (runs) {
			take_out(me->seg, s, me->slot);
			lower(me->seg, move, s);
		} else if (s->evicted[word] & bit)
			take_bill(me->seg, s, me->slot);
		s->evicted[word] &= ~bit;
		s->waiting[word] &= ~bit;
		drop_reservation_of(s, me->slot);
		choose(me->seg, move, s, runs);
		if (snap_publish(me, s)) {
			left(me);
			return 0;
		}
	}
	return -EBUSY;
}

int arb_running_roll(const struct arb_actor *me, struct arb_move *move, struct arb_snap *s)
{
	struct arb_ledger *own = arb_ledger_of(me->seg, me->slot);

	for (int i = 0; i < ARB_TRIES; i++) {
		int r = snap_load(me->seg, s);
		struct arb_clocks clocks = {s->t, s->v, s->busy, s->weight, s->win_ms, s->win_number,
			s->win_start, s->win_v, s->win_busy};

		bool lost;

		if (r < 0)
			return r;
		lost = arb_lost_begins(me->seg, move, s);
		if (snap_too_far_ahead(s, move->now) && snap_unchanged(me->seg, s))
			return -EBADMSG;
		if (__builtin_expect(over_the_dead(me, move, s), 0)) {
			if (snap_unchanged(me->seg, s))
				return -EOWNERDEAD;
			continue;
		}
		snap_advance(s, move->at, move->win_ms);
		if (s->win_number == clocks.win_number ? snap_unchanged(me->seg, s) : snap_publish(me, s)) {
			if (lost && s->win_number != clocks.win_number)
				arb_lost_add(me->seg, s->t - clocks.t);
			if (own)
				arb_ledger_look(me->seg, me->slot, own, &clocks, s, move->now);
			return own && own->impossible ? -EBADMSG : 0;
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
	move->fell = false;
	for (int i = 0; i < ARB_TRIES; i++) {
		int r = snap_load(me->seg, s);
		uint64_t beat;
		uint32_t w;

		if (r < 0)
			return r;
		/* Checked at every attempt: is it still that owner, and still silent? It may just have woken up. The clock is
		 * read after its sign of life: this process may have been stopped since it read `move->now`, and a younger
		 * sign would seem to be of a time that has not come yet. */
		beat = arb_load64(&slot->heartbeat_ns);
		if (word >= s->words || !(s->running[word] & bit) ||
			arb_load32(&slot->generation) != generation ||
			arb_ledger_heard(me->seg, victim, beat, arb_os_now_ns()) >= stale_before_ns)
			return 0;
		if (__builtin_expect(over_silence(me, move, s), 0)) {
			if (snap_unchanged(me->seg, s))
				return -EOWNERDEAD;
			continue;
		}
		snap_advance(s, move->at, move->win_ms);
		w = snap_clamp_weight(arb_load64(&slot->weight));
		arb_fence_release();
		arb_store64(&slot->evicted_v, s->v);
		arb_store64(&slot->evicted_busy, s->busy);
		s->running[word] &= ~bit;
		s->evicted[word] |= bit;
		s->any_evicted |= bit;
		lighten(me->seg, s, w);
		lower(me->seg, move, s);
		choose(me->seg, move, s, true);
		if (snap_publish(me, s))
			return 1;
	}
	return -EBUSY;
}

#include "shm/segment/snapshot.h"

#include <string.h>

#include "shm/segment/ledger.h"

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

int arb_running_read(const struct arb_segment *seg, struct arb_snap *s)
{
	for (int i = 0; i < ARB_TRIES; i++) {
		bool good = snap_copy_in(seg, s);

		if (snap_unchanged(seg, s))
			return good ? 0 : -EBADMSG;
		arb_pause();
	}
	return -EBUSY;
}

uint32_t arb_snapshot_store_rest(struct arb_record *r, const struct arb_snap *s)
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

void arb_snapshot_roll(struct arb_snap *s, uint64_t to, uint32_t win_ms)
{
	/* Two rounds at most: windows of the old length, then windows of the new length. */
	for (int i = 0; i < 2 && to - s->win_start >= s->win_ticks; i++) {
		uint64_t n = (to - s->win_start) / s->win_ticks;

		s->win_start += n * s->win_ticks;
		s->win_number += n;
		snap_count_on(s, s->win_start);
		s->win_v = s->v;
		s->win_busy = s->busy;
		if (s->win_ms == win_ms)
			continue;
		s->win_ms = win_ms;
		s->win_ticks = win_ms * ARB_TICKS_PER_MS;
		s->win_start = arb_snapshot_aligned(s->win_start, win_ms);
	}
}

uint64_t arb_running_heard(const struct arb_segment *seg, uint32_t i, uint64_t now_ns)
{
	const struct arb_ledger *own = arb_ledger_of(seg, i);
	uint64_t beat = arb_ledger_heard(seg, i, arb_load64(&seg->slots[i].heartbeat_ns), now_ns);

	return own && own->beat_ns > beat ? own->beat_ns : beat;
}

void arb_running_advance(struct arb_snap *snap, uint64_t to, uint32_t win_ms)
{
	snap_advance(snap, to, win_ms);
}

/* The three words of a bill by one clock. What the slot's owner knows of two of them stands above what is stored
 * there. */
struct counted {
	const arb_u64 *acc, *total, *evicted_at;
	bool known;
	uint64_t own_acc, own_total, own_least;
};

/* Returns the bill. The bitmaps alone decide which of the three words counts; while the slot runs, `rate` times the
 * clock is added. */
static uint64_t counted(
	const struct arb_snap *s, uint32_t i, const struct counted *words, uint64_t rate, uint64_t clock)
{
	bool there = i / 64 < s->words;
	uint64_t acc, stop;

	if (!there || !(arb_bit_test(s->running, i) || arb_bit_test(s->evicted, i)))
		return arb_ledger_choose(arb_load64(words->total), words->known, words->own_total);
	if (arb_bit_test(s->running, i))
		return arb_ledger_choose(arb_load64(words->acc), words->known, words->own_acc) + rate * clock;
	stop = arb_load64(words->evicted_at);
	/* The client ran when it last looked. */
	if (words->known && (int64_t)(stop - words->own_least) < 0)
		stop = words->own_least;
	acc = arb_ledger_choose(arb_load64(words->acc), words->known, words->own_acc);
	return acc + rate * ((int64_t)(clock - stop) < 0 ? clock : stop);
}

uint64_t arb_running_usage_at(const struct arb_segment *seg, const struct arb_snap *s, uint32_t i, uint64_t v)
{
	const struct arb_slot *slot = &seg->slots[i];
	const struct arb_ledger *own = arb_ledger_of(seg, i);
	struct counted words = {&slot->acc, &slot->total, &slot->evicted_v, own != NULL, own ? own->acc : 0,
		own ? own->total : 0, own ? own->seen.v : 0};

	return counted(s, i, &words, snap_clamp_weight(ARB_LEDGER_LOAD(own, slot, weight)), v);
}

uint64_t arb_running_wall_at(
	const struct arb_segment *seg, const struct arb_snap *s, uint32_t i, uint64_t busy)
{
	const struct arb_slot *slot = &seg->slots[i];
	const struct arb_ledger *own = arb_ledger_of(seg, i);
	struct counted words = {&slot->wall_acc, &slot->wall_total, &slot->evicted_busy, own != NULL,
		own ? own->wall_acc : 0, own ? own->wall_total : 0, own ? own->seen.busy : 0};

	return counted(s, i, &words, 1, busy);
}

uint64_t arb_running_usage(const struct arb_segment *seg, const struct arb_snap *s, uint32_t i)
{
	return arb_running_usage_at(seg, s, i, s->v);
}

uint32_t arb_snapshot_weights(const struct arb_segment *seg, const struct arb_snap *s)
{
	uint32_t sum = 0;

	for (uint32_t i = arb_bits_next(s->running, s->words, 0); i != ARB_NONE;
		i = arb_bits_next(s->running, s->words, i + 1))
		sum += snap_clamp_weight(arb_load64(&seg->slots[i].weight));
	return sum;
}

uint32_t arb_running_level(const struct arb_segment *seg, uint32_t i)
{
	uint32_t level = arb_load32(&seg->slots[i].level);

	return level <= ARB_LEVEL_MOST ? level : 0;
}

uint32_t arb_snapshot_top(const struct arb_segment *seg, const struct arb_snap *s)
{
	uint32_t top = 0;

	for (uint32_t i = arb_bits_next(s->running, s->words, 0); i != ARB_NONE;
		i = arb_bits_next(s->running, s->words, i + 1)) {
		uint32_t level = arb_running_level(seg, i);

		top = level > top ? level : top;
	}
	return top;
}

/* Sets the clocks and the window of a record that is to be replaced. A new window would give all accounts their quota
 * anew, so only a client that knows of no window begins one. Returns true if it has begun one. */
static bool set_clocks(
	const struct arb_ledger *own, bool good, uint64_t now, uint32_t win_ms, struct arb_snap *s)
{
	if (!own || !own->looked || (int64_t)(own->sure.t - now) > 0) {
		s->t = now;
		s->win_number++;
		s->win_start = arb_snapshot_aligned(now, win_ms);
		s->win_ms = win_ms;
		s->win_v = s->v;
		return true;
	}
	if (!good || own->astray) {
		s->t = own->sure.t;
		s->v = own->sure.v;
		s->busy = own->sure.busy;
		s->win_ms = own->sure.win_ms;
		s->win_ticks = s->win_ms * ARB_TICKS_PER_MS;
		s->win_number = own->sure.win_number;
		s->win_start = own->sure.win_start;
		s->win_v = own->sure.win_v;
		s->win_busy = own->sure.win_busy;
	}
	snap_advance(s, now, win_ms);
	return false;
}

int arb_running_repair(const struct arb_actor *me, uint64_t now, uint32_t win_ms)
{
	struct arb_segment *seg = me->seg;
	struct arb_ledger *own = arb_ledger_of(seg, me->slot);
	struct arb_snap s;

	for (int i = 0; i < ARB_TRIES; i++) {
		bool good = snap_copy_in(seg, &s), fresh;
		uint64_t busy = 0;

		if (good && !snap_too_far_ahead(&s, now) && !(own && own->impossible)) {
			if (snap_unchanged(seg, &s))
				return 0;
			continue;
		}
		/* Members keep their place if it can be read; a client that loses its place finds out at its next
		 * transition. */
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
			s.running[w] &= valid & ~(own ? arb_ledger_nobody(seg, &s, w) : 0);
			s.evicted[w] &= valid & ~s.running[w];
			s.waiting[w] &= valid & ~s.running[w];
			if (own && !own->inside && w == me->slot / 64)
				s.evicted[w] &= ~(1ull << (me->slot % 64));
			s.any_waiting |= s.waiting[w];
			s.any_evicted |= s.evicted[w];
		}
		s.weight = arb_snapshot_weights(seg, &s);
		s.top = arb_snapshot_top(seg, &s);
		s.reserved = s.reserved_until = 0;
		fresh = set_clocks(own, good, now, win_ms, &s);
		/* The law holds again from here on. */
		for (uint32_t slot = 0; slot < seg->nslots; slot++)
			busy += arb_running_usage(seg, &s, slot);
		s.busy = busy;
		if (fresh)
			s.win_busy = busy;
		if (snap_publish(me, &s)) {
			if (own)
				arb_ledger_repaired(seg, me->slot, own, &s);
			return 1;
		}
	}
	return -EBUSY;
}

#include "shm/segment/snapshot.h"

#include <string.h>

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
	/* Twice at most: windows of the old length, then of the new one. */
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
	uint64_t beat = arb_load64(&seg->slots[i].heartbeat_ns);

	return beat <= now_ns ? beat : 0;
}

void arb_running_advance(struct arb_snap *snap, uint64_t to, uint32_t win_ms)
{
	snap_advance(snap, to, win_ms);
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

	return counted(s, i, &slot->acc, &slot->total, &slot->evicted_v,
		snap_clamp_weight(arb_load64(&slot->weight)), v);
}

uint64_t arb_running_wall_at(
	const struct arb_segment *seg, const struct arb_snap *s, uint32_t i, uint64_t busy)
{
	const struct arb_slot *slot = &seg->slots[i];

	return counted(s, i, &slot->wall_acc, &slot->wall_total, &slot->evicted_busy, 1, busy);
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

int arb_running_repair(const struct arb_actor *me, uint64_t now, uint32_t win_ms)
{
	struct arb_segment *seg = me->seg;
	struct arb_snap s;

	for (int i = 0; i < ARB_TRIES; i++) {
		bool good = snap_copy_in(seg, &s);
		uint64_t busy = 0;

		if (good && !snap_too_far_ahead(&s, now)) {
			if (snap_unchanged(seg, &s))
				return 0;
			continue;
		}
		/* Members keep their place where it can be read; who loses it finds out at his next
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
			s.running[w] &= valid;
			s.evicted[w] &= valid & ~s.running[w];
			s.waiting[w] &= valid & ~s.running[w];
			s.any_waiting |= s.waiting[w];
			s.any_evicted |= s.evicted[w];
		}
		s.weight = arb_snapshot_weights(seg, &s);
		s.top = arb_snapshot_top(seg, &s);
		s.t = now;
		s.reserved = s.reserved_until = 0;
		s.win_number++;
		s.win_start = arb_snapshot_aligned(now, win_ms);
		s.win_ms = win_ms;
		s.win_v = s.v;
		/* The law holds again from here on. */
		for (uint32_t slot = 0; slot < seg->nslots; slot++)
			busy += arb_running_usage(seg, &s, slot);
		s.busy = s.win_busy = busy;
		if (snap_publish(me, &s))
			return 1;
	}
	return -EBUSY;
}

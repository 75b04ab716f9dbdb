#include "shm/segment/ledger.h"

#include "shm/base/os.h"
#include "shm/segment/publish.h"
#include "shm/segment/slot.h"

/* The ledger remembers for this many windows how many clients were in the set: a client that has work is in the set in
 * each window. With more of them a client that is taken out again and again pays less than its part for longer. */
#define WEIGHT_WINDOWS 3

void arb_ledger_begin(struct arb_segment *seg, uint32_t slot, struct arb_ledger *own)
{
	const struct arb_slot *s = &seg->slots[slot];

	*own = (struct arb_ledger){.acc = arb_hint64(&s->acc),
		.total = arb_hint64(&s->total),
		.weight = arb_hint64(&s->weight),
		.wall_acc = arb_hint64(&s->wall_acc),
		.wall_total = arb_hint64(&s->wall_total)};
	own->base = own->total;
	own->wall_base = own->wall_total;
	seg->own_slot = slot;
	seg->own_account = ARB_NONE;
	seg->own = own;
}

void arb_ledger_entered(struct arb_ledger *own, const struct arb_snap *s)
{
	own->inside = true;
	/* A process that finds the client in the set finds the sign of life that it gave before it entered. */
	own->doubt = 0;
	own->head = s->head;
	own->seen = (struct arb_clocks){s->t, s->v, s->busy, s->weight, s->win_ms, s->win_number,
		s->win_start, s->win_v, s->win_busy};
	if (!own->looked)
		own->sure = own->seen;
	own->looked = true;
}

/* Returns the client's part of `ticks`, if the weights of all that run add up to `all`. */
static uint64_t part_of(const struct arb_ledger *own, uint64_t ticks, uint64_t all)
{
	if (all < own->weight)
		all = own->weight;
	return (int64_t)ticks > 0 && all ? ticks / all * own->weight + ticks % all * own->weight / all : 0;
}

static void note_weight(struct arb_ledger *own, uint32_t weight, uint64_t now)
{
	uint64_t length = WEIGHT_WINDOWS * (uint64_t)own->seen.win_ms * 1000000u * ARB_TICKS_PER_NS;

	if (now - own->most_weight_t >= length) {
		own->most_weight_before = now - own->most_weight_t < 2 * length ? own->most_weight : 0;
		own->most_weight = 0;
		own->most_weight_t = now;
	}
	if (weight > own->most_weight)
		own->most_weight = weight;
}

/* Bills a client that was taken out as one of clients of weight `all`. */
static void lose(
	const struct arb_segment *seg, uint32_t slot, struct arb_ledger *own, uint64_t at, uint64_t all)
{
	struct arb_slot *s = &seg->slots[slot];
	uint64_t gone = (int64_t)(at - own->seen.t) > 0 ? at - own->seen.t : 0;

	own->inside = false;
	own->found |= ARB_RESTORED_PLACE;
	ARB_LEDGER_STORE(own, s, total, own->acc + own->weight * own->seen.v + part_of(own, gone, all));
	ARB_LEDGER_STORE(own, s, wall_total, own->wall_acc + own->seen.busy + gone);
}

void arb_ledger_lost(const struct arb_segment *seg, uint32_t slot, struct arb_ledger *own, uint64_t at)
{
	uint64_t all = own->seen.weight;

	/* A process that empties the set has taken the others out as well, before and after that look. */
	if (own->most_weight > all)
		all = own->most_weight;
	if (own->most_weight_before > all)
		all = own->most_weight_before;
	lose(seg, slot, own, at, all);
}

void arb_ledger_lost_to(
	const struct arb_segment *seg, uint32_t slot, struct arb_ledger *own, uint64_t at, uint64_t others)
{
	uint64_t all = others + own->weight;

	lose(seg, slot, own, at, all > own->seen.weight ? all : own->seen.weight);
}

/* Sets the bill to what it would be if the client had run as one of clients of weight `all` since its last look. */
static void bill_anew(const struct arb_segment *seg, uint32_t slot, struct arb_ledger *own,
	const struct arb_clocks *clocks, uint64_t all)
{
	struct arb_slot *s = &seg->slots[slot];
	uint64_t gone = (int64_t)(clocks->t - own->seen.t) > 0 ? clocks->t - own->seen.t : 0;

	ARB_LEDGER_STORE(
		own, s, acc, own->acc + part_of(own, gone, all) - own->weight * (clocks->v - own->seen.v));
	ARB_LEDGER_STORE(own, s, wall_acc, own->wall_acc + gone - (clocks->busy - own->seen.busy));
}

/*
 * Checks the bill of a client that has run since its last look. T grows by exactly W * dV, and the client's own
 * weight is part of W; and the GPU is busy for no longer than time passes. A bill beyond that was not used: then the
 * client pays its part of the time.
 */
static void check_bill(
	const struct arb_segment *seg, uint32_t slot, struct arb_ledger *own, const struct arb_clocks *clocks)
{
	uint64_t gone = clocks->t - own->seen.t, dv = clocks->v - own->seen.v;

	if ((int64_t)gone >= 0 && dv <= gone && own->weight * dv <= gone &&
		clocks->busy - own->seen.busy <= gone)
		return;
	own->found |= ARB_RESTORED_CLOCKS;
	bill_anew(seg, slot, own, clocks, own->seen.weight);
}

/* Has no client joined as this slot? A slot is taken out of the set before it is free, and is not free when it
 * enters. */
static bool is_free(const struct arb_segment *seg, uint32_t i)
{
	/* Its owner may live, and find that another process has written this. */
	return i >= seg->nslots ||
	       (arb_hint32(&seg->slots[i].state) == ARB_SLOT_FREE && arb_slot_alive(seg, i) == 0);
}

/* Is one of the record's members, but for this client, a free slot? Asked at every look, of each of them. */
static bool any_free(const struct arb_segment *seg, const struct arb_snap *s)
{
	for (uint32_t w = 0; w < s->words; w++) {
		const struct arb_slot *slots = &seg->slots[w * 64];
		/* Some bits of the last word may belong to no slot. */
		uint64_t rest = s->running[w], none = w + 1 < seg->nwords ? 0 : rest & seg->beyond;

		for (rest &= ~none; rest; rest &= rest - 1) {
			unsigned i = (unsigned)__builtin_ctzll(rest);

			if (__builtin_expect(arb_hint32(&slots[i].state) == ARB_SLOT_FREE, 0) &&
				w * 64 + i != seg->own_slot && is_free(seg, w * 64 + i))
				return true;
		}
		if (__builtin_expect(none != 0, 0))
			return true;
	}
	return false;
}

/* The weights of the members, if some of the record's are free slots; else 0. */
static uint64_t without_free(const struct arb_segment *seg, const struct arb_snap *s)
{
	uint64_t weight = 0;

	if (__builtin_expect(!any_free(seg, s), 1))
		return 0;
	for (uint32_t i = arb_bits_next(s->running, s->words, 0); i != ARB_NONE;
		i = arb_bits_next(s->running, s->words, i + 1))
		if (i == seg->own_slot)
			weight += seg->own->weight;
		else if (!is_free(seg, i))
			weight += arb_hint64(&seg->slots[i].weight);
	arb_fence_acquire(); /* pairs SNAPSHOT_REUSE */
	return arb_hint64(&seg->header->head) == s->head ? (weight ? weight : ARB_WEIGHT_ONE) : 0;
}

uint64_t arb_ledger_nobody(const struct arb_segment *seg, const struct arb_snap *s, uint32_t w)
{
	uint64_t nobody = 0;

	for (uint64_t rest = s->running[w]; rest; rest &= rest - 1) {
		uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(rest);

		if (i == seg->own_slot ? !seg->own->inside : is_free(seg, i))
			nobody |= 1ull << (i % 64);
	}
	return nobody;
}

/* Can `old` have come before? Neither time nor windows go back, and a window does not change. */
static bool follows(const struct arb_clocks *old, const struct arb_clocks *now)
{
	if ((int64_t)(now->t - old->t) < 0 || (int64_t)(now->win_number - old->win_number) < 0)
		return false;
	return now->win_number != old->win_number ||
	       (now->win_start == old->win_start && now->win_ms == old->win_ms && now->win_v == old->win_v &&
		       now->win_busy == old->win_busy);
}

void arb_ledger_look(const struct arb_segment *seg, uint32_t slot, struct arb_ledger *own,
	const struct arb_clocks *clocks, const struct arb_snap *s, uint64_t now)
{
	bool runs = slot / 64 < s->words && arb_bit_test(s->running, slot);
	bool evicted = slot / 64 < s->words && arb_bit_test(s->evicted, slot);

	uint64_t others;

	/* The record's time had come, because the clock was read after it. */
	own->astray = own->impossible =
		own->looked && ((int64_t)(own->seen.t - now) > 0 || !follows(&own->seen, clocks));
	if (own->astray) {
		own->found |= ARB_RESTORED_CLOCKS;
		return;
	}
	own->sure = own->looked ? own->seen : *clocks;
	others = without_free(seg, s);
	/* No other process puts this client into the set. */
	if (__builtin_expect(others || (!own->inside && (runs || evicted)), 0)) {
		own->found |= ARB_RESTORED_PLACE;
		own->impossible = true;
		if (others && own->inside && runs)
			bill_anew(seg, slot, own, clocks, others);
	}
	/* The clock is read after the record: the client may have been stopped, and evicted, since it read `now`. */
	if (__builtin_expect(evicted, 0) && arb_ledger_not_evicted(own, arb_os_now_ns())) {
		arb_ledger_lost_to(seg, slot, own, now, clocks->weight);
		own->impossible = true;
	}
	if (own->inside && !runs && !evicted)
		arb_ledger_lost(seg, slot, own, now);
	if (__builtin_expect(own->doubt && runs && s->head != own->head, 0))
		own->doubt--;
	own->head = s->head;
	if (own->inside && runs)
		check_bill(seg, slot, own, clocks);
	/* An evicted client will be billed only for the time before the eviction. */
	if (!own->inside || runs)
		own->seen = *clocks;
	if (__builtin_expect(others != 0, 0))
		own->seen.weight = (uint32_t)others;
	note_weight(own, others ? (uint32_t)others : clocks->weight, now);
	own->looked = true;
}

bool arb_ledger_doubts(struct arb_ledger *own, const struct arb_snap *s, uint64_t now)
{
	bool ahead = (int64_t)(own->refused_t - now) > 0;

	own->refused_t = s->t;
	return ahead || (own->looked && s->win_number == own->seen.win_number &&
				(s->win_start != own->seen.win_start || s->win_ms != own->seen.win_ms));
}

void arb_ledger_repaired(
	const struct arb_segment *seg, uint32_t slot, struct arb_ledger *own, const struct arb_snap *s)
{
	struct arb_clocks clocks = {s->t, s->v, s->busy, s->weight, s->win_ms, s->win_number, s->win_start,
		s->win_v, s->win_busy};

	if (own->astray)
		own->seen = own->sure;
	if (own->inside && arb_bit_test(s->running, slot))
		check_bill(seg, slot, own, &clocks);
	else if (own->inside && !arb_bit_test(s->evicted, slot))
		arb_ledger_lost(seg, slot, own, s->t);
	own->impossible = own->astray = false;
	own->seen = own->sure = clocks;
	own->looked = true;
}

void arb_ledger_note(const struct arb_segment *seg, uint32_t a, const struct arb_account_snap *s)
{
	struct arb_ledger *own = arb_ledger_in(seg, a);

	if (!own ||
		(own->has_record && s->head >> ARB_HEAD_SEQ_SHIFT <= own->record.head >> ARB_HEAD_SEQ_SHIFT))
		return;
	/* No other process attaches or detaches this client. */
	if (!arb_bit_test(s->attached, seg->own_slot))
		return;
	own->record = *s;
	own->has_record = true;
}

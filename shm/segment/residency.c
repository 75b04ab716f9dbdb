#include "shm/segment/residency.h"

#include "shm/base/atomic.h"
#include "shm/segment/foreign.h"
#include "shm/segment/frozen.h"
#include "shm/policy/memory_fit.h"
#include "shm/segment/slot.h"
#include "shm/segment/wait.h"

/* The number of clients that are looked at one by one. Where more clients are resident at once, none makes room for
 * others. */
#define LISTED 128

/*
 * A round is the sum of the turns of all that take part. Among clients of equal priority none waits for longer than a
 * round. Priority decides for two rounds. A client that has waited for longer goes first whatever its priority, so
 * that clients of higher priority do not starve it. If a wait lasts for eight rounds, some turn does not end, for
 * example because of a kernel that hangs. Then the client is let in all the same: a GPU that thrashes is better than
 * one that stands still.
 */
#define LATE_ROUNDS   2
#define FORCED_ROUNDS 8
/* A client that was heard of within this time takes part. One that runs or waits is heard of far more often. */
#define PRESENT_NS 1000000000ull

struct resident {
	uint32_t slot;
	uint64_t bytes;
	uint64_t since_ns;
};

struct residents {
	unsigned n; /* all of them */
	uint64_t bytes;
	unsigned listed;
	struct resident list[LISTED];
};

static uint64_t plus(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t memory_of(const struct arb_residency *r, uint32_t slot)
{
	return arb_load64(&r->seg->slots[slot].mem_now);
}

/* Returns the rules, completed by what was seen of the GPU: its size, if the rules do not have it, and what other
 * processes have. */
static struct arb_memory_rules rules_of(const struct arb_residency *r)
{
	struct arb_memory_rules rules = r->rules->memory;

	if (!rules.physical)
		rules.physical = arb_load64(&r->seg->header->mem_physical);
	rules.foreign = arb_foreign_read(r->seg, r->now_ns);
	return rules;
}

/* Counts the clients that have joined, except those whose contexts a checkpoint has taken off the GPU. */
static unsigned have_contexts(const struct arb_residency *r)
{
	unsigned n = 0;

	for (uint32_t w = 0; w < r->seg->nwords; w++)
		for (uint64_t taken = arb_load64(&r->seg->header->taken[w]); taken; taken &= taken - 1) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(taken);

			n += i >= r->seg->nslots || !arb_frozen_gone(&r->seg->slots[i], r->now_ns);
		}
	return n;
}

/* Do `bytes` of `n` running clients fit? The contexts of the others are on the GPU as well, because contexts do not
 * move. */
static bool fits(const struct arb_residency *r, uint64_t bytes, unsigned n)
{
	struct arb_memory_rules rules = rules_of(r);
	unsigned joined = have_contexts(r);

	return arb_memory_fits(&rules, bytes, n > joined ? n : joined);
}

static bool runs(const struct arb_residency *r, uint32_t slot)
{
	return slot / 64 < r->snap->words && arb_bit_test(r->snap->running, slot);
}

bool arb_residency_holds(const struct arb_residency *r, uint32_t me)
{
	const struct arb_slot *s = &r->seg->slots[me];
	uint64_t until = arb_load64(&s->turn_hold_ns);

	/* If it is held for longer than any client may hold it, it is garbage, or was written under another setting.
	 */
	return arb_load64(&s->turn_since_ns) && until > r->now_ns &&
	       until - r->now_ns <= r->rules->memory.idle_ns;
}

static void add(const struct arb_residency *r, struct residents *all, uint32_t slot)
{
	uint64_t bytes = memory_of(r, slot);

	all->n++;
	all->bytes = plus(all->bytes, bytes);
	if (all->listed < LISTED)
		all->list[all->listed++] =
			(struct resident){slot, bytes, arb_load64(&r->seg->slots[slot].turn_since_ns)};
}

/* Finds the clients that run, and those that keep their turn and live. */
static void find(const struct arb_residency *r, uint32_t without, struct residents *all)
{
	all->n = all->listed = 0;
	all->bytes = 0;
	for (uint32_t i = arb_bits_next(r->snap->running, r->snap->words, 0); i != ARB_NONE;
		i = arb_bits_next(r->snap->running, r->snap->words, i + 1))
		if (i != without && i < r->seg->nslots)
			add(r, all, i);
	for (uint32_t w = 0; w < r->seg->nwords; w++) {
		uint64_t taken = arb_load64(&r->seg->header->taken[w]);

		for (; taken; taken &= taken - 1) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(taken);

			if (i < r->seg->nslots && i != without && !runs(r, i) && arb_residency_holds(r, i) &&
				arb_slot_alive(r->seg, i) != 0)
				add(r, all, i);
		}
	}
}

static void take_away(struct residents *all, unsigned at)
{
	all->n--;
	all->bytes -= all->list[at].bytes;
	all->list[at] = all->list[--all->listed];
}

static bool older(const struct resident *a, const struct resident *b)
{
	return a->since_ns != b->since_ns ? a->since_ns < b->since_ns : a->slot < b->slot;
}

static bool expired(const struct arb_residency *r, const struct resident *who, uint64_t turn_ns)
{
	return r->now_ns >= who->since_ns && r->now_ns - who->since_ns >= turn_ns;
}

/*
 * Chooses the client that makes room for `wanted` more bytes: of those that suffice alone the one with the oldest
 * turn, otherwise the largest. turn_ns not 0: only clients whose turn has lasted for this long. LISTED: no client is
 * left that could.
 */
static unsigned leaver(
	const struct arb_residency *r, const struct residents *all, uint64_t wanted, uint64_t turn_ns)
{
	unsigned best = LISTED;
	bool alone = false;

	for (unsigned i = 0; i < all->listed; i++) {
		const struct resident *who = &all->list[i], *so_far = &all->list[best % LISTED];
		bool suffices = fits(r, plus(all->bytes - who->bytes, wanted), all->n);

		if ((turn_ns && !expired(r, who, turn_ns)) || (alone && !suffices))
			continue;
		if (best == LISTED || suffices != alone ||
			(suffices || who->bytes == so_far->bytes ? older(who, so_far)
								 : who->bytes > so_far->bytes)) {
			best = i;
			alone = suffices;
		}
	}
	return best;
}

/* Removes the clients that make room for `wanted` bytes; returns false if that does not suffice. *moved: the memory
 * of those. */
static bool make_room(const struct arb_residency *r, struct residents *all, uint64_t wanted, uint64_t turn_ns,
	uint64_t *moved)
{
	*moved = 0;
	while (all->n && !fits(r, plus(all->bytes, wanted), all->n + 1)) {
		unsigned who = leaver(r, all, wanted, turn_ns);

		if (who == LISTED)
			return false;
		*moved = plus(*moved, all->list[who].bytes);
		take_away(all, who);
	}
	return true;
}

/* Whether a slot runs, waits, or did so a moment ago: a client that has just left mostly comes back to the queue. */
static bool takes_part(const struct arb_residency *r, uint32_t slot)
{
	uint64_t beat = arb_load64(&r->seg->slots[slot].heartbeat_ns);

	return runs(r, slot) || (slot / 64 < r->snap->words && arb_bit_test(r->snap->waiting, slot)) ||
	       r->now_ns <= beat || r->now_ns - beat < PRESENT_NS;
}

static uint64_t round_ns(const struct arb_residency *r)
{
	struct arb_memory_rules rules = rules_of(r);
	uint64_t ns = 0;

	for (uint32_t w = 0; w < r->seg->nwords; w++)
		for (uint64_t left = arb_load64(&r->seg->header->taken[w]); left; left &= left - 1) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(left);

			if (i < r->seg->nslots && takes_part(r, i))
				ns = plus(ns, arb_memory_turn_ns(&rules, memory_of(r, i)));
		}
	return ns;
}

static uint64_t times(uint64_t ns, unsigned n)
{
	return ns > UINT64_MAX / n ? UINT64_MAX : ns * n;
}

struct arb_order arb_residency_order(const struct arb_residency *r)
{
	uint64_t late = times(round_ns(r), LATE_ROUNDS), max = r->rules->max_wait_ns;

	return (struct arb_order){r->now_ns, late > max ? late : max, r->rules->grace_ns};
}

/* The waiting slot that goes before `me`, which may be waiting or not; ARB_NONE: there is none. */
static uint32_t first_before(const struct arb_residency *r, uint32_t me)
{
	struct arb_order order;
	uint32_t first;

	if (!r->snap->any_waiting)
		return ARB_NONE;
	order = arb_residency_order(r);
	first = arb_wait_choose(r->seg, r->snap, &order);
	return first == me || first >= r->seg->nslots ? ARB_NONE : first;
}

/* Has the client waited for so long that it is let in, whatever the others do? */
static bool waited_enough(const struct arb_residency *r, uint32_t me)
{
	uint64_t since = arb_load64(&r->seg->slots[me].wait_since_ns);

	return since && r->now_ns > since && r->now_ns - since > times(round_ns(r), FORCED_ROUNDS);
}

/*
 * Returns whether there is room for a client that has no turn yet. It must fit together with those that have a turn,
 * and also with those that go before it once these have got their room: otherwise small clients would keep a large
 * one out for ever.
 */
static bool has_room(const struct arb_residency *r, uint32_t me)
{
	uint64_t mine = memory_of(r, me), theirs, moved;
	uint32_t first;
	struct residents all;

	find(r, me, &all);
	if (all.n && !fits(r, plus(all.bytes, mine), all.n + 1))
		return waited_enough(r, me);
	first = first_before(r, me);
	if (first == ARB_NONE)
		return true;
	theirs = memory_of(r, first);
	return (make_room(r, &all, theirs, 0, &moved) &&
		       fits(r, plus(plus(all.bytes, theirs), mine), all.n + 2)) ||
	       waited_enough(r, me);
}

uint32_t arb_residency_admit(const struct arb_residency *r, uint32_t me)
{
	if (arb_residency_holds(r, me))
		return arb_residency_over(r, me) ? ARB_REASON_MEMORY : ARB_REASON_NONE;
	if (arb_snap_reserved(r->snap, r->now_ns) && (uint32_t)r->snap->reserved != me + 1)
		return ARB_REASON_QUEUE;
	return has_room(r, me) ? ARB_REASON_NONE : ARB_REASON_MEMORY;
}

uint32_t arb_residency_choose(const struct arb_residency *r)
{
	struct arb_snap fitting = *r->snap;
	struct arb_order order = arb_residency_order(r);
	uint64_t any = 0;

	for (uint32_t i = arb_bits_next(fitting.waiting, fitting.words, 0); i != ARB_NONE;
		i = arb_bits_next(fitting.waiting, fitting.words, i + 1)) {
		if (i >= r->seg->nslots || !has_room(r, i))
			fitting.waiting[i / 64] &= ~(1ull << (i % 64));
		any |= fitting.waiting[i / 64];
	}
	return any ? arb_wait_choose(r->seg, &fitting, &order) : ARB_NONE;
}

/* Do the clients not fit together any more, because one of them has allocated more since they were let in? Then the
 * client that came last must go. */
static bool burst(const struct arb_residency *r, const struct residents *all, uint32_t me)
{
	const struct resident *last = &all->list[0];

	if (all->n < 2 || fits(r, all->bytes, all->n))
		return false;
	for (unsigned i = 1; i < all->listed; i++)
		if (older(last, &all->list[i]))
			last = &all->list[i];
	return last->slot == me;
}

static bool among(const struct residents *all, uint32_t slot)
{
	for (unsigned i = 0; i < all->listed; i++)
		if (all->list[i].slot == slot)
			return true;
	return false;
}

bool arb_residency_over(const struct arb_residency *r, uint32_t me)
{
	struct arb_memory_rules rules = rules_of(r);
	uint32_t first = first_before(r, me);
	struct residents all, left;
	uint64_t wanted, moved;

	find(r, ARB_NONE, &all);
	if (!all.listed)
		return false;
	if (burst(r, &all, me))
		return true;
	if (first == ARB_NONE || !among(&all, me))
		return false;
	wanted = memory_of(r, first);
	left = all;
	make_room(r, &left, wanted, 0, &moved);
	/* All of them go together, or none: the room that one client leaves is of no use before the others have
	 * gone. */
	return make_room(r, &all, wanted, arb_memory_turn_ns(&rules, moved), &moved) && !among(&all, me);
}

bool arb_residency_enter(const struct arb_residency *r, uint32_t me)
{
	struct arb_slot *s = &r->seg->slots[me];

	if (arb_residency_holds(r, me))
		return false;
	arb_store64(&s->turn_since_ns, r->now_ns);
	return true;
}

void arb_residency_leave(const struct arb_residency *r, uint32_t me, bool keep)
{
	struct arb_slot *s = &r->seg->slots[me];

	arb_store64(&s->turn_hold_ns, keep ? r->now_ns + r->rules->memory.idle_ns : 0);
	if (!keep)
		arb_store64(&s->turn_since_ns, 0);
}

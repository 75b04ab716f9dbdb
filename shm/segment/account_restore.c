/* An account's record that another process has written over, restored by a member that knows what it was. */
#include "shm/segment/account_record.h"

/* Does the record in the segment differ from this one? */
static bool differs(const struct arb_segment *seg, uint32_t a, const struct arb_account_snap *known)
{
	const struct arb_account_record *r = account_record_of(seg, a, known->head);
	uint64_t other;

	if (!r)
		return true;
	other = (arb_hint64(&r->folded) ^ known->folded) |
		(arb_hint64(&r->wall_folded) ^ known->wall_folded) | (arb_hint64(&r->cap) ^ known->cap) |
		(arb_hint64(&r->hard) ^ known->hard) | (arb_hint64(&r->window) ^ known->window) |
		(arb_hint64(&r->start) ^ known->start) |
		(arb_hint64(&r->quota) ^ (known->quota_ppm | (uint64_t)known->limit_ppm << 32)) |
		(arb_hint64(&r->wall) ^ known->wall) | (arb_hint64(&r->borrowed) ^ known->borrowed) |
		(arb_hint64(&r->owed) ^ known->owed) | (arb_hint64(&r->mem_used) ^ known->mem_used) |
		(arb_hint64(&r->mem_peak) ^ known->mem_peak);
	for (uint32_t w = 0; w < seg->nwords; w++)
		other |= (arb_hint64(&r->attached[w]) ^ known->attached[w]) |
			 (arb_hint64(&r->parity[w]) ^ known->parity[w]);
	return other != 0;
}

/* Has the record behind the head, which is a later record, this member? */
static bool attached(const struct arb_segment *seg, uint32_t a, uint64_t head, uint32_t slot)
{
	const struct arb_account_record *r = account_record_of(seg, a, head);

	return r && arb_hint64(&r->attached[slot / 64]) >> (slot % 64) & 1;
}

/* The head has changed since it was read: what was read with it proves nothing. */
static bool moved(const struct arb_segment *seg, uint32_t a, uint64_t head)
{
	arb_fence_acquire(); /* pairs SNAPSHOT_REUSE */
	return arb_hint64(&seg->accounts[a].head) != head;
}

/*
 * The account's other members have gone on without this client, or the entry was given to other clients. The client
 * adds its own usage to the record again, and raises the caps with it, so that no member owes more than before. If the
 * record is still in the window that the client knows, the caps are those that the client knows.
 */
static void take_part_again(const struct arb_segment *seg, uint32_t slot, struct arb_account_snap *s)
{
	const struct arb_ledger *own = seg->own;
	uint64_t bit = 1ull << (slot % 64);
	uint64_t used =
		s->wall ? (own->inside ? own->wall_acc + own->seen.busy : own->wall_total) - own->wall_base
			: (own->inside ? own->acc + own->weight * own->seen.v : own->total) - own->base;

	s->attached[slot / 64] |= bit;
	s->parity[slot / 64] = (s->parity[slot / 64] & ~bit) | (own->record.parity[slot / 64] & bit);
	s->mem_used += own->mem;
	if (s->window == own->record.window && s->wall == own->record.wall) {
		s->cap = own->record.cap;
		s->hard = own->record.hard;
		s->start = own->record.start;
		s->owed = own->record.owed;
	} else {
		s->cap += used;
		s->hard += used;
		s->start += used;
	}
}

bool arb_account_restore(const struct arb_actor *me, uint32_t a)
{
	struct arb_segment *seg = me->seg;
	const struct arb_ledger *own = arb_ledger_of(seg, me->slot);
	uint64_t head = arb_hint64(&seg->accounts[a].head), known;
	struct arb_account_snap s;

	arb_fence_acquire(); /* pairs ACCOUNT_PUBLISH */
	if (!own || !own->has_record)
		return false;
	known = own->record.head;
	/* A record is constant while it is the head, and the sequence of the heads never goes back. */
	if (head == known ? differs(seg, a, &own->record)
			  : head >> ARB_HEAD_SEQ_SHIFT <= known >> ARB_HEAD_SEQ_SHIFT ||
				    !account_record_of(seg, a, head)) {
		if (moved(seg, a, head))
			return false;
		s = own->record;
		s.head = head;
		return account_publish_as(seg, a, &s, publish_next(known, me->slot));
	}
	/* Only the holder of a slot's byte attaches and detaches it. */
	if (head == known || attached(seg, a, head, me->slot) || moved(seg, a, head) ||
		account_load(seg, a, &s) < 0 || s.head != head)
		return false;
	take_part_again(seg, me->slot, &s);
	return account_publish(seg, a, me->slot, &s);
}

#include "shm/segment/audit.h"

#include <string.h>

#include "shm/base/atomic.h"
#include "shm/segment/account_record.h"
#include "shm/segment/events.h"
#include "shm/segment/slot.h"

/* The longest window that window_ms allows: a changed limit moves a cap by this much at most. */
#define WINDOW_MOST (60000ull * 1000000u * ARB_TICKS_PER_NS)
/* An account that stands in the queue saves up ten windows, and has the present window. */
#define AHEAD_MOST (11 * WINDOW_MOST)

static uint64_t used(const struct arb_account_snap *s)
{
	return s->wall ? s->wall_folded : s->folded;
}

/* Returns the ticks that the account has used beyond its cap; 0: none. */
static uint64_t owes(const struct arb_account_snap *s)
{
	uint64_t debt = used(s) - (s->cap - s->owed);

	return s->limit_ppm < ARB_PPM && (int64_t)debt > 0 ? debt : 0;
}

static void forgive(struct arb_account_snap *s)
{
	s->cap = s->hard = s->start = used(s);
	s->owed = 0;
}

static bool is_empty(const struct arb_segment *seg, const struct arb_account_snap *s)
{
	return arb_bits_count(s->attached, seg->nwords) == 0;
}

static uint64_t sequence(uint64_t head)
{
	return head >> ARB_HEAD_SEQ_SHIFT;
}

/* An entry has no name while it is given to another account: its generation and its record change one after the
 * other, and the process that does this may have died in between. */
static bool changes_hands(const struct arb_segment *seg, uint32_t a, uint64_t head)
{
	return !arb_hint64(&seg->accounts[a].name[0]) && sequence(head);
}

/* A member of the record cannot belong here if its slot is free, because a client is detached before its slot is
 * free, and attached while it is not. Nor can a member that lives and belongs to another account, if that account has
 * it as well. */
static bool is_stranger(const struct arb_segment *seg, uint32_t a, uint32_t i)
{
	const struct arb_slot *slot = &seg->slots[i];
	uint32_t other = arb_load32(&slot->account);
	struct arb_account_snap s;

	if (arb_load32_acquire(&slot->state) == ARB_SLOT_FREE)
		return arb_slot_alive(seg, i) == 0;
	return other != a && arb_segment_account(seg, other) && account_copy_raw(seg, other, &s) &&
	       account_unchanged(seg, other, &s) && arb_bit_test(s.attached, i);
}

static uint32_t drop_strangers(const struct arb_segment *seg, uint32_t a, struct arb_account_snap *s)
{
	uint32_t found = 0;

	for (uint32_t i = arb_bits_next(s->attached, seg->nwords, 0); i != ARB_NONE;
		i = arb_bits_next(s->attached, seg->nwords, i + 1)) {
		uint64_t bit = 1ull << (i % 64);

		if (i == seg->own_slot || !is_stranger(seg, a, i))
			continue;
		s->attached[i / 64] &= ~bit;
		s->parity[i / 64] &= ~bit;
		found = ARB_RESTORED_RECORD;
	}
	if (found) {
		s->mem_used = 0;
		for (uint32_t i = arb_bits_next(s->attached, seg->nwords, 0); i != ARB_NONE;
			i = arb_bits_next(s->attached, seg->nwords, i + 1))
			s->mem_used += arb_load64(&seg->slots[i].mem[arb_bit_test(s->parity, i)]);
	}
	return found;
}

/* Corrects what no order of honest steps can have made. `before`: what was seen of this entry earlier, or NULL. */
static uint32_t make_possible(const struct arb_segment *seg, const struct arb_snap *run,
	const struct arb_audit_seen *before, struct arb_account_snap *s)
{
	uint64_t more = before ? s->folded - before->record.folded : s->folded;
	uint64_t since = before ? run->busy - before->busy : run->busy;
	uint64_t debt = (before ? owes(&before->record) : 0) + WINDOW_MOST;
	uint32_t found = 0;

	if (s->mem_used) {
		s->mem_used = 0;
		found |= ARB_RESTORED_MEMORY;
	}
	/* Usage never goes back, and never grows faster than the busy clock; nor does the time of a member in the
	 * set. */
	if ((int64_t)more < 0 || more > since || s->wall_folded / seg->nslots > run->busy) {
		s->folded = before ? before->record.folded : 0;
		s->wall_folded = before ? before->record.wall_folded : 0;
		forgive(s);
		found |= ARB_RESTORED_BILL;
	}
	debt += before ? s->wall_folded - before->record.wall_folded : s->wall_folded;
	if (owes(s) > debt || (int64_t)(s->cap - used(s)) > (int64_t)AHEAD_MOST) {
		forgive(s);
		found |= ARB_RESTORED_RECORD;
	}
	if ((int64_t)(s->hard - used(s)) > (int64_t)AHEAD_MOST) {
		s->hard = s->cap;
		found |= ARB_RESTORED_RECORD;
	}
	/* An account can only have been rolled to a window that has begun. */
	if (s->window > run->win_number) {
		s->window = 0;
		found |= ARB_RESTORED_RECORD;
	}
	return found;
}

/* Restores what the last member left, if the ring still has an event about this very record. */
static uint32_t ask_the_ring(const struct arb_segment *seg, uint32_t a, struct arb_account_snap *s)
{
	struct arb_event_copy e;
	uint64_t first, at;

	for (arb_events_range(seg, &first, &at); at > first; at--) {
		if (arb_events_read(seg, at - 1, &e) < 0 || e.kind != ARB_EVENT_EMPTIED || e.account != a)
			continue;
		if (e.c != s->head || (used(s) == e.a && owes(s) == e.b))
			return 0;
		if (s->wall)
			s->wall_folded = e.a;
		else
			s->folded = e.a;
		forgive(s);
		s->cap = s->hard = s->cap - e.b;
		return ARB_RESTORED_RECORD | ARB_RESTORED_BILL;
	}
	return 0;
}

/* No member can have worked in a window that has not begun. */
static uint32_t put_hints_right(struct arb_segment *seg, uint32_t a, const struct arb_snap *run)
{
	arb_u64 *active = &seg->accounts[a].active_window;

	if (arb_load64(active) <= run->win_number + 1)
		return 0;
	arb_store64(active, 0);
	return ARB_RESTORED_ENTRY;
}

static void tell(struct arb_segment *seg, uint32_t a, uint32_t found)
{
	arb_add64_full(&seg->accounts[a].restored, 1);
	arb_events_put(seg, &(struct arb_event_copy){.kind = ARB_EVENT_RESTORED,
				    .slot = ARB_NONE,
				    .account = a,
				    .why = found,
				    .a = 1,
				    .times = 1});
}

bool arb_audit_is_as_seen(const struct arb_segment *seg, uint32_t a, const struct arb_audit_seen *seen)
{
	struct arb_account_snap s;
	struct arb_snap run;

	return seen->looked && account_copy_raw(seg, a, &s) && s.head == seen->record.head &&
	       account_same(seg, &s, &seen->record) && arb_running_read(seg, &run) == 0 &&
	       arb_load64(&seg->accounts[a].active_window) <= run.win_number + 1;
}

int arb_audit_account(struct arb_segment *seg, uint32_t a, struct arb_audit_seen *seen)
{
	const struct arb_account *entry = &seg->accounts[a];
	bool looked = seen && seen->looked, same;
	struct arb_account_snap s;
	struct arb_snap run;
	uint64_t head, next;
	uint32_t found;
	int r = account_load(seg, a, &s);

	if (seen)
		seen->looked = false;
	if (r < 0)
		return r;
	head = s.head;
	found = drop_strangers(seg, a, &s);
	/* Read after the record, so that this busy clock has counted what the members had used when they left. */
	r = arb_running_read(seg, &run);
	if (r < 0)
		return r;
	same = looked && seen->generation == arb_load32(&entry->generation) &&
	       (int64_t)(run.busy - seen->busy) >= 0;
	next = head;
	if (is_empty(seg, &s)) {
		if (same && sequence(head) <= sequence(seen->record.head) &&
			(head != seen->record.head || !account_same(seg, &s, &seen->record))) {
			s = seen->record;
			next = seen->record.head;
			found |= ARB_RESTORED_RECORD;
		} else {
			found |= make_possible(seg, &run, same ? seen : NULL, &s);
			if (!looked && owes(&s))
				found |= ask_the_ring(seg, a, &s);
		}
		found |= put_hints_right(seg, a, &run);
	}
	s.head = head;
	if ((found & ~ARB_RESTORED_ENTRY) && !account_publish_as(seg, a, &s, publish_next(next, ARB_HOME)))
		return 0; /* a member has published: the next look does it */
	if (found)
		tell(seg, a, found);
	if (seen && is_empty(seg, &s) && !changes_hands(seg, a, s.head)) {
		seen->looked = true;
		seen->generation = arb_load32(&entry->generation);
		seen->busy = run.busy;
		seen->record = s;
	}
	return (int)found;
}

void arb_audit_emptied(struct arb_segment *seg, uint32_t a, uint32_t slot)
{
	struct arb_account_snap s;

	if (account_load(seg, a, &s) < 0 || !is_empty(seg, &s))
		return;
	arb_events_put(seg, &(struct arb_event_copy){.kind = ARB_EVENT_EMPTIED,
				    .slot = slot,
				    .account = a,
				    .a = used(&s),
				    .b = owes(&s),
				    .c = s.head,
				    .times = 1});
}

uint64_t arb_audit_law(const struct arb_segment *seg)
{
	struct arb_snap run;

	for (int tries = 0; tries < 100; tries++) {
		uint64_t usage = 0;

		if (arb_running_read(seg, &run) < 0)
			return 0;
		for (uint32_t i = 0; i < seg->nslots; i++)
			usage += arb_running_usage(seg, &run, i);
		arb_fence_acquire(); /* pairs SNAPSHOT_REUSE */
		if (arb_load64(&seg->header->head) == run.head)
			return usage - run.busy;
	}
	return 0;
}

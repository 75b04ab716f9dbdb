/*
 * An account's head and its records: reading and publishing. For the files of the accounts alone.
 */
#ifndef ARB_ACCOUNT_RECORD_H
#define ARB_ACCOUNT_RECORD_H

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/policy/policy.h"
#include "shm/segment/ledger.h"
#include "shm/segment/publish.h"

static inline struct arb_account_record *account_record_of(
	const struct arb_segment *seg, uint32_t a, uint64_t head)
{
	struct arb_slot *slot;

	if (publish_owner(head) == ARB_HOME)
		return &seg->accounts[a].home[head & 1];
	slot = arb_segment_slot(seg, publish_owner(head));
	return slot ? &slot->account_record[head & 1] : NULL;
}

/* Copies the record as it stands in the segment. */
static inline bool account_copy_raw(const struct arb_segment *seg, uint32_t a, struct arb_account_snap *s)
{
	const struct arb_account_record *r;
	uint64_t quota;

	s->head = arb_load64_acquire(&seg->accounts[a].head); /* pairs ACCOUNT_PUBLISH */
	r = account_record_of(seg, a, s->head);
	if (!r)
		return false;
	s->folded = arb_load64(&r->folded);
	s->wall_folded = arb_load64(&r->wall_folded);
	s->cap = arb_load64(&r->cap);
	s->hard = arb_load64(&r->hard);
	s->window = arb_load64(&r->window);
	quota = arb_load64(&r->quota);
	s->quota_ppm = (uint32_t)quota;
	s->limit_ppm = (uint32_t)(quota >> 32);
	s->start = arb_load64(&r->start);
	s->wall = arb_load64(&r->wall);
	s->borrowed = arb_load64(&r->borrowed);
	s->owed = arb_load64(&r->owed);
	s->mem_used = arb_load64(&r->mem_used);
	s->mem_peak = arb_load64(&r->mem_peak);
	for (uint32_t w = 0; w < seg->nwords; w++) {
		s->attached[w] = arb_load64(&r->attached[w]);
		s->parity[w] = arb_load64(&r->parity[w]);
	}
	return true;
}

static inline bool account_same(
	const struct arb_segment *seg, const struct arb_account_snap *s, const struct arb_account_snap *known)
{
	return !memcmp(s, known, offsetof(struct arb_account_snap, attached)) &&
	       !memcmp(s->attached, known->attached, 8 * seg->nwords) &&
	       !memcmp(s->parity, known->parity, 8 * seg->nwords);
}

/* Copies the record that is the head. A record does not change while it is the head, so a member that knows its
 * content finds out here whether another process has written over it, and uses what it knows. */
static inline bool account_copy(const struct arb_segment *seg, uint32_t a, struct arb_account_snap *s)
{
	const struct arb_ledger *own = arb_ledger_in(seg, a);
	bool good = account_copy_raw(seg, a, s);

	if (!own || !own->has_record || own->record.head != s->head || account_same(seg, s, &own->record))
		return good;
	arb_fence_acquire(); /* pairs SNAPSHOT_REUSE: or it is torn */
	if (arb_hint64(&seg->accounts[a].head) != s->head)
		return good;
	*s = own->record;
	return true;
}

static inline bool account_plausible(const struct arb_segment *seg, const struct arb_account_snap *s)
{
	return s->limit_ppm <= ARB_PPM && s->quota_ppm <= s->limit_ppm && s->wall <= 1 &&
	       !(s->attached[seg->nwords - 1] & seg->beyond);
}

static inline bool account_unchanged(
	const struct arb_segment *seg, uint32_t a, const struct arb_account_snap *s)
{
	return publish_unchanged(&seg->accounts[a].head, s->head);
}

/* For callers that will CAS: does not look at the head a second time. */
static inline int account_load(const struct arb_segment *seg, uint32_t a, struct arb_account_snap *s)
{
	for (int i = 0; __builtin_expect(!account_copy(seg, a, s) || !account_plausible(seg, s), 0); i++)
		if (account_unchanged(seg, a, s) || i == ARB_TRIES)
			return -EBADMSG;
	return 0;
}

static inline bool account_publish_as(
	struct arb_segment *seg, uint32_t a, struct arb_account_snap *s, uint64_t next)
{
	struct arb_account_record *r = account_record_of(seg, a, next);

	arb_fence_release(); /* SNAPSHOT_REUSE */
	arb_store64(&r->folded, s->folded);
	arb_store64(&r->wall_folded, s->wall_folded);
	arb_store64(&r->cap, s->cap);
	arb_store64(&r->hard, s->hard);
	arb_store64(&r->window, s->window);
	arb_store64(&r->quota, s->quota_ppm | (uint64_t)s->limit_ppm << 32);
	arb_store64(&r->start, s->start);
	arb_store64(&r->wall, s->wall);
	arb_store64(&r->borrowed, s->borrowed);
	arb_store64(&r->owed, s->owed);
	arb_store64(&r->mem_used, s->mem_used);
	arb_store64(&r->mem_peak, s->mem_peak);
	for (uint32_t w = 0; w < seg->nwords; w++) {
		arb_store64(&r->attached[w], s->attached[w]);
		arb_store64(&r->parity[w], s->parity[w]);
	}
	if (!publish_commit(&seg->accounts[a].head, &s->head, next))
		return false;
	arb_ledger_note(seg, a, s);
	return true;
}

/* `owner` is the slot whose buffers are used, or ARB_HOME. */
static inline bool account_publish(
	struct arb_segment *seg, uint32_t a, uint32_t owner, struct arb_account_snap *s)
{
	return account_publish_as(seg, a, s, publish_next(s->head, owner));
}

#endif

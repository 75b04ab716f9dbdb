/*
 * Accounts that nobody uses. A member knows its account (ledger.h); an account without members has nobody who does, so
 * what somebody writes over it would bind whoever comes next. What can be known of it, from the surest to the least sure:
 *
 *   - a record is constant while it is the head, and nobody publishes one here but the holder of the directory byte: who
 *     looked earlier knows it;
 *   - the event ARB_EVENT_EMPTIED says what the last member left, and in which record; the ring is bounded, and whoever may
 *     write the segment can write the ring;
 *   - what holds for every order of honest steps: a bill is part of the busy clock, nobody owes more than it has used, and
 *     one window's change of its limit, no cap is further ahead than ten windows and this one, no free slot is a member.
 *
 * What nobody has seen, the ring has forgotten and could have been is believed.
 */
#ifndef ARB_AUDIT_H
#define ARB_AUDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/segment/account.h"
#include "shm/segment/segment.h"

/* What one who looks again and again saw of an account at its last look. All zeros: nothing. */
struct arb_audit_seen {
	bool looked; /* it had no members then; the rest counts only if so */
	uint32_t generation;
	uint64_t busy;
	struct arb_account_snap record;
};

/* Is there nothing to audit, because it is as it was seen? Without a lock. */
bool arb_audit_is_as_seen(const struct arb_segment *seg, uint32_t a, const struct arb_audit_seen *seen);
/*
 * Puts right what cannot be in account `a`, writes the event, and counts it. The caller holds the directory byte. `seen`: what
 * it saw at its last look, which becomes what it sees now; NULL: it has not looked before. Returns ARB_RESTORED_* of what
 * was put right, 0, or -errno: garbage (arb_account_repair), or it changes all the time.
 */
int arb_audit_account(struct arb_segment *seg, uint32_t a, struct arb_audit_seen *seen);
/* Its last member has been detached by the caller, who still holds the directory byte: tells the ring what it left. */
void arb_audit_emptied(struct arb_segment *seg, uint32_t a, uint32_t slot);

/* By how much the bills of all slots differ from the busy clock, in one snapshot; 0 also where there is none. */
uint64_t arb_audit_law(const struct arb_segment *seg);

#endif

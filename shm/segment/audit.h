/*
 * Accounts without members. A member knows its account (ledger.h). An account without members has no client that
 * knows it, so what another process writes over it would bind the next client that joins it. What can be known of such
 * an account, from the surest to the least sure:
 *
 *   - a record is constant while it is the head, and only the holder of the directory byte publishes one here: a
 *     process that looked earlier knows it;
 *   - the event ARB_EVENT_EMPTIED says what the last member left, and in which record. But the ring is bounded, and a
 *     process that may write the segment can write the ring;
 *   - what holds for every order of honest steps: a bill is part of the busy clock; no account owes more than it has
 *     used, and one window's change of its limit; no cap is further ahead than ten windows and this window; no free
 *     slot is a member.
 *
 * A record that no process has seen, that the ring has forgotten, and that is possible, is believed.
 */
#ifndef ARB_AUDIT_H
#define ARB_AUDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/segment/account.h"
#include "shm/segment/segment.h"

/* What a watchdog saw of an account at its last look. All zeros: nothing. */
struct arb_audit_seen {
	bool looked; /* it had no members then; the rest counts only if so */
	uint32_t generation;
	uint64_t busy;
	struct arb_account_snap record;
};

/* Is there nothing to audit, because the account is as it was last seen? Takes no lock. */
bool arb_audit_is_as_seen(const struct arb_segment *seg, uint32_t a, const struct arb_audit_seen *seen);
/*
 * Corrects words of account `a` that cannot be right, writes the event, and counts it. The caller holds the directory
 * byte. `seen`: what the caller saw at its last look; it is replaced by what it sees now. NULL: it has not looked
 * before. Returns ARB_RESTORED_* of what was corrected, 0, or -errno: garbage (arb_account_repair), or it changes all
 * the time.
 */
int arb_audit_account(struct arb_segment *seg, uint32_t a, struct arb_audit_seen *seen);
/* Called after the caller has detached the last member, while it still holds the directory byte: writes what this
 * member left into the ring. */
void arb_audit_emptied(struct arb_segment *seg, uint32_t a, uint32_t slot);

/* Returns by how much the sum of all bills differs from the busy clock, in one snapshot; 0 also where no snapshot can
 * be read. */
uint64_t arb_audit_law(const struct arb_segment *seg);

#endif

#include "shm/client/above.h"

#include "shm/client/floor.h"
#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/base/os.h"
#include "shm/policy/policy.h"

/* Members of one account use up the same request, so it does not set one of them above another. */
static bool is_above(const struct arb_segment *seg, uint32_t i, uint32_t level, uint32_t account)
{
	uint32_t other = arb_running_level(seg, i);

	if (arb_load32(&seg->slots[i].account) == account)
		other &= ~ARB_LEVEL_IN_REQUEST;
	return other > level;
}

static bool heard(const struct arb_segment *seg, uint32_t i, uint64_t now_ns, uint64_t within_ns)
{
	return now_ns - arb_running_heard(seg, i, now_ns) < within_ns;
}

static bool in_request(struct gpuarb_client *c)
{
	struct arb_account_snap acct;
	struct arb_snap snap;
	uint64_t used;

	if (!c->quota.request_ppm || arb_running_read(&c->seg, &snap) < 0 ||
		arb_account_read(&c->seg, c->account, &acct) < 0)
		return false;
	arb_running_advance(&snap, arb_os_now_ns() * ARB_TICKS_PER_NS, c->rules.win_ms);
	/* The account has not rolled yet, so it has used nothing of the window that has begun. */
	if (acct.window < snap.win_number)
		return true;
	used = arb_account_usage(&c->seg, &snap, &acct, acct.wall, false) - acct.start;
	return used < arb_policy_grant(c->quota.request_ppm, snap.win_ticks);
}

uint32_t arb_above_level(struct gpuarb_client *c)
{
	struct arb_slot *slot = arb_client_slot(c);
	uint32_t priority = arb_client_priority(c);
	uint32_t level = 2 * (priority < 1 ? 1 : priority > 100 ? 100 : priority);

	if (in_request(c))
		level |= ARB_LEVEL_IN_REQUEST;
	if (arb_load32(&slot->level) != level)
		arb_store32(&slot->level, level);
	return level;
}

/* A client that has just got a lease is about to launch. */
static bool lease_above(const struct gpuarb_client *c, uint64_t now_ns)
{
	for (uint32_t w = 0; w < c->seg.nwords; w++) {
		uint64_t leased = arb_load64(&c->seg.header->adm_leased[w]);

		for (; leased; leased &= leased - 1) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(leased);
			const struct arb_slot *s;

			if (i >= c->seg.nslots || i == c->me.slot)
				continue;
			s = &c->seg.slots[i];
			if (2 * arb_load32(&s->priority) > c->move.level &&
				now_ns - arb_load64(&s->adm_leased_ns) < ARB_ABOVE_LEASE_NS)
				return true;
		}
	}
	return false;
}

/* `set`: only members count that an administrator has put above the client. */
static bool member_above(
	const struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns, const bool set)
{
	if (snap->top <= c->move.level)
		return false;
	for (uint32_t i = arb_bits_next(snap->running, snap->words, 0); i != ARB_NONE;
		i = arb_bits_next(snap->running, snap->words, i + 1))
		if (i != c->me.slot && is_above(&c->seg, i, c->move.level, c->account) &&
			heard(&c->seg, i, now_ns, ARB_ABOVE_HEARD_NS) && (!set || arb_floor_put_above(c, i)))
			return true;
	return false;
}

bool arb_above_me(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	uint32_t level = c->move.level;

	if (!level || level & ARB_LEVEL_IN_REQUEST)
		return false;
	/* Classes decide about leases. Without the preload a client has nothing but its leases. */
	if (c->admission.leasing || (!c->admission.tracked && arb_load32(&c->guard->says_holds)))
		return false;
	if (!member_above(c, snap, now_ns, false) && !lease_above(c, now_ns))
		return false;
	/* A client with a low priority has agreed to be below others. */
	if (arb_load32(&c->admission.base_priority) < ARB_PRIORITY || !arb_floor_keeps(c, snap, now_ns))
		return true;
	return member_above(c, snap, now_ns, true);
}

/* Does an account with a request use this GPU beside this client? A member of a lower priority than this client's
 * never comes before it, and does not count. */
static bool has_request(const struct gpuarb_client *c, const struct arb_slot *s, uint32_t level)
{
	uint32_t account = arb_load32(&s->account);

	return account != c->account && account < c->seg.naccounts &&
	       (level | ARB_LEVEL_IN_REQUEST) > c->move.level &&
	       arb_load32(&c->seg.accounts[account].request_ppm);
}

struct arb_above_seen arb_above_present(const struct gpuarb_client *c, uint64_t now_ns)
{
	uint32_t mine = c->move.level | ARB_LEVEL_IN_REQUEST;
	struct arb_above_seen seen = {false, false};

	for (uint32_t i = 0; i < c->seg.nslots && !seen.priority; i++) {
		const struct arb_slot *s = &c->seg.slots[i];
		uint32_t level;

		if (arb_load32(&s->state) != ARB_SLOT_LIVE || i == c->me.slot)
			continue;
		level = arb_running_level(&c->seg, i);
		if (c->floor.keeps && level > mine && !arb_floor_put_above(c, i))
			level = mine;
		if ((level > mine || (!seen.request && has_request(c, s, level))) &&
			heard(&c->seg, i, now_ns, ARB_ABOVE_PRESENT_NS)) {
			seen.priority = level > mine;
			seen.request = true;
		}
	}
	return seen;
}

void arb_above_close(struct arb_segment *seg, const struct arb_snap *snap, uint32_t me, uint32_t level)
{
	uint32_t account = arb_load32(&seg->slots[me].account);

	for (uint32_t i = arb_bits_next(snap->running, snap->words, 0); i != ARB_NONE;
		i = arb_bits_next(snap->running, snap->words, i + 1)) {
		uint32_t other = arb_running_level(seg, i), mine = level;

		if (i == me || other & ARB_LEVEL_IN_REQUEST)
			continue;
		if (arb_load32(&seg->slots[i].account) == account)
			mine &= ~ARB_LEVEL_IN_REQUEST;
		if (other < mine)
			arb_store32(&seg->slots[i].gate, 0); /* GATE: after the CAS of the head */
	}
}

void arb_above_entered(struct gpuarb_client *c)
{
	struct arb_snap snap;

	/* GATE: the word first, then the look. A client that came meanwhile, and did not find the gate open, or whose
	 * closing we have just undone, is seen by this look. */
	arb_cas32_full(&arb_client_slot(c)->gate, 0, 1);
	if (arb_running_read(&c->seg, &snap) < 0)
		return;
	if (c->move.rose)
		arb_above_close(&c->seg, &snap, c->me.slot, c->move.level);
	if (arb_above_me(c, &snap, arb_os_now_ns()))
		arb_store32(&arb_client_slot(c)->gate, 0);
}

void arb_above_leased(struct gpuarb_client *c)
{
	arb_u64 *at = &arb_client_slot(c)->adm_leased_ns;
	struct arb_snap snap;

	arb_cas64_full(at, arb_load64(at), arb_os_now_ns()); /* GATE: in place of the head */
	if (arb_running_read(&c->seg, &snap) == 0)
		arb_above_close(&c->seg, &snap, c->me.slot, 2 * arb_client_priority(c));
}

void arb_above_release(struct arb_segment *seg)
{
	struct arb_snap snap;

	if (arb_running_read(seg, &snap) < 0)
		return;
	for (uint32_t i = arb_bits_next(snap.waiting, snap.words, 0); i != ARB_NONE;
		i = arb_bits_next(snap.waiting, snap.words, i + 1)) {
		uint32_t level = arb_running_level(seg, i);

		if (level & ARB_LEVEL_IN_REQUEST || level >= snap.top)
			arb_os_wake(&seg->slots[i].wake);
	}
}

int arb_above_tick(struct gpuarb_client *c)
{
	uint32_t before = c->move.level;
	struct arb_snap snap;
	int r;

	c->move.level = arb_above_level(c);
	if (c->move.level == before)
		return 0;
	r = arb_running_relevel(&c->me, &c->move, &snap);
	if (r < 0)
		return r;
	if (c->move.rose)
		arb_above_close(&c->seg, &snap, c->me.slot, c->move.level);
	if (c->move.fell)
		arb_above_release(&c->seg);
	return 0;
}

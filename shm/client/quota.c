#include "shm/client/quota.h"

#include "shm/base/os.h"
#include "shm/client/above.h"
#include "shm/client/floor.h"
#include "shm/client/owner.h"
#include "shm/segment/running.h"
#include "shm/segment/account.h"
#include "shm/policy/policy.h"
#include "shm/policy/share.h"
#include "units.h"

/* How far an account may go beyond its quota at a time, while no other account is short. */
#define EXTEND_TICKS (2 * MS * ARB_TICKS_PER_NS)
/* The number of active accounts that are told apart; the rest count as one. 2 KiB of stack. */
#define ACCOUNTS_MOST 128

static uint32_t by_shares(struct gpuarb_client *c, uint64_t window)
{
	struct arb_share all[ACCOUNTS_MOST];
	unsigned n;

	all[0] = (struct arb_share){c->quota.request_ppm, c->quota.terms.limit_ppm, c->quota.weight, 0};
	n = 1 + arb_account_shares(&c->seg, window, c->account, all + 1, ACCOUNTS_MOST - 1);
	c->quota.shares = arb_share_in_force(all, n);
	if (!c->quota.shares)
		return 0;
	arb_share_fill(all, n, c->quota.lost_ppm);
	return all[0].quota_ppm;
}

/* Finds how much is lost where clients take turns. Each client sees the same word, and scales its limit by it
 * alike. */
static void find_lost(struct gpuarb_client *c, const struct arb_snap *snap)
{
	uint32_t now = arb_load32(&c->seg.header->lost_ns), lost = now - c->quota.lost_ns;
	uint64_t windows = snap->win_number - c->quota.lost_window;

	if (!windows)
		return;
	if (c->quota.lost_window)
		c->quota.lost_ppm = arb_policy_lost(c->quota.lost_ppm, (uint64_t)lost * ARB_TICKS_PER_NS,
			snap->win_busy - c->quota.lost_busy, windows * snap->win_ticks, windows);
	c->quota.lost_window = snap->win_number;
	c->quota.lost_busy = snap->win_busy;
	c->quota.lost_ns = now;
}

void arb_quota_find(struct gpuarb_client *c, const struct arb_snap *snap)
{
	uint64_t window = snap->win_number;

	find_lost(c, snap);
	c->quota.sum = arb_account_sum(&c->seg, window, c->account) +
		       (c->quota.terms.limit_ppm < ARB_PPM ? c->quota.terms.limit_ppm : 0);
	c->quota.terms.quota_ppm =
		arb_policy_scale(c->quota.terms.limit_ppm, c->quota.sum, c->quota.lost_ppm);
	c->quota.shares = false;
	if (__builtin_expect(arb_above_matters(c), 0)) {
		uint32_t quota = by_shares(c, window);

		if (c->quota.shares)
			c->quota.terms.quota_ppm = quota;
	}
	if (__builtin_expect(c->floor.keeps, 0) && c->quota.terms.quota_ppm < c->floor.ppm)
		c->quota.terms.quota_ppm = c->floor.ppm;
}

bool arb_quota_left(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t outstanding)
{
	struct arb_wanting who = {
		c->account, c->quota.shares, c->move.level, c->move.now / ARB_TICKS_PER_NS, 0};
	bool unlimited = c->quota.terms.limit_ppm >= ARB_PPM, alone = true;
	/* Accounts that share by weight are short only for moments, at the end of a window, so their debt is not
	 * forgiven. */
	struct arb_extension more = {0, outstanding + EXTEND_TICKS, unlimited, c->quota.shares};
	struct arb_account_snap acct;
	uint64_t usage;

	if (__builtin_expect(c->standing.guest, 0) && !arb_guest_has_quota(c, snap, outstanding))
		return false;
	if (unlimited && c->quota.terms.quota_ppm >= ARB_PPM)
		return true;
	if (arb_account_read(&c->seg, c->account, &acct) < 0)
		return true; /* the next roll repairs it; until then no account is stopped because of it */
	usage = arb_account_usage(&c->seg, snap, &acct, acct.wall, false);
	if (arb_policy_below(usage, outstanding, acct.cap))
		return true;
	more.usage = usage;
	if (c->quota.shares)
		who.debt = arb_account_debt(&acct, usage);
	if ((unlimited || arb_policy_below(usage, outstanding, acct.hard)) &&
		!arb_account_others_short(&c->seg, snap, &who))
		return arb_account_extend(&c->me, c->account, &more, &acct) == 0;
	/* It has none left because others have limits, requests or weights. */
	if (c->quota.terms.quota_ppm < c->quota.terms.limit_ppm &&
		(unlimited || arb_policy_below(usage, outstanding, acct.hard)))
		arb_floor_keeps(c, snap, c->move.now / ARB_TICKS_PER_NS);
	if (!c->rules.borrow)
		return false;
	for (uint32_t w = 0; w < snap->words; w++)
		alone &= !((snap->running[w] | snap->waiting[w]) & ~acct.attached[w]);
	more.borrow = true;
	return alone && arb_account_extend(&c->me, c->account, &more, &acct) == 0;
}

void arb_quota_forgive(struct gpuarb_client *c)
{
	struct arb_extension more = {.borrow = true};
	struct arb_account_snap acct;
	struct arb_snap snap;

	if (arb_running_read(&c->seg, &snap) < 0 || arb_account_read(&c->seg, c->account, &acct) < 0)
		return;
	arb_running_advance(&snap, arb_os_now_ns() * ARB_TICKS_PER_NS, c->rules.win_ms);
	more.usage = arb_account_usage(&c->seg, &snap, &acct, acct.wall, false);
	arb_account_extend(&c->me, c->account, &more, &acct);
}

/* What a client is told of its account, its turn and the others: gpuarb_client_status(). */
#include <errno.h>
#include <string.h>

#include "gpuarb/client.h"

#include "shm/base/atomic.h"
#include "shm/base/os.h"
#include "shm/client/above.h"
#include "shm/client/client_state.h"
#include "shm/policy/policy.h"
#include "shm/segment/account.h"
#include "shm/segment/running.h"

static void tell_levels(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns,
	struct gpuarb_client_status *status)
{
	struct arb_above_seen seen;

	status->gated = true;
	status->in_request = c->move.level & ARB_LEVEL_IN_REQUEST;
	status->below = arb_above_decides(c) && arb_above_me(c, snap, now_ns);
	seen = arb_above_present(c, now_ns);
	status->above_present = seen.priority;
	status->request_present = seen.request;
}

/* Reads again what a tick has just rolled. False: a window has ended since, as of at_ns (0: now), or there is garbage. */
static bool read_again(
	struct gpuarb_client *c, uint64_t at_ns, struct arb_snap *snap, struct arb_account_snap *acct)
{
	return arb_running_read(&c->seg, snap) == 0 && arb_account_read(&c->seg, c->account, acct) == 0 &&
	       acct->window == snap->win_number &&
	       (at_ns ? at_ns : arb_os_now_ns()) * ARB_TICKS_PER_NS < snap->win_start + snap->win_ticks;
}

/* Returns the number of clients in the set divided by those of this client's account; at least 1. */
static uint32_t slower(const struct arb_snap *snap, const struct arb_account_snap *acct)
{
	uint32_t all = 0, mine = 0;

	for (uint32_t w = 0; w < snap->words; w++) {
		all += (uint32_t)__builtin_popcountll(snap->running[w]);
		mine += (uint32_t)__builtin_popcountll(snap->running[w] & acct->attached[w]);
	}
	/* By wall time each member pays for all of its time, whoever runs beside it. */
	return !mine || acct->wall || all < mine ? 1 : all / mine;
}

static int tell(struct gpuarb_client *c, bool ticked, uint64_t at_ns, struct gpuarb_client_status *status)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE;
	struct arb_snap snap;
	struct arb_account_snap acct;
	uint64_t usage, now;
	int r;

	memset(status, 0, sizeof(*status));
	arb_lock_take(&c->guard->lock);
	do {
		r = arb_client_ensure(c);
		if (r == 0 && !(ticked && read_again(c, at_ns, &snap, &acct)))
			r = arb_client_roll(c, at_ns, &snap, &acct);
	} while (r == -EBUSY && arb_client_breathe(c, &patience));
	if (r == 0) {
		struct arb_slot *s = arb_client_slot(c);

		now = arb_os_now_ns();
		/* Only usage is as of at_ns: other clients may have shown signs of life since then. */
		arb_running_advance(
			&snap, (at_ns && at_ns < now ? at_ns : now) * ARB_TICKS_PER_NS, c->rules.win_ms);
		usage = arb_account_usage(&c->seg, &snap, &acct, acct.wall, false);
		status->slot = c->me.slot;
		status->account = c->account;
		status->running = c->me.slot / 64 < snap.words && arb_bit_test(snap.running, c->me.slot);
		status->others = arb_bits_count(snap.running, snap.words) - status->running;
		/* If memory decides, turns are taken only while a client waits for memory. */
		status->turns = c->turn.taken && (c->rules.policy != ARB_POLICY_MEMORY || snap.any_waiting);
		status->turn_left_ns = arb_turn_left_ns(c, &snap, now);
		status->look_ns = c->rules.look_ns;
		status->tail_pct = c->rules.tail_pct;
		status->reason = status->running ? ARB_REASON_NONE : arb_load32(&s->reason);
		status->core_pct = c->quota.terms.limit_ppm / (ARB_PPM / 100);
		status->quota_ppm = acct.quota_ppm;
		status->shares = c->quota.shares;
		status->request_pct = c->quota.request_ppm / (ARB_PPM / 100);
		if (__builtin_expect(arb_above_matters(c), 0))
			tell_levels(c, &snap, now, status);
		status->window_ns = snap.win_ticks / ARB_TICKS_PER_NS;
		status->window_end_ns = (snap.win_start + snap.win_ticks) / ARB_TICKS_PER_NS;
		status->used_ns = (usage - acct.start) / ARB_TICKS_PER_NS;
		if (arb_policy_before(usage, acct.cap))
			status->left_ns = (acct.cap - usage) / ARB_TICKS_PER_NS;
		else
			status->debt_ns = (usage - acct.cap) / ARB_TICKS_PER_NS;
		status->total_ns = usage / ARB_TICKS_PER_NS;
		status->throttled_ns = arb_load64(&s->throttled_ns) +
				       (c->wait.throttled_since ? now - c->wait.throttled_since : 0);
		status->waited_ns = arb_load64(&s->waited_ns) + (c->wait.since ? now - c->wait.since : 0) +
				    (c->wait.below_since ? now - c->wait.below_since : 0);
		status->mem_used = acct.mem_used;
		status->mem_limit = c->mem.limit;
		status->restored = c->restoring.times;
		status->slower = slower(&snap, &acct);
	}
	arb_lock_give(&c->guard->lock);
	return r;
}

int gpuarb_client_status(struct gpuarb_client *c, struct gpuarb_client_status *status)
{
	return tell(c, false, 0, status);
}

int gpuarb_client_tick_status(
	struct gpuarb_client *c, uint64_t at_ns, struct gpuarb_client_status *status, int *told)
{
	int r = arb_client_tick(c, at_ns);

	*told = tell(c, r == 0 || r == -EDQUOT || r == -EAGAIN, at_ns, status);
	return r;
}

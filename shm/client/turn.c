/* Taking turns: enter, leave, wait, and probe other clients meanwhile. */
#include <errno.h>

#include "gpuarb/client.h"
#include "units.h"

#include "shm/client/above.h"
#include "shm/client/floor.h"
#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/segment/events.h"
#include "shm/base/os.h"
#include "shm/policy/policy.h"
#include "shm/client/quota.h"
#include "shm/segment/residency.h"
#include "shm/segment/running.h"
#include "shm/segment/wait.h"

/* A client that asks again within this time has not stopped waiting. */
#define AGAIN_NS (20 * MS)
#define EVENT_NS (1000 * MS)

static inline void wake_next(struct gpuarb_client *c, const struct arb_move *move)
{
	if (__builtin_expect(move->next != ARB_NONE, 0))
		arb_os_wake(&c->seg.slots[move->next].wake);
}

/* Does this error need a roll? Another window, a silent member and garbage do. */
static bool must_roll(int r)
{
	return r == -EXDEV || r == -EOWNERDEAD || r == -EBADMSG;
}

/* Marks the account active. Others must add up the limits anew when a limited account becomes active. */
static inline void mark_active(struct gpuarb_client *c)
{
	if (__builtin_expect(c->quota.active_window == c->quota.window, 1))
		return;
	c->quota.active_window = c->quota.window;
	if (arb_account_active(&c->seg, c->account, c->quota.window) &&
		(c->quota.terms.limit_ppm < ARB_PPM || arb_above_matters(c)))
		arb_add32_full(&c->seg.header->epoch, 1);
}

void arb_turn_active(struct gpuarb_client *c)
{
	mark_active(c);
}

/* Returns whether a place is kept for another client. It is not kept from a client of higher priority. */
static bool kept_from(const struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	struct arb_order order = arb_turn_order(c, now_ns);
	uint32_t first = (uint32_t)snap->reserved - 1;

	return arb_snap_reserved(snap, now_ns) && first != c->me.slot && first < c->seg.nslots &&
	       !arb_wait_counts_for_more(&c->seg, c->me.slot, first, &order);
}

uint32_t arb_turn_admit(void *argument, const struct arb_snap *snap, uint64_t now_ns)
{
	struct gpuarb_client *c = argument;
	struct arb_policy_case facts = {.policy = c->policy,
		.quota_sum_ppm = c->quota.sum,
		.running = arb_turn_in_the_way(c, snap, now_ns)};

	if (!arb_quota_left(c, snap, c->quota.outstanding))
		return ARB_REASON_QUOTA;
	if (__builtin_expect(c->move.level && arb_above_decides(c), 0) && arb_above_me(c, snap, now_ns))
		return ARB_REASON_ABOVE;
	if (c->rules.policy == ARB_POLICY_MEMORY) {
		struct arb_residency r = arb_turn_residency(c, snap, now_ns);

		return arb_residency_admit(&r, c->me.slot);
	}
	facts.reserved_for_other = kept_from(c, snap, now_ns);
	return arb_policy_admit(&facts) || arb_floor_keeps_turn(c, snap, now_ns) ? ARB_REASON_NONE
										 : ARB_REASON_QUEUE;
}

/* Returns what the account has used in this window. */
static uint64_t used_in_window(struct gpuarb_client *c, const struct arb_snap *snap)
{
	struct arb_account_snap acct;

	if (arb_account_read(&c->seg, c->account, &acct) < 0)
		return 0;
	return arb_account_usage(&c->seg, snap, &acct, acct.wall, false) - acct.start;
}

/* Counts the time spent refused, by reason, whenever the reason changes. */
static void note_reason(struct gpuarb_client *c, uint32_t reason, const struct arb_snap *snap)
{
	struct arb_slot *s = arb_client_slot(c);
	uint64_t now = c->move.now / ARB_TICKS_PER_NS;

	if (c->wait.throttled_since && reason != ARB_REASON_QUOTA) {
		arb_store64(&s->throttled_ns, arb_load64(&s->throttled_ns) + now - c->wait.throttled_since);
		arb_events_write(&c->seg, ARB_EVENT_RESUMED, c->me.slot, c->account,
			now - c->wait.throttled_since, reason);
		c->wait.throttled_since = 0;
	}
	if (c->wait.since && reason != ARB_REASON_QUEUE && reason != ARB_REASON_MEMORY) {
		arb_store64(&s->waited_ns, arb_load64(&s->waited_ns) + now - c->wait.since);
		arb_store64(&s->wait_since_ns, 0);
		c->wait.since = 0;
	}
	if (c->wait.below_since && reason != ARB_REASON_ABOVE) {
		arb_store64(&s->waited_ns, arb_load64(&s->waited_ns) + now - c->wait.below_since);
		c->wait.below_since = 0;
	}
	if (reason == ARB_REASON_ABOVE && !c->wait.below_since)
		c->wait.below_since = now;
	if (reason == ARB_REASON_QUOTA && !c->wait.throttled_since) {
		c->wait.throttled_since = now;
		arb_events_write(&c->seg, ARB_EVENT_THROTTLED, c->me.slot, c->account,
			used_in_window(c, snap), (snap->win_start + snap->win_ticks) / ARB_TICKS_PER_NS);
	}
	arb_store32(&s->reason, reason);
}

/* Stores the words by which the client is ordered, before it stands in the queue. */
static void prepare_to_wait(struct gpuarb_client *c)
{
	struct arb_account_snap acct;
	struct arb_snap snap;
	uint64_t used, share = 0;

	if (c->wait.since)
		return;
	c->wait.since = c->move.now / ARB_TICKS_PER_NS;
	if (arb_running_read(&c->seg, &snap) == 0 && arb_account_read(&c->seg, c->account, &acct) == 0) {
		used = arb_account_usage(&c->seg, &snap, &acct, acct.wall, false) - acct.start;
		share = arb_policy_grant(acct.quota_ppm, snap.win_ticks);
		share = share ? used / (share / ARB_PPM + 1) : 0;
	}
	arb_store64(&arb_client_slot(c)->rank_ppm, share);
	/* A client that gave up and soon asks again has not stopped waiting. */
	if (!c->wait.from || c->wait.since - c->wait.left >= AGAIN_NS)
		c->wait.from = c->wait.since;
	arb_store64(&arb_client_slot(c)->wait_since_ns, c->wait.from);
}

/* Writes the event of a client that comes back after others took it for hung. */
static void note_return(struct gpuarb_client *c)
{
	c->move.returned = false;
	arb_events_write(&c->seg, ARB_EVENT_RETURNED, c->me.slot, c->account, 0, 0);
}

/*
 * A lease is in no record. If a lease ended after this client had seen it, and before the client was registered, its
 * end has not woken the client. So a client that is registered looks once more.
 */
static bool still_below(struct gpuarb_client *c)
{
	struct arb_snap snap;

	return arb_running_read(&c->seg, &snap) < 0 || arb_above_me(c, &snap, arb_os_now_ns());
}

/* Enters the running set. `runs`: it has work on the GPU already, so it enters whatever quota and policy say. */
static int enter(
	struct gpuarb_client *c, const struct gpuarb_work *work, bool queue, bool runs, struct arb_snap *snap)
{
	uint64_t begin = work ? work->begin_ns : 0;
	uint32_t weight = work && work->weight ? work->weight : ARB_WEIGHT_ONE;
	int r = arb_client_ensure(c);

	if (__builtin_expect(r < 0, 0))
		return r;
	c->quota.outstanding = work ? work->outstanding_ns * ARB_TICKS_PER_NS : 0;
	for (int tries = 0; tries < 1000; tries++) {
		struct arb_move *move = arb_client_move(c, begin);
		struct arb_account_snap acct;
		arb_admit_fn *admit;

		move->weight = weight > ARB_WEIGHT_ONE ? ARB_WEIGHT_ONE : weight;
		if (__builtin_expect(arb_above_matters(c), 0)) {
			move->level = arb_above_level(c);
			move->admit = arb_turn_admit;
		}
		move->queue = queue;
		if (queue && c->turn.taken)
			prepare_to_wait(c);
		/* Stored before the bit can be seen: a process that finds the bit set beside an old heartbeat takes
		 * us for hung, and evicts us. */
		arb_ledger_beat(&c->ledger, move->now / ARB_TICKS_PER_NS);
		arb_store64(&arb_client_slot(c)->heartbeat_ns, move->now / ARB_TICKS_PER_NS);
		admit = move->admit;
		if (runs)
			move->admit = NULL;
		r = arb_running_enter(&c->me, move, snap);
		move->admit = admit;
		wake_next(c, move);
		if (__builtin_expect(move->returned, 0))
			note_return(c);
		if (__builtin_expect(r == 0, 1)) {
			struct arb_slot *s = arb_client_slot(c);

			c->running = true;
			/* The turn goes on if the place was kept, and no other client has had it. */
			if (__builtin_expect(!c->turn.kept || move->busy != c->turn.kept_busy, 1)) {
				c->turn.began = move->now;
				arb_store64(&s->enters, arb_load64(&s->enters) + 1);
			}
			c->turn.kept = false;
			if (__builtin_expect(c->rules.policy == ARB_POLICY_MEMORY, 0))
				arb_turn_begin(c, snap);
			arb_store32(&s->gate, 1);
			if (__builtin_expect(c->floor.stopped || c->floor.queued_ns, 0))
				arb_floor_goes_on(c, snap, move->now / ARB_TICKS_PER_NS);
			if (__builtin_expect(move->level, 0))
				arb_above_entered(c);
			mark_active(c);
			if (__builtin_expect(
				    c->wait.throttled_since || c->wait.since || c->wait.below_since, 0))
				note_reason(c, ARB_REASON_NONE, snap);
			c->wait.from = 0;
			return 0;
		}
		if (__builtin_expect(r == -EAGAIN && queue && move->reason == ARB_REASON_ABOVE, 0) &&
			!still_below(c))
			continue;
		if (r == -EAGAIN) {
			c->turn.kept = false;
			/* Where one client runs at a time, it stops for a client above it. */
			if (__builtin_expect(move->level && move->reason == ARB_REASON_QUEUE, 0))
				arb_above_close(&c->seg, snap, c->me.slot, move->level);
			mark_active(c);
			note_reason(c, move->reason, snap);
			return r;
		}
		if (!must_roll(r))
			return r;
		r = arb_client_roll(c, begin, snap, &acct);
		if (r < 0)
			return r;
	}
	return -EBADMSG;
}

static int enter_patiently(struct gpuarb_client *c, const struct gpuarb_work *work, bool runs)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE;
	struct arb_snap snap;
	int r;

	arb_lock_take(&c->guard->lock);
	do
		r = enter(c, work, false, runs, &snap);
	while (__builtin_expect(r == -EBUSY, 0) && arb_client_breathe(c, &patience));
	arb_lock_give(&c->guard->lock);
	return r;
}

int gpuarb_client_enter(struct gpuarb_client *c, const struct gpuarb_work *work)
{
	return enter_patiently(c, work, false);
}

int gpuarb_client_resume(struct gpuarb_client *c)
{
	return enter_patiently(c, NULL, true);
}

int arb_client_enter_now(struct gpuarb_client *c)
{
	struct arb_snap snap;
	int r;

	arb_lock_take(&c->guard->lock);
	c->admission.leasing = true;
	r = enter(c, NULL, false, false, &snap);
	c->admission.leasing = false;
	arb_lock_give(&c->guard->lock);
	return r;
}

static int leave(struct gpuarb_client *c, uint64_t end_ns, uint64_t keep_ns)
{
	struct arb_snap snap;
	struct arb_account_snap acct;
	int r = -EXDEV;

	if (__builtin_expect(!arb_load32(&c->guard->joined), 0))
		return 0;
	/* The client has left before, and does not come back: the place goes to the next client. */
	if (__builtin_expect(c->turn.kept, 0)) {
		struct arb_move *move = arb_client_move(c, 0);

		c->turn.kept = false;
		if (arb_running_unqueue(&c->me, move, &snap) == 0)
			wake_next(c, move);
	}
	/* This comes first, because no thread may launch when the place is no longer ours. */
	arb_store32(&arb_client_slot(c)->gate, 0);
	/* A client that knows when its work ended is billed up to that time. */
	if (!end_ns)
		arb_client_leave_as_hung(c);
	if (__builtin_expect(c->rules.policy == ARB_POLICY_MEMORY, 0))
		arb_turn_end(c);
	for (int tries = 0; tries < 1000 && r < 0; tries++) {
		struct arb_move *move = arb_client_move(c, end_ns);

		move->keep_ns = keep_ns ? arb_turn_keep_ns(c, keep_ns) : 0;
		r = arb_running_leave(&c->me, move, &snap);
		if (__builtin_expect(move->returned, 0))
			note_return(c);
		if (__builtin_expect(r == 0, 1)) {
			c->running = false;
			r = move->kept;
			c->turn.kept = move->kept;
			c->turn.kept_busy = move->busy;
			wake_next(c, move);
			if (__builtin_expect(move->fell, 0))
				arb_above_release(&c->seg);
			break;
		}
		if (!must_roll(r))
			break;
		r = arb_client_roll(c, end_ns, &snap, &acct);
		if (r < 0)
			break;
		r = -EXDEV;
	}
	return r;
}

static int leave_patiently(struct gpuarb_client *c, uint64_t end_ns, uint64_t keep_ns)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE;
	int r;

	arb_lock_take(&c->guard->lock);
	do
		r = leave(c, end_ns, keep_ns);
	while (__builtin_expect(r == -EBUSY, 0) && arb_client_breathe(c, &patience));
	arb_lock_give(&c->guard->lock);
	return r;
}

int gpuarb_client_leave(struct gpuarb_client *c, uint64_t end_ns)
{
	return leave_patiently(c, end_ns, 0);
}

int gpuarb_client_pause(struct gpuarb_client *c, uint64_t end_ns, uint64_t keep_ns)
{
	return leave_patiently(c, end_ns, keep_ns);
}

int arb_client_leave_now(struct gpuarb_client *c)
{
	int r;

	arb_lock_take(&c->guard->lock);
	r = leave(c, 0, 0);
	arb_lock_give(&c->guard->lock);
	return r;
}

/* How long a refused client may sleep before it must look again. */
static uint64_t sleep_time(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	uint64_t end = (snap->win_start + snap->win_ticks) / ARB_TICKS_PER_NS + 1, ns;
	struct arb_order order = arb_turn_order(c, now_ns);
	uint32_t reason;

	if (c->rules.policy == ARB_POLICY_MEMORY) {
		struct arb_residency r = arb_turn_residency(c, snap, now_ns);

		order = arb_residency_order(&r);
	}
	/* A client that is above others wakes those that it kept waiting. But it may die, and a new window brings a
	 * new request. */
	reason = arb_load32(&arb_client_slot(c)->reason);
	if (reason == ARB_REASON_ABOVE) {
		end = end > now_ns ? end - now_ns : 1;
		ns = c->rules.policy == ARB_POLICY_MEMORY ? MS : arb_wait_sleep_ns(0);
		return end < ns ? end : ns;
	}
	if (reason != ARB_REASON_QUOTA) {
		ns = arb_wait_sleep_ns(arb_wait_rank(&c->seg, snap, c->me.slot, &order));
		/* The first waiters are not told when a place is no longer kept. */
		if (ns == arb_wait_sleep_ns(0) && !snap->weight && arb_snap_reserved(snap, now_ns) &&
			snap->reserved_until - now_ns < ns)
			ns = snap->reserved_until - now_ns;
		return ns;
	}
	end = end > now_ns ? end - now_ns : 1;
	/* Others may stop wanting their share before the window ends. */
	if (c->quota.terms.quota_ppm < c->quota.terms.limit_ppm || c->rules.borrow)
		return end < arb_wait_sleep_ns(0) ? end : arb_wait_sleep_ns(0);
	return end < 50 * MS ? end : 50 * MS;
}

static int give_up(struct gpuarb_client *c, int result, uint64_t waited_ns, bool for_lease)
{
	struct arb_snap snap;
	struct arb_move *move = arb_client_move(c, 0);
	uint32_t reason = arb_load32(&arb_client_slot(c)->reason);
	int r = arb_running_unqueue(&c->me, move, &snap);

	wake_next(c, move);
	if (r < 0)
		return r;
	note_reason(c, ARB_REASON_NONE, &snap);
	arb_store32(&arb_client_slot(c)->reason, reason);
	c->wait.left = result == -ETIMEDOUT ? move->now / ARB_TICKS_PER_NS : 0;
	/* A short wait is one of many in a row, and not worth an event; a lease has an event of its own. */
	if (!for_lease && (result != -ETIMEDOUT || waited_ns >= EVENT_NS))
		arb_events_write(&c->seg, ARB_EVENT_WAIT_TIMEOUT, c->me.slot, c->account, waited_ns, reason);
	return result;
}

static int enter_or_queue(
	struct gpuarb_client *c, const struct gpuarb_work *work, struct arb_snap *snap, uint32_t *seen)
{
	int r = arb_client_ensure(c);

	/* WAKE: the word first, then the decision; a wake-up in between changes the word. */
	*seen = r < 0 ? 0 : arb_load32_acquire(&arb_client_slot(c)->wake);
	return r < 0 ? r : enter(c, work, true, false, snap);
}

int arb_client_wait_until(
	struct gpuarb_client *c, const struct gpuarb_work *work, uint64_t until_ns, bool for_lease)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE;
	uint64_t began = 0, now, look_ns, woken_cpu_ns = 0, deaf_ns;
	struct arb_snap snap;
	uint32_t seen, cancels;
	bool gave_up = false;
	int r = 0;

	cancels = arb_load32(&c->wait.cancels);
	for (;;) {
		patience = ARB_CLIENT_PATIENCE;
		patience.until_ns = until_ns;
		arb_client_follow(c);
		arb_lock_take(&c->guard->lock);
		do
			r = enter_or_queue(c, work, &snap, &seen);
		while (__builtin_expect(r == -EBUSY, 0) && arb_client_breathe(c, &patience));
		if (r == -EBUSY && arb_os_now_ns() >= until_ns)
			r = -ETIMEDOUT;
		if (r != -EAGAIN)
			break;
		now = c->move.now / ARB_TICKS_PER_NS;
		arb_client_restore(c, now);
		if (__builtin_expect(arb_ledger_doubts(&c->ledger, &snap, c->move.now), 0)) {
			struct arb_account_snap acct;

			arb_client_roll(c, 0, &snap, &acct);
		}
		if (!began)
			began = now;
		if (now >= until_ns || arb_load32(&c->wait.cancels) != cancels) {
			r = give_up(c, arb_load32(&c->wait.cancels) != cancels ? -ECANCELED : -ETIMEDOUT,
				now - began, for_lease);
			gave_up = true;
			break;
		}
		look_ns = now + sleep_time(c, &snap, now);
		if (look_ns > until_ns)
			look_ns = until_ns;
		deaf_ns = woken_cpu_ns
				  ? arb_wakeups_count(&c->wait.wakeups, arb_os_cpu_ns() - woken_cpu_ns, now)
				  : 0;
		arb_lock_give(&c->guard->lock);
		woken_cpu_ns = arb_os_cpu_ns();
		if (__builtin_expect(deaf_ns != 0, 0))
			arb_os_sleep_ns(deaf_ns < look_ns - now ? deaf_ns : look_ns - now);
		r = arb_os_futex_wait_until(&arb_client_slot(c)->wake, seen, look_ns);
		if (r != 0)
			woken_cpu_ns = 0;
		if (r == -ETIMEDOUT) {
			arb_lock_take(&c->guard->lock);
			r = arb_load32(&c->guard->joined) && (c->wait.since || c->move.level)
				    ? arb_client_patrol(c)
				    : 0;
			if (r == -ESTALE)
				break;
			arb_lock_give(&c->guard->lock);
		}
	}
	/* Whatever failed, no place may be kept for a client that has stopped waiting. */
	if (r < 0 && (c->wait.since || (c->move.level && !gave_up)) && arb_load32(&c->guard->joined))
		give_up(c, r, c->wait.since ? arb_os_now_ns() - c->wait.since : 0, for_lease);
	arb_lock_give(&c->guard->lock);
	return r;
}

int gpuarb_client_wait(struct gpuarb_client *c, const struct gpuarb_work *work, uint64_t max_wait_ns)
{
	uint64_t now = arb_os_now_ns();

	return arb_client_wait_until(
		c, work, max_wait_ns < UINT64_MAX - now ? now + max_wait_ns : UINT64_MAX, false);
}

void gpuarb_client_cancel(struct gpuarb_client *c)
{
	arb_add32_full(&c->wait.cancels, 1);
	/* The lock is needed because gpuarb_client_rejoin may give the client another slot at any moment. */
	arb_lock_take(&c->guard->lock);
	arb_os_wake(&arb_client_slot(c)->wake);
	arb_lock_give(&c->guard->lock);
}

uint32_t gpuarb_client_beside(const struct gpuarb_client *c)
{
	return c->move.others;
}

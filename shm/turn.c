/* Taking turns: enter, leave, wait, and the look after the others while doing so. */
#include <errno.h>

#include "gpuarb/client.h"

#include "account.h"
#include "atomic.h"
#include "client.h"
#include "events.h"
#include "os.h"
#include "policy.h"
#include "queue.h"
#include "reclaim.h"
#include "residency.h"
#include "running.h"
#include "settings.h"
#include "slot.h"
#include "wait.h"

#define MS             1000000ull
#define STALE_CHECK_NS (1000 * MS)
/* Who asks again so soon has not stopped waiting. */
#define AGAIN_NS (20 * MS)
#define EVENT_NS (1000 * MS)
/* How far an account may go beyond its scaled quota at a time, while nobody else is short. */
#define EXTEND_TICKS (2 * MS * ARB_TICKS_PER_NS)

static struct arb_order order_at(const struct gpuarb_client *c, uint64_t now_ns)
{
	return (struct arb_order){now_ns, c->rules.max_wait_ns, c->rules.grace_ns};
}

uint32_t arb_turn_choose(void *argument, const struct arb_snap *snap, uint64_t now_ns)
{
	struct gpuarb_client *c = argument;
	struct arb_order order = order_at(c, now_ns);

	if (c->rules.policy == ARB_POLICY_MEMORY) {
		struct arb_residency r = arb_turn_residency(c, snap, now_ns);

		return arb_residency_choose(&r);
	}
	return arb_wait_choose(&c->seg, snap, &order);
}

static inline void wake_next(struct gpuarb_client *c, const struct arb_move *move)
{
	if (__builtin_expect(move->next != ARB_NONE, 0))
		arb_os_wake(&c->seg.slots[move->next].wake);
}

/* What a roll puts right: another window, a member that is silent, garbage. */
static bool must_roll(int r)
{
	return r == -EXDEV || r == -EOWNERDEAD || r == -EBADMSG;
}

/* Others must add up anew when a limited account comes to life. */
static inline void mark_active(struct gpuarb_client *c)
{
	if (__builtin_expect(c->active_window == c->window, 1))
		return;
	c->active_window = c->window;
	if (arb_account_active(&c->seg, c->account, c->window) && c->terms.limit_ppm < ARB_PPM)
		arb_add32_full(&c->seg.header->epoch, 1);
}

/* May the account use more, as of this snapshot? */
static bool within_quota(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t outstanding)
{
	struct arb_account_snap acct;
	uint64_t usage;
	bool alone = true;

	if (c->terms.limit_ppm >= ARB_PPM)
		return true;
	if (arb_account_read(&c->seg, c->account, &acct) < 0)
		return true; /* repaired at the next roll; until then nobody is punished for it */
	usage = arb_account_usage(&c->seg, snap, &acct, acct.wall, false);
	if (arb_policy_below(usage, outstanding, acct.cap))
		return true;
	if (arb_policy_below(usage, outstanding, acct.hard) &&
		!arb_account_others_short(&c->seg, snap, c->account))
		return arb_account_extend(
			       &c->me, c->account, usage + outstanding + EXTEND_TICKS, false, &acct) == 0;
	if (!c->rules.borrow)
		return false;
	for (uint32_t w = 0; w < snap->words; w++)
		alone &= !((snap->running[w] | snap->waiting[w]) & ~acct.attached[w]);
	return alone &&
	       arb_account_extend(&c->me, c->account, usage + outstanding + EXTEND_TICKS, true, &acct) == 0;
}

/* A place is kept for another; but not from who counts for more. */
static bool kept_from(const struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	struct arb_order order = order_at(c, now_ns);
	uint32_t first = (uint32_t)snap->reserved - 1;

	return arb_snap_reserved(snap, now_ns) && first != c->me.slot && first < c->seg.nslots &&
	       !arb_wait_counts_for_more(&c->seg, c->me.slot, first, &order);
}

uint32_t arb_turn_admit(void *argument, const struct arb_snap *snap, uint64_t now_ns)
{
	struct gpuarb_client *c = argument;
	struct arb_policy_case facts = {.policy = c->rules.policy,
		.quota_sum_ppm = c->quota_sum,
		.running = arb_bits_count(snap->running, snap->words)};

	if (!within_quota(c, snap, c->outstanding))
		return ARB_REASON_QUOTA;
	if (c->rules.policy == ARB_POLICY_MEMORY) {
		struct arb_residency r = arb_turn_residency(c, snap, now_ns);

		return arb_residency_admit(&r, c->me.slot);
	}
	facts.reserved_for_other = kept_from(c, snap, now_ns);
	return arb_policy_admit(&facts) ? ARB_REASON_NONE : ARB_REASON_QUEUE;
}

/* What the account has used in this window. */
static uint64_t used_in_window(struct gpuarb_client *c, const struct arb_snap *snap)
{
	struct arb_account_snap acct;

	if (arb_account_read(&c->seg, c->account, &acct) < 0)
		return 0;
	return arb_account_usage(&c->seg, snap, &acct, acct.wall, false) - acct.start;
}

/* The time spent refused, by reason, whenever the reason changes. */
static void note_reason(struct gpuarb_client *c, uint32_t reason, const struct arb_snap *snap)
{
	struct arb_slot *s = arb_client_slot(c);
	uint64_t now = c->move.now / ARB_TICKS_PER_NS;

	if (c->throttled_since && reason != ARB_REASON_QUOTA) {
		arb_store64(&s->throttled_ns, arb_load64(&s->throttled_ns) + now - c->throttled_since);
		arb_events_write(
			&c->seg, ARB_EVENT_RESUMED, c->me.slot, c->account, now - c->throttled_since, reason);
		c->throttled_since = 0;
	}
	if (c->waiting_since && reason != ARB_REASON_QUEUE && reason != ARB_REASON_MEMORY) {
		arb_store64(&s->waited_ns, arb_load64(&s->waited_ns) + now - c->waiting_since);
		arb_store64(&s->wait_since_ns, 0);
		c->waiting_since = 0;
	}
	if (reason == ARB_REASON_QUOTA && !c->throttled_since) {
		c->throttled_since = now;
		arb_events_write(&c->seg, ARB_EVENT_THROTTLED, c->me.slot, c->account,
			used_in_window(c, snap), (snap->win_start + snap->win_ticks) / ARB_TICKS_PER_NS);
	}
	arb_store32(&s->reason, reason);
}

/* Before it stands in the queue, a client says by what it is to be ordered. */
static void prepare_to_wait(struct gpuarb_client *c)
{
	struct arb_account_snap acct;
	struct arb_snap snap;
	uint64_t used, share = 0;

	if (c->waiting_since)
		return;
	c->waiting_since = c->move.now / ARB_TICKS_PER_NS;
	if (arb_running_read(&c->seg, &snap) == 0 && arb_account_read(&c->seg, c->account, &acct) == 0) {
		used = arb_account_usage(&c->seg, &snap, &acct, acct.wall, false) - acct.start;
		share = arb_policy_grant(acct.quota_ppm, snap.win_ticks);
		share = share ? used / (share / ARB_PPM + 1) : 0;
	}
	arb_store64(&arb_client_slot(c)->rank_ppm, share);
	/* Who gave up only to ask again goes on waiting. */
	if (!c->wait_from || c->waiting_since - c->wait_left >= AGAIN_NS)
		c->wait_from = c->waiting_since;
	arb_store64(&arb_client_slot(c)->wait_since_ns, c->wait_from);
}

/* Said by whoever comes back after others took it for hung. */
static void note_return(struct gpuarb_client *c)
{
	c->move.returned = false;
	arb_events_write(&c->seg, ARB_EVENT_RETURNED, c->me.slot, c->account, 0, 0);
}

/* `runs`: it is on the GPU already, whatever quota and policy say. */
static int enter(
	struct gpuarb_client *c, const struct gpuarb_work *work, bool queue, bool runs, struct arb_snap *snap)
{
	uint64_t begin = work ? work->begin_ns : 0;
	uint32_t weight = work && work->weight ? work->weight : ARB_WEIGHT_ONE;
	int r = arb_client_ensure(c);

	if (__builtin_expect(r < 0, 0))
		return r;
	c->outstanding = work ? work->outstanding_ns * ARB_TICKS_PER_NS : 0;
	for (int tries = 0; tries < 1000; tries++) {
		struct arb_move *move = arb_client_move(c, begin);
		struct arb_account_snap acct;
		arb_admit_fn *admit;

		move->weight = weight > ARB_WEIGHT_ONE ? ARB_WEIGHT_ONE : weight;
		move->queue = queue;
		if (queue && c->turns)
			prepare_to_wait(c);
		/* Before the bit can be seen: who finds it set beside an old heartbeat takes us for hung, and
		 * evicts. */
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
			/* The turn goes on if the place was kept, and nobody has had it. */
			if (__builtin_expect(!c->kept || move->busy != c->kept_busy, 1))
				c->turn_began = move->now;
			c->kept = false;
			if (__builtin_expect(c->rules.policy == ARB_POLICY_MEMORY, 0))
				arb_turn_begin(c, snap);
			arb_store64(&s->enters, arb_load64(&s->enters) + 1);
			arb_store32(&s->gate, 1);
			mark_active(c);
			if (__builtin_expect(c->throttled_since || c->waiting_since, 0))
				note_reason(c, ARB_REASON_NONE, snap);
			c->wait_from = 0;
			return 0;
		}
		if (r == -EAGAIN) {
			c->kept = false;
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
	r = enter(c, NULL, false, false, &snap);
	arb_lock_give(&c->guard->lock);
	return r;
}

static bool turn_over(const struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	uint64_t length = arb_policy_turn(c->rules.policy, c->rules.slice_ticks, snap->win_ticks);
	struct arb_order order = order_at(c, now_ns);
	uint32_t next;

	if (c->rules.policy == ARB_POLICY_MEMORY) {
		struct arb_residency r = arb_turn_residency(c, snap, now_ns);

		return arb_residency_over(&r, c->me.slot);
	}
	if (!c->turns || !snap->any_waiting)
		return false;
	/* Whoever counts for more does not wait for the end of a turn. */
	next = arb_wait_choose(&c->seg, snap, &order);
	return (next != ARB_NONE && arb_load32(&c->seg.slots[next].priority) >
					    arb_load32(&c->seg.slots[c->me.slot].priority)) ||
	       (int64_t)(now_ns * ARB_TICKS_PER_NS - c->turn_began - length) >= 0;
}

/* Not beyond its quota or its turn: what is kept is only what it has. */
static uint64_t may_keep(struct gpuarb_client *c, uint64_t keep_ns)
{
	uint64_t now = arb_os_now_ns(), left;
	struct arb_snap snap;

	if (!keep_ns || !c->turns || c->rules.policy == ARB_POLICY_MEMORY ||
		arb_running_read(&c->seg, &snap) < 0 || !snap.any_waiting)
		return 0;
	arb_running_advance(&snap, now * ARB_TICKS_PER_NS, c->rules.win_ms);
	if (turn_over(c, &snap, now) || !within_quota(c, &snap, 0))
		return 0;
	left = (c->turn_began - now * ARB_TICKS_PER_NS +
		       arb_policy_turn(c->rules.policy, c->rules.slice_ticks, snap.win_ticks)) /
	       ARB_TICKS_PER_NS;
	if (left > ARB_RESERVE_NS_MAX / 2)
		left = ARB_RESERVE_NS_MAX / 2;
	return keep_ns < left ? keep_ns : left;
}

static int leave(struct gpuarb_client *c, uint64_t end_ns, uint64_t keep_ns)
{
	struct arb_snap snap;
	struct arb_account_snap acct;
	int r = -EXDEV;

	if (__builtin_expect(!arb_load32(&c->guard->joined), 0))
		return 0;
	/* It has left before, and does not come back: the place is the next one's. */
	if (__builtin_expect(c->kept, 0)) {
		struct arb_move *move = arb_client_move(c, 0);

		c->kept = false;
		if (arb_running_unqueue(&c->me, move, &snap) == 0)
			wake_next(c, move);
	}
	/* First: nobody here may launch when the place is no longer ours. */
	arb_store32(&arb_client_slot(c)->gate, 0);
	if (__builtin_expect(c->rules.policy == ARB_POLICY_MEMORY, 0))
		arb_turn_end(c);
	for (int tries = 0; tries < 1000 && r < 0; tries++) {
		struct arb_move *move = arb_client_move(c, end_ns);

		move->keep_ns = may_keep(c, keep_ns);
		r = arb_running_leave(&c->me, move, &snap);
		if (__builtin_expect(move->returned, 0))
			note_return(c);
		if (__builtin_expect(r == 0, 1)) {
			c->running = false;
			r = move->kept;
			c->kept = move->kept;
			c->kept_busy = move->busy;
			wake_next(c, move);
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
	struct arb_order order = order_at(c, now_ns);

	if (c->rules.policy == ARB_POLICY_MEMORY) {
		struct arb_residency r = arb_turn_residency(c, snap, now_ns);

		order = arb_residency_order(&r);
	}
	if (arb_load32(&arb_client_slot(c)->reason) != ARB_REASON_QUOTA) {
		ns = arb_wait_sleep_ns(arb_wait_rank(&c->seg, snap, c->me.slot, &order));
		/* Nobody tells the first ones that a place is no longer kept. */
		if (ns == arb_wait_sleep_ns(0) && !snap->weight && arb_snap_reserved(snap, now_ns) &&
			snap->reserved_until - now_ns < ns)
			ns = snap->reserved_until - now_ns;
		return ns;
	}
	end = end > now_ns ? end - now_ns : 1;
	/* Others may stop wanting their share before the window ends. */
	if (c->terms.quota_ppm < c->terms.limit_ppm || c->rules.borrow)
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
	c->wait_left = result == -ETIMEDOUT ? move->now / ARB_TICKS_PER_NS : 0;
	/* A short wait is one of many, one right behind the other; a lease has an event of its own. */
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
	uint64_t began = 0, now, look_ns;
	struct arb_snap snap;
	uint32_t seen, cancels;
	int r = 0;

	cancels = arb_load32(&c->cancels);
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
		if (!began)
			began = now;
		if (now >= until_ns || arb_load32(&c->cancels) != cancels) {
			r = give_up(c, arb_load32(&c->cancels) != cancels ? -ECANCELED : -ETIMEDOUT,
				now - began, for_lease);
			break;
		}
		look_ns = now + sleep_time(c, &snap, now);
		if (look_ns > until_ns)
			look_ns = until_ns;
		arb_lock_give(&c->guard->lock);
		r = arb_os_futex_wait_until(&arb_client_slot(c)->wake, seen, look_ns);
		if (r == -ETIMEDOUT) {
			arb_lock_take(&c->guard->lock);
			r = arb_load32(&c->guard->joined) && c->waiting_since ? arb_client_patrol(c) : 0;
			if (r == -ESTALE)
				break;
			arb_lock_give(&c->guard->lock);
		}
	}
	/* Whatever went wrong, places must not be kept for one who has stopped waiting. */
	if (r < 0 && c->waiting_since && arb_load32(&c->guard->joined))
		give_up(c, r, arb_os_now_ns() - c->waiting_since, for_lease);
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
	arb_add32_full(&c->cancels, 1);
	/* The slot may be another one from one moment to the next: gpuarb_client_rejoin. */
	arb_lock_take(&c->guard->lock);
	arb_os_wake(&arb_client_slot(c)->wake);
	arb_lock_give(&c->guard->lock);
}

struct gpuarb_stay gpuarb_client_stay(const struct gpuarb_client *c)
{
	return (struct gpuarb_stay){c->move.others, c->move.steady};
}

/* What cannot be cleaned up behind now is left to the next one who looks. */
static int tick(struct gpuarb_client *c, bool *untidy)
{
	struct arb_snap snap;
	struct arb_account_snap acct;
	uint64_t now = arb_os_now_ns();
	int r = arb_client_ensure(c);

	if (r < 0)
		return r;
	*untidy = !arb_queue_bits_agree(c);
	arb_store64(&arb_client_slot(c)->heartbeat_ns, now);
	arb_sampler_tick(&c->sampler, &c->seg, &c->rules.usage, c->rules.win_ms, now);
	if (now - c->checked_ns >= STALE_CHECK_NS) {
		c->checked_ns = now;
		arb_client_note_rest(c, false);
		arb_client_find_control(c);
		arb_client_stroll(c);
		if (arb_slot_alive(&c->seg, c->me.slot) == -ESTALE)
			return -ESTALE;
	}
	r = arb_client_roll(c, 0, &snap, &acct);
	if (r < 0)
		return r;
	c->running = c->me.slot / 64 < snap.words && arb_bit_test(snap.running, c->me.slot);
	if (c->running) {
		mark_active(c);
		r = arb_client_neighbour(c, &snap, now);
		if (r < 0 && r != -ESTALE)
			r = 0;
		arb_running_advance(&snap, now * ARB_TICKS_PER_NS, c->rules.win_ms);
		if (r >= 0)
			r = !within_quota(c, &snap, 0) ? -EDQUOT : turn_over(c, &snap, now) ? -EAGAIN : 0;
	}
	/* Whoever evicted us may have died before it closed the gate, or have been held up until we were
	 * back. */
	if (__builtin_expect(arb_load32(&arb_client_slot(c)->gate) != c->running, 0))
		arb_store32(&arb_client_slot(c)->gate, c->running);
	return r;
}

int gpuarb_client_tick(struct gpuarb_client *c)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE;
	bool untidy = false;
	int r;

	arb_client_follow(c);
	arb_lock_take(&c->guard->lock);
	do
		r = tick(c, &untidy);
	while (__builtin_expect(r == -EBUSY, 0) && arb_client_breathe(c, &patience));
	arb_lock_give(&c->guard->lock);
	if (__builtin_expect(untidy, 0))
		arb_queue_tidy(c);
	return r;
}

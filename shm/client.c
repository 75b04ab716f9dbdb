/*
 * A client: the place where the protocols meet. Whatever needs the slot's words runs under the process's
 * lock, which lives in a page that a forked child finds zeroed: unlocked, and not joined.
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/client.h"

#include "account.h"
#include "atomic.h"
#include "client.h"
#include "error.h"
#include "events.h"
#include "os.h"
#include "policy.h"
#include "reclaim.h"
#include "running.h"
#include "settings.h"
#include "slot.h"
#include "text.h"
#include "wait.h"

#define MS 1000000ull
#define DIRECTORY_PATIENCE_NS (2000 * MS)
#define STALE_CHECK_NS (1000 * MS)
/* How far an account may go beyond its scaled quota at a time, while nobody else is short. */
#define EXTEND_TICKS (2 * MS * ARB_TICKS_PER_NS)

static void lock(struct gpuarb_client *c)
{
	for (unsigned i = 0; !arb_cas32_full(&c->guard->lock, 0, 1); i++) {
		if (i < 100)
			arb_pause();
		else if (i < 200)
			sched_yield();
		else
			arb_os_sleep_ns(50000);
	}
}

static inline void unlock(struct gpuarb_client *c)
{
	arb_store32_release(&c->guard->lock, 0);
}

static inline struct arb_slot *own_slot(struct gpuarb_client *c)
{
	return &c->seg.slots[c->me.slot];
}

static uint32_t admit(void *argument, const struct arb_snap *snap, uint64_t now_ns);

static uint32_t choose(void *argument, const struct arb_snap *snap, uint64_t now_ns)
{
	struct gpuarb_client *c = argument;

	return arb_wait_choose(&c->seg, snap, now_ns, c->rules.max_wait_ns);
}

/* Fills in what changes from one transition to the next; the rest is set where the settings are read. */
static inline struct arb_move *new_move(struct gpuarb_client *c, uint64_t at_ns)
{
	uint64_t now = arb_os_now_ns();

	/* A client may date a transition back to what it measured, never ahead. */
	if (!at_ns || at_ns > now)
		at_ns = now;
	c->move.now = now * ARB_TICKS_PER_NS;
	c->move.at = at_ns * ARB_TICKS_PER_NS;
	c->move.window = c->window;
	return &c->move;
}

static inline void wake_next(struct gpuarb_client *c, const struct arb_move *move)
{
	if (__builtin_expect(move->next != ARB_NONE, 0))
		arb_os_wake(&c->seg.slots[move->next].wake);
}

/* Which limits are in force: an administrator's, else what a member of the account asked for. */
static void read_limits(struct gpuarb_client *c)
{
	struct arb_account *acct = &c->seg.accounts[c->account];
	uint32_t asked = arb_load32(&acct->asked_ppm), old = c->terms.limit_ppm;
	struct arb_config_limit set = { .set = 0 };

	if (c->have_control)
		arb_settings_limit(c->control.control, c->name, &set);
	c->terms.limit_ppm = asked >= ARB_PPM / 100 && asked <= ARB_PPM ? asked : ARB_PPM;
	if (set.set & ARB_LIMIT_CORE)
		c->terms.limit_ppm = (uint32_t)set.core_pct * (ARB_PPM / 100);
	c->mem_limit = set.set & ARB_LIMIT_MEM ? (uint64_t)set.mem_bytes : arb_load64(&acct->asked_mem);
	arb_store32(&own_slot(c)->priority, set.set & ARB_LIMIT_PRIORITY ? (uint32_t)set.priority : c->priority);
	arb_store32(&acct->limit_ppm, c->terms.limit_ppm);
	arb_store64(&acct->mem_limit, c->mem_limit);
	if (old && old != c->terms.limit_ppm) {
		arb_events_write(&c->seg, ARB_EVENT_LIMIT_CHANGED, c->me.slot, c->account, old, c->terms.limit_ppm);
		arb_add32_full(&c->seg.header->epoch, 1);
	}
}

/*
 * What the members of an account go by must be the same for all. Seen by the state, not by the epoch alone:
 * whoever changed it may have died before it came to that.
 */
static inline void follow_account(struct gpuarb_client *c)
{
	const struct arb_account *acct = &c->seg.accounts[c->account];

	if (__builtin_expect(arb_load32(&acct->limit_ppm) != c->terms.limit_ppm ||
				     arb_load64(&acct->mem_limit) != c->mem_limit,
		    0))
		read_limits(c);
}

static void read_settings(struct gpuarb_client *c)
{
	if (c->have_control) {
		int64_t value[ARB_KEY_COUNT];

		if (arb_settings_read(c->control.control, value, &c->control_epoch) == 0)
			arb_settings_rules(value, &c->rules);
	}
	c->terms.carryover_pct = c->rules.carryover_pct;
	c->terms.wall = c->rules.wall;
	c->move.win_ms = c->rules.win_ms;
	c->move.reserve_ns = c->rules.reserve_ns;
	c->move.argument = c;
}

/*
 * Brings the window and the account's caps up to date. Every transition that finds itself in another
 * window than c->window comes here first, so that an account has been rolled before any of its members
 * changes its usage in the new window.
 */
static int roll(struct gpuarb_client *c, uint64_t at_ns, struct arb_snap *snap, struct arb_account_snap *acct)
{
	for (int tries = 0; tries < 1000; tries++) {
		struct arb_move *move = new_move(c, at_ns);
		uint64_t others;
		int r = arb_running_roll(&c->me, move, snap);

		if (r == -EBADMSG) {
			arb_events_write(&c->seg, ARB_EVENT_CORRUPT, c->me.slot, c->account, 1, 0);
			r = arb_running_repair(&c->me, move->now, c->rules.win_ms);
			if (r < 0)
				return r;
			continue;
		}
		if (r < 0)
			return r;
		c->epoch = arb_load32_acquire(&c->seg.header->epoch);
		follow_account(c);
		others = arb_account_sum(&c->seg, snap->win_number, c->account);
		c->quota_sum = others + (c->terms.limit_ppm < ARB_PPM ? c->terms.limit_ppm : 0);
		c->terms.quota_ppm = arb_policy_scale(c->terms.limit_ppm, c->quota_sum);
		c->turns = arb_policy_takes_turns(c->rules.policy, c->quota_sum);
		c->move.choose = c->turns ? choose : NULL;
		c->move.more = c->rules.policy == ARB_POLICY_MEMORY;
		/* Nobody to ask where there is no limit and there are no turns. */
		c->move.admit = c->turns || c->terms.limit_ppm < ARB_PPM ? admit : NULL;
		r = arb_account_roll(&c->me, c->account, snap, &c->terms, move->now, acct);
		if (r == -EBADMSG) {
			struct arb_lock directory;

			arb_events_write(&c->seg, ARB_EVENT_CORRUPT, c->me.slot, c->account, 2, 0);
			r = arb_slot_lock_wait(
				&c->seg, ARB_BYTE_DIRECTORY(c->seg.nslots), DIRECTORY_PATIENCE_NS, &directory);
			if (r < 0)
				return r;
			r = arb_account_repair(&c->seg, c->account);
			arb_slot_unlock(&directory);
			if (r < 0)
				return r;
			continue;
		}
		if (r < 0)
			return r;
		if (acct->window == snap->win_number) {
			c->window = snap->win_number;
			return 0;
		}
		/* Another member is ahead of us: look again. */
	}
	return -EBADMSG;
}

static int attach(struct gpuarb_client *c)
{
	struct arb_lock directory;
	struct arb_snap snap;
	int r = arb_slot_lock_wait(&c->seg, ARB_BYTE_DIRECTORY(c->seg.nslots), DIRECTORY_PATIENCE_NS, &directory);

	if (r < 0)
		return r == -EAGAIN ? -EBUSY : r;
	if (arb_running_read(&c->seg, &snap) < 0)
		snap.win_number = 0;
	c->account = arb_account_find(&c->seg, c->name, snap.win_number, c->rules.carryover_pct);
	if (c->account == ARB_NONE) {
		r = -ENOSPC;
	} else {
		/* Said before it is done, so that whoever cleans up knows where to look. */
		arb_store32(&own_slot(c)->account, c->account);
		arb_fence_release();
		r = arb_account_attach(&c->seg, c->account, c->me.slot);
		if (r == -EBADMSG && arb_account_repair(&c->seg, c->account) >= 0)
			r = arb_account_attach(&c->seg, c->account, c->me.slot);
	}
	arb_slot_unlock(&directory);
	return r;
}

static void own_name(struct gpuarb_client *c, const struct arb_os_identity *id)
{
	snprintf(c->name, sizeof(c->name), "%s.%u.%llu.%llu", id->command[0] ? id->command : "process", id->pid,
		(unsigned long long)id->pid_ns, (unsigned long long)id->start_time);
	for (char *p = c->name; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			*p = '_';
}

static void ask_limits(struct gpuarb_client *c)
{
	struct arb_account *acct = &c->seg.accounts[c->account];

	if (c->core_pct)
		arb_store32(&acct->asked_ppm, c->core_pct * (ARB_PPM / 100));
	if (c->mem_bytes)
		arb_store64(&acct->asked_mem, c->mem_bytes);
}

static int join(struct gpuarb_client *c)
{
	struct arb_os_identity id;
	struct arb_reclaimed left;
	struct arb_snap snap;
	struct arb_account_snap acct;
	int r;

	/* In a forked child the parent's lock page is not mapped, and its address may be anybody's. */
	c->lock_page = NULL;
	r = arb_slot_claim(&c->seg, &c->me.slot, &c->lock_page);
	if (r < 0)
		return r;
	c->me.seg = &c->seg;
	read_settings(c);
	if (arb_load32_acquire(&own_slot(c)->state) != ARB_SLOT_FREE) {
		r = arb_reclaim_clean(&c->seg, c->me.slot, &c->rules, &left);
		if (r == 0)
			arb_add64_full(&c->seg.header->reclaimed, 1);
	}
	if (r == 0) {
		arb_os_identify(&id);
		if (c->own_account)
			own_name(c, &id);
		arb_slot_fill(&c->seg, c->me.slot, &id, c->priority);
		r = attach(c);
	}
	if (r == 0) {
		c->terms.limit_ppm = 0;
		ask_limits(c);
		read_limits(c);
		r = roll(c, 0, &snap, &acct);
	}
	if (r < 0) {
		arb_reclaim_clean(&c->seg, c->me.slot, &c->rules, &left);
		arb_slot_release(&c->seg, c->me.slot, c->lock_page);
		c->lock_page = NULL;
		return r;
	}
	arb_slot_show(&c->seg, c->me.slot);
	arb_events_write(&c->seg, ARB_EVENT_JOINED, c->me.slot, c->account, id.pid, id.uid);
	c->running = false;
	c->throttled_since = c->waiting_since = 0;
	arb_store32_release(&c->guard->joined, 1);
	return 0;
}

static int refresh(struct gpuarb_client *c)
{
	struct arb_snap snap;
	struct arb_account_snap acct;

	read_settings(c);
	read_limits(c);
	return roll(c, 0, &snap, &acct);
}

/* Joined, and up to date with what an administrator or other accounts changed? */
static inline int ensure(struct gpuarb_client *c)
{
	if (__builtin_expect(!arb_load32(&c->guard->joined), 0))
		return join(c);
	if (__builtin_expect(arb_load32(&c->seg.header->epoch) != c->epoch ||
				     (c->have_control && arb_settings_epoch(c->control.control) != c->control_epoch),
		    0))
		return refresh(c);
	return 0;
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
	if (arb_policy_below(usage, outstanding, acct.hard) && !arb_account_others_short(&c->seg, snap, c->account))
		return arb_account_extend(&c->me, c->account, usage + outstanding + EXTEND_TICKS, false, &acct) == 0;
	if (!c->rules.borrow)
		return false;
	for (uint32_t w = 0; w < snap->words; w++)
		alone &= !((snap->running[w] | snap->waiting[w]) & ~acct.attached[w]);
	return alone && arb_account_extend(&c->me, c->account, usage + outstanding + EXTEND_TICKS, true, &acct) == 0;
}

static uint64_t memory_of_running(struct gpuarb_client *c, const struct arb_snap *snap)
{
	uint64_t sum = 0;

	for (uint32_t i = arb_bits_next(snap->running, snap->words, 0); i != ARB_NONE;
		i = arb_bits_next(snap->running, snap->words, i + 1))
		if (__builtin_add_overflow(sum, arb_load64(&c->seg.slots[i].mem_now), &sum))
			return UINT64_MAX;
	return sum;
}

static uint32_t admit(void *argument, const struct arb_snap *snap, uint64_t now_ns)
{
	struct gpuarb_client *c = argument;
	struct arb_policy_case facts = { .policy = c->rules.policy, .quota_sum_ppm = c->quota_sum,
		.running = arb_bits_count(snap->running, snap->words), .mem_total = c->rules.mem_total,
		.mem_per_client = c->rules.mem_per_client, .alone_may_exceed = c->rules.alone_may_exceed };

	if (!within_quota(c, snap, c->outstanding))
		return ARB_REASON_QUOTA;
	facts.reserved_for_other =
		snap->reserved && (uint32_t)snap->reserved != c->me.slot + 1 && now_ns < snap->reserved_until;
	if (c->rules.policy == ARB_POLICY_MEMORY) {
		facts.mem_running = memory_of_running(c, snap);
		facts.mem_mine = arb_load64(&own_slot(c)->mem_now);
	}
	switch (arb_policy_admit(&facts)) {
	case ARB_RUN:
		return ARB_REASON_NONE;
	case ARB_WAIT_MEMORY:
		return ARB_REASON_MEMORY;
	case ARB_WAIT_QUEUE:
		break;
	}
	return ARB_REASON_QUEUE;
}

/* The time spent refused, by reason, whenever the reason changes. */
static void note_reason(struct gpuarb_client *c, uint32_t reason, const struct arb_snap *snap)
{
	struct arb_slot *s = own_slot(c);
	uint64_t now = arb_os_now_ns();

	if (c->throttled_since && reason != ARB_REASON_QUOTA) {
		arb_store64(&s->throttled_ns, arb_load64(&s->throttled_ns) + now - c->throttled_since);
		arb_events_write(&c->seg, ARB_EVENT_RESUMED, c->me.slot, c->account, now - c->throttled_since, reason);
		c->throttled_since = 0;
	}
	if (c->waiting_since && reason != ARB_REASON_QUEUE && reason != ARB_REASON_MEMORY) {
		arb_store64(&s->waited_ns, arb_load64(&s->waited_ns) + now - c->waiting_since);
		arb_store64(&s->wait_since_ns, 0);
		c->waiting_since = 0;
	}
	if (reason == ARB_REASON_QUOTA && !c->throttled_since) {
		c->throttled_since = now;
		arb_events_write(&c->seg, ARB_EVENT_THROTTLED, c->me.slot, c->account, snap->busy - snap->win_busy,
			(snap->win_start + snap->win_ticks) / ARB_TICKS_PER_NS);
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
	c->waiting_since = arb_os_now_ns();
	if (arb_running_read(&c->seg, &snap) == 0 && arb_account_read(&c->seg, c->account, &acct) == 0) {
		used = arb_account_usage(&c->seg, &snap, &acct, acct.wall, false) - acct.start;
		share = arb_policy_grant(acct.quota_ppm, snap.win_ticks);
		share = share ? used / (share / ARB_PPM + 1) : 0;
	}
	arb_store64(&own_slot(c)->rank_ppm, share);
	arb_store64(&own_slot(c)->wait_since_ns, c->waiting_since);
}

static int enter(struct gpuarb_client *c, const struct gpuarb_work *work, bool queue, struct arb_snap *snap)
{
	uint64_t begin = work ? work->begin_ns : 0;
	uint32_t weight = work && work->weight ? work->weight : ARB_WEIGHT_ONE;
	int r = ensure(c);

	if (__builtin_expect(r < 0, 0))
		return r;
	c->outstanding = work ? work->outstanding_ns * ARB_TICKS_PER_NS : 0;
	for (int tries = 0; tries < 1000; tries++) {
		struct arb_move *move = new_move(c, begin);
		struct arb_account_snap acct;

		move->weight = weight > ARB_WEIGHT_ONE ? ARB_WEIGHT_ONE : weight;
		move->queue = queue;
		if (queue && c->turns)
			prepare_to_wait(c);
		/* Before the bit can be seen: who finds it set beside an old heartbeat takes us for hung, and evicts. */
		arb_store64(&own_slot(c)->heartbeat_ns, move->now / ARB_TICKS_PER_NS);
		r = arb_running_enter(&c->me, move, snap);
		wake_next(c, move);
		if (__builtin_expect(r == 0, 1)) {
			struct arb_slot *s = own_slot(c);

			c->running = true;
			arb_store64(&s->entered_ns, move->at / ARB_TICKS_PER_NS);
			arb_store64(&s->enters, arb_load64(&s->enters) + 1);
			arb_store32(&s->gate, 1);
			mark_active(c);
			if (__builtin_expect(c->throttled_since || c->waiting_since, 0))
				note_reason(c, ARB_REASON_NONE, snap);
			return 0;
		}
		if (r == -EAGAIN) {
			mark_active(c);
			note_reason(c, move->reason, snap);
			return r;
		}
		if (r != -EXDEV && r != -EBADMSG)
			return r;
		r = roll(c, begin, snap, &acct);
		if (r < 0)
			return r;
	}
	return -EBADMSG;
}

int gpuarb_client_enter(struct gpuarb_client *c, const struct gpuarb_work *work)
{
	struct arb_snap snap;
	int r;

	lock(c);
	r = enter(c, work, false, &snap);
	unlock(c);
	return r;
}

int gpuarb_client_leave(struct gpuarb_client *c, uint64_t end_ns)
{
	struct arb_snap snap;
	struct arb_account_snap acct;
	int r = -EXDEV;

	lock(c);
	if (__builtin_expect(!arb_load32(&c->guard->joined), 0)) {
		unlock(c);
		return 0;
	}
	for (int tries = 0; tries < 1000 && r < 0; tries++) {
		struct arb_move *move = new_move(c, end_ns);

		r = arb_running_leave(&c->me, move, &snap);
		if (__builtin_expect(r == 0, 1)) {
			c->running = false;
			arb_store32(&own_slot(c)->gate, 0);
			wake_next(c, move);
			break;
		}
		if (r != -EXDEV && r != -EBADMSG)
			break;
		r = roll(c, end_ns, &snap, &acct);
		if (r < 0)
			break;
		r = -EXDEV;
	}
	unlock(c);
	return r;
}

/* Somebody should have handed over by now: are they still there? */
static int patrol(struct gpuarb_client *c)
{
	struct arb_snap snap;
	uint32_t looked = 0;
	int r = arb_running_read(&c->seg, &snap), worst = 0;

	if (r < 0)
		return r;
	if (snap.reserved)
		worst = arb_reclaim_look(&c->seg, c->me.slot, (uint32_t)snap.reserved - 1, false, &c->rules);
	/* From our own place on, a few at a time: others look as well. */
	for (uint32_t i = arb_bits_next(snap.running, snap.words, c->me.slot + 1); looked < 4 && worst >= 0; looked++) {
		if (i == ARB_NONE)
			i = arb_bits_next(snap.running, snap.words, 0);
		if (i == ARB_NONE || i == c->me.slot)
			break;
		worst = arb_reclaim_look(&c->seg, c->me.slot, i, true, &c->rules);
		i = arb_bits_next(snap.running, snap.words, i + 1);
	}
	if (worst >= 0) {
		uint32_t first = arb_wait_choose(&c->seg, &snap, arb_os_now_ns(), c->rules.max_wait_ns);

		if (first != ARB_NONE)
			worst = arb_reclaim_look(&c->seg, c->me.slot, first, false, &c->rules);
	}
	return worst < 0 ? worst : 0;
}

/* How long a refused client may sleep before it must look again. */
static uint64_t sleep_time(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	uint64_t end = (snap->win_start + snap->win_ticks) / ARB_TICKS_PER_NS + 1;

	if (arb_load32(&own_slot(c)->reason) != ARB_REASON_QUOTA)
		return arb_wait_sleep_ns(
			arb_wait_rank(&c->seg, snap, c->me.slot, now_ns, c->rules.max_wait_ns));
	end = end > now_ns ? end - now_ns : 1;
	/* Others may stop wanting their share before the window ends. */
	if (c->terms.quota_ppm < c->terms.limit_ppm || c->rules.borrow)
		return end < 2 * MS ? end : 2 * MS;
	return end < 50 * MS ? end : 50 * MS;
}

static int give_up(struct gpuarb_client *c, int result, uint64_t waited_ns)
{
	struct arb_snap snap;
	struct arb_move *move = new_move(c, 0);
	uint32_t reason = arb_load32(&own_slot(c)->reason);
	int r = arb_running_unqueue(&c->me, move, &snap);

	wake_next(c, move);
	if (r < 0)
		return r;
	note_reason(c, ARB_REASON_NONE, &snap);
	arb_store32(&own_slot(c)->reason, reason);
	arb_events_write(&c->seg, ARB_EVENT_WAIT_TIMEOUT, c->me.slot, c->account, waited_ns, reason);
	return result;
}

int gpuarb_client_wait(struct gpuarb_client *c, const struct gpuarb_work *work, uint64_t max_wait_ns)
{
	uint64_t began = arb_os_now_ns(), now, sleep;
	struct arb_snap snap;
	uint32_t seen, cancels;
	int r = 0;

	cancels = arb_load32(&c->cancels);
	for (;;) {
		lock(c);
		r = ensure(c);
		if (r < 0)
			break;
		/* WAKE: the word first, then the decision; a wake-up in between changes the word. */
		seen = arb_load32_acquire(&own_slot(c)->wake);
		r = enter(c, work, true, &snap);
		if (r != -EAGAIN)
			break;
		now = arb_os_now_ns();
		if (now - began >= max_wait_ns || arb_load32(&c->cancels) != cancels) {
			r = give_up(c, arb_load32(&c->cancels) != cancels ? -ECANCELED : -ETIMEDOUT, now - began);
			break;
		}
		sleep = sleep_time(c, &snap, now);
		if (sleep > max_wait_ns - (now - began))
			sleep = max_wait_ns - (now - began);
		unlock(c);
		r = arb_os_futex_wait(&own_slot(c)->wake, seen, sleep);
		if (r == -ETIMEDOUT) {
			lock(c);
			r = arb_load32(&c->guard->joined) && c->waiting_since ? patrol(c) : 0;
			if (r == -ESTALE)
				break;
			unlock(c);
		}
	}
	unlock(c);
	return r;
}

void gpuarb_client_cancel(struct gpuarb_client *c)
{
	arb_add32_full(&c->cancels, 1);
	arb_os_wake(&own_slot(c)->wake);
}

int gpuarb_client_tick(struct gpuarb_client *c)
{
	struct arb_snap snap;
	struct arb_account_snap acct;
	uint64_t now = arb_os_now_ns();
	int r;

	lock(c);
	r = ensure(c);
	if (r < 0)
		goto out;
	arb_store64(&own_slot(c)->heartbeat_ns, now);
	if (now - c->checked_ns >= STALE_CHECK_NS) {
		c->checked_ns = now;
		r = arb_slot_alive(&c->seg, c->me.slot) == -ESTALE ? -ESTALE : 0;
		if (r < 0)
			goto out;
	}
	r = roll(c, 0, &snap, &acct);
	if (r < 0)
		goto out;
	c->running = c->me.slot / 64 < snap.words && arb_bit_test(snap.running, c->me.slot);
	if (c->running) {
		uint32_t next = arb_bits_next(snap.running, snap.words, c->me.slot + 1);

		mark_active(c);
		if (next == ARB_NONE)
			next = arb_bits_next(snap.running, snap.words, 0);
		r = arb_reclaim_look(&c->seg, c->me.slot, next, true, &c->rules);
		if (r < 0 && r != -ESTALE)
			r = 0;
		arb_running_advance(&snap, now * ARB_TICKS_PER_NS, c->rules.win_ms);
		if (r >= 0)
			r = within_quota(c, &snap, 0) ? 0 : -EDQUOT;
	}
	/* Whoever evicted us may have died before it closed the gate, or have been held up until we were back. */
	if (__builtin_expect(arb_load32(&own_slot(c)->gate) != c->running, 0))
		arb_store32(&own_slot(c)->gate, c->running);
out:
	unlock(c);
	return r;
}

/* What the dead held stays counted until somebody cares: that is whoever is refused because of it. */
static bool reclaim_members(struct gpuarb_client *c)
{
	struct arb_account_snap acct;
	bool any = false;

	if (arb_account_read(&c->seg, c->account, &acct) < 0)
		return false;
	for (uint32_t i = arb_bits_next(acct.attached, c->seg.nwords, 0); i != ARB_NONE;
		i = arb_bits_next(acct.attached, c->seg.nwords, i + 1))
		any |= arb_reclaim_look(&c->seg, c->me.slot, i, false, &c->rules) > 0;
	return any;
}

int gpuarb_client_mem_reserve(struct gpuarb_client *c, uint64_t bytes)
{
	int r;

	if (bytes > INT64_MAX)
		return -ENOMEM;
	lock(c);
	r = ensure(c);
	if (r == 0)
		follow_account(c);
	if (r == 0)
		r = arb_account_mem(&c->me, c->account, (int64_t)bytes, c->mem_limit);
	if (r == -ENOMEM && reclaim_members(c))
		r = arb_account_mem(&c->me, c->account, (int64_t)bytes, c->mem_limit);
	if (r == -ENOMEM)
		arb_events_write(&c->seg, ARB_EVENT_MEM_REFUSED, c->me.slot, c->account, bytes, c->mem_limit);
	unlock(c);
	return r;
}

int gpuarb_client_mem_release(struct gpuarb_client *c, uint64_t bytes)
{
	int r = 0;

	if (bytes > INT64_MAX)
		return -EINVAL;
	lock(c);
	if (arb_load32(&c->guard->joined))
		r = arb_account_mem(&c->me, c->account, -(int64_t)bytes, 0);
	unlock(c);
	return r;
}

int gpuarb_client_set_limits(struct gpuarb_client *c, unsigned core_pct, uint64_t mem_bytes, unsigned priority)
{
	int r;

	if (core_pct > 100 || priority > 100)
		return -EINVAL;
	lock(c);
	if (core_pct)
		c->core_pct = core_pct;
	if (mem_bytes)
		c->mem_bytes = mem_bytes;
	if (priority)
		c->priority = priority;
	r = ensure(c);
	if (r == 0) {
		ask_limits(c);
		r = refresh(c);
	}
	unlock(c);
	return r;
}

int gpuarb_client_status(struct gpuarb_client *c, struct gpuarb_client_status *status)
{
	struct arb_snap snap;
	struct arb_account_snap acct;
	uint64_t usage, now;
	int r;

	memset(status, 0, sizeof(*status));
	lock(c);
	r = ensure(c);
	if (r == 0)
		r = roll(c, 0, &snap, &acct);
	if (r == 0) {
		struct arb_slot *s = own_slot(c);

		now = arb_os_now_ns();
		arb_running_advance(&snap, now * ARB_TICKS_PER_NS, c->rules.win_ms);
		usage = arb_account_usage(&c->seg, &snap, &acct, acct.wall, false);
		status->slot = c->me.slot;
		status->account = c->account;
		status->running = c->me.slot / 64 < snap.words && arb_bit_test(snap.running, c->me.slot);
		status->reason = status->running ? ARB_REASON_NONE : arb_load32(&s->reason);
		status->core_pct = c->terms.limit_ppm / (ARB_PPM / 100);
		status->quota_ppm = acct.quota_ppm;
		status->window_ns = snap.win_ticks / ARB_TICKS_PER_NS;
		status->window_end_ns = (snap.win_start + snap.win_ticks) / ARB_TICKS_PER_NS;
		status->used_ns = (usage - acct.start) / ARB_TICKS_PER_NS;
		if (arb_policy_before(usage, acct.cap))
			status->left_ns = (acct.cap - usage) / ARB_TICKS_PER_NS;
		else
			status->debt_ns = (usage - acct.cap) / ARB_TICKS_PER_NS;
		status->total_ns = usage / ARB_TICKS_PER_NS;
		status->throttled_ns = arb_load64(&s->throttled_ns) + (c->throttled_since ? now - c->throttled_since : 0);
		status->waited_ns = arb_load64(&s->waited_ns) + (c->waiting_since ? now - c->waiting_since : 0);
		status->mem_used = acct.mem_used;
		status->mem_limit = c->mem_limit;
	}
	unlock(c);
	return r;
}

/* Directory, settings and both segments. Limits that the caller names stand above the environment. */
static int open_segments(
	struct gpuarb_client *c, const struct gpuarb_options *o, const struct arb_config *config, struct gpuarb_error *err)
{
	const char *dir = o->dir;
	struct arb_create create = { (uint32_t)config->value[ARB_KEY_SLOTS],
		(mode_t)config->value[ARB_KEY_SEGMENT_MODE], (gid_t)config->value[ARB_KEY_GROUP] };
	struct arb_control_copy *first;
	struct gpuarb_error control_error;
	int r;

	if (!dir && !o->ignore_env)
		dir = secure_getenv("GPUARB_DIR");
	if (!dir || !*dir)
		dir = ARB_DIR_DEFAULT;
	r = arb_segment_open(&c->seg, dir, o->gpu, true, &create, err);
	if (r < 0)
		return r;
	first = aligned_alloc(_Alignof(struct arb_control_copy), sizeof(*first));
	if (!first)
		return arb_fail(err, -ENOMEM, "out of memory");
	arb_settings_first(first, config);
	create.mode = (mode_t)config->value[ARB_KEY_CONTROL_MODE];
	r = arb_control_map_open(&c->control, dir, o->gpu, false, &create, first, &control_error);
	free(first);
	/* Where there is none and we may not make one, our own settings do; garbage there is an error. */
	c->have_control = r == 0;
	if (r < 0 && r != -EACCES && r != -EROFS && r != -ENOENT && r != -EPERM) {
		if (err)
			*err = control_error;
		return r;
	}
	return 0;
}

static const char *why_not_joined(int r)
{
	switch (r) {
	case -EUSERS:
		return "all of its slots are taken";
	case -ENOSPC:
		return "all of its accounts are taken";
	case -EBUSY:
		return "its directory is held by a client that does not go on (stopped?)";
	case -ESTALE:
		return "the file was removed or replaced just now";
	}
	return strerror(-r);
}

int gpuarb_client_open(
	const struct gpuarb_options *options, struct gpuarb_client **client, struct gpuarb_error *err)
{
	struct gpuarb_options o = options ? *options : (struct gpuarb_options){ 0 };
	struct arb_config config;
	struct gpuarb_client *c;
	const char *account = o.account;
	int r;

	*client = NULL;
	r = arb_config_load(&config, o.conf, o.ignore_env, err);
	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (!c) {
		arb_config_free(&config);
		return arb_fail(err, -ENOMEM, "out of memory");
	}
	if (!account && !o.ignore_env)
		account = secure_getenv("GPUARB_ACCOUNT");
	c->own_account = !account || !*account;
	if (!c->own_account && !arb_config_name_ok(account))
		r = arb_fail(err, -EINVAL, "'%.70s' cannot be an account's name: 1 to %d characters, no spaces", account,
			ARB_NAME_BYTES - 1);
	else if (o.core_pct > 100 || o.priority > 100)
		r = arb_fail(err, -EINVAL, "core %u, priority %u: allowed are 1 to 100", o.core_pct, o.priority);
	else if (arb_os_clock_init() < 0)
		r = arb_fail(err, -ENOTSUP, "this time namespace's clock cannot be compared with that of other clients");
	if (r == 0 && !c->own_account)
		snprintf(c->name, sizeof(c->name), "%s", account);
	c->core_pct = o.core_pct ? o.core_pct : config.given[ARB_KEY_CORE] ? (unsigned)config.value[ARB_KEY_CORE] : 0;
	c->mem_bytes = o.mem_bytes ? o.mem_bytes : (uint64_t)config.value[ARB_KEY_MEM];
	c->priority = o.priority ? o.priority : (unsigned)config.value[ARB_KEY_PRIORITY];
	arb_settings_rules(config.value, &c->rules);
	if (r == 0)
		r = open_segments(c, &o, &config, err);
	arb_config_free(&config);
	if (r == 0 && !(c->guard = arb_os_fork_page(&r)))
		arb_fail(err, r, "cannot map a page: %s", strerror(-r));
	if (r == 0) {
		lock(c);
		r = join(c);
		unlock(c);
		if (r < 0)
			arb_fail(err, r, "cannot join %s: %s", c->seg.file.path, why_not_joined(r));
	}
	if (r < 0) {
		gpuarb_client_close(c);
		return r;
	}
	*client = c;
	return 0;
}

void gpuarb_client_close(struct gpuarb_client *c)
{
	struct arb_reclaimed what;

	if (!c)
		return;
	if (c->guard) {
		lock(c);
		if (arb_load32(&c->guard->joined)) {
			uint32_t account = c->account;

			/* The same cleaning as after a death, so that there is one way out. */
			if (arb_reclaim_clean(&c->seg, c->me.slot, &c->rules, &what) == 0)
				arb_events_write(&c->seg, ARB_EVENT_LEFT, c->me.slot, account, what.used_ticks,
					what.freed_bytes);
			arb_slot_release(&c->seg, c->me.slot, c->lock_page);
		}
		arb_os_unmap(c->guard, 0);
	}
	arb_control_map_close(&c->control);
	arb_segment_close(&c->seg);
	free(c);
}

/*
 * A client: the place where the protocols meet. Whatever needs the slot's words runs under the process's
 * lock, which lives in a page that a forked child finds zeroed: unlocked, and not joined.
 */
#include <errno.h>

#include "gpuarb/client.h"

#include "shm/client/above.h"
#include "shm/client/floor.h"
#include "shm/segment/account.h"
#include "shm/segment/alternation.h"
#include "shm/admission/admission.h"
#include "shm/base/atomic.h"
#include "shm/segment/check.h"
#include "shm/client/client_state.h"
#include "shm/segment/events.h"
#include "shm/base/fault.h"
#include "shm/base/os.h"
#include "shm/policy/policy.h"
#include "shm/client/owner.h"
#include "shm/client/quota.h"
#include "shm/client/reclaim.h"
#include "shm/segment/running.h"
#include "shm/segment/settings.h"
#include "shm/segment/slot.h"
#include "shm/base/text.h"
#include "shm/segment/told.h"

bool arb_client_breathe(struct gpuarb_client *c, struct arb_patience *patience)
{
	bool more = !c->seg.stranded;

	arb_lock_give(&c->guard->lock);
	more = more && arb_patience_pause(patience);
	arb_lock_take(&c->guard->lock);
	return more;
}

/* Returns whether the account has other members. For a client that is just joining, a limit is a change only if there
 * are some. */
static bool has_members(const struct gpuarb_client *c)
{
	struct arb_account_snap acct;

	return arb_account_read(&c->seg, c->account, &acct) == 0 &&
	       arb_bits_count(acct.attached, c->seg.nwords) > 1;
}

static void show_share(struct gpuarb_client *c, const struct arb_asked *force)
{
	struct arb_account *acct = &c->seg.accounts[c->account];

	if (force->request_pct || force->weight != ARB_SHARE_WEIGHT)
		arb_client_ranks(c);
	c->quota.request_ppm = force->request_pct * (ARB_PPM / 100);
	c->quota.weight = force->weight;
	if (!arb_above_matters(c) || (arb_load32(&acct->request_ppm) == c->quota.request_ppm &&
					     arb_load32(&acct->weight) == force->weight))
		return;
	arb_store32(&acct->request_ppm, c->quota.request_ppm);
	arb_store32(&acct->weight, force->weight);
	arb_add32_full(&c->seg.header->epoch, 1);
}

/* Reads the limits in force: an administrator's, otherwise those that the members of the account ask for. */
static void read_limits(struct gpuarb_client *c)
{
	struct arb_account *acct = &c->seg.accounts[c->account];
	uint32_t old = c->quota.terms.limit_ppm, shown = arb_load32(&acct->limit_ppm);
	uint64_t shown_mem = arb_load64(&acct->mem_limit);
	struct gpuarb_config_limit set = {.set = 0};
	struct arb_asked force = arb_account_asked(&c->seg, c->account);

	if (c->have_control)
		arb_settings_limit(c->control.control, c->opened.name, &set);
	arb_asked_settle(&force, &set);
	c->quota.terms.limit_ppm = force.ppm;
	c->mem.limit = force.mem;
	arb_store32(&c->admission.base_priority,
		set.set & ARB_LIMIT_PRIORITY ? (uint32_t)set.priority : c->asked.priority);
	arb_client_show_priority(c);
	arb_store32(&acct->limit_ppm, c->quota.terms.limit_ppm);
	arb_store64(&acct->mem_limit, c->mem.limit);
	show_share(c, &force);
	/* The first member that finds a change writes the event for all of them. */
	if (shown && shown != c->quota.terms.limit_ppm && (old || has_members(c)))
		arb_events_write(&c->seg, ARB_EVENT_LIMIT_CHANGED, c->me.slot, c->account, shown,
			c->quota.terms.limit_ppm);
	if (shown_mem != c->mem.limit && (old || has_members(c)))
		arb_events_write(&c->seg, ARB_EVENT_MEM_LIMIT_CHANGED, c->me.slot, c->account, shown_mem,
			c->mem.limit);
	if (old && old != c->quota.terms.limit_ppm)
		arb_add32_full(&c->seg.header->epoch, 1);
}

/* All members of an account must follow the same limits. A change is seen by the state, not by the epoch alone,
 * because the process that changed it may have died before it raised the epoch. */
void arb_client_follow_account(struct gpuarb_client *c)
{
	const struct arb_account *acct = &c->seg.accounts[c->account];

	if (__builtin_expect(arb_load32(&acct->limit_ppm) != c->quota.terms.limit_ppm ||
				     arb_load64(&acct->mem_limit) != c->mem.limit,
		    0))
		read_limits(c);
}

static void read_settings(struct gpuarb_client *c)
{
	if (c->have_control) {
		int64_t value[ARB_KEY_COUNT];

		if (arb_settings_read(c->control.control, value, &c->control_epoch) == 0)
			arb_settings_rules(value, &c->rules);
		arb_settings_classes(c->control.control, c->admission.classes);
	}
	arb_admission_settle_classes(c);
	arb_client_know_memory(c);
	c->quota.terms.carryover_pct = c->rules.carryover_pct;
	c->quota.terms.wall = c->rules.wall;
	c->move.win_ms = c->rules.win_ms;
	c->move.reserve_ns = c->rules.reserve_ns;
	c->move.argument = c;
}

void arb_client_leave_as_hung(struct gpuarb_client *c)
{
	uint64_t now = arb_os_now_ns(), heard = arb_running_heard(&c->seg, c->me.slot, now);

	if (__builtin_expect(c->running && heard && now - heard > c->rules.grace_ns, 0))
		arb_reclaim_evict(&c->seg, c->me.slot, c->me.slot, &c->rules);
}

int arb_client_roll(
	struct gpuarb_client *c, uint64_t at_ns, struct arb_snap *snap, struct arb_account_snap *acct)
{
	if (!at_ns)
		arb_client_leave_as_hung(c);
	for (int tries = 0; tries < 1000; tries++) {
		struct arb_move *move = arb_client_move(c, at_ns);
		int r = arb_running_roll(&c->me, move, snap);

		if (r == -EOWNERDEAD) {
			r = arb_reclaim_silent(&c->seg, c->me.slot, &c->rules, &c->move.asked);
			if (r < 0 && r != -EBADMSG)
				return r;
			continue;
		}
		if (r == -EBADMSG) {
			arb_events_write(&c->seg, ARB_EVENT_CORRUPT, c->me.slot, c->account, 1, 0);
			r = arb_running_repair(&c->me, move->now, c->rules.win_ms);
			if (r < 0)
				return r;
			continue;
		}
		if (r < 0)
			return r;
		arb_client_restore(c, move->now / ARB_TICKS_PER_NS);
		c->epoch = arb_load32_acquire(&c->seg.header->epoch);
		arb_client_follow_account(c);
		arb_quota_find(c, snap);
		arb_told_window(&c->seg, c->me.slot, snap->win_ms);
		arb_told_auto(&c->seg, c->me.slot, c->rules.policy == ARB_POLICY_AUTO,
			c->rules.policy == ARB_POLICY_AUTO
				? arb_account_sum(&c->seg, snap->win_number, ARB_NONE)
				: 0);
		c->policy = arb_policy_in_force(c->rules.policy, c->rules.alternation,
			arb_alternates(&c->seg, move->now / ARB_TICKS_PER_NS), c->quota.sum);
		/* A client that does not get its turn for too long (floor.h) goes on without turns. */
		arb_floor_lapse(c, move->now / ARB_TICKS_PER_NS);
		if (__builtin_expect(c->floor.keeps, 0) && c->policy != ARB_POLICY_MEMORY)
			c->policy = ARB_POLICY_CONCURRENT;
		c->turn.taken = arb_policy_takes_turns(c->policy, c->quota.sum);
		c->move.choose = c->turn.taken ? arb_turn_choose : NULL;
		c->move.more = c->rules.policy == ARB_POLICY_MEMORY;
		c->move.lends = c->quota.shares && !c->turn.taken;
		/* There is nothing to ask where there is no limit, no turns are taken, and no client is above
		 * another. */
		c->move.admit = c->turn.taken || c->quota.terms.limit_ppm < ARB_PPM || c->standing.guest ||
						arb_above_matters(c)
					? arb_turn_admit
					: NULL;
		r = arb_account_roll(&c->me, c->account, snap, &c->quota.terms, move->now, acct);
		if (r == -EBADMSG) {
			struct arb_lock directory;

			arb_events_write(&c->seg, ARB_EVENT_CORRUPT, c->me.slot, c->account, 2, 0);
			if (arb_account_restore(&c->me, c->account))
				continue;
			r = arb_slot_directory(&c->seg, &directory);
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
			if (c->quota.window != snap->win_number)
				arb_check_debug(&c->seg);
			c->quota.window = snap->win_number;
			return 0;
		}
		/* Another member is ahead of us: look again. */
	}
	return -EBADMSG;
}

/* Asks for the client's limits. -EDQUOT: its quota cannot be promised; the other limits are asked for. */
static int ask_limits(struct gpuarb_client *c)
{
	/* What a guest asks for binds only the guest, so it is not stored in the segment. */
	if (c->standing.guest)
		return arb_client_promise(c, 0, 0);
	c->ledger.asked_ppm = c->asked.core_pct * (ARB_PPM / 100);
	arb_store32(&arb_client_slot(c)->asked_ppm, c->ledger.asked_ppm);
	return arb_client_promise(c, c->asked.mem_bytes, c->asked.request_pct);
}

int arb_client_join(struct gpuarb_client *c)
{
	struct arb_os_identity id;
	struct arb_reclaimed left;
	struct arb_lock directory;
	struct arb_snap snap;
	struct arb_account_snap acct;
	int r;

	/* In a forked child the parent's lock page is not mapped, and its address may belong to something else. */
	c->lock_page = NULL;
	c->admission.sampler.page = NULL;
	arb_ledger_end(&c->seg);
	arb_store32(&c->admission.class_priority, 0);
	c->quota.active_window = 0;
	c->mem.held = 0;
	c->mem.pending = c->mem.settled = 0;
	c->standing.denied.code = 0;
	/* This is done first: if another process holds the directory, the caller comes again soon, and nothing else
	 * need be repeated. */
	if (!c->seg.stranded) {
		r = arb_slot_directory(&c->seg, &directory);
		if (r < 0)
			return r;
		arb_slot_unlock(&directory);
	}
	r = arb_os_clock_init();
	if (r < 0)
		return r;
	r = arb_slot_claim(&c->seg, &c->me.slot, &c->lock_page, c->lock_fd);
	if (r < 0)
		return r;
	c->me.seg = &c->seg;
	read_settings(c);
	if (arb_load32_acquire(&arb_client_slot(c)->state) != ARB_SLOT_FREE)
		r = arb_reclaim_held(&c->seg, c->me.slot, &c->rules, &left);
	if (r == 0) {
		arb_os_identify(&id);
		if (c->opened.own_account)
			arb_client_own_name(c, &id);
		arb_ledger_begin(&c->seg, c->me.slot, &c->ledger);
		arb_slot_fill(&c->seg, c->me.slot, &id, c->asked.priority);
		if (c->lock_fd)
			arb_store32(&arb_client_slot(c)->flags, ARB_SLOT_TREE);
		c->ledger.generation = arb_hint32(&arb_client_slot(c)->generation);
		r = arb_client_attach(c, &id);
	}
	if (r == 0) {
		c->quota.terms.limit_ppm = 0;
		arb_client_members(c);
		r = ask_limits(c);
	}
	if (r == 0) {
		read_limits(c);
		r = arb_client_roll(c, 0, &snap, &acct);
	}
	if (r < 0) {
		arb_reclaim_clean(&c->seg, c->me.slot, ARB_GONE_LEFT, &c->rules, &left);
		arb_ledger_end(&c->seg);
		arb_slot_release(&c->seg, c->me.slot, c->lock_page);
		c->lock_page = NULL;
		return r;
	}
	if (c->guard->carried && arb_account_mem(&c->me, c->account, (int64_t)c->guard->carried, 0) == 0)
		c->mem.held = c->guard->carried;
	c->guard->carried = 0;
	arb_slot_show(&c->seg, c->me.slot);
	arb_events_write(&c->seg, ARB_EVENT_JOINED, c->me.slot, c->account, id.pid, id.uid);
	c->running = false;
	c->turn.kept = false;
	c->floor = (struct arb_client_floor){0};
	c->move.heard = 0; /* it was the head of another segment */
	c->patrol.scrubbed = ARB_NONE;
	c->wait.throttled_since = c->wait.since = c->wait.below_since = 0;
	c->turn.from = 0;
	c->turn.noted = false;
	c->mem.refused = c->mem.by_driver = c->admission.skipped = c->admission.timeouts = c->restoring.told =
		(struct arb_repeat){0};
	if (arb_hint32(&arb_client_slot(c)->restored) != c->restoring.times)
		arb_store32(&arb_client_slot(c)->restored, c->restoring.times);
	if (c->opened.unbiased)
		arb_store32(&c->guard->lock.revoked, 1);
	else
		arb_lock_bias(&c->guard->lock);
	arb_store64(&c->guard->birth,
		(uint64_t)arb_load32(&arb_client_slot(c)->generation) << 32 | (c->me.slot + 1));
	c->joins += c->joins + 1 ? 1 : 2;
	arb_store32_release(&c->guard->joined, 1);
	arb_check_debug(&c->seg);
	return 0;
}

void arb_client_note_rest(struct gpuarb_client *c, bool now)
{
	arb_events_rest(&c->seg, &c->mem.refused, now);
	arb_events_rest(&c->seg, &c->mem.by_driver, now);
	arb_events_rest(&c->seg, &c->admission.skipped, now);
	arb_events_rest(&c->seg, &c->admission.timeouts, now);
	if (__builtin_expect(c->restoring.told.last.times != 0, 0))
		arb_events_rest(&c->seg, &c->restoring.told, now);
}

int arb_client_refresh(struct gpuarb_client *c)
{
	struct arb_snap snap;
	struct arb_account_snap acct;

	if (__builtin_expect(arb_fault_lost(c->seg.file.guard), 0))
		return -ESTALE;

	read_settings(c);
	read_limits(c);
	return arb_client_roll(c, 0, &snap, &acct);
}

static int apply_limits(struct gpuarb_client *c)
{
	int r = arb_client_ensure(c), asked;

	if (r < 0)
		return r;
	asked = ask_limits(c);
	if (asked < 0 && asked != -EDQUOT)
		return asked;
	r = arb_client_refresh(c);
	/* Threads of ours that sleep without quota may have some now. */
	arb_os_wake(&arb_client_slot(c)->wake);
	return r < 0 ? r : asked;
}

int gpuarb_client_set_limits(
	struct gpuarb_client *c, unsigned core_pct, uint64_t mem_bytes, unsigned priority)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE;
	uint64_t before;
	int r;

	if (core_pct > 100 || priority > 100)
		return -EINVAL;
	arb_lock_take(&c->guard->lock);
	before = c->asked.mem_bytes;
	if (core_pct)
		c->asked.core_pct = core_pct;
	if (mem_bytes)
		c->asked.mem_bytes = mem_bytes == GPUARB_MEM_UNLIMITED ? 0 : mem_bytes;
	if (priority)
		c->asked.priority = priority;
	do
		r = apply_limits(c);
	while (r == -EBUSY && arb_client_breathe(c, &patience));
	/* The client keeps what it was promised before. */
	if (r == -EDQUOT || r == -EBUSY)
		c->asked.mem_bytes = before;
	arb_lock_give(&c->guard->lock);
	return r;
}

int gpuarb_client_set_share(struct gpuarb_client *c, unsigned request_pct, unsigned weight)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE;
	unsigned before;
	int r;

	if (request_pct > 100 || weight > ARB_SHARE_WEIGHT_MOST)
		return -EINVAL;
	arb_lock_take(&c->guard->lock);
	before = c->asked.request_pct;
	c->asked.request_pct = request_pct;
	if (weight)
		c->asked.weight = weight;
	do
		r = apply_limits(c);
	while (r == -EBUSY && arb_client_breathe(c, &patience));
	/* The client keeps what it was promised before. */
	if (r == -EDQUOT || r == -EBUSY)
		c->asked.request_pct = before;
	arb_lock_give(&c->guard->lock);
	return r;
}

int gpuarb_client_counters(struct gpuarb_client *c, const uint64_t *counters, unsigned n)
{
	int r = -EAGAIN;

	arb_lock_take(&c->guard->lock);
	/* A forked child that has not used the GPU is no client, and does not join for this. */
	if (arb_load32(&c->guard->joined)) {
		for (unsigned i = 0; i < n && i < ARB_COUNTERS; i++)
			arb_store64(&arb_client_slot(c)->counter[i], counters[i]);
		r = 0;
	}
	arb_lock_give(&c->guard->lock);
	return r;
}

int gpuarb_client_unknown(struct gpuarb_client *c, const char *names)
{
	int r = -EAGAIN;

	arb_lock_take(&c->guard->lock);
	if (arb_load32(&c->guard->joined)) {
		arb_text_store(arb_client_slot(c)->unknown, ARB_UNKNOWN_WORDS, names);
		r = 0;
	}
	arb_lock_give(&c->guard->lock);
	return r;
}

bool gpuarb_client_may_launch(struct gpuarb_client *c)
{
	bool may;

	/* The lock is needed because the mapping is touched. */
	arb_lock_take(&c->guard->lock);
	may = arb_load32(&c->guard->joined) && arb_load32(&arb_client_slot(c)->gate);
	arb_lock_give(&c->guard->lock);
	return may;
}

void gpuarb_client_alternates(struct gpuarb_client *c, bool trial)
{
	arb_lock_take(&c->guard->lock);
	if (arb_load32(&c->guard->joined))
		arb_alternates_note(&c->seg, c->me.slot, arb_os_now_ns(), trial);
	arb_lock_give(&c->guard->lock);
}

static void set_flag(struct gpuarb_client *c, uint32_t flag, bool on)
{
	arb_u32 *flags = &arb_client_slot(c)->flags;

	arb_store32(flags, (arb_load32(flags) & ~flag) | (on ? flag : 0));
}

void gpuarb_client_outlasts(struct gpuarb_client *c, bool outlasts)
{
	arb_lock_take(&c->guard->lock);
	if (arb_load32(&c->guard->joined) && c->turn.outlasts != outlasts) {
		c->turn.outlasts = outlasts;
		arb_client_show_outlasts(c);
	}
	arb_lock_give(&c->guard->lock);
}

void gpuarb_client_stalls(struct gpuarb_client *c, bool stalls)
{
	arb_lock_take(&c->guard->lock);
	if (arb_load32(&c->guard->joined)) {
		/* What was used in the window in which the wait ended is forgiven here; earlier windows were dealt
		 * with when they were rolled. */
		if (!stalls)
			arb_quota_forgive(c);
		set_flag(c, ARB_SLOT_STALLS, stalls);
	}
	arb_lock_give(&c->guard->lock);
}

#include "shm/client/floor.h"

#include "shm/base/atomic.h"
#include "shm/base/text.h"
#include "shm/client/above.h"
#include "shm/policy/policy.h"
#include "shm/policy/share.h"
#include "shm/segment/account.h"
#include "shm/segment/settings.h"
#include "shm/segment/slot.h"
#include "units.h"

/* What a client gets is measured over this time. So a client stops for this long for words that nobody has to heed. */
#define PERIOD_NS (400 * MS)
/* A client that has not looked for longer had no work: a waiter looks every 5 ms, a client that runs every 8 ms, and
 * one without quota every 50 ms. */
#define IDLE_NS (60 * MS)
/* A client that goes on does so until it has not been held up for this long; the next time twice as long. */
#define QUIET_NS      (10000 * MS)
#define QUIET_NS_MOST (600000 * MS)
/* Work that outlasts its turn makes the turn longer: by 300 ms at most, and mostly by much less (shm/README.md, "A GPU
 * that alternates"). */
#define OUTLASTS_NS (400 * MS)
#define TURN_NS     (100 * MS)
/* A client that finds this often within VAIN_NS that a dead client had the place before it, or that another client runs
 * in its turn, does not take turns any more: those others never lived, or do not take turns themselves. */
#define VAIN_MOST 20
#define VAIN_NS   SECOND
/* A client may miss one part in this many of its share for ever, because kernels and turns do not end at exact times. It
 * goes on as soon as it has missed, beyond that, half of what it should have had in PERIOD_NS. */
#define MISSED_PART 10
/* The number of accounts that are counted one by one. With more of them the share of each is too small to measure. */
#define ACCOUNTS_MOST 64

/* Returns the entry of the account in the list, or n. */
static unsigned find(const uint32_t *accounts, unsigned n, uint32_t account)
{
	unsigned i = 0;

	while (i < n && accounts[i] != account)
		i++;
	return i;
}

/* Was a client heard of in this slot within the last second, and does the kernel say that it lives? */
static bool lives(const struct gpuarb_client *c, uint32_t i, uint64_t now_ns)
{
	return arb_load32(&c->seg.slots[i].state) == ARB_SLOT_LIVE &&
	       now_ns - arb_running_heard(&c->seg, i, now_ns) < ARB_ABOVE_PRESENT_NS &&
	       arb_slot_alive(&c->seg, i) != 0;
}

/* Lists the other accounts that have work. An account counts only if the kernel says that one of its clients lives,
 * because a process can forge the words of hundreds of accounts. */
static unsigned others(const struct gpuarb_client *c, const struct arb_snap *snap, struct arb_share *all)
{
	uint64_t now_ns = arb_os_now_ns();
	uint32_t accounts[ACCOUNTS_MOST];
	unsigned n = 0;

	for (uint32_t i = 0; i < c->seg.nslots && n < ACCOUNTS_MOST; i++) {
		uint32_t a = arb_load32(&c->seg.slots[i].account);

		if (a >= c->seg.naccounts || a == c->account || find(accounts, n, a) < n ||
			!arb_account_share(&c->seg, a, snap->win_number, &all[n]) || !lives(c, i, now_ns))
			continue;
		accounts[n++] = a;
	}
	return n;
}

/* Returns the part of the GPU that the client would have if no client came before another: its request, and its part of
 * the rest by weight, as far as its limit allows. */
static uint32_t fair_part(const struct gpuarb_client *c, const struct arb_snap *snap)
{
	struct arb_share all[1 + ACCOUNTS_MOST];
	unsigned n = others(c, snap, all + 1);
	uint64_t sum = 0;
	uint32_t scaled;

	all[0] = (struct arb_share){c->quota.request_ppm, c->quota.terms.limit_ppm, c->quota.weight, 0};
	for (unsigned i = 0; i <= n; i++)
		sum += all[i].limit_ppm < ARB_PPM ? all[i].limit_ppm : 0;
	scaled = arb_policy_scale(all[0].limit_ppm, sum, c->quota.lost_ppm);
	if (!arb_share_in_force(all, n + 1) && scaled < all[0].limit_ppm)
		return scaled;
	arb_share_fill(all, n + 1, c->quota.lost_ppm);
	return all[0].quota_ppm;
}

static uint64_t usage(struct gpuarb_client *c, const struct arb_snap *snap)
{
	struct arb_account_snap acct;

	if (arb_account_read(&c->seg, c->account, &acct) < 0)
		return c->floor.looked_used;
	return arb_account_usage(&c->seg, snap, &acct, acct.wall, false);
}

/*
 * Does the client miss its share because it is held up? It has used `used` of `whole` ns. It is assumed that, while it was
 * not held up, it used the GPU as much as it wanted to.
 */
static bool misses(struct arb_client_floor *f, uint64_t used, uint64_t whole, uint64_t slice)
{
	uint64_t share = whole / ARB_PPM * f->ppm, free = whole - f->held_ns, wanted, less;

	wanted = used < free ? used * whole / free : whole;
	if (wanted > share)
		wanted = share;
	f->missed_ns += wanted > used ? wanted - used : 0;
	less = share / MISSED_PART + (used > wanted ? used - wanted : 0);
	f->missed_ns -= less < f->missed_ns ? less : f->missed_ns;
	/* It may be late by a turn or two, also if its share is less than that. */
	return f->missed_ns > share / 2 && (!f->by_turn || f->missed_ns > 2 * slice);
}

static void begin(struct arb_client_floor *f, uint64_t used, uint64_t now_ns)
{
	f->since_ns = f->looked_ns = now_ns;
	f->used = f->looked_used = used;
	f->held_ns = 0;
	f->by_turn = f->cut = false;
	f->highest = 0;
}

bool arb_floor_put_above(const struct gpuarb_client *c, uint32_t i)
{
	uint32_t a = arb_load32(&c->seg.slots[i].account);
	struct gpuarb_config_limit set;
	char name[ARB_NAME_BYTES];

	if (!c->have_control || a >= c->seg.naccounts)
		return false;
	arb_text_load(c->seg.accounts[a].name, ARB_NAME_WORDS, name);
	return arb_settings_limit(c->control.control, name, &set) == 1 && set.set & ARB_LIMIT_PRIORITY &&
	       (uint32_t)set.priority > arb_load32(&c->admission.base_priority);
}

/* Is there a client in the set, or in the queue, that an administrator has put above this one? */
static bool any_put_above(const struct gpuarb_client *c, const struct arb_snap *snap)
{
	for (uint32_t w = 0; w < snap->words; w++)
		for (uint64_t rest = snap->running[w] | snap->waiting[w]; rest; rest &= rest - 1) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(rest);

			if (i < c->seg.nslots && i != c->me.slot && arb_floor_put_above(c, i))
				return true;
		}
	return false;
}

/* From now on the client does not stop for others. */
static void keep(struct gpuarb_client *c)
{
	struct arb_client_floor *f = &c->floor;

	f->keeps = true;
	arb_client_show_outlasts(c);
	f->quiet_ns = !f->quiet_ns                      ? QUIET_NS
		      : f->quiet_ns < QUIET_NS_MOST / 2 ? 2 * f->quiet_ns
							: QUIET_NS_MOST;
	arb_add32_full(&c->seg.header->epoch, 1);
}

/* Notes the highest priority of the other clients in the set and in the queue. It is taken from their levels, because a
 * client may wait with another priority than its own (level_with). */
static void see(struct gpuarb_client *c, const struct arb_snap *snap)
{
	for (uint32_t w = 0; w < snap->words; w++)
		for (uint64_t rest = snap->running[w] | snap->waiting[w]; rest; rest &= rest - 1) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(rest);

			if (i < c->seg.nslots && i != c->me.slot &&
				arb_running_level(&c->seg, i) / 2 > c->floor.highest)
				c->floor.highest = arb_running_level(&c->seg, i) / 2;
		}
}

static void wait_level_with(struct gpuarb_client *c, uint32_t priority)
{
	if (c->floor.level_with == priority)
		return;
	c->floor.level_with = priority;
	arb_client_show_priority(c);
}

/*
 * Called when the client misses its share. If waiters of a higher priority end its turns, it waits with their priority from
 * now on: then it gets turns as they do, and each client still runs alone. If they do not, or if that does not help, it
 * does not stop for others any more.
 */
static void claim(struct gpuarb_client *c)
{
	struct arb_client_floor *f = &c->floor;

	if (!f->by_turn || f->highest <= arb_load32(&arb_client_slot(c)->priority)) {
		keep(c);
		return;
	}
	f->missed_ns = 0;
	wait_level_with(c, f->highest);
}

/* Adds the time since the last look. */
static void look(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	struct arb_client_floor *f = &c->floor;
	uint64_t used = usage(c, snap), gone = now_ns - f->looked_ns, whole, ns;

	if (gone > IDLE_NS) {
		f->since_ns += gone;
		f->used += used - f->looked_used;
	} else if (f->stopped) {
		f->held_ns += gone;
	}
	f->looked_ns = now_ns;
	f->looked_used = used;
	whole = now_ns - f->since_ns;
	if (whole < PERIOD_NS)
		return;
	/* The words in the segment may be wrong for a moment, so the usage is bounded: no account uses more than the time
	 * that has passed. */
	ns = (used - f->used) / ARB_TICKS_PER_NS;
	if ((int64_t)(used - f->used) < 0)
		ns = 0;
	if (ns > whole)
		ns = whole;
	if (f->level_with > f->highest)
		wait_level_with(c, f->highest > arb_client_priority(c) ? f->highest : 0);
	/* If no turn was cut short, the client ends its turns by itself, and so gets all that it wants. */
	if (f->by_turn && !f->cut) {
		f->missed_ns = 0;
	} else {
		f->ppm = fair_part(c, snap);
		if (!f->keeps && misses(f, ns, whole, c->rules.slice_ticks / ARB_TICKS_PER_NS) &&
			!(f->by_turn && any_put_above(c, snap)))
			claim(c);
	}
	begin(f, used, now_ns);
}

/* The client is held up, unless it goes on. */
static void hold(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	struct arb_client_floor *f = &c->floor;

	if (f->since_ns)
		look(c, snap, now_ns);
	else
		begin(f, usage(c, snap), now_ns);
	f->stopped_ns = now_ns;
	f->stopped = !f->keeps;
	see(c, snap);
}

bool arb_floor_keeps(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	hold(c, snap, now_ns);
	return c->floor.keeps;
}

void arb_floor_cut(struct gpuarb_client *c, const struct arb_snap *snap)
{
	struct arb_client_floor *f = &c->floor;

	f->cut = true;
	see(c, snap);
}

/* Returns the longest time for which the client can have to wait for its turn: every other client has a turn before it. A
 * client of a low priority may have to wait for max_wait_ms before that. */
static uint64_t longest_wait(const struct gpuarb_client *c, const struct arb_snap *snap)
{
	uint64_t now_ns = arb_os_now_ns(), n = 0, longest;
	uint64_t turn = arb_policy_turn(c->policy, c->rules.slice_ticks, snap->win_ticks) / ARB_TICKS_PER_NS;

	for (uint32_t i = 0; i < c->seg.nslots && n < ACCOUNTS_MOST; i++)
		n += i != c->me.slot && lives(c, i, now_ns);
	longest = n * (turn > TURN_NS ? turn : TURN_NS) + OUTLASTS_NS;
	return arb_load32(&c->admission.base_priority) < ARB_PRIORITY ? longest + 2 * c->rules.max_wait_ns
								      : longest;
}

/*
 * A member that is silent is evicted after grace_ms, and members that are stopped together are evicted together. So
 * silence is a reason to wait for that much longer, and not for ever: a process that holds a slot's byte can write such
 * heartbeats that its member is silent all the time and is never evicted.
 */
static bool any_silent(const struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	for (uint32_t i = arb_bits_next(snap->running, snap->words, 0); i != ARB_NONE;
		i = arb_bits_next(snap->running, snap->words, i + 1))
		if (now_ns - arb_running_heard(&c->seg, i, now_ns) > ARB_ABOVE_HEARD_NS)
			return true;
	return false;
}

/* Does a task with a lease run under a policy that lets one client run at a time? It has the GPU until it ends. */
static bool has_whole_gpu(const struct gpuarb_client *c, const struct arb_snap *snap)
{
	bool leased = false;

	for (uint32_t w = 0; w < snap->words; w++)
		leased |= (snap->running[w] & arb_load64(&c->seg.header->adm_leased[w])) != 0;
	return leased && (c->rules.policy == ARB_POLICY_EXCLUSIVE || c->rules.policy == ARB_POLICY_AUTO);
}

bool arb_floor_keeps_turn(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	struct arb_client_floor *f = &c->floor;
	uint64_t waited_ns;

	/* A task that waits for its lease waits as long as it has said. */
	if (c->rules.policy == ARB_POLICY_MEMORY || c->admission.leasing)
		return false;
	if (!f->queued_ns || now_ns - f->waited_ns > 4 * IDLE_NS) {
		f->queued_ns = now_ns;
		f->bound_ns = 0;
	}
	f->waited_ns = now_ns;
	if (arb_load32(&c->admission.base_priority) >= ARB_PRIORITY) {
		hold(c, snap, now_ns);
		f->by_turn = true;
	}
	if (f->keeps)
		return !any_put_above(c, snap);
	if (now_ns - f->queued_ns <= OUTLASTS_NS)
		return false;
	if (!f->bound_ns)
		f->bound_ns = longest_wait(c, snap);
	waited_ns = now_ns - f->queued_ns;
	if (waited_ns <= f->bound_ns ||
		(waited_ns <= f->bound_ns + c->rules.grace_ns && any_silent(c, snap, now_ns)) ||
		any_put_above(c, snap) || has_whole_gpu(c, snap))
		return false;
	f->ppm = fair_part(c, snap);
	f->stopped_ns = now_ns;
	keep(c);
	return true;
}

void arb_floor_in_vain(struct gpuarb_client *c, uint64_t now_ns)
{
	struct arb_client_floor *f = &c->floor;

	if (now_ns - f->vain_ns > VAIN_NS) {
		f->vain_ns = now_ns;
		f->vain = 0;
	}
	if (++f->vain < VAIN_MOST || f->keeps)
		return;
	f->stopped_ns = now_ns;
	f->ppm = 0;
	keep(c);
}

void arb_floor_lapse(struct gpuarb_client *c, uint64_t now_ns)
{
	struct arb_client_floor *f = &c->floor;

	if (now_ns - f->stopped_ns <= (f->keeps ? f->quiet_ns : QUIET_NS))
		return;
	f->since_ns = f->missed_ns = 0;
	wait_level_with(c, 0);
	if (!f->keeps)
		return;
	f->keeps = false;
	arb_client_show_outlasts(c);
	arb_add32_full(&c->seg.header->epoch, 1);
}

void arb_floor_goes_on(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	struct arb_client_floor *f = &c->floor;

	f->queued_ns = 0;
	if (__builtin_expect(f->since_ns != 0, 0))
		look(c, snap, now_ns);
	f->stopped = false;
}

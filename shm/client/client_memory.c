/* What a client knows of the GPU's memory, and what it may have of it. */
#include <errno.h>

#include "gpuarb/client.h"

#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/segment/events.h"
#include "shm/segment/foreign.h"
#include "shm/policy/memory_fit.h"
#include "shm/client/reclaim.h"
#include "shm/segment/residency.h"

/* For how long a client tries to clean up behind dead clients before memory is refused. */
#define CLEAN_PATIENCE_NS 200000000u
/* The driver is asked no more often than this: asking takes microseconds, and programs may allocate a thousand times
 * a second. */
#define USED_EVERY_NS 100000000u

int gpuarb_client_set_physical(struct gpuarb_client *c, uint64_t bytes)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE;
	int r;

	if (!bytes || bytes > ARB_PHYSICAL_MOST)
		return -EINVAL;
	arb_lock_take(&c->guard->lock);
	c->mem.physical = bytes;
	do {
		r = arb_client_ensure(c);
		if (r == 0)
			r = arb_client_refresh(c);
		if (r == 0)
			r = arb_client_promise_again(c);
	} while (r == -EBUSY && arb_client_breathe(c, &patience));
	arb_lock_give(&c->guard->lock);
	return r;
}

void arb_client_know_memory(struct gpuarb_client *c)
{
	struct arb_memory_rules *m = &c->rules.memory;
	arb_u64 *hint = &c->seg.header->mem_physical;

	if (c->mem.physical && arb_load64(hint) != c->mem.physical)
		arb_store64(hint, c->mem.physical);
	if (!m->physical)
		m->physical = c->mem.physical ? c->mem.physical : arb_load64(hint);
	if (m->physical > ARB_PHYSICAL_MOST)
		m->physical = 0;
	c->mem.most = arb_memory_most(m);
	if (c->standing.guest && c->asked.mem_bytes && (!c->mem.most || c->asked.mem_bytes < c->mem.most))
		c->mem.most = c->asked.mem_bytes;
	arb_store32(&c->mem.oversubscribes, m->oversubscribe);
	arb_store32(&c->mem.turns, c->rules.policy == ARB_POLICY_MEMORY);
}

void arb_client_memory_freed(struct gpuarb_client *c)
{
	struct arb_snap snap;
	struct arb_residency r = {&c->seg, &c->rules, &snap, arb_os_now_ns()};
	uint32_t next;

	if (arb_running_read(&c->seg, &snap) < 0 || !snap.any_waiting)
		return;
	next = arb_residency_choose(&r);
	if (next != ARB_NONE)
		arb_os_wake(&c->seg.slots[next].wake);
}

bool gpuarb_client_used_due(const struct gpuarb_client *c)
{
	return arb_load32(&c->mem.turns) && arb_os_now_ns() - arb_load64(&c->mem.used_ns) >= USED_EVERY_NS;
}

void gpuarb_client_set_used(struct gpuarb_client *c, uint64_t bytes)
{
	uint64_t now = arb_os_now_ns();

	arb_store64(&c->mem.used_ns, now);
	arb_lock_take(&c->guard->lock);
	if (arb_load32(&c->guard->joined))
		arb_foreign_bound(&c->seg, bytes, c->rules.memory.per_client, now);
	arb_lock_give(&c->guard->lock);
}

bool gpuarb_client_mem_explained(struct gpuarb_client *c, uint64_t *bytes)
{
	bool joined;

	arb_lock_take(&c->guard->lock);
	joined = arb_load32(&c->guard->joined);
	if (joined)
		*bytes = arb_foreign_clients(&c->seg, 0) + arb_foreign_read(&c->seg, arb_os_now_ns());
	arb_lock_give(&c->guard->lock);
	return joined;
}

bool gpuarb_client_turn_began(struct gpuarb_client *c)
{
	bool fresh;

	arb_lock_take(&c->guard->lock);
	fresh = c->turn.fresh;
	c->turn.fresh = false;
	arb_lock_give(&c->guard->lock);
	return fresh;
}

bool gpuarb_client_oversubscribes(const struct gpuarb_client *c)
{
	return arb_load32(&c->mem.oversubscribes);
}

/* Cleans up behind dead members. Their memory is counted until then, and this is called when a member would be refused
 * memory. Returns false if the slots of some dead members cannot be cleaned yet. */
static bool reclaim_members(struct gpuarb_client *c)
{
	struct arb_account_snap acct;
	bool all = true;

	if (arb_account_read(&c->seg, c->account, &acct) < 0)
		return true;
	for (uint32_t i = arb_bits_next(acct.attached, c->seg.nwords, 0); i != ARB_NONE;
		i = arb_bits_next(acct.attached, c->seg.nwords, i + 1))
		all &= arb_reclaim_look(&c->seg, c->me.slot, i, false, &c->rules) != -EBUSY;
	return all;
}

/* Stores how many calls are under way. The lock is held. The value is absolute, so any garbage in the word is
 * gone. */
static void say_pending(struct gpuarb_client *c, int calls)
{
	c->mem.pending += (uint32_t)calls;
	arb_store64_release(
		&arb_client_slot(c)->mem_pending, (uint64_t)c->mem.settled << 32 | c->mem.pending);
}

/* The calls of other members: whether any is under way, and how many have settled so far. */
struct others {
	bool pending;
	uint64_t settled;
};

static struct others look_at_others(const struct gpuarb_client *c)
{
	struct others o = {0};
	struct arb_account_snap acct;

	if (arb_account_read(&c->seg, c->account, &acct) < 0)
		return o;
	for (uint32_t i = arb_bits_next(acct.attached, c->seg.nwords, 0); i != ARB_NONE;
		i = arb_bits_next(acct.attached, c->seg.nwords, i + 1)) {
		uint64_t word = i == c->me.slot ? 0 : arb_load64_acquire(&c->seg.slots[i].mem_pending);

		o.pending |= (uint32_t)word != 0;
		o.settled += word >> 32;
	}
	return o;
}

/* A call that fails is shown as under way no longer than it must be, because others wait for it. */
static int count(struct gpuarb_client *c, uint64_t bytes, bool most, uint64_t limit)
{
	int r;

	if (!most)
		return arb_account_mem(&c->me, c->account, (int64_t)bytes, limit);
	say_pending(c, 1);
	r = arb_account_mem_most(&c->me, c->account, bytes, limit);
	if (r < 0)
		say_pending(c, -1);
	return r;
}

/*
 * The lock is held, so that no call of this process settles meanwhile. A request is refused for good only at a moment
 * at which no process had reserved more than it needs. A process that had says so before its CAS (pairs
 * ACCOUNT_PUBLISH), and takes that back after the CAS that gives the rest back, so that one of the two looks sees it.
 * *dead: there is no room, and a dead client has some of the memory; then -EBUSY.
 */
static int count_or_say_why(struct gpuarb_client *c, uint64_t bytes, bool most, uint64_t gone, bool *dead)
{
	bool own = c->mem.pending > 0;
	/* Without a quota (0) there is none to raise. */
	uint64_t limit = c->mem.limit ? c->mem.limit + gone : 0;
	struct others before, after;
	int r;

	*dead = false;
	c->mem.refusal = ARB_REFUSAL_SINGLE;
	if (c->mem.most && (c->mem.held >= c->mem.most || bytes > c->mem.most - c->mem.held))
		return own && bytes <= c->mem.most ? -EAGAIN : -ENOMEM;
	c->mem.refusal = ARB_REFUSAL_QUOTA;
	r = count(c, bytes, most, limit);
	if (r == -ENOMEM) {
		*dead = !reclaim_members(c);
		before = look_at_others(c);
		r = count(c, bytes, most, limit);
		after = look_at_others(c);
		/* A request for more than the whole quota never fits, whatever others give back. */
		if (r == -ENOMEM && (!limit || bytes <= limit) &&
			(own || before.pending || after.pending || before.settled != after.settled))
			r = -EAGAIN;
		*dead &= r == -ENOMEM;
		if (*dead)
			r = -EBUSY;
	}
	if (r == 0)
		c->mem.held += bytes;
	return r;
}

int gpuarb_client_mem_try_gone(struct gpuarb_client *c, uint64_t bytes, bool most, uint64_t gone)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE, clean = {.length_ns = CLEAN_PATIENCE_NS};
	bool dead;
	int r;

	if (bytes > INT64_MAX) {
		arb_lock_take(&c->guard->lock);
		c->mem.refusal = ARB_REFUSAL_SIZE;
		arb_lock_give(&c->guard->lock);
		return -ENOMEM;
	}
	arb_client_follow(c);
	arb_lock_take(&c->guard->lock);
	do {
		dead = false;
		r = arb_client_ensure(c);
		if (r == 0) {
			arb_client_follow_account(c);
			r = count_or_say_why(c, bytes, most, gone < ARB_PHYSICAL_MOST ? gone : 0, &dead);
		}
	} while (r == -EBUSY && arb_client_breathe(c, dead ? &clean : &patience));
	arb_lock_give(&c->guard->lock);
	/* At the process's end nothing is counted any more. */
	if (r == -ESHUTDOWN)
		return 0;
	return dead ? -ENOMEM : r;
}

int gpuarb_client_mem_try(struct gpuarb_client *c, uint64_t bytes, bool most)
{
	return gpuarb_client_mem_try_gone(c, bytes, most, 0);
}

void gpuarb_client_mem_settled(struct gpuarb_client *c)
{
	arb_lock_take(&c->guard->lock);
	/* The call may have begun before this process joined again. */
	if (arb_load32(&c->guard->joined) && c->mem.pending) {
		c->mem.settled++;
		say_pending(c, -1);
		arb_account_mem(&c->me, c->account, 0, 0);
	}
	arb_lock_give(&c->guard->lock);
}

int gpuarb_client_mem_reserve(struct gpuarb_client *c, uint64_t bytes)
{
	int r = gpuarb_client_mem_try(c, bytes, false);

	if (r != -ENOMEM && r != -EAGAIN)
		return r;
	gpuarb_client_mem_refused(c, bytes, NULL);
	return -ENOMEM;
}

int gpuarb_client_mem_release(struct gpuarb_client *c, uint64_t bytes)
{
	uint64_t *held = &c->mem.held;
	int r = 0;

	if (bytes > INT64_MAX)
		return -EINVAL;
	arb_lock_take(&c->guard->lock);
	if (arb_load32(&c->guard->joined))
		r = arb_account_mem(&c->me, c->account, -(int64_t)bytes, 0);
	else
		held = &c->guard->carried;
	if (r == 0)
		*held -= bytes < *held ? bytes : *held;
	if (r == 0 && c->rules.policy == ARB_POLICY_MEMORY && arb_load32(&c->guard->joined))
		arb_client_memory_freed(c);
	arb_lock_give(&c->guard->lock);
	return r;
}

int gpuarb_client_mem_read(struct gpuarb_client *c, uint64_t *used, uint64_t *limit)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE;
	struct arb_account_snap acct;
	int r;

	arb_client_follow(c);
	arb_lock_take(&c->guard->lock);
	do
		r = arb_client_ensure(c);
	while (r == -EBUSY && arb_client_breathe(c, &patience));
	if (r == 0) {
		arb_client_follow_account(c);
		reclaim_members(c);
		r = arb_account_read(&c->seg, c->account, &acct);
	}
	if (r >= 0) {
		*used = acct.mem_used;
		*limit = c->mem.limit;
	}
	arb_lock_give(&c->guard->lock);
	return r < 0 ? r : 0;
}

void arb_client_tell_memory(struct gpuarb_client_memory *memory, uint64_t most)
{
	uint64_t quota = memory->quota;

	memory->limit = quota && (!most || quota < most) ? quota : most;
	/* Where memory moves, what the driver has free just now says nothing. */
	if (!memory->limit && memory->oversubscribe) {
		memory->limit = memory->physical;
		memory->left = memory->physical > memory->mine ? memory->physical - memory->mine : 0;
		return;
	}
	if (!memory->limit)
		return;
	/* A quota that was lowered may be below what is used. */
	memory->left = memory->limit;
	if (quota)
		memory->left = memory->used < quota ? quota - memory->used : 0;
	if (memory->left > memory->limit)
		memory->left = memory->limit;
	if (most && (memory->mine >= most || most - memory->mine < memory->left))
		memory->left = memory->mine < most ? most - memory->mine : 0;
}

int gpuarb_client_memory(struct gpuarb_client *c, struct gpuarb_client_memory *memory)
{
	uint64_t used = 0, quota = 0, most;
	int r = gpuarb_client_mem_read(c, &used, &quota);

	if (r < 0)
		return r;
	arb_lock_take(&c->guard->lock);
	most = c->mem.most;
	*memory = (struct gpuarb_client_memory){.used = used,
		.quota = quota,
		.mine = c->mem.held,
		.physical = c->rules.memory.physical,
		.context = c->rules.memory.context,
		.context_measured = c->rules.memory.context_measured && !c->rules.memory.oversubscribe,
		.oversubscribe = c->rules.memory.oversubscribe,
		.prefetch = c->rules.memory.prefetch};
	arb_lock_give(&c->guard->lock);
	arb_client_tell_memory(memory, most);
	return 0;
}

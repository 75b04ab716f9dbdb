#include "shm/client/reclaim.h"

#include <errno.h>
#include <string.h>

#include "shm/client/above.h"
#include "shm/segment/account.h"
#include "shm/segment/audit.h"
#include "shm/admission/admission.h"
#include "shm/base/atomic.h"
#include "shm/segment/events.h"
#include "shm/segment/frozen.h"
#include "shm/base/os.h"
#include "shm/segment/residency.h"
#include "shm/segment/running.h"
#include "shm/segment/silence.h"
#include "shm/segment/slot.h"
#include "shm/base/text.h"
#include "shm/segment/wait.h"

/* How long a caller waits for the directory. It is held for microseconds, unless its holder is stopped. */
#define PATIENCE_NS 200000000u
/* A silent member is asked no more often than this whether it is frozen. */
#define ASK_AGAIN_NS 5000000u
/* A member without work, whose context is counted under `memory`, is asked no more often than this: about once in two
 * scrubs, however many clients scrub. */
#define ASK_IDLE_NS 1000000000u

/* What is done with a member that lives and has not been heard of for its whole grace. */
enum hang {
	HANG_LEFT_ALONE,
	HANG_EVICTED,
};

struct chooser {
	struct arb_segment *seg;
	const struct arb_rules *rules;
};

static uint32_t choose(void *argument, const struct arb_snap *snap, uint64_t now_ns)
{
	struct chooser *c = argument;

	if (c->rules->policy == ARB_POLICY_MEMORY)
		return arb_residency_choose(&(struct arb_residency){c->seg, c->rules, snap, now_ns});
	return arb_wait_choose(
		c->seg, snap, &(struct arb_order){now_ns, c->rules->max_wait_ns, c->rules->grace_ns});
}

/* Returns a move as of `at_ns`, or of now if that is earlier. */
static struct arb_move move_at(struct chooser *c, uint64_t at_ns)
{
	uint64_t now = arb_os_now_ns() * ARB_TICKS_PER_NS;

	return (struct arb_move){.now = now,
		.at = at_ns < now / ARB_TICKS_PER_NS ? at_ns * ARB_TICKS_PER_NS : now,
		.win_ms = c->rules->win_ms,
		.more = c->rules->policy == ARB_POLICY_MEMORY,
		.reserve_ns = c->rules->reserve_ns,
		.choose = choose,
		.argument = c,
		.next = ARB_NONE};
}

/* Asks a silent member whether it is frozen: a frozen client then takes itself out of the set, as of the right time. A
 * client that neither runs nor waits is not woken for this, except under `memory`, where its context is counted. */
static void ask_whether_frozen(
	struct arb_segment *seg, uint32_t slot, const struct arb_rules *rules, uint64_t now_ns)
{
	struct arb_snap snap;
	bool there = arb_running_read(seg, &snap) == 0 && slot / 64 < snap.words &&
		     (arb_bit_test(snap.running, slot) || arb_bit_test(snap.waiting, slot) ||
			     arb_bit_test(snap.evicted, slot));

	if (there || rules->policy == ARB_POLICY_MEMORY)
		arb_frozen_ask(&seg->slots[slot], there ? ASK_AGAIN_NS : ASK_IDLE_NS, now_ns);
}

static int look(
	struct arb_segment *seg, uint32_t me, uint32_t slot, enum hang hang, const struct arb_rules *rules);

/* Probes, as slot `me`, the members whose last sign of life is before that time. A member that the kernel cannot be
 * asked about is left alone: this program may have no descriptor left, or no right to the file any more. */
static int look_at_silent(struct arb_segment *seg, uint32_t me, uint64_t before_ns, enum hang hang,
	const struct arb_rules *rules, uint64_t *asked)
{
	struct arb_silence silence = {.now_ns = arb_os_now_ns(), .before_ns = before_ns, .except = me};
	struct arb_snap snap;
	int r;

	for (;;) {
		uint32_t slot;

		r = arb_running_read(seg, &snap);
		if (r < 0)
			return r;
		slot = arb_silence_longest(seg, &snap, &silence);
		if (slot == ARB_NONE)
			break;
		silence.looked[slot / 64] |= 1ull << (slot % 64);
		r = look(seg, me, slot, hang, rules);
		if (r == -ESTALE)
			return r;
	}
	*asked = silence.now_ns * ARB_TICKS_PER_NS;
	return 0;
}

int arb_reclaim_silent(struct arb_segment *seg, uint32_t me, const struct arb_rules *rules, uint64_t *asked)
{
	uint64_t now = arb_os_now_ns();
	int r = look_at_silent(seg, me, UINT64_MAX, HANG_LEFT_ALONE, rules, asked);

	/* Members that hang are dealt with last: they are taken out as of the end of their grace, and after that the
	 * record's time could not go back to a death before it. */
	if (r == 0 && now > rules->grace_ns)
		r = look_at_silent(seg, me, now - rules->grace_ns, HANG_EVICTED, rules, &(uint64_t){0});
	return r;
}

/* Takes the slot out of the set as its owner would leave it: the account rolls first, so that no usage falls into the
 * wrong window. */
static int take_out(struct arb_segment *seg, uint32_t slot, enum arb_gone gone, const struct arb_rules *rules,
	bool *was_running)
{
	struct chooser c = {seg, rules};
	struct arb_actor me = {seg, slot};
	struct arb_snap snap;
	struct arb_account_snap acct;
	uint32_t a = arb_load32(&seg->slots[slot].account);
	uint64_t asked = 0;
	int r = -EXDEV;

	*was_running = false;
	for (int tries = 0; tries < 100 && r < 0; tries++) {
		uint64_t now = arb_os_now_ns();
		struct arb_move move =
			move_at(&c, gone == ARB_GONE_DIED ? arb_silence_death(seg, slot, now) : now);

		move.asked = asked;
		move.in_order = gone == ARB_GONE_DIED;
		r = arb_running_roll(&me, &move, &snap);
		/* Of several dead members each is billed to its own end, so those that died earlier come first. */
		if (r == -EOWNERDEAD) {
			r = gone == ARB_GONE_DIED
				    ? look_at_silent(seg, slot, arb_running_heard(seg, slot, now),
					      HANG_LEFT_ALONE, rules, &asked)
				    : arb_reclaim_silent(seg, slot, rules, &asked);
			if (r < 0)
				return r;
			r = -EXDEV;
			continue;
		}
		if (r == -EBADMSG) {
			arb_events_write(seg, ARB_EVENT_CORRUPT, slot, a, 1, 0);
			r = arb_running_repair(&me, move.now, rules->win_ms);
			r = r < 0 ? r : -EXDEV;
			continue;
		}
		if (r < 0)
			return r;
		*was_running |= slot / 64 < snap.words && arb_bit_test(snap.running, slot);
		/* The account rolls on the terms that it has, because no others are known here. */
		if (arb_account_read(seg, a, &acct) == 0 && arb_bit_test(acct.attached, slot)) {
			struct arb_terms terms = {.limit_ppm = acct.limit_ppm,
				.quota_ppm = acct.quota_ppm,
				.carryover_pct = rules->carryover_pct,
				.wall = acct.wall};

			r = arb_account_roll(&me, a, &snap, &terms, move.now, &acct);
			if (r < 0)
				return r;
		}
		move.window = snap.win_number;
		r = arb_running_drop(&me, &move, &snap);
		if (r == 0 && move.next != ARB_NONE)
			arb_os_wake(&seg->slots[move.next].wake);
		if (r == 0 && move.fell)
			arb_above_release(seg);
	}
	return r;
}

static int detach(struct arb_segment *seg, uint32_t slot, bool forgive, uint64_t *freed)
{
	struct arb_lock directory;
	uint32_t a = arb_load32(&seg->slots[slot].account);
	int r;

	*freed = 0;
	if (!arb_segment_account(seg, a))
		return 0;
	r = arb_slot_directory(seg, &directory);
	if (r < 0)
		return r;
	r = arb_account_detach(seg, a, slot, freed);
	if (r == -EBADMSG && arb_account_repair(seg, a) >= 0)
		r = arb_account_detach(seg, a, slot, freed);
	if (r == 0 && forgive)
		r = arb_account_bound_debt(seg, a);
	if (r == 0)
		arb_audit_emptied(seg, a, slot);
	arb_slot_unlock(&directory);
	return r;
}

int arb_reclaim_clean(struct arb_segment *seg, uint32_t slot, enum arb_gone gone,
	const struct arb_rules *rules, struct arb_reclaimed *what)
{
	struct arb_slot *s = &seg->slots[slot];
	struct arb_account *acct = arb_segment_account(seg, arb_load32(&s->account));
	bool watched;
	int r;

	memset(what, 0, sizeof(*what));
	what->slot = slot;
	what->pid = arb_load32(&s->pid);
	what->pid_ns = arb_load64(&s->pid_ns);
	arb_text_load(s->command, ARB_COMMAND_WORDS, what->command);
	if (acct)
		arb_text_load(acct->name, ARB_NAME_WORDS, what->account);
	arb_store32(&s->state, ARB_SLOT_JOINING);
	arb_store32(&s->gate, 0);
	/* This comes before its place is given away, because its turn ends with it. */
	arb_store64(&s->turn_hold_ns, 0);
	arb_store64(&s->turn_since_ns, 0);
	r = take_out(seg, slot, gone, rules, &what->was_running);
	if (r < 0)
		return r;
	what->used_ticks = arb_load64(&s->total) - arb_load64(&s->base);
	r = detach(seg, slot, gone == ARB_GONE_DIED, &what->freed_bytes);
	if (r < 0)
		return r;
	/* What it asked for goes with it: the other members add up again. */
	if (arb_load32(&s->asked_ppm) || arb_load64(&s->asked_mem) || arb_hint32(&s->asked_share)) {
		arb_add32_full(&seg->header->epoch, 1);
		if (arb_hint32(&s->asked_share))
			arb_store32(&s->asked_share, 0);
		arb_store32(&s->asked_ppm, 0);
		arb_store64(&s->asked_mem, 0);
	}
	arb_admission_forget(seg, slot);
	arb_store64(&s->wait_since_ns, 0);
	arb_store64(&s->owner, 0);
	arb_store32(&s->account, ARB_NONE);
	watched = arb_load32(&s->life) != 0;
	arb_store32(&s->life, 0);
	arb_store32(&s->life2, 0);
	arb_store32_release(&s->state, ARB_SLOT_FREE);
	/* The client that watched over it has to find another neighbour now. */
	if (watched)
		arb_os_wake(&seg->header->ring);
	return 0;
}

/* Is there nothing left to clean? The state word alone is not believed while the set still has the slot. */
static bool is_clean(const struct arb_segment *seg, uint32_t slot)
{
	struct arb_snap snap;

	if (arb_load32_acquire(&seg->slots[slot].state) != ARB_SLOT_FREE)
		return false;
	if (arb_running_read(seg, &snap) < 0)
		return false;
	return slot / 64 >= snap.words ||
	       (!arb_bit_test(snap.running, slot) && !arb_bit_test(snap.waiting, slot) &&
		       !arb_bit_test(snap.evicted, slot));
}

int arb_reclaim_held(
	struct arb_segment *seg, uint32_t slot, const struct arb_rules *rules, struct arb_reclaimed *what)
{
	uint32_t account = arb_load32(&seg->slots[slot].account);
	/* When the last process of a tree has ended, nobody knows how it ended, and no process was left to say that the
	 * tree leaves. So this counts as leaving. */
	bool tree = arb_load32(&seg->slots[slot].flags) & ARB_SLOT_TREE;
	int r = arb_reclaim_clean(seg, slot, ARB_GONE_DIED, rules, what);

	if (r < 0)
		return r;
	if (!tree)
		arb_add64_full(&seg->header->reclaimed, 1);
	/* A process that was cleaning it up and died at the last step may have detached it already. */
	if (account != ARB_NONE)
		arb_events_write(seg, tree ? ARB_EVENT_LEFT : ARB_EVENT_RECLAIMED, slot, account,
			what->used_ticks, what->freed_bytes);
	return 0;
}

/* Does what arb_reclaim_slot does, without a sleep. */
static int reclaim_now(
	struct arb_segment *seg, uint32_t slot, const struct arb_rules *rules, struct arb_reclaimed *what)
{
	uint64_t bit = 1ull << (slot % 64);
	struct arb_lock lock;
	int r;

	/* A slot that is clean but marked as taken is about to be filled in, or the process that cleaned it died at
	 * the last step. */
	if (is_clean(seg, slot) && !(arb_load64(&seg->header->taken[slot / 64]) & bit))
		return 0;
	r = arb_slot_lock(seg, ARB_BYTE_SLOT(slot), &lock);
	if (r < 0)
		return r == -EAGAIN ? 0 : r;
	if (is_clean(seg, slot)) {
		arb_bit_clear(&seg->header->taken[slot / 64], bit);
		r = 0;
	} else if ((r = arb_reclaim_held(seg, slot, rules, what)) == 0) {
		arb_bit_clear(&seg->header->taken[slot / 64], bit);
		r = 1;
	}
	arb_slot_unlock(&lock);
	return r;
}

int arb_reclaim_slot(
	struct arb_segment *seg, uint32_t slot, const struct arb_rules *rules, struct arb_reclaimed *what)
{
	struct arb_patience p = {.length_ns = PATIENCE_NS};
	int r;

	do
		r = reclaim_now(seg, slot, rules, what);
	while (r == -EBUSY && arb_patience_pause(&p));
	return r;
}

int arb_reclaim_evict(struct arb_segment *seg, uint32_t me, uint32_t victim, const struct arb_rules *rules)
{
	struct chooser c = {seg, rules};
	struct arb_actor actor = {seg, me};
	struct arb_slot *s = &seg->slots[victim];
	uint64_t beat = arb_running_heard(seg, victim, arb_os_now_ns());
	/* However late it is found, it is billed only for the time for which the others waited for it. */
	bool live = arb_load32(&s->state) == ARB_SLOT_LIVE;
	struct arb_move move = move_at(&c, beat + (live ? rules->grace_ns : ARB_DEATH_NS));
	uint64_t now_ns = move.now / ARB_TICKS_PER_NS;
	uint32_t generation = arb_load32(&s->generation);
	struct arb_lock lock;
	struct arb_snap snap;
	int r = arb_slot_lock(seg, ARB_BYTE_EVICT(seg->nslots, victim), &lock);

	if (r < 0)
		return r == -EAGAIN ? 0 : r;
	/* Members that have been silent for longer are probed already, or do not matter here. */
	move.asked = move.now;
	r = arb_running_evict(
		&actor, &move, victim, generation, now_ns - (live ? rules->grace_ns : ARB_HEARD_NS), &snap);
	if (r == 1) {
		arb_store32(&s->gate, 0);
		arb_add64_full(&s->evictions, 1);
		arb_events_write(seg, ARB_EVENT_EVICTED, victim, arb_load32(&s->account), now_ns - beat, 0);
		arb_os_wake(&s->wake);
		if (move.next != ARB_NONE)
			arb_os_wake(&seg->slots[move.next].wake);
	}
	arb_slot_unlock(&lock);
	return r;
}

static int look(
	struct arb_segment *seg, uint32_t me, uint32_t slot, enum hang hang, const struct arb_rules *rules)
{
	struct arb_reclaimed what;
	uint64_t patience = rules->grace_ns, now = arb_os_now_ns();
	bool live;
	int alive;

	if (slot == me || slot >= seg->nslots)
		return 0;
	alive = arb_slot_alive(seg, slot);
	if (alive == 0)
		return reclaim_now(seg, slot, rules, &what);
	/* A slot that is not live belongs to a dead client, and another client is cleaning it at this moment. */
	live = arb_load32(&seg->slots[slot].state) == ARB_SLOT_LIVE;
	if (!live)
		patience = ARB_HEARD_NS;
	if (alive > 0 && live && arb_running_heard(seg, slot, now) + ARB_HEARD_NS < now)
		ask_whether_frozen(seg, slot, rules, now);
	if (alive > 0 && (!live || hang == HANG_EVICTED) &&
		arb_running_heard(seg, slot, now) + patience < arb_os_now_ns())
		return arb_reclaim_evict(seg, me, slot, rules);
	return alive < 0 ? alive : 0;
}

int arb_reclaim_look(
	struct arb_segment *seg, uint32_t me, uint32_t slot, bool runs, const struct arb_rules *rules)
{
	return look(seg, me, slot, runs ? HANG_EVICTED : HANG_LEFT_ALONE, rules);
}

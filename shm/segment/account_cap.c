/* What an account may use: caps that a window's roll raises, changed terms, borrowing, debt. */
#include "shm/segment/account_record.h"

/* A day of GPU time beyond the quota was not used by a client: garbage was billed. */
#define DEBT_TICKS_MAX (86400ull * 1000000000u * ARB_TICKS_PER_NS)

/*
 * Moves the caps to the other clock, with as much left below them as before. Done only if no member has come or gone
 * since the snapshot: otherwise a slot's words might belong to another client, which the account's own CAS does not
 * see. Then the next roll does it.
 */
static void change_clock(
	const struct arb_segment *seg, const struct arb_snap *run, struct arb_account_snap *s, bool wall)
{
	uint64_t shift =
		arb_account_usage(seg, run, s, wall, false) - arb_account_usage(seg, run, s, !wall, false);

	arb_fence_acquire(); /* pairs SNAPSHOT_REUSE */
	if (arb_load64(&seg->header->head) != run->head)
		return;
	s->cap += shift;
	s->hard += shift;
	s->start += shift;
	s->wall = wall;
}

/* Is a member in the queue and waiting? A member that pauses keeps its place there, and waits for nothing. */
static bool in_queue(
	const struct arb_segment *seg, const struct arb_snap *run, const struct arb_account_snap *s)
{
	for (uint32_t i = arb_bits_next(run->waiting, run->words, 0); i != ARB_NONE;
		i = arb_bits_next(run->waiting, run->words, i + 1))
		if (arb_bit_test(s->attached, i) && arb_load64(&seg->slots[i].wait_since_ns))
			return true;
	return false;
}

/* Does a member run whose work waits for something that may itself be waiting for this account? */
static bool stalls(
	const struct arb_segment *seg, const struct arb_snap *run, const struct arb_account_snap *s)
{
	for (uint32_t i = arb_bits_next(run->running, run->words, 0); i != ARB_NONE;
		i = arb_bits_next(run->running, run->words, i + 1))
		if (arb_bit_test(s->attached, i) && arb_load32(&seg->slots[i].flags) & ARB_SLOT_STALLS)
			return true;
	return false;
}

static uint64_t next_cap(
	uint64_t usage, uint64_t cap, uint64_t grant, unsigned carryover_pct, uint64_t windows, bool queued)
{
	uint64_t next = arb_policy_next_cap(usage, cap, grant, carryover_pct, windows), saved;

	if (!queued)
		return next;
	saved = arb_policy_saved_cap(usage, cap, grant, windows);
	return arb_policy_before(next, saved) ? saved : next;
}

static void roll_to(const struct arb_segment *seg, const struct arb_snap *run, const struct arb_terms *terms,
	struct arb_account_snap *s)
{
	uint64_t windows = run->win_number - s->window;
	uint64_t usage = arb_account_usage(seg, run, s, s->wall, true);
	bool queued = in_queue(seg, run, s);

	if (s->owed) {
		s->cap = (arb_policy_before(usage, s->cap) ? usage : s->cap) - s->owed;
		s->owed = 0;
	}
	/* No account can have run up such a debt; it would lock the account out for ever. */
	if ((int64_t)(usage - s->cap) > (int64_t)DEBT_TICKS_MAX)
		s->cap = usage;
	if ((int64_t)(usage - s->hard) > (int64_t)DEBT_TICKS_MAX)
		s->hard = usage;
	/* The account does not owe for time in which its work only waited. */
	if (arb_policy_before(s->cap, usage) && stalls(seg, run, s)) {
		s->borrowed += usage - s->cap;
		s->cap = usage;
		if (arb_policy_before(s->hard, usage))
			s->hard = usage;
	}
	/* An account without a limit owes nothing. Its members may use more time than there is, if each of them pays
	 * for all of its time. */
	if (s->limit_ppm >= ARB_PPM && s->quota_ppm >= ARB_PPM)
		s->cap = s->hard = usage;
	/* An account that was away for a whole window, or is new, starts on the present terms with a full quota. */
	if (windows > 1 || s->window == 0) {
		s->quota_ppm = terms->quota_ppm;
		s->limit_ppm = terms->limit_ppm;
	}
	s->cap = next_cap(usage, s->cap, arb_policy_grant(s->quota_ppm, run->win_ticks), terms->carryover_pct,
		windows, queued);
	s->hard = next_cap(usage, s->hard, arb_policy_grant(s->limit_ppm, run->win_ticks),
		terms->carryover_pct, windows, queued);
	s->start = usage;
	s->window = run->win_number;
}

int arb_account_roll(const struct arb_actor *me, uint32_t a, const struct arb_snap *run,
	const struct arb_terms *terms, uint64_t now, struct arb_account_snap *s)
{
	struct arb_segment *seg = me->seg;
	uint64_t end = run->win_start + run->win_ticks;
	uint64_t left = (int64_t)(end - now) > 0 ? end - now : 0;

	for (int i = 0; i < ARB_TRIES; i++) {
		int r = account_load(seg, a, s);

		if (r < 0)
			return r;
		/*
		 * Another client is ahead of this snapshot: the roll has been done, in a later one. If there is no
		 * later one, this window is garbage (or the snapshot was, and its windows are counted anew): back to
		 * the snapshot's window.
		 */
		if (s->window > run->win_number && arb_load64(&seg->header->head) != run->head)
			return 0;
		if (s->window == run->win_number && s->limit_ppm == terms->limit_ppm &&
			s->quota_ppm == terms->quota_ppm && s->wall == terms->wall) {
			if (!account_unchanged(seg, a, s))
				continue;
			arb_ledger_note(seg, a, s);
			return 0;
		}
		if (s->window != run->win_number)
			roll_to(seg, run, terms, s);
		if (left > run->win_ticks)
			left = run->win_ticks;
		s->cap = arb_policy_move_cap(s->cap, s->quota_ppm, terms->quota_ppm, left);
		s->hard = arb_policy_move_cap(s->hard, s->limit_ppm, terms->limit_ppm, left);
		s->quota_ppm = terms->quota_ppm;
		s->limit_ppm = terms->limit_ppm;
		if (s->wall != terms->wall)
			change_clock(seg, run, s, terms->wall);
		if (account_publish(seg, a, me->slot, s)) {
			arb_store32(&seg->accounts[a].limit_ppm, terms->limit_ppm);
			return 0;
		}
	}
	return -EBUSY;
}

int arb_account_extend(
	const struct arb_actor *me, uint32_t a, const struct arb_extension *more, struct arb_account_snap *s)
{
	for (int i = 0; i < ARB_TRIES; i++) {
		uint64_t until = more->usage + more->by, owed = 0;
		int r = account_load(me->seg, a, s);

		if (r < 0)
			return r;
		if (!more->borrow && arb_policy_before(s->hard, until))
			until = s->hard;
		if (!arb_policy_before(s->cap, until)) {
			if (account_unchanged(me->seg, a, s))
				return 0;
			continue;
		}
		/* Once a window: what was used beyond an extended cap was used while no account was short. */
		if (more->in_debt && !s->owed && arb_policy_before(s->cap, more->usage))
			owed = (arb_policy_before(until, more->usage) ? until : more->usage) - s->cap;
		s->borrowed += until - s->cap - owed;
		s->owed += owed;
		s->cap = until;
		if (more->borrow && arb_policy_before(s->hard, until))
			s->hard = until;
		if (account_publish(me->seg, a, me->slot, s))
			return 0;
	}
	return -EBUSY;
}

/* A slot that is just joining has used nothing. */
static bool has_live_member(const struct arb_segment *seg, const struct arb_account_snap *s)
{
	for (uint32_t i = arb_bits_next(s->attached, seg->nwords, 0); i != ARB_NONE;
		i = arb_bits_next(s->attached, seg->nwords, i + 1))
		if (arb_load32(&seg->slots[i].state) == ARB_SLOT_LIVE)
			return true;
	return false;
}

int arb_account_bound_debt(struct arb_segment *seg, uint32_t a)
{
	struct arb_account_snap s;
	struct arb_snap run;

	for (int i = 0; i < ARB_TRIES; i++) {
		int r = arb_running_read(seg, &run);
		uint64_t least;

		if (r == 0)
			r = account_load(seg, a, &s);
		if (r < 0)
			return r;
		least = arb_account_usage(seg, &run, &s, s.wall, false) - run.win_ticks;
		arb_fence_acquire(); /* pairs SNAPSHOT_REUSE: usage is that of one moment */
		if (arb_load64(&seg->header->head) != run.head)
			continue;
		if (s.limit_ppm >= ARB_PPM || !arb_policy_before(s.cap - s.owed, least) ||
			has_live_member(seg, &s)) {
			if (account_unchanged(seg, a, &s))
				return 0;
			continue;
		}
		s.cap = least;
		s.owed = 0;
		if (arb_policy_before(s.hard, least))
			s.hard = least;
		if (account_publish(seg, a, ARB_HOME, &s))
			return 0;
	}
	return -EBUSY;
}

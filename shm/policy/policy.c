#include "shm/policy/policy.h"

bool arb_policy_takes_turns(enum arb_policy policy, uint64_t quota_sum_ppm)
{
	switch (policy) {
	case ARB_POLICY_CONCURRENT:
		return false;
	case ARB_POLICY_AUTO:
		return quota_sum_ppm > ARB_PPM;
	case ARB_POLICY_EXCLUSIVE:
	case ARB_POLICY_FAIR:
	case ARB_POLICY_MEMORY:
		break;
	}
	return true;
}

enum arb_policy arb_policy_in_force(
	enum arb_policy policy, enum arb_alternation setting, bool alternates, uint64_t quota_sum_ppm)
{
	if (setting == ARB_ALTERNATION_OFF || (setting == ARB_ALTERNATION_DETECT && !alternates) ||
		arb_policy_takes_turns(policy, quota_sum_ppm))
		return policy;
	return ARB_POLICY_FAIR;
}

bool arb_policy_admit(const struct arb_policy_case *c)
{
	return !arb_policy_takes_turns(c->policy, c->quota_sum_ppm) ||
	       (!c->reserved_for_other && c->running == 0);
}

uint32_t arb_policy_scale(uint32_t limit_ppm, uint64_t sum_ppm, uint32_t lost_ppm)
{
	uint64_t whole = ARB_PPM - (lost_ppm < ARB_LOST_PPM_MOST ? lost_ppm : ARB_LOST_PPM_MOST);

	if (sum_ppm <= whole || limit_ppm >= ARB_PPM)
		return limit_ppm;
	return (uint32_t)(limit_ppm * whole / sum_ppm);
}

uint32_t arb_policy_lost(uint32_t before_ppm, uint64_t lost, uint64_t busy, uint64_t ticks, uint64_t windows)
{
	uint64_t most = ticks / ARB_PPM * ARB_LOST_PPM_MOST, idle = busy < ticks ? ticks - busy : 0;
	uint64_t now_ppm, past;

	if (!windows || ticks < ARB_PPM)
		return before_ppm;
	lost = lost < idle ? lost : idle;
	lost -= lost < idle - lost ? lost : idle - lost;
	now_ppm = (lost < most ? lost : most) / (ticks / ARB_PPM);
	past = windows < ARB_LOST_WINDOWS ? ARB_LOST_WINDOWS - windows : 0;
	return (uint32_t)((before_ppm * past + now_ppm * (ARB_LOST_WINDOWS - past)) / ARB_LOST_WINDOWS);
}

uint64_t arb_policy_grant(uint32_t ppm, uint64_t ticks)
{
	/* The product is split, so that a window of a minute times a million does not overflow. */
	return ticks / ARB_PPM * ppm + ticks % ARB_PPM * ppm / ARB_PPM;
}

uint64_t arb_policy_next_cap(
	uint64_t usage, uint64_t cap, uint64_t grant, unsigned carryover_pct, uint64_t windows)
{
	uint64_t debt, paid;

	if (windows == 0)
		return cap;
	if (arb_policy_before(usage, cap) || grant == 0)
		return usage + grant;
	/* All that the account used in the windows since its last roll is in `usage`: each of these windows paid off
	 * one grant, and what is left of the debt shrinks at every boundary. */
	debt = usage - cap;
	if (carryover_pct >= 100) {
		paid = windows - 1 > debt / grant ? debt : grant * (windows - 1);
		return usage - (debt - paid) + grant;
	}
	for (uint64_t i = 0; i < windows && debt; i++) {
		if (i)
			debt = debt > grant ? debt - grant : 0;
		debt = debt / 100 * carryover_pct + debt % 100 * carryover_pct / 100;
	}
	return usage - debt + grant;
}

uint64_t arb_policy_saved_cap(uint64_t usage, uint64_t cap, uint64_t grant, uint64_t windows)
{
	uint64_t most = usage + grant * (1 + ARB_SAVED_WINDOWS);
	uint64_t saved;

	/* A thousand grants are enough: they reach the bound from any debt that so long a wait could pay off. */
	saved = cap + grant * (windows > 1000 ? 1000 : windows);
	return arb_policy_before(most, saved) ? most : saved;
}

uint64_t arb_policy_turn(enum arb_policy policy, uint64_t slice, uint64_t window)
{
	return policy == ARB_POLICY_FAIR ? slice : window;
}

uint64_t arb_policy_move_cap(uint64_t cap, uint32_t old_ppm, uint32_t new_ppm, uint64_t left)
{
	return cap + arb_policy_grant(new_ppm, left) - arb_policy_grant(old_ppm, left);
}

bool arb_policy_goes_first(
	const struct arb_candidate *a, const struct arb_candidate *b, uint64_t now_ns, uint64_t max_wait_ns)
{
	bool a_late = a->since_ns && now_ns > a->since_ns && now_ns - a->since_ns > max_wait_ns;
	bool b_late = b->since_ns && now_ns > b->since_ns && now_ns - b->since_ns > max_wait_ns;

	if (a->silent != b->silent)
		return b->silent;
	/* One of the two waits for nothing: its place was kept, and it has not come back. */
	if (!a->since_ns != !b->since_ns)
		return a->since_ns != 0;
	if (a_late != b_late)
		return a_late;
	if (a_late)
		return a->since_ns < b->since_ns;
	if (a->priority != b->priority)
		return a->priority > b->priority;
	if (a->rank_ppm != b->rank_ppm)
		return a->rank_ppm < b->rank_ppm;
	return a->since_ns < b->since_ns;
}

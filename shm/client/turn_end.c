/* Whose turn is next, when a turn ends, and for how long a place is kept. Nothing here changes the segment. */
#include "gpuarb/client.h"

#include "shm/base/atomic.h"
#include "shm/base/os.h"
#include "shm/client/above.h"
#include "shm/client/client_state.h"
#include "shm/client/quota.h"
#include "shm/policy/policy.h"
#include "shm/segment/residency.h"
#include "shm/segment/running.h"
#include "shm/segment/wait.h"

uint32_t arb_turn_choose(void *argument, const struct arb_snap *snap, uint64_t now_ns)
{
	struct gpuarb_client *c = argument;
	struct arb_order order = arb_turn_order(c, now_ns);

	if (c->rules.policy == ARB_POLICY_MEMORY) {
		struct arb_residency r = arb_turn_residency(c, snap, now_ns);

		return arb_residency_choose(&r);
	}
	return arb_wait_choose(&c->seg, snap, &order);
}

/* Has the work of a client that waits taken less than half a slice in each of its turns, on average? */
static bool wants_little(const struct gpuarb_client *c, uint32_t i)
{
	const struct arb_slot *s = &c->seg.slots[i];
	uint64_t enters = arb_load64(&s->enters);

	return enters && (arb_load64(&s->total) - arb_load64(&s->base)) / enters < c->rules.slice_ticks / 2;
}

/* Returns how long the client's turn lasts if `next` is the first waiter. */
static uint64_t turn_length(const struct gpuarb_client *c, const struct arb_snap *snap, uint32_t next)
{
	uint64_t length = arb_policy_turn(c->policy, c->rules.slice_ticks, snap->win_ticks);

	/* A client that wants little does not wait for longer than a slice. */
	if (next != ARB_NONE && length > c->rules.slice_ticks && wants_little(c, next))
		length = c->rules.slice_ticks;
	return length;
}

uint64_t arb_turn_left_ns(const struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	struct arb_order order = arb_turn_order(c, now_ns);
	uint64_t end;

	if (!c->turn.taken || !c->running || !snap->any_waiting || c->rules.policy == ARB_POLICY_MEMORY)
		return UINT64_MAX;
	end = (c->turn.began + turn_length(c, snap, arb_wait_choose(&c->seg, snap, &order))) /
	      ARB_TICKS_PER_NS;
	return end > now_ns ? end - now_ns : 0;
}

uint32_t arb_turn_in_the_way(const struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	bool chosen = c->policy == c->rules.policy;
	uint32_t n = 0;

	for (uint32_t i = arb_bits_next(snap->running, snap->words, 0); i != ARB_NONE;
		i = arb_bits_next(snap->running, snap->words, i + 1))
		n += i >= c->seg.nslots ||
		     (!(arb_load32(&c->seg.slots[i].flags) & ARB_SLOT_OUTLASTS) &&
			     (chosen || i == c->me.slot ||
				     now_ns - arb_running_heard(&c->seg, i, now_ns) < ARB_ABOVE_HEARD_NS));
	return n;
}

bool arb_turn_over(const struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	struct arb_order order = arb_turn_order(c, now_ns);
	uint32_t next;

	if (c->rules.policy == ARB_POLICY_MEMORY) {
		struct arb_residency r = arb_turn_residency(c, snap, now_ns);

		return arb_residency_over(&r, c->me.slot);
	}
	if (!c->turn.taken || c->turn.outlasts)
		return false;
	/* Two clients may run together because they did so before turns were taken, or because one was let in while
	 * the work of the other outlasted its turn. */
	if (arb_turn_in_the_way(c, snap, now_ns) > 1)
		return true;
	if (!snap->any_waiting)
		return false;
	/* A client of higher priority does not wait for the end of a turn, unless nothing can stop that turn. */
	next = arb_wait_choose(&c->seg, snap, &order);
	return (next != ARB_NONE && !(c->move.level & ARB_LEVEL_IN_REQUEST) &&
		       arb_wait_order(&c->seg, next) > arb_wait_order(&c->seg, c->me.slot)) ||
	       (int64_t)(now_ns * ARB_TICKS_PER_NS - c->turn.began - turn_length(c, snap, next)) >= 0;
}

uint64_t arb_turn_keep_ns(struct gpuarb_client *c, uint64_t keep_ns)
{
	uint64_t now = arb_os_now_ns(), left;
	struct arb_snap snap;

	if (!c->turn.taken || c->rules.policy == ARB_POLICY_MEMORY || arb_running_read(&c->seg, &snap) < 0 ||
		!snap.any_waiting)
		return 0;
	arb_running_advance(&snap, now * ARB_TICKS_PER_NS, c->rules.win_ms);
	if (arb_turn_over(c, &snap, now) || !arb_quota_left(c, &snap, 0))
		return 0;
	left = (c->turn.began - now * ARB_TICKS_PER_NS +
		       arb_policy_turn(c->policy, c->rules.slice_ticks, snap.win_ticks)) /
	       ARB_TICKS_PER_NS;
	if (left > ARB_RESERVE_NS_MAX / 2)
		left = ARB_RESERVE_NS_MAX / 2;
	return keep_ns < left ? keep_ns : left;
}

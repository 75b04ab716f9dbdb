/* The tick of a client that runs: a heartbeat, the window, its limits, its neighbour, and whether it may go on. */
#include <errno.h>

#include "gpuarb/client.h"

#include "shm/client/above.h"
#include "shm/client/floor.h"
#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/base/fault.h"
#include "shm/base/os.h"
#include "shm/admission/lease_queue.h"
#include "shm/client/quota.h"
#include "shm/segment/running.h"
#include "shm/admission/sampler.h"
#include "shm/segment/slot.h"

#define STALE_CHECK_NS 1000000000ull

/*
 * The window is rolled as of at_ns (0: now), the time at which the caller last saw that it has work. If it
 * were rolled as of now, a client that was stopped in this function for longer than a window could not date the end of
 * its work before that roll any more. Slots that cannot be cleaned now are left to the next client that looks.
 */
static int tick(struct gpuarb_client *c, uint64_t at_ns, bool *untidy)
{
	struct arb_snap snap;
	struct arb_account_snap acct;
	uint64_t now = arb_os_now_ns();
	bool above = false;
	int r = arb_client_ensure(c);

	if (r < 0)
		return r;
	*untidy = !arb_queue_bits_agree(c);
	arb_client_leave_as_hung(c);
	arb_ledger_beat(&c->ledger, now);
	arb_store64(&arb_client_slot(c)->heartbeat_ns, now);
	arb_sampler_tick(&c->admission.sampler, &c->seg, &c->rules.usage, c->rules.win_ms, now);
	if (now - c->patrol.checked_ns >= STALE_CHECK_NS) {
		c->patrol.checked_ns = now;
		arb_client_note_rest(c, false);
		arb_client_find_control(c);
		arb_client_scrub(c);
		/* The program may have installed a handler of its own since. */
		if (c->seg.file.guard)
			arb_fault_keep();
		if (arb_slot_alive(&c->seg, c->me.slot) == -ESTALE)
			return -ESTALE;
	}
	r = arb_client_roll(c, at_ns, &snap, &acct);
	if (r < 0)
		return r;
	c->running = c->me.slot / 64 < snap.words && arb_bit_test(snap.running, c->me.slot);
	if (c->running) {
		arb_turn_active(c);
		r = arb_client_neighbour(c, &snap, now);
		if (r < 0 && r != -ESTALE)
			r = 0;
		arb_running_advance(
			&snap, (at_ns && at_ns < now ? at_ns : now) * ARB_TICKS_PER_NS, c->rules.win_ms);
		if (__builtin_expect(arb_above_matters(c), 0)) {
			int leveled = arb_above_tick(c);

			if (leveled < 0)
				return leveled;
			above = arb_above_decides(c) && arb_above_me(c, &snap, now);
		}
		if (!above)
			arb_floor_goes_on(c, &snap, now);
		if (r >= 0)
			r = !arb_quota_left(c, &snap, 0)            ? -EDQUOT
			    : arb_turn_over(c, &snap, now) || above ? -EAGAIN
								    : 0;
	}
	/* Under `memory` several run together in their turns. */
	if (__builtin_expect(r == -EAGAIN && c->turn.taken && c->rules.policy != ARB_POLICY_MEMORY, 0) &&
		now * ARB_TICKS_PER_NS - c->turn.began < c->rules.slice_ticks / 2) {
		arb_floor_cut(c, &snap);
		if (arb_turn_in_the_way(c, &snap, now) > 1)
			arb_floor_in_vain(c, now);
	}
	/* The process that evicted us may have died before it closed the gate, or may have closed it only after we
	 * were back. */
	if (__builtin_expect(arb_load32(&arb_client_slot(c)->gate) != (c->running && !above), 0)) {
		arb_store32(&arb_client_slot(c)->gate, c->running && !above);
		if (c->running && !above && arb_above_matters(c))
			arb_above_entered(c);
	}
	return r;
}

int arb_client_tick(struct gpuarb_client *c, uint64_t at_ns)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE;
	bool untidy = false;
	int r;

	arb_client_follow(c);
	arb_lock_take(&c->guard->lock);
	do
		r = tick(c, at_ns, &untidy);
	while (__builtin_expect(r == -EBUSY, 0) && arb_client_breathe(c, &patience));
	arb_lock_give(&c->guard->lock);
	if (__builtin_expect(untidy, 0))
		arb_queue_tidy(c);
	return r;
}

int gpuarb_client_tick(struct gpuarb_client *c)
{
	return arb_client_tick(c, 0);
}

/* How a client leaves. */
#include <errno.h>
#include <stdlib.h>

#include "gpuarb/client.h"

#include "shm/base/atomic.h"
#include "shm/segment/check.h"
#include "shm/client/client_state.h"
#include "shm/segment/events.h"
#include "shm/client/reclaim.h"
#include "shm/segment/slot.h"

#define PATIENCE_NS 200000000u

/*
 * Cleans up as after a death, so that there is only one way to leave. Other threads find the client not joined from
 * the beginning. What they do while another process holds the directory does not touch this slot, whose byte is held
 * by a page that only this thread knows now. If they move to another segment, clients in the old one see this client
 * die.
 */
static void leave_for_good(struct gpuarb_client *c)
{
	struct arb_patience patience = {.length_ns = PATIENCE_NS};
	struct arb_state_header *header = c->seg.header;
	struct arb_reclaimed what;
	uint32_t account = c->account, slot = c->me.slot;
	void *page = c->lock_page;
	int r;

	arb_client_note_rest(c, true);
	arb_sampler_stop(&c->admission.sampler);
	arb_store64(&c->guard->birth, 0);
	arb_store32(&c->guard->joined, 0);
	c->guard->promised = 0;
	c->lock_page = NULL;
	do
		r = c->seg.header == header
			    ? arb_reclaim_clean(&c->seg, slot, ARB_GONE_LEFT, &c->rules, &what)
			    : -ESTALE;
	while (r == -EBUSY && arb_client_breathe(c, &patience));
	if (c->seg.own_slot == slot)
		arb_ledger_end(&c->seg);
	if (r == 0) {
		arb_events_write(&c->seg, ARB_EVENT_LEFT, slot, account, what.used_ticks, what.freed_bytes);
		arb_slot_release(&c->seg, slot, page);
		arb_check_debug(&c->seg);
	} else {
		/* The slot stays marked as taken, so that clients that look for the dead find it. */
		arb_os_unmap(page, 0);
	}
}

void gpuarb_client_part(struct gpuarb_client *c)
{
	arb_lock_take(&c->guard->lock);
	arb_store32(&c->guard->parted, 1);
	if (arb_load32(&c->guard->joined))
		leave_for_good(c);
	arb_lock_give(&c->guard->lock);
}

bool gpuarb_client_free(const struct gpuarb_client *c)
{
	return arb_lock_free(&c->guard->lock);
}

void gpuarb_client_close(struct gpuarb_client *c)
{
	if (!c)
		return;
	if (c->guard) {
		arb_lock_take(&c->guard->lock);
		if (arb_load32(&c->guard->joined))
			leave_for_good(c);
		arb_lock_give(&c->guard->lock);
		arb_os_unmap(c->guard, 0);
	}
	arb_control_map_close(&c->control);
	arb_segment_close(&c->seg);
	free(c->opened.follow);
	free(c->opened.conf);
	free(c);
}

void gpuarb_client_estimated(struct gpuarb_client *c, uint64_t ns)
{
	arb_u64 *estimated = &arb_client_slot(c)->estimated_ns;

	arb_lock_take(&c->guard->lock);
	if (arb_load32(&c->guard->joined))
		arb_store64(estimated, arb_load64(estimated) + ns);
	arb_lock_give(&c->guard->lock);
}

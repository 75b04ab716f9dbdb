/* How a client goes. */
#include <stdlib.h>

#include "gpuarb/client.h"

#include "atomic.h"
#include "check.h"
#include "client.h"
#include "events.h"
#include "reclaim.h"
#include "slot.h"

/* The same cleaning as after a death, so that there is one way out. */
static void leave_for_good(struct gpuarb_client *c)
{
	struct arb_reclaimed what;
	uint32_t account = c->account;

	arb_sampler_stop(&c->sampler);
	if (arb_reclaim_clean(&c->seg, c->me.slot, &c->rules, &what) == 0)
		arb_events_write(
			&c->seg, ARB_EVENT_LEFT, c->me.slot, account, what.used_ticks, what.freed_bytes);
	arb_slot_release(&c->seg, c->me.slot, c->lock_page);
	arb_check_debug(&c->seg);
}

void arb_client_part(struct gpuarb_client *c)
{
	arb_lock_take(&c->guard->lock);
	if (arb_load32(&c->guard->joined)) {
		leave_for_good(c);
		arb_store32(&c->guard->joined, 0);
	}
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
		arb_os_unmap(c->guard, 0);
	}
	arb_control_map_close(&c->control);
	arb_segment_close(&c->seg);
	free(c->follow);
	free(c->conf);
	free(c);
}

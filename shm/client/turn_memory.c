/* Turns at the GPU's memory: how a client begins and ends its own. */
#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/segment/events.h"
#include "shm/base/os.h"
#include "shm/segment/residency.h"
#include "shm/segment/running.h"

/* Writes the event of a turn at the GPU's memory that lasted `ns` and ended at `at_ns`. */
static void note_turn_end(struct gpuarb_client *c, uint64_t ns, uint64_t at_ns, enum arb_turn_end why)
{
	const struct arb_event_copy event = {.kind = ARB_EVENT_TURN_ENDED,
		.slot = c->me.slot,
		.account = c->account,
		.a = c->mem.held,
		.b = ns,
		.c = at_ns,
		.why = why,
		.times = 1};

	arb_events_put(&c->seg, &event);
	c->turn.noted = false;
}

/* A turn that did not wait, and that no client waited for, is not worth an event. */
void arb_turn_begin(struct gpuarb_client *c, const struct arb_snap *snap)
{
	const struct arb_slot *s = arb_client_slot(c);
	uint64_t now = c->move.now / ARB_TICKS_PER_NS, held = arb_load64(&s->turn_hold_ns);
	uint64_t waited_from = c->wait.since ? c->wait.from : 0;
	struct arb_residency r = arb_turn_residency(c, snap, now);

	if (!arb_residency_enter(&r, c->me.slot))
		return;
	c->turn.fresh = true;
	if (c->turn.noted && held > c->turn.from)
		note_turn_end(c, held - c->turn.from, held, ARB_TURN_IDLE);
	c->turn.from = now;
	if (!waited_from || now <= waited_from)
		return;
	arb_events_write(
		&c->seg, ARB_EVENT_TURN_BEGAN, c->me.slot, c->account, c->mem.held, now - waited_from);
	c->turn.noted = true;
}

/* A client without work whose turn is not over may come back at once: what it has on the GPU stays there. */
void arb_turn_end(struct gpuarb_client *c)
{
	struct arb_snap snap;
	struct arb_residency r = arb_turn_residency(c, &snap, arb_os_now_ns());
	bool keep = arb_running_read(&c->seg, &snap) == 0 && !arb_residency_over(&r, c->me.slot);

	arb_residency_leave(&r, c->me.slot, keep);
	if (keep || !c->turn.from)
		return;
	note_turn_end(c, r.now_ns > c->turn.from ? r.now_ns - c->turn.from : 0, r.now_ns, ARB_TURN_OVER);
	c->turn.from = 0;
}

#include "shm/segment/alternation.h"

#include "shm/base/atomic.h"
#include "shm/segment/events.h"

bool arb_alternates(const struct arb_segment *seg, uint64_t now_ns)
{
	uint64_t until = arb_load64(&seg->header->alternates_until_ns);

	/* A time that is further away than any client writes is garbage. */
	return until > now_ns && until - now_ns <= 2ull * ARB_ALTERNATES_NS;
}

void arb_alternates_note(struct arb_segment *seg, uint32_t slot, uint64_t now_ns, bool trial)
{
	arb_u64 *until = &seg->header->alternates_until_ns;
	uint64_t old = arb_load64(until);
	bool known = arb_alternates(seg, now_ns);

	if (trial) {
		if (!known)
			arb_cas64_full(until, old, now_ns + ARB_TRIAL_NS);
		return;
	}

	/* Of several clients that see it at once, one writes the event. */
	if (!arb_cas64_full(until, old, now_ns + ARB_ALTERNATES_NS) || known)
		return;
	arb_events_put(seg, &(struct arb_event_copy){.kind = ARB_EVENT_ALTERNATES,
				    .slot = slot,
				    .account = ARB_NONE,
				    .a = ARB_ALTERNATES_NS,
				    .times = 1});
}

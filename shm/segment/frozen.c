#include "shm/segment/frozen.h"

#include "shm/base/atomic.h"
#include "shm/base/os.h"

#define STATE_MASK ((1u << ARB_FROZEN_STATE_BITS) - 1)

unsigned arb_frozen_read(const struct arb_slot *slot, uint64_t now_ns, uint64_t *said_ns)
{
	uint64_t word = arb_hint64(&slot->frozen), said = word >> ARB_FROZEN_STATE_BITS;
	unsigned state = word & STATE_MASK;

	if (said > now_ns || state > ARB_FROZEN_CHECKPOINTED)
		said = state = 0;
	*said_ns = said;
	return said ? state : ARB_FROZEN_NOT;
}

void arb_frozen_say(struct arb_slot *slot, unsigned state, uint64_t now_ns)
{
	arb_store64(&slot->frozen, now_ns << ARB_FROZEN_STATE_BITS | state);
}

bool arb_frozen_ask(struct arb_slot *slot, uint64_t age_ns, uint64_t now_ns)
{
	uint64_t said;

	arb_frozen_read(slot, now_ns, &said);
	if (!said || now_ns - said < age_ns)
		return false;
	arb_os_wake(&slot->ask_frozen);
	return true;
}

bool arb_frozen_gone(const struct arb_slot *slot, uint64_t now_ns)
{
	uint64_t said;

	return arb_frozen_read(slot, now_ns, &said) == ARB_FROZEN_CHECKPOINTED;
}

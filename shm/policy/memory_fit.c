#include "shm/policy/memory_fit.h"

uint64_t arb_memory_room(const struct arb_memory_rules *r, unsigned clients)
{
	uint64_t aside = r->fixed + r->physical / 100 * r->percent, each;

	if (!r->physical)
		return 0;
	if (__builtin_mul_overflow(r->per_client, (uint64_t)clients, &each) ||
		__builtin_add_overflow(aside, each, &aside) ||
		__builtin_add_overflow(aside, r->foreign, &aside) || aside >= r->physical)
		return 1; /* one byte: no client with memory fits. 0 would mean that nothing is known */
	return r->physical - aside;
}

bool arb_memory_fits(const struct arb_memory_rules *r, uint64_t bytes, unsigned clients)
{
	uint64_t room = arb_memory_room(r, clients);

	return !room || bytes <= room;
}

uint64_t arb_memory_turn_ns(const struct arb_memory_rules *r, uint64_t bytes)
{
	double ns;

	if (r->turn_ns)
		return r->turn_ns;
	ns = (double)bytes / (double)r->bytes_per_s * 1e9 * r->multiplier;
	if (ns < (double)r->least_ns)
		return r->least_ns;
	return ns > (double)r->most_ns ? r->most_ns : (uint64_t)ns;
}

uint64_t arb_memory_most(const struct arb_memory_rules *r)
{
	return r->oversubscribe && !r->alone_may_exceed ? arb_memory_room(r, 1) : 0;
}

#include "shm/segment/foreign.h"

#include "shm/base/atomic.h"

#define MIB_SHIFT 20
#define MIB_MOST  ((1ull << ARB_FOREIGN_MIB_BITS) - 1)

/* The time is never 0: that is the time in a segment in which no process has looked yet. */
static uint64_t pack(uint64_t bytes, uint64_t now_ns)
{
	uint64_t mib = bytes >> MIB_SHIFT, when = now_ns >> ARB_FOREIGN_TIME_UNIT;

	return (when ? when : 1) << ARB_FOREIGN_MIB_BITS | (mib < MIB_MOST ? mib : MIB_MOST);
}

/* Returns how long ago the value was found; UINT64_MAX: never, or the time is garbage from the future. */
static uint64_t age(uint64_t word, uint64_t now_ns)
{
	uint64_t when = word >> ARB_FOREIGN_MIB_BITS, now = now_ns >> ARB_FOREIGN_TIME_UNIT;

	return !when || when > now + 1 ? UINT64_MAX : (when > now ? 0 : now - when) << ARB_FOREIGN_TIME_UNIT;
}

static uint64_t bytes_of(uint64_t word)
{
	return (word & MIB_MOST) << MIB_SHIFT;
}

uint64_t arb_foreign_read(const struct arb_segment *seg, uint64_t now_ns)
{
	uint64_t word = arb_load64(&seg->header->mem_foreign);

	return age(word, now_ns) == UINT64_MAX ? 0 : bytes_of(word);
}

void arb_foreign_found(struct arb_segment *seg, uint64_t bytes, uint64_t now_ns)
{
	arb_store64(&seg->header->mem_foreign, pack(bytes, now_ns));
}

uint64_t arb_foreign_clients(const struct arb_segment *seg, uint64_t per_client)
{
	uint64_t clients = 0;

	for (uint32_t w = 0; w < seg->nwords; w++)
		for (uint64_t taken = arb_load64(&seg->header->taken[w]); taken; taken &= taken - 1) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(taken);
			uint64_t bytes = i < seg->nslots ? arb_load64(&seg->slots[i].mem_now) : 0;

			/* A sum that overflows says only that all of the GPU's memory may be the clients'. */
			if (__builtin_add_overflow(clients, bytes, &clients) ||
				__builtin_add_overflow(clients, per_client, &clients))
				clients = UINT64_MAX / 2;
		}
	return clients;
}

void arb_foreign_bound(struct arb_segment *seg, uint64_t used, uint64_t per_client, uint64_t now_ns)
{
	uint64_t word = arb_load64(&seg->header->mem_foreign), clients = arb_foreign_clients(seg, per_client),
		 least;

	least = used > clients ? used - clients : 0;
	if (age(word, now_ns) > ARB_FOREIGN_KEEP_NS || least >= bytes_of(word))
		arb_foreign_found(seg, least, now_ns);
	else if (used < bytes_of(word))
		arb_foreign_found(seg, used, now_ns);
}

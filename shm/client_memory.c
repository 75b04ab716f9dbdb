/* What a client knows of the GPU's memory, and what it may have of it. */
#include <errno.h>

#include "gpuarb/client.h"

#include "atomic.h"
#include "client.h"
#include "memory.h"
#include "residency.h"

/* Less than any GPU has is no answer, and more than this no GPU's. */
#define PHYSICAL_MOST (1ull << 50)

int gpuarb_client_set_physical(struct gpuarb_client *c, uint64_t bytes)
{
	int r;

	if (!bytes || bytes > PHYSICAL_MOST)
		return -EINVAL;
	arb_lock_take(&c->guard->lock);
	c->physical = bytes;
	r = arb_client_ensure(c);
	if (r == 0)
		r = arb_client_refresh(c);
	arb_lock_give(&c->guard->lock);
	return r;
}

void arb_client_know_memory(struct gpuarb_client *c)
{
	struct arb_memory_rules *m = &c->rules.memory;
	arb_u64 *hint = &c->seg.header->mem_physical;

	if (c->physical && arb_load64(hint) != c->physical)
		arb_store64(hint, c->physical);
	if (!m->physical)
		m->physical = c->physical ? c->physical : arb_load64(hint);
	if (m->physical > PHYSICAL_MOST)
		m->physical = 0;
	c->mem_most = arb_memory_most(m);
	arb_store32(&c->oversubscribes, m->oversubscribe);
}

void arb_client_memory_freed(struct gpuarb_client *c)
{
	struct arb_snap snap;
	struct arb_residency r = {&c->seg, &c->rules, &snap, arb_os_now_ns()};
	uint32_t next;

	if (arb_running_read(&c->seg, &snap) < 0 || !snap.any_waiting)
		return;
	next = arb_residency_choose(&r);
	if (next != ARB_NONE)
		arb_os_wake(&c->seg.slots[next].wake);
}

bool gpuarb_client_turn_began(struct gpuarb_client *c)
{
	bool fresh;

	arb_lock_take(&c->guard->lock);
	fresh = c->turn_fresh;
	c->turn_fresh = false;
	arb_lock_give(&c->guard->lock);
	return fresh;
}

bool gpuarb_client_oversubscribes(const struct gpuarb_client *c)
{
	return arb_load32(&c->oversubscribes);
}

int gpuarb_client_memory(struct gpuarb_client *c, struct gpuarb_client_memory *memory)
{
	uint64_t used = 0, quota = 0, most;
	int r = gpuarb_client_mem_read(c, &used, &quota);

	if (r < 0)
		return r;
	arb_lock_take(&c->guard->lock);
	most = c->mem_most;
	*memory = (struct gpuarb_client_memory){.used = used,
		.quota = quota,
		.mine = c->mem_held,
		.physical = c->rules.memory.physical,
		.context = c->rules.memory.context,
		.oversubscribe = c->rules.memory.oversubscribe,
		.prefetch = c->rules.memory.prefetch};
	arb_lock_give(&c->guard->lock);
	memory->limit = quota && (!most || quota < most) ? quota : most;
	/* What the driver has free just now says nothing where memory moves. */
	if (!memory->limit && memory->oversubscribe) {
		memory->limit = memory->physical;
		memory->left = memory->physical > memory->mine ? memory->physical - memory->mine : 0;
		return 0;
	}
	if (!memory->limit)
		return 0;
	/* A quota that was lowered may be below what is used. */
	memory->left = memory->limit;
	if (quota)
		memory->left = used < quota ? quota - used : 0;
	if (memory->left > memory->limit)
		memory->left = memory->limit;
	if (most && (memory->mine >= most || most - memory->mine < memory->left))
		memory->left = memory->mine < most ? most - memory->mine : 0;
	return 0;
}

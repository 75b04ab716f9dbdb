#include "shm/segment/lost.h"

#include "shm/base/atomic.h"

bool arb_lost_begins(const struct arb_segment *seg, const struct arb_move *move, const struct arb_snap *s)
{
	uint32_t first = (uint32_t)s->reserved - 1;

	if (s->weight || !s->any_waiting || !move->choose || move->more)
		return false;
	/* A client that has paused keeps its place: the time that it does not use is part of its own turn. */
	if (move->kept && move->busy == s->busy)
		return false;
	return first >= seg->nslots || arb_load64(&seg->slots[first].wait_since_ns);
}

void arb_lost_add(struct arb_segment *seg, uint64_t ticks)
{
	if (ticks)
		arb_add32_full(&seg->header->lost_ns, (uint32_t)(ticks / ARB_TICKS_PER_NS));
}

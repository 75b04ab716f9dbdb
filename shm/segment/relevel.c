/* A client whose level has changed while it runs. */
#include "shm/segment/running.h"
#include "shm/segment/snapshot.h"

int arb_running_relevel(const struct arb_actor *me, struct arb_move *move, struct arb_snap *s)
{
	move->rose = move->fell = false;
	for (int i = 0; i < ARB_TRIES; i++) {
		int r = snap_load(me->seg, s);
		uint32_t top, before = s->top;

		if (r < 0)
			return r;
		top = arb_snapshot_top(me->seg, s);
		if (me->slot / 64 >= s->words || !arb_bit_test(s->running, me->slot) || top == before) {
			if (snap_unchanged(me->seg, s))
				return 0;
			continue;
		}
		s->top = top;
		move->rose = top > before;
		move->fell = top < before && s->any_waiting && !move->choose;
		if (snap_publish(me, s))
			return 0;
		move->rose = move->fell = false;
	}
	return -EBUSY;
}

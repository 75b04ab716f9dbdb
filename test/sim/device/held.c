/*
 * Kernels that wait on the device: they occupy it and their process is charged, but their work begins only after
 * something has happened. Collectives wait until every rank of their group has started a kernel, too. Other kernels
 * wait until their owner has seen a value in memory.
 *
 * Such a kernel arrives when it has started and has the engine. It stays arrived when it loses the engine again.
 */
#include "test/sim/device/engine.h"
#include "test/sim/device/shm.h"

#include <string.h>

static struct sim_group *group_of(const struct sim_op *op)
{
	struct sim_file *f = sim_shm.file;
	struct sim_group *oldest = &f->group[0];

	for (uint32_t i = 0; i < SIM_MAX_GROUPS; i++) {
		struct sim_group *g = &f->group[i];

		if (g->id == op->meet.group && g->ranks == op->meet.ranks)
			return g;
		if (g->used_ns < oldest->used_ns)
			oldest = g;
	}
	memset(oldest, 0, sizeof(*oldest));
	oldest->id = op->meet.group;
	oldest->ranks = op->meet.ranks;
	return oldest;
}

static void arrive(uint32_t id, struct sim_ring *r)
{
	struct sim_file *f = sim_shm.file;
	struct sim_op *op = sim_op_at(id, r->head);

	r->held = SIM_HELD_ARRIVED;
	if (op->flags & SIM_OP_MEET) {
		struct sim_group *g = group_of(op);

		g->used_ns = f->now_ns;
		op->meet.round = ++g->arrived[op->meet.rank];
	} else {
		sim_wake_later(&f->proc[r->owner - 1].host_wake);
	}
}

static bool over(uint32_t id, struct sim_ring *r)
{
	struct sim_file *f = sim_shm.file;
	struct sim_op *op = sim_op_at(id, r->head);
	struct sim_group *g;

	if (!(op->flags & SIM_OP_MEET))
		return __atomic_load_n(&r->host_done, __ATOMIC_ACQUIRE) == r->head + 1 &&
		       r->host_done_ns <= f->now_ns;
	g = group_of(op);
	for (uint32_t i = 0; i < g->ranks; i++)
		if ((int32_t)(g->arrived[i] - op->meet.round) < 0)
			return false;
	return true;
}

void sim_held_start(uint32_t id)
{
	struct sim_ring *r = &sim_shm.file->ring[id];

	r->held =
		sim_op_at(id, r->head)->flags & (SIM_OP_MEET | SIM_OP_VALUE) ? SIM_HELD_START : SIM_HELD_NOT;
	if (r->held)
		sim_shm.file->holds = 1;
}

void sim_held_update(void)
{
	struct sim_file *f = sim_shm.file;

	if (!f->holds)
		return;
	for (uint32_t i = 0; i < f->nactive; i++) {
		struct sim_ring *r = &f->ring[f->active[i]];

		if (r->held == SIM_HELD_START && sim_compute_runs(f->active[i]))
			arrive(f->active[i], r);
	}
	for (uint32_t i = 0; i < f->nactive; i++) {
		struct sim_ring *r = &f->ring[f->active[i]];

		if (r->held != SIM_HELD_ARRIVED || !over(f->active[i], r))
			continue;
		r->held = SIM_HELD_NOT;
		/* The end of the kernel can be predicted now, so a process that sleeps until this end is woken. */
		if (r->waited)
			sim_wake_later(&r->wake);
	}
}

/*
 * Estimates when a sleeper should look again. The model's times never depend on it. It assumes that the
 * queues stay as they are. A look too early costs a wake-up, a look too late costs latency: so the
 * estimate is capped.
 */
#include "test/sim/device/engine.h"
#include "test/sim/device/shm.h"

#define CAP_NS 8000000u
#define DEPTH  4
/* The cap for a kernel that waits on the device: what it waits for may happen without a notice to the sleeper. */
#define HELD_NS 250000u
/* There is no estimate. */
#define UNKNOWN (UINT64_MAX / 2)

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Returns the work that a process has queued on a device, without the part of its running kernels that is done. */
static uint64_t queued_work(uint32_t slot, uint32_t device)
{
	struct sim_file *f = sim_shm.file;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < f->nactive; i++) {
		struct sim_ring *r = &f->ring[f->active[i]];

		if (r->owner != slot + 1 || r->device != device)
			continue;
		sum += __atomic_load_n(&r->pushed_work, __ATOMIC_RELAXED) - r->done_work;
		if (r->started) {
			uint64_t work = sim_op_at(f->active[i], r->head)->work;

			sum -= min_u64(sum, work - min_u64(work, r->rem));
		}
	}
	return sum;
}

/* share: while this process attains work, each other process attains as much, or all that it has. */
static uint64_t shared(struct sim_device *d, uint32_t device, uint32_t slot, uint64_t work)
{
	uint64_t sum = work;

	for (uint32_t k = 0; k < d->nrunq; k++)
		if (d->runq[k] != slot)
			sum += min_u64(queued_work(d->runq[k], device), work);
	return sum;
}

/* spatial: slower by as much as the widths do not fit, for as long as the others have work at most. */
static uint64_t beside(struct sim_device *d, uint32_t device, uint32_t slot, uint64_t work)
{
	struct sim_file *f = sim_shm.file;
	uint64_t sum = 0, others = 0, slower;

	for (uint32_t k = 0; k < d->nrunq; k++) {
		sum += min_u64(f->proc[d->runq[k]].dev[device].occupancy, 1000);
		if (d->runq[k] != slot)
			others += queued_work(d->runq[k], device);
	}
	slower = sum > 1000 ? work / 1000 * sum : work;
	return work + min_u64(slower - work, others);
}

/* timeslice: the processes that come first in this round, then whole rounds. */
static uint64_t sliced(struct sim_device *d, uint32_t device, uint32_t slot, uint64_t work)
{
	struct sim_file *f = sim_shm.file;
	uint64_t slice = f->set.slice_ns * SIM_UNIT;
	uint64_t left = d->slice_end_ns > f->now_ns ? (d->slice_end_ns - f->now_ns) * SIM_UNIT : 0;
	uint64_t turn =
		f->set.switch_ns * SIM_UNIT; /* what a turn of each other process costs besides its work */
	uint64_t sum = d->switch_end_ns > f->now_ns ? (d->switch_end_ns - f->now_ns) * SIM_UNIT : 0;
	uint64_t mine = slice, rounds;

	if (d->nrunq <= 1 && (!d->nrunq || d->runq[0] == slot))
		return sum + work;
	for (uint32_t k = 0; k < d->nrunq; k++) {
		if (d->runq[k] == slot) {
			if (k == 0)
				mine = left;
			break;
		}
		sum += min_u64(queued_work(d->runq[k], device), k == 0 ? left : slice) + turn;
	}
	if (work <= mine)
		return sum + work;
	rounds = (work - mine + slice - 1) / slice;
	for (uint32_t k = 0; k < d->nrunq; k++)
		if (d->runq[k] != slot)
			sum += min_u64(queued_work(d->runq[k], device), rounds * slice) + rounds * turn;
	return sum + work;
}

/* fifo: all work that others submitted before. */
static uint64_t queued(uint32_t device, uint32_t slot, uint64_t submit_ns, uint64_t work)
{
	struct sim_file *f = sim_shm.file;

	for (uint32_t i = 0; i < f->nactive; i++) {
		uint32_t id = f->active[i];
		struct sim_ring *r = &f->ring[id];
		uint64_t low = r->head, high = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);

		if (r->owner == slot + 1 || r->device != device)
			continue;
		while (low < high) {
			uint64_t middle = low + (high - low) / 2;

			if (sim_op_at(id, middle)->submit_ns < submit_ns)
				low = middle + 1;
			else
				high = middle;
		}
		if (low == r->head)
			continue;
		work += sim_op_at(id, low - 1)->cum_work - r->done_work + f->set.switch_ns * SIM_UNIT;
		if (r->started)
			work -= min_u64(work,
				sim_op_at(id, r->head)->work - min_u64(sim_op_at(id, r->head)->work, r->rem));
	}
	return work;
}

/* Returns the work until the first of a process's kernels that run side by side ends. */
static uint64_t next_end(uint32_t slot, uint32_t device)
{
	struct sim_file *f = sim_shm.file;
	uint64_t least = UINT64_MAX / 2000000;

	for (uint32_t i = 0; i < f->nactive; i++) {
		struct sim_ring *r = &f->ring[f->active[i]];

		if (r->owner == slot + 1 && r->device == device && r->state == SIM_RING_RUNNING && r->started)
			least = min_u64(least, r->rem);
	}
	return least;
}

static uint64_t estimate(uint32_t id, uint64_t count, int depth)
{
	struct sim_file *f = sim_shm.file;
	struct sim_ring *r = &f->ring[id];
	struct sim_device *d = &f->device[r->device];
	struct sim_account *a;
	uint64_t work, from = f->now_ns;
	struct sim_op *op;

	if (!r->owner || r->head >= count)
		return f->now_ns;
	if (r->held)
		return UNKNOWN;
	op = sim_op_at(id, r->head);
	work = sim_op_at(id, count - 1)->cum_work - r->done_work;
	if (r->started)
		work -= min_u64(work, op->work - min_u64(op->work, r->rem));
	if (r->state == SIM_RING_BLOCKED) {
		if (op->kind == SIM_OP_HOST || depth <= 0)
			return UNKNOWN;
		if (op->wait.ring < SIM_MAX_RINGS && f->ring[op->wait.ring].gen == op->wait.gen)
			from = estimate(op->wait.ring, op->wait.seq, depth - 1);
	}
	if (r->state == SIM_RING_COPYING)
		return from + work / SIM_UNIT;
	a = &f->proc[r->owner - 1].dev[r->device];
	if (a->occupancy > 1000) {
		uint64_t all = queued_work(r->owner - 1, r->device);

		work = min_u64(work / 1000 * a->occupancy, all > work ? all : work);
		/* When the next kernel ends, the others become faster: estimate anew then. */
		work = min_u64(work, next_end(r->owner - 1, r->device) / 1000 * a->occupancy + SIM_UNIT);
	}
	work += a->page_rem;
	if (f->set.mode == SIM_SHARE)
		work = shared(d, r->device, r->owner - 1, work);
	else if (f->set.mode == SIM_SPATIAL)
		work = beside(d, r->device, r->owner - 1, work);
	else if (f->set.mode == SIM_FIFO)
		work = queued(r->device, r->owner - 1, sim_op_at(id, count - 1)->submit_ns, work);
	else
		work = sliced(d, r->device, r->owner - 1, work);
	return from + (work + SIM_UNIT - 1) / SIM_UNIT;
}

uint64_t sim_engine_predict(uint32_t ring, uint64_t count)
{
	/* The model's own time may be in the past: it is not advanced while nothing can happen. */
	uint64_t latest = sim_clock_ns() + (sim_shm.file->ring[ring].held ? HELD_NS : CAP_NS);
	uint64_t at = estimate(ring, count, DEPTH);

	return at > latest ? latest : at;
}

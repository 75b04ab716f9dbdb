/*
 * The way the engine takes most of the time: nothing but kernels that run, each followed by another one or by
 * markers in its own ring. What happens is what engine.c and compute.c would do, step by step and to the last unit,
 * without asking about anything that cannot be the case. Whatever is not as simple as that is left to them.
 */
#include "test/sim/device/engine.h"
#include "test/sim/device/shm.h"

#include <stddef.h>

#define RINGS 64 /* more than that are left to the long way */

/* A process on the engine, with the account that is charged. */
struct runner {
	struct sim_ring *ring;
	struct sim_account *account;
	uint32_t id, share; /* share: which part of the engine is its process's */
};

struct steady {
	struct sim_device *device;
	struct runner list[RINGS];
	struct sim_account *payer[RINGS];
	uint64_t part[RINGS];
	uint32_t n, payers;
};

/* Whether its account can be charged without asking about pages and occupancy. */
static bool simple(const struct sim_account *a)
{
	return !a->page_rem && a->occupancy <= 1000 && a->managed_bytes <= a->resident_bytes;
}

static bool prepare(struct steady *s)
{
	struct sim_file *f = sim_shm.file;
	uint32_t device = f->nactive ? f->ring[f->active[0]].device : 0;
	struct sim_device *d = &f->device[device];

	if (!f->nactive || f->nactive > RINGS || f->set.mode == SIM_FIFO || f->set.mode == SIM_SPATIAL ||
		f->queues || f->set.slice_events || d->nceq[0] || d->nceq[1] || d->leaving ||
		d->switch_end_ns >= f->now_ns || !d->nrunq || d->nrunq > RINGS)
		return false;
	s->device = d;
	s->n = 0;
	s->payers = f->set.mode == SIM_SHARE ? d->nrunq : 1;
	for (uint32_t k = 0; k < s->payers; k++) {
		s->payer[k] = &f->proc[d->runq[k]].dev[device];
		if (!simple(s->payer[k]) || s->payer[k]->check)
			return false;
	}
	for (uint32_t i = 0; i < f->nactive; i++) {
		uint32_t id = f->active[i], share = 0;
		struct sim_ring *r = &f->ring[id];

		/* Of one priority: then none of them takes precedence. */
		if (r->state != SIM_RING_RUNNING || r->held || r->device != device ||
			r->priority != f->ring[f->active[0]].priority)
			return false;
		while (share < s->payers && d->runq[share] != r->owner - 1)
			share++;
		/* In time slices the others stand still. */
		if (share < s->payers)
			s->list[s->n++] = (struct runner){r, s->payer[share], id, share};
		else if (f->set.mode == SIM_SHARE)
			return false;
	}
	return s->n > 0;
}

static uint64_t next_end(const struct steady *s, uint64_t now_ns, uint64_t next_ns)
{
	for (uint32_t i = 0; i < s->n; i++) {
		uint64_t t = now_ns + sim_work_ns(s->list[i].ring->rem, s->payers);

		next_ns = t < next_ns ? t : next_ns;
	}
	return next_ns;
}

/* Returns how many have ended, and one of them. */
static uint32_t progress(struct steady *s, uint64_t dt_ns, struct runner **ended)
{
	uint64_t left = dt_ns * SIM_UNIT;
	uint32_t n = 0;

	s->device->any_units += left;
	for (uint32_t k = 0; k < s->payers; k++) {
		s->part[k] = s->payers - k == 1 ? left : left / (s->payers - k);
		left -= s->part[k];
		s->payer[k]->device_units += s->part[k];
		s->payer[k]->width_units += s->part[k] * s->payer[k]->occupancy / 1000;
	}
	for (uint32_t i = 0; i < s->n; i++) {
		struct sim_ring *r = s->list[i].ring;
		uint64_t part = s->part[s->list[i].share];

		if (part)
			r->rem -= part + 2 >= r->rem ? r->rem : part;
		if (!r->rem) {
			*ended = &s->list[i];
			n++;
		}
	}
	return n;
}

/* The kernel has ended: ends the markers behind it and starts the next kernel. False: it is not that simple. */
static bool follow(const struct steady *s, const struct runner *it)
{
	struct sim_file *f = sim_shm.file;
	struct sim_ring *r = it->ring;
	struct sim_op *op;

	sim_compute_leave(it->id);
	do {
		sim_engine_complete(it->id);
		if (r->head == __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE))
			return false;
		op = sim_op_at(it->id, r->head);
		if (op->submit_ns > f->now_ns)
			return false;
	} while (op->kind == SIM_OP_NOP);
	if (op->kind != SIM_OP_KERNEL || op->flags & (SIM_OP_MEET | SIM_OP_VALUE))
		return false;
	r->rem = op->work ? op->work : 1;
	r->started = 1;
	r->state = SIM_RING_RUNNING;
	it->account->running++;
	it->account->occupancy += op->occupancy;
	it->account->last_run_ns = f->now_ns;
	/* It left for no time at all. */
	s->device->leaving = 0;
	return it->account->occupancy <= 1000;
}

enum sim_steady sim_steady_run(uint64_t target_ns)
{
	struct sim_file *f = sim_shm.file;
	struct runner *it = NULL;
	struct steady s;
	uint64_t until;
	bool sliced;

	if (!prepare(&s))
		return SIM_NOT_STEADY;
	sliced = f->set.mode == SIM_TIMESLICE && s.device->nrunq > 1;
	until = target_ns < f->sample_at_ns ? target_ns : f->sample_at_ns;
	if (sliced && s.device->slice_end_ns < until)
		until = s.device->slice_end_ns;
	if (until <= f->now_ns)
		return SIM_NOT_STEADY;
	do {
		uint64_t before = f->now_ns;
		uint32_t ended;

		f->now_ns = next_end(&s, before, until);
		ended = progress(&s, f->now_ns - before, &it);
		/* At a sample's or a slice's end, and where several end at once, the order is engine.c's business. */
		if (f->now_ns >= f->sample_at_ns || (sliced && f->now_ns >= s.device->slice_end_ns) ||
			ended > 1)
			return SIM_STEADY;
		if (!ended) {
			uint64_t next = sliced ? s.device->slice_end_ns : UINT64_MAX;

			f->next_ns = next_end(&s, f->now_ns, next < f->sample_at_ns ? next : f->sample_at_ns);
			return SIM_STEADY_ON;
		}
	} while (follow(&s, it) && f->now_ns < target_ns);
	return SIM_STEADY;
}

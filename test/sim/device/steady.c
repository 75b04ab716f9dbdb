/*
 * The fast path of the engine: only kernels run, each followed by another kernel or by markers in its own ring. It does
 * what engine.c and compute.c would do, step by step and to the last unit, without asking about anything that cannot
 * be the case. All other states are left to these files.
 */
#include "test/sim/device/engine.h"
#include "test/sim/device/shm.h"

#include <stddef.h>

#define RINGS 64 /* with more rings the fast path is not taken */

/* A kernel that runs. */
struct runner {
	uint64_t rem; /* work left of it; written to its ring at the end */
	struct sim_ring *ring;
	struct sim_account *account;
	uint32_t id, share; /* share: index of its process among the payers */
};

struct steady {
	struct sim_device *device;
	uint64_t
		edge_ns; /* until then engine.c is not needed: then a sample or a slice ends, or an op arrives */
	uint64_t least; /* the least work that a runner has left */
	uint64_t owed;  /* what each payer has not been charged yet: see charge() */
	uint32_t n, payers;
	bool plain; /* at most two payers, each of whom fills the device */
	struct runner list[RINGS];
	struct sim_account *payer[RINGS];
};

/* Returns whether an account can be charged without asking about pages and occupancy. */
static bool simple(const struct sim_account *a)
{
	return !a->page_rem && a->occupancy <= 1000 && a->managed_bytes <= a->resident_bytes && !a->check;
}

static uint64_t least_of(const struct steady *s)
{
	uint64_t least = s->list[0].rem;

	for (uint32_t i = 1; i < s->n; i++)
		least = s->list[i].rem < least ? s->list[i].rem : least;
	return least;
}

/* Returns whether all payers can be charged the same later: a half of SIM_UNIT is a whole number. */
static bool is_plain(const struct steady *s)
{
	return s->payers <= 2 && s->payer[0]->occupancy == 1000 &&
	       (s->payers == 1 || s->payer[1]->occupancy == 1000);
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
	s->edge_ns = f->sample_at_ns;
	if (f->set.mode == SIM_TIMESLICE && d->nrunq > 1 && d->slice_end_ns < s->edge_ns)
		s->edge_ns = d->slice_end_ns;
	for (uint32_t k = 0; k < s->payers; k++) {
		s->payer[k] = &f->proc[d->runq[k]].dev[device];
		if (!simple(s->payer[k]))
			return false;
	}
	for (uint32_t i = 0; i < f->nactive; i++) {
		uint32_t id = f->active[i], share = 0;
		struct sim_ring *r = &f->ring[id];

		if (r->state == SIM_RING_ARRIVING && r->device == device) {
			uint64_t at = sim_op_at(id, r->head)->submit_ns;

			s->edge_ns = at < s->edge_ns ? at : s->edge_ns;
			continue;
		}
		if (r->state != SIM_RING_RUNNING || r->held || r->device != device)
			return false;
		while (share < s->payers && d->runq[share] != r->owner - 1)
			share++;
		/* With time slices the other processes stand still. */
		if (share < s->payers)
			s->list[s->n++] = (struct runner){r->rem, r, s->payer[share], id, share};
		else if (f->set.mode == SIM_SHARE)
			return false;
		/* All must have one priority, so that no kernel takes precedence. */
		if (s->n && r->priority != s->list[0].ring->priority)
			return false;
	}
	s->owed = 0;
	s->plain = is_plain(s);
	s->least = s->n ? least_of(s) : 0;
	return s->n > 0;
}

/* Charges what is owed. Called before anything changes by which it is divided, and before anybody else sees the accounts. */
static void pay(struct steady *s)
{
	s->device->any_units += s->owed * s->payers;
	for (uint32_t k = 0; s->owed && k < s->payers; k++) {
		s->payer[k]->device_units += s->owed;
		s->payer[k]->width_units += s->owed;
	}
	s->owed = 0;
}

/* Charges `units`, of which each payer pays `part`; payers from `more_from` on pay one unit more. */
static void charge(struct steady *s, uint64_t units, uint64_t part, uint32_t more_from)
{
	s->device->any_units += units;
	for (uint32_t k = 0; k < s->payers; k++) {
		struct sim_account *a = s->payer[k];
		uint64_t mine = part + (k >= more_from);

		a->device_units += mine;
		a->width_units += a->occupancy == 1000 ? mine : mine * a->occupancy / 1000;
	}
}

/* Lets the runners proceed. Returns how many have ended, and sets *ended to one of them. */
static uint32_t progress(struct steady *s, uint64_t dt_ns, struct runner **ended)
{
	uint64_t units = dt_ns * SIM_UNIT, part = units, least = UINT64_MAX;
	uint32_t n = 0, more_from = s->payers;

	/* Without a division, which takes longer than all the rest. */
	if (s->payers == 2) {
		part = units / 2;
	} else if (s->payers > 2) {
		part = units / s->payers;
		more_from = s->payers - (uint32_t)(units - part * s->payers);
	}
	if (s->plain)
		s->owed += part;
	else
		charge(s, units, part, more_from);
	for (uint32_t i = 0; i < s->n; i++) {
		struct runner *it = &s->list[i];
		uint64_t mine = part + (it->share >= more_from);

		if (mine)
			it->rem -= mine + 2 >= it->rem ? it->rem : mine;
		least = it->rem < least ? it->rem : least;
		if (!it->rem) {
			*ended = it;
			n++;
		}
	}
	s->least = least;
	return n;
}

/* Ends a kernel and the markers behind it and starts the next kernel. Returns false if that is not all that follows. */
static bool follow(struct steady *s, struct runner *it)
{
	struct sim_file *f = sim_shm.file;
	struct sim_ring *r = it->ring;
	struct sim_account *a = it->account;
	struct sim_op *op = sim_op_at(it->id, r->head);

	a->occupancy -= op->occupancy;
	a->running--;
	do {
		sim_engine_end_op(r, op, a);
		if (r->head == __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE))
			break;
		op = sim_op_at(it->id, r->head);
		if (op->submit_ns > f->now_ns)
			break;
		if (op->kind == SIM_OP_KERNEL && !(op->flags & (SIM_OP_MEET | SIM_OP_VALUE))) {
			it->rem = op->work ? op->work : 1;
			r->started = 1;
			a->running++;
			a->occupancy += op->occupancy;
			a->last_run_ns = f->now_ns;
			s->least = least_of(s);
			if (__builtin_expect(a->occupancy != 1000 || !s->plain, 0)) {
				pay(s);
				s->plain = is_plain(s);
			}
			return a->occupancy <= 1000;
		}
	} while (op->kind == SIM_OP_NOP);
	r->state = SIM_RING_IDLE;
	if (!a->running && !a->waiting)
		s->device->leaving = 1;
	return false;
}

/* Charges what is owed, and writes to the runners' rings what is left of their kernels. */
static enum sim_steady settle(struct steady *s, enum sim_steady what)
{
	pay(s);
	for (uint32_t i = 0; i < s->n; i++)
		s->list[i].ring->rem = s->list[i].rem;
	return what;
}

enum sim_steady sim_steady_run(uint64_t target_ns)
{
	struct sim_file *f = sim_shm.file;
	struct runner *it = NULL;
	struct steady s;
	uint64_t until;

	if (!prepare(&s))
		return SIM_NOT_STEADY;
	until = target_ns < s.edge_ns ? target_ns : s.edge_ns;
	if (until <= f->now_ns)
		return SIM_NOT_STEADY;
	do {
		uint64_t before = f->now_ns, end = before + sim_work_ns(s.least, s.payers);
		uint32_t ended;

		f->now_ns = end < until ? end : until;
		ended = progress(&s, f->now_ns - before, &it);
		if (f->now_ns >= s.edge_ns || ended > 1)
			return settle(&s, SIM_STEADY);
		if (!ended) {
			end = f->now_ns + sim_work_ns(s.least, s.payers);
			f->next_ns = end < s.edge_ns ? end : s.edge_ns;
			return settle(&s, SIM_STEADY_ON);
		}
	} while (follow(&s, it) && f->now_ns < target_ns);
	return settle(&s, SIM_STEADY);
}

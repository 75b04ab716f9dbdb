/* The event loop: which op of each ring is due, when the next event is, and which ops it completes. */
#include "test/sim/device/engine.h"
#include "test/sim/device/shm.h"

#include <string.h>

#define CHECK_NS 2000000u

static struct sim_account *account_of(struct sim_ring *r)
{
	return &sim_shm.file->proc[r->owner - 1].dev[r->device];
}

void sim_engine_count(struct sim_account *a, const struct sim_op *op, uint32_t device)
{
	a->launches += (op->flags & SIM_OP_LAUNCH) != 0;
	a->graph_launches += (op->flags & SIM_OP_GRAPH) != 0;
	a->memsets += (op->flags & SIM_OP_MEMSET) != 0;
	if (op->flags & SIM_OP_MIGRATE)
		sim_migrate(a, device, op->bytes, op->kind == SIM_OP_H2D);
	else if (op->kind == SIM_OP_H2D || op->kind == SIM_OP_D2H || (op->flags & SIM_OP_COPY)) {
		a->copies++;
		a->copied_bytes += op->bytes;
	}
}

static void complete(uint32_t id)
{
	struct sim_ring *r = &sim_shm.file->ring[id];

	sim_engine_end_op(r, sim_op_at(id, r->head), account_of(r));
}

static bool wait_is_over(const struct sim_op *op)
{
	const struct sim_ring *r;

	if (op->wait.ring >= SIM_MAX_RINGS)
		return true;
	r = &sim_shm.file->ring[op->wait.ring];
	return r->gen != op->wait.gen || !r->owner || r->head >= op->wait.seq;
}

static void start_copy(uint32_t id, struct sim_ring *r, unsigned engine)
{
	struct sim_device *d = &sim_shm.file->device[r->device];

	r->state = SIM_RING_COPYING;
	d->ceq[engine][d->nceq[engine]++] = (uint16_t)id;
}

static void end_copy(uint32_t id, struct sim_ring *r, unsigned engine)
{
	struct sim_device *d = &sim_shm.file->device[r->device];
	uint16_t *q = d->ceq[engine];

	for (uint32_t i = 0; i < d->nceq[engine]; i++) {
		if (q[i] == id) {
			memmove(&q[i], &q[i + 1], (d->nceq[engine] - i - 1) * sizeof(*q));
			d->nceq[engine]--;
			return;
		}
	}
}

/* Rings that share a hardware queue start their ops in the order of submission. Returns whether an op of another such
 * ring was submitted earlier and has not started yet. */
static bool behind_others(uint32_t id, const struct sim_ring *r, const struct sim_op *op)
{
	struct sim_file *f = sim_shm.file;

	for (uint32_t i = 0; i < f->nactive; i++) {
		uint32_t other = f->active[i];
		struct sim_ring *o = &f->ring[other];
		uint64_t at = o->head + (o->started || o->turn_ns);
		const struct sim_op *next;

		if (other == id || o->owner != r->owner || o->device != r->device || o->queue != r->queue ||
			at >= __atomic_load_n(&o->tail, __ATOMIC_ACQUIRE))
			continue;
		next = sim_op_at(other, at);
		if (next->submit_ns < op->submit_ns || (next->submit_ns == op->submit_ns && other < id))
			return true;
	}
	return false;
}

/* Looks at the oldest op of a ring: ends it if it takes no time, starts it otherwise. */
static bool settle_ring(uint32_t id)
{
	struct sim_file *f = sim_shm.file;
	struct sim_ring *r = &f->ring[id];
	bool ended = false;

	for (;;) {
		struct sim_op *op;

		if (r->started)
			return ended;
		if (r->head == __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE)) {
			r->state = SIM_RING_IDLE;
			return ended;
		}
		op = sim_op_at(id, r->head);
		if (op->submit_ns > f->now_ns) {
			r->state = SIM_RING_ARRIVING;
			return ended;
		}
		if (r->queue && behind_others(id, r, op)) {
			r->state = SIM_RING_BEHIND;
			return ended;
		}
		if (op->kind == SIM_OP_WAIT && !wait_is_over(op)) {
			r->state = SIM_RING_BLOCKED;
			return ended;
		}
		if (!sim_compute_admit(id))
			return ended;
		switch (op->kind) {
		case SIM_OP_KERNEL:
			r->rem = op->work ? op->work : 1;
			r->started = 1;
			sim_held_start(id);
			sim_compute_enter(id);
			return ended;
		case SIM_OP_H2D:
		case SIM_OP_D2H:
			r->rem = op->work ? op->work : 1;
			r->started = 1;
			start_copy(id, r, op->kind == SIM_OP_D2H);
			return ended;
		case SIM_OP_HOST:
			if (!r->turn_ns)
				r->turn_ns = f->now_ns;
			if (__atomic_load_n(&r->host_done, __ATOMIC_ACQUIRE) != r->head + 1 ||
				r->host_done_ns > f->now_ns) {
				if (r->state != SIM_RING_BLOCKED || ended)
					sim_wake_later(&f->proc[r->owner - 1].host_wake);
				r->state = SIM_RING_BLOCKED;
				return ended;
			}
			break;
		default:
			break;
		}
		complete(id);
		ended = true;
	}
}

static void free_ring(struct sim_ring *r)
{
	r->owner = 0;
	r->gen++;
}

/* Takes an empty ring out of the list. The order of the two loads makes sure that the owner announces the ring again if
 * it submits an op meanwhile. */
static bool unlist(uint32_t id)
{
	struct sim_ring *r = &sim_shm.file->ring[id];

	__atomic_store_n(&r->listed, 0, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&r->tail, __ATOMIC_SEQ_CST) != r->head) {
		__atomic_store_n(&r->listed, 1, __ATOMIC_SEQ_CST);
		return false;
	}
	if (r->closing)
		free_ring(r);
	return true;
}

static void settle(void)
{
	struct sim_file *f = sim_shm.file;
	bool again;

	do {
		again = false;
		for (uint32_t i = 0; i < f->nactive;) {
			uint32_t id = f->active[i];

			if (!f->ring[id].started) {
				again |= settle_ring(id);
				/* Once a ring has started its op, the rings behind it in its hardware queue go on. */
				again |= f->queues && f->ring[id].started;
			}
			if (f->ring[id].state == SIM_RING_IDLE && unlist(id))
				f->active[i] = f->active[--f->nactive];
			else
				i++;
		}
	} while (again);
}

static void list_announced(void)
{
	struct sim_file *f = sim_shm.file;

	if (!__atomic_load_n(&f->dirty, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&f->dirty, 0, __ATOMIC_SEQ_CST);
	for (unsigned w = 0; w < SIM_MAX_RINGS / 64; w++) {
		uint64_t bits;

		if (!__atomic_load_n(&f->announced[w], __ATOMIC_SEQ_CST))
			continue;
		bits = __atomic_exchange_n(&f->announced[w], 0, __ATOMIC_SEQ_CST);
		for (; bits; bits &= bits - 1) {
			uint32_t id = w * 64 + (uint32_t)__builtin_ctzll(bits);

			if (f->ring[id].listed || !f->ring[id].owner)
				continue;
			__atomic_store_n(&f->ring[id].listed, 1, __ATOMIC_SEQ_CST);
			f->active[f->nactive++] = (uint16_t)id;
		}
	}
}

/* Finds the oldest copy of each process: these copies proceed, and the processes share the copy engine evenly. */
static unsigned copy_heads(struct sim_device *d, unsigned engine, uint16_t *heads)
{
	uint64_t seen[SIM_MAX_PROCS / 64] = {0};
	unsigned n = 0;

	for (uint32_t i = 0; i < d->nceq[engine]; i++) {
		uint32_t slot = sim_shm.file->ring[d->ceq[engine][i]].owner - 1;

		if (seen[slot / 64] >> (slot % 64) & 1)
			continue;
		seen[slot / 64] |= 1ULL << (slot % 64);
		heads[n++] = d->ceq[engine][i];
	}
	return n;
}

static uint64_t next_event(uint64_t target)
{
	struct sim_file *f = sim_shm.file;
	uint64_t next = target < f->sample_at_ns ? target : f->sample_at_ns;
	uint16_t heads[SIM_MAX_PROCS];

	for (uint32_t i = 0; i < f->nactive; i++) {
		uint32_t id = f->active[i];
		struct sim_ring *r = &f->ring[id];
		uint64_t t = UINT64_MAX;

		if (r->state == SIM_RING_ARRIVING)
			t = sim_op_at(id, r->head)->submit_ns;
		else if ((r->state == SIM_RING_BLOCKED || r->held) &&
			 __atomic_load_n(&r->host_done, __ATOMIC_ACQUIRE) == r->head + 1)
			t = r->host_done_ns;
		if (t < next)
			next = t > f->now_ns ? t : f->now_ns;
	}
	for (uint32_t i = 0; i < f->set.devices; i++) {
		for (unsigned e = 0; e < SIM_ENGINES; e++) {
			unsigned n = f->device[i].nceq[e] ? copy_heads(&f->device[i], e, heads) : 0;

			for (unsigned k = 0; k < n; k++) {
				uint64_t t = f->now_ns + sim_work_ns(f->ring[heads[k]].rem, n);

				next = t < next ? t : next;
			}
		}
	}
	return sim_compute_next(f->now_ns, next);
}

static void progress_copies(uint32_t device, uint64_t dt_ns)
{
	struct sim_file *f = sim_shm.file;
	uint16_t heads[SIM_MAX_PROCS];

	for (unsigned e = 0; e < SIM_ENGINES; e++) {
		unsigned n = f->device[device].nceq[e] ? copy_heads(&f->device[device], e, heads) : 0;
		uint64_t units = dt_ns * SIM_UNIT;

		for (unsigned k = 0; k < n; k++) {
			struct sim_ring *r = &f->ring[heads[k]];
			uint64_t part = units / (n - k);

			units -= part;
			account_of(r)->copy_units[e] += part;
			r->rem -= part + 1 >= r->rem ? r->rem : part;
		}
	}
}

static void complete_finished(void)
{
	struct sim_file *f = sim_shm.file;

	for (uint32_t i = 0; i < f->nactive; i++) {
		uint32_t id = f->active[i];
		struct sim_ring *r = &f->ring[id];

		if (!r->started || r->rem)
			continue;
		if (r->state == SIM_RING_RUNNING)
			sim_compute_leave(id);
		else if (r->state == SIM_RING_COPYING)
			end_copy(id, r, sim_op_at(id, r->head)->kind == SIM_OP_D2H);
		complete(id);
	}
}

static uint32_t percent(uint64_t units, uint64_t ns)
{
	uint64_t pct = ns ? (units / SIM_UNIT * 100 + ns / 2) / ns : 0;

	return pct > 100 ? 100 : (uint32_t)pct;
}

static void end_sample(uint64_t at_ns)
{
	struct sim_file *f = sim_shm.file;

	for (uint32_t i = 0; i < f->set.devices; i++) {
		struct sim_device *d = &f->device[i];
		struct sim_sample *s = &d->sample[d->samples % SIM_SAMPLES];
		bool spatial = f->set.mode == SIM_SPATIAL;
		uint64_t busy = spatial ? d->any_units : d->past.device_units;
		uint64_t copy = d->past.copy_units[0] + d->past.copy_units[1];

		for (uint32_t p = 0; p < sim_slots_used(f); p++) {
			struct sim_account *a = &f->proc[p].dev[i];
			uint64_t c = a->copy_units[0] + a->copy_units[1];

			if (f->proc[p].state == SIM_PROC_FREE)
				continue;
			busy += spatial ? 0 : a->device_units;
			copy += c;
			if (f->proc[p].state != SIM_PROC_LIVE)
				continue;
			a->util_pct = percent(a->device_units - a->sample_units, f->set.sample_ns);
			a->copy_util_pct = percent(c - a->sample_copy_units, 2 * f->set.sample_ns);
			a->sample_units = a->device_units;
			a->sample_copy_units = c;
		}
		s->end_ns = at_ns;
		s->util_pct = percent(busy - d->sample_units, f->set.sample_ns);
		s->copy_util_pct = percent(copy - d->sample_copy_units, 2 * f->set.sample_ns);
		d->sample_units = busy;
		d->sample_copy_units = copy;
		d->samples++;
	}
	f->sample_at_ns += f->set.sample_ns;
}

static void run_to(uint64_t target)
{
	struct sim_file *f = sim_shm.file;

	list_announced();
	for (;;) {
		uint64_t next;

		/* The process that gets the engine may have ops that take no time and waited for the slice alone. */
		do {
			settle();
		} while (sim_compute_rotate(f->now_ns) && f->set.slice_events);
		sim_compute_check();
		sim_held_update();
		if (f->now_ns >= target)
			break;
		/* After a long idle time, samples that no reader could see any more are skipped. */
		if (!f->nactive && target > f->sample_at_ns + SIM_SAMPLES * f->set.sample_ns)
			f->sample_at_ns += ((target - f->sample_at_ns) / f->set.sample_ns - SIM_SAMPLES) *
					   f->set.sample_ns;
		switch (sim_steady_run(target)) {
		case SIM_STEADY_ON:
			return;
		case SIM_STEADY:
			next = f->now_ns;
			break;
		default:
			next = next_event(target);
		}
		if (next > f->now_ns) {
			uint64_t dt = next - f->now_ns;

			f->now_ns = next;
			sim_compute_progress(dt);
			for (uint32_t i = 0; i < f->set.devices; i++)
				progress_copies(i, dt);
		}
		if (f->now_ns >= f->sample_at_ns)
			end_sample(f->sample_at_ns);
		complete_finished();
	}
	f->next_ns = next_event(UINT64_MAX);
}

void sim_engine_advance_fully(uint64_t now_ns)
{
	sim_engine_reap(now_ns, false);
	run_to(now_ns);
}

void sim_engine_advance(uint64_t now_ns)
{
	struct sim_file *f = sim_shm.file;

	if (now_ns < f->next_ns && !__atomic_load_n(&f->dirty, __ATOMIC_ACQUIRE) &&
		now_ns - f->checked_ns < CHECK_NS)
		return;
	sim_engine_advance_fully(now_ns);
}

void sim_engine_reap(uint64_t now_ns, bool force)
{
	struct sim_file *f = sim_shm.file;

	if (!force && now_ns - f->checked_ns < CHECK_NS)
		return;
	f->checked_ns = now_ns;
	for (uint32_t i = 0; i < sim_slots_used(f); i++)
		if (f->proc[i].state == SIM_PROC_LIVE && !sim_shm_alive(i))
			sim_engine_end_process(i);
}

void sim_engine_end_process(uint32_t slot)
{
	struct sim_file *f = sim_shm.file;
	struct sim_proc *p = &f->proc[slot];

	for (uint32_t i = 0; i < SIM_MAX_RINGS; i++)
		if (f->ring[i].owner == slot + 1)
			free_ring(&f->ring[i]);
	for (uint32_t i = 0; i < f->set.devices; i++) {
		struct sim_account *a = &p->dev[i];

		a->memory_bytes = a->managed_bytes = a->resident_bytes = a->page_rem = 0;
		a->contexts = a->util_pct = a->copy_util_pct = 0;
	}
	p->ended_ns = f->now_ns;
	p->state = SIM_PROC_DEAD;
	sim_engine_rebuild();
}

void sim_engine_rebuild(void)
{
	struct sim_file *f = sim_shm.file;
	uint16_t order[SIM_MAX_DEVICES][SIM_MAX_PROCS];
	uint32_t count[SIM_MAX_DEVICES];

	/* The order of the processes is kept: it cannot be computed from anything else. */
	for (uint32_t i = 0; i < SIM_MAX_DEVICES; i++) {
		struct sim_device *d = &f->device[i];

		count[i] = d->nrunq < SIM_MAX_PROCS ? d->nrunq : SIM_MAX_PROCS;
		memcpy(order[i], d->runq, sizeof(order[i]));
		d->nrunq = d->nceq[0] = d->nceq[1] = 0;
		d->leaving = 0;
		for (uint32_t p = 0; p < SIM_MAX_PROCS; p++) {
			struct sim_account *a = &f->proc[p].dev[i];

			a->running = a->occupancy = a->waiting = a->queued = 0;
		}
	}
	f->nactive = 0;
	for (uint32_t id = 0; id < SIM_MAX_RINGS; id++) {
		struct sim_ring *r = &f->ring[id];
		bool waited = r->state == SIM_RING_SLICE;

		__atomic_store_n(&r->listed, 0, __ATOMIC_SEQ_CST);
		if (!r->owner)
			continue;
		if (__atomic_load_n(&r->tail, __ATOMIC_SEQ_CST) == r->head) {
			if (r->closing)
				free_ring(r);
			continue;
		}
		__atomic_store_n(&r->listed, 1, __ATOMIC_SEQ_CST);
		f->active[f->nactive++] = (uint16_t)id;
		r->state = SIM_RING_IDLE;
		if (!r->started) {
			if (waited)
				sim_compute_wait(id);
			continue;
		}
		if (sim_op_at(id, r->head)->kind == SIM_OP_KERNEL)
			sim_compute_enter(id);
		else
			start_copy(id, r, sim_op_at(id, r->head)->kind == SIM_OP_D2H);
	}
	for (uint32_t i = 0; i < SIM_MAX_DEVICES; i++) {
		struct sim_device *d = &f->device[i];
		uint32_t at = 0;

		for (uint32_t k = 0; k < count[i]; k++) {
			for (uint32_t j = at; j < d->nrunq; j++) {
				if (d->runq[j] == order[i][k]) {
					uint16_t t = d->runq[at];

					d->runq[at++] = d->runq[j];
					d->runq[j] = t;
					break;
				}
			}
		}
		if (count[i] && d->nrunq && d->runq[0] != order[i][0])
			sim_compute_begin(i);
	}
	f->next_ns = 0;
}

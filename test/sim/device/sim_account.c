/* The reading side of the model (model.h), rings, and the end of accounts that are no longer needed. */
#include "test/sim/device/engine.h"
#include "test/sim/device/shm.h"

#include <errno.h>
#include <string.h>

uint32_t sim_ring_open(uint32_t device)
{
	struct sim_file *f = sim_shm.file;

	for (uint32_t i = 0; i < SIM_MAX_RINGS; i++) {
		struct sim_ring *r = &f->ring[i];
		uint32_t gen = r->gen;

		if (r->owner || r->listed)
			continue;
		memset(r, 0, sizeof(*r));
		r->gen = gen;
		r->device = device;
		r->owner = sim_shm.slot + 1;
		return i;
	}
	return SIM_NONE;
}

void sim_ring_close(uint32_t ring)
{
	struct sim_ring *r = &sim_shm.file->ring[ring];

	r->closing = 1;
	if (!r->listed && r->head == r->tail) {
		r->owner = 0;
		r->gen++;
	}
}

static void add(struct sim_account *to, const struct sim_account *a)
{
	to->device_units += a->device_units;
	to->width_units += a->width_units;
	to->copy_units[0] += a->copy_units[0];
	to->copy_units[1] += a->copy_units[1];
	to->paging_units += a->paging_units;
	to->launches += a->launches;
	to->graph_launches += a->graph_launches;
	to->copies += a->copies;
	to->copied_bytes += a->copied_bytes;
	to->memsets += a->memsets;
}

void sim_engine_forget(uint32_t slot)
{
	struct sim_file *f = sim_shm.file;

	for (uint32_t i = 0; i < f->set.devices; i++)
		add(&f->device[i].past, &f->proc[slot].dev[i]);
	memset(f->proc[slot].dev, 0, sizeof(f->proc[slot].dev));
	f->proc[slot].state = SIM_PROC_FREE;
}

int sim_open(void)
{
	return sim_shm_open();
}

void sim_close(void)
{
	sim_shm_close();
}

int sim_device_count(void)
{
	return sim_shm.file ? (int)sim_shm.file->set.devices : -ENODEV;
}

static bool valid(int device)
{
	return sim_shm.file && device >= 0 && (uint32_t)device < sim_shm.file->set.devices;
}

int sim_device_info(int device, struct sim_device_info *info)
{
	if (!valid(device))
		return -ENODEV;
	*info = sim_shm.file->device[device].info;
	return 0;
}

static void device_state(uint32_t device, struct sim_device_state *state)
{
	struct sim_file *f = sim_shm.file;
	struct sim_account sum = f->device[device].past;

	for (uint32_t i = 0; i < sim_slots_used(f); i++)
		if (f->proc[i].state != SIM_PROC_FREE)
			add(&sum, &f->proc[i].dev[device]);
	*state = (struct sim_device_state){
		.now_ns = f->now_ns,
		.since_ns = f->device[device].since_ns,
		.memory_total_bytes = f->device[device].info.memory_bytes,
		.memory_used_bytes = sim_memory_used(device),
		.busy_ns = (f->set.mode == SIM_SPATIAL ? f->device[device].any_units : sum.device_units) /
			   SIM_UNIT,
		.width_ns = sum.width_units / SIM_UNIT,
		.copy_ns = {sum.copy_units[0] / SIM_UNIT, sum.copy_units[1] / SIM_UNIT},
		.paging_ns = sum.paging_units / SIM_UNIT,
		.switch_ns = f->device[device].switch_units / SIM_UNIT,
		.switches = f->device[device].switches,
		.launches = sum.launches,
		.copies = sum.copies,
		.copied_bytes = sum.copied_bytes,
	};
}

static void process_state(const struct sim_proc *p, int device, struct sim_process_state *s)
{
	const struct sim_account *a = &p->dev[device];
	const struct sim_file *f = sim_shm.file;

	*s = (struct sim_process_state){
		.serial = p->serial,
		.pid = p->pid,
		.alive = p->state == SIM_PROC_LIVE,
		.has_context = a->contexts != 0,
		.started_ns = p->started_ns,
		.memory_bytes = a->memory_bytes + a->resident_bytes,
		.away_bytes = a->managed_bytes - a->resident_bytes,
		.memory_peak_bytes = a->peak_bytes,
		.device_ns = a->device_units / SIM_UNIT,
		.width_ns = a->width_units / SIM_UNIT,
		.copy_ns = (a->copy_units[0] + a->copy_units[1]) / SIM_UNIT,
		.paging_ns = a->paging_units / SIM_UNIT,
		.launches = a->launches,
		.graph_launches = a->graph_launches,
		.copies = a->copies,
		.copied_bytes = a->copied_bytes,
		.memsets = a->memsets,
		.sample_ns = f->sample_at_ns - f->set.sample_ns,
		.util_pct = a->util_pct,
		.copy_util_pct = a->copy_util_pct,
	};
	memcpy(s->command, p->command, sizeof(s->command));
}

int sim_snapshot(
	int device, struct sim_device_state *state, bool with_dead, struct sim_process_state *list, int max)
{
	struct sim_file *f = sim_shm.file;
	int n = 0;

	if (!valid(device))
		return -ENODEV;
	sim_lock();
	sim_engine_advance_fully(sim_clock_ns());
	if (state)
		device_state((uint32_t)device, state);
	for (uint32_t i = 0; i < sim_slots_used(f) && list; i++) {
		const struct sim_proc *p = &f->proc[i];

		if (p->state == SIM_PROC_FREE || (p->state == SIM_PROC_DEAD && !with_dead))
			continue;
		if (n < max)
			process_state(p, device, &list[n]);
		n++;
	}
	sim_unlock();
	return n;
}

int sim_device_state(int device, struct sim_device_state *state)
{
	return sim_snapshot(device, state, false, NULL, 0);
}

int sim_processes(int device, bool with_dead, struct sim_process_state *list, int max)
{
	struct sim_process_state none;

	return sim_snapshot(device, NULL, with_dead, list ? list : &none, list ? max : 0);
}

int sim_last_sample(int device, struct sim_sample *sample)
{
	struct sim_device *d;

	if (!valid(device))
		return -ENODEV;
	d = &sim_shm.file->device[device];
	sim_lock();
	sim_engine_advance_fully(sim_clock_ns());
	*sample = (struct sim_sample){0};
	if (d->samples)
		*sample = d->sample[(d->samples - 1) % SIM_SAMPLES];
	sim_unlock();
	return 0;
}

int sim_samples_after(int device, uint64_t after_ns, struct sim_sample *list, int max)
{
	struct sim_device *d;
	int n = 0;

	if (!valid(device))
		return -ENODEV;
	d = &sim_shm.file->device[device];
	sim_lock();
	sim_engine_advance_fully(sim_clock_ns());
	for (uint64_t i = d->samples > SIM_SAMPLES ? d->samples - SIM_SAMPLES : 0; i < d->samples; i++) {
		const struct sim_sample *s = &d->sample[i % SIM_SAMPLES];

		if (s->end_ns <= after_ns)
			continue;
		if (n < max)
			list[n] = *s;
		n++;
	}
	sim_unlock();
	return n;
}

uint64_t sim_sample_period_ns(void)
{
	return sim_shm.file ? sim_shm.file->set.sample_ns : 0;
}

static void clear(struct sim_account *a)
{
	a->device_units = a->width_units = a->paging_units = a->copy_units[0] = a->copy_units[1] = 0;
	a->sample_units = a->sample_copy_units = 0;
	a->launches = a->graph_launches = a->copies = a->copied_bytes = a->memsets = 0;
	a->peak_bytes = a->memory_bytes + a->resident_bytes;
}

int sim_reset(void)
{
	struct sim_file *f = sim_shm.file;

	if (!f)
		return -ENODEV;
	sim_lock();
	sim_engine_advance_fully(sim_clock_ns());
	for (uint32_t i = 0; i < SIM_MAX_PROCS; i++) {
		if (f->proc[i].state == SIM_PROC_DEAD)
			f->proc[i].state = SIM_PROC_FREE;
		for (uint32_t k = 0; k < f->set.devices; k++)
			clear(&f->proc[i].dev[k]);
	}
	for (uint32_t k = 0; k < f->set.devices; k++) {
		struct sim_device *d = &f->device[k];

		memset(&d->past, 0, sizeof(d->past));
		d->sample_units = d->sample_copy_units = 0;
		d->switch_units = d->switches = d->any_units = 0;
		d->since_ns = f->now_ns;
	}
	sim_unlock();
	return 0;
}

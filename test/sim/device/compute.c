/*
 * The compute engine: which process has it, at which rate each kernel proceeds, and what a process pays
 * for managed pages that are not on the device.
 *
 * timeslice  The first process of the queue has the whole engine until its slice ends or it has no
 *            kernel left; the other processes stand still.
 * share      Every process of the queue has 1/n.
 * spatial    All processes of the queue run side by side, each as wide as its kernels: at full speed as
 *            long as the widths fit into the device together, otherwise at 1 / sum of the widths.
 * fifo       Kernels of all processes start in the order in which they were submitted, and are not
 *            interrupted. The process whose kernels run has the whole engine.
 *
 * GPUSIM_SWITCH_US: how long the engine runs nothing whenever it goes to another process. With
 * GPUSIM_EVENTS=slice all work that a process has queued waits for its slice, not only kernels.
 *
 * Kernels of one process run side by side. Each asks for its occupancy. As long as the sum is at most 1,
 * each runs at the process's full rate, otherwise at rate / sum. Kernels in streams with a lower priority have
 * what kernels with a higher priority leave.
 */
#include "test/sim/device/engine.h"
#include "test/sim/device/shm.h"

#include <string.h>

static struct sim_account *account(uint32_t slot, uint32_t device)
{
	return &sim_shm.file->proc[slot].dev[device];
}

static bool timeslice(void)
{
	return sim_shm.file->set.mode == SIM_TIMESLICE;
}

static uint64_t max_ns(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static bool fifo(void)
{
	return sim_shm.file->set.mode == SIM_FIFO;
}

static bool spatial(void)
{
	return sim_shm.file->set.mode == SIM_SPATIAL;
}

/* Returns whether all processes of the queue run at the same time, so that there are no slices and no switches. */
static bool together(void)
{
	return sim_shm.file->set.mode == SIM_SHARE || spatial();
}

/* Returns how many processes of the queue have the engine: the first, or all. */
static uint32_t at_engine(const struct sim_device *d)
{
	return together() || !d->nrunq ? d->nrunq : 1;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Returns the largest part of the device that a process can fill, in 1/1000. */
static uint32_t most(uint32_t slot)
{
	uint32_t width = sim_shm.file->proc[slot].width;

	return spatial() && width ? width : 1000;
}

/* spatial: returns how much of the device the running kernels would fill together at full speed, in 1/1000. */
static uint32_t widths(const struct sim_device *d, uint32_t device)
{
	uint32_t sum = 0;

	for (uint32_t k = 0; k < d->nrunq; k++) {
		const struct sim_account *a = account(d->runq[k], device);

		if (!a->page_rem)
			sum += min_u32(a->occupancy, most(d->runq[k]));
	}
	return sum;
}

/* Returns whether a kernel that is ready proceeds while no switch is under way. */
static bool proceeds(const struct sim_device *d, const struct sim_ring *r)
{
	if (fifo())
		return r->granted;
	return !timeslice() || d->runq[0] == r->owner - 1;
}

bool sim_compute_runs(uint32_t id)
{
	const struct sim_file *f = sim_shm.file;
	const struct sim_ring *r = &f->ring[id];
	const struct sim_device *d = &f->device[r->device];

	return r->state == SIM_RING_RUNNING && d->switch_end_ns <= f->now_ns && proceeds(d, r) &&
	       !account(r->owner - 1, r->device)->page_rem;
}

/* Gives the first process of the queue a new slice. */
void sim_compute_begin(uint32_t device)
{
	struct sim_device *d = &sim_shm.file->device[device];

	if (!d->nrunq)
		return;
	d->slice_end_ns = sim_shm.file->now_ns + sim_shm.file->set.slice_ns;
	account(d->runq[0], device)->check = 1;
}

/* Puts the ring's process at the end of the queue, unless the process is in the queue already. */
static void get_in_line(const struct sim_ring *r)
{
	struct sim_file *f = sim_shm.file;
	struct sim_device *d = &f->device[r->device];
	struct sim_account *a = account(r->owner - 1, r->device);

	if (a->queued)
		return;
	a->queued = 1;
	d->runq[d->nrunq++] = (uint16_t)(r->owner - 1);
	if (d->nrunq == 1)
		sim_compute_begin(r->device);
	else if (d->nrunq == 2 && d->slice_end_ns <= f->now_ns) {
		/* While the first process was alone its slices went on, one after the other. */
		uint64_t past = f->now_ns - d->slice_end_ns;

		d->slice_end_ns += (past / f->set.slice_ns + 1) * f->set.slice_ns;
	}
}

void sim_compute_enter(uint32_t id)
{
	struct sim_ring *r = &sim_shm.file->ring[id];
	struct sim_account *a = account(r->owner - 1, r->device);

	r->state = SIM_RING_RUNNING;
	if (!fifo() || r->granted)
		a->occupancy += sim_op_at(id, r->head)->occupancy;
	a->check = 1;
	a->running++;
	get_in_line(r);
}

void sim_compute_wait(uint32_t id)
{
	struct sim_ring *r = &sim_shm.file->ring[id];

	r->state = SIM_RING_SLICE;
	account(r->owner - 1, r->device)->waiting++;
	get_in_line(r);
}

static bool has_engine(const struct sim_ring *r)
{
	const struct sim_file *f = sim_shm.file;
	const struct sim_device *d = &f->device[r->device];

	return d->nrunq && d->runq[0] == r->owner - 1 && d->context == f->proc[r->owner - 1].serial &&
	       d->switch_end_ns <= f->now_ns;
}

/*
 * A kernel enters the queue when it starts, and a host function that is due was admitted before. A copy must only
 * begin in the slice: its copy engine goes on after the slice.
 */
bool sim_compute_admit(uint32_t id)
{
	struct sim_file *f = sim_shm.file;
	struct sim_ring *r = &f->ring[id];
	struct sim_account *a;

	if (!f->set.slice_events)
		return true;
	a = account(r->owner - 1, r->device);
	if (r->state == SIM_RING_SLICE) {
		r->state = SIM_RING_IDLE;
		a->waiting--;
	}
	f->device[r->device].leaving = 1;
	if (sim_op_at(id, r->head)->kind == SIM_OP_KERNEL || r->turn_ns)
		return true;
	get_in_line(r);
	if (has_engine(r))
		return true;
	sim_compute_wait(id);
	return false;
}

/* Takes a kernel off the engine. Its process keeps its place in the queue until the ring has been settled, because its
 * next kernel may be queued already. */
void sim_compute_leave(uint32_t id)
{
	struct sim_ring *r = &sim_shm.file->ring[id];
	struct sim_account *a = account(r->owner - 1, r->device);

	a->occupancy -= sim_op_at(id, r->head)->occupancy;
	r->state = SIM_RING_IDLE;
	if (--a->running == 0 && !a->waiting)
		sim_shm.file->device[r->device].leaving = 1;
}

static bool submitted_before(uint32_t a, uint32_t b)
{
	const struct sim_file *f = sim_shm.file;
	uint64_t ta, tb;

	if (b == SIM_NONE)
		return true;
	ta = sim_op_at(a, f->ring[a].head)->submit_ns;
	tb = sim_op_at(b, f->ring[b].head)->submit_ns;
	return ta != tb ? ta < tb : a < b;
}

/* Returns the ready kernel that was submitted first: of the process of `slot` if `its`, otherwise of the other
 * processes. SIM_NONE: there is none. */
static uint32_t earliest(uint32_t device, uint32_t slot, bool its)
{
	const struct sim_file *f = sim_shm.file;
	uint32_t found = SIM_NONE;

	for (uint32_t i = 0; i < f->nactive; i++) {
		uint32_t id = f->active[i];
		const struct sim_ring *r = &f->ring[id];

		if (r->state != SIM_RING_RUNNING || r->device != device || r->granted ||
			(r->owner - 1 == slot) != its)
			continue;
		if (submitted_before(id, found))
			found = id;
	}
	return found;
}

/* fifo: kernels of one process run together if they were submitted before any kernel of another process. That kernel
 * waits until they have ended, and kernels that were submitted after it wait behind it. */
static void dispatch(struct sim_device *d, uint32_t device)
{
	struct sim_file *f = sim_shm.file;
	uint32_t slot = SIM_NONE, other, id;

	if (!d->nrunq)
		return;
	for (uint32_t i = 0; i < f->nactive && slot == SIM_NONE; i++) {
		const struct sim_ring *r = &f->ring[f->active[i]];

		if (r->state == SIM_RING_RUNNING && r->device == device && r->granted)
			slot = r->owner - 1;
	}
	if (slot == SIM_NONE) {
		slot = f->ring[earliest(device, SIM_NONE, false)].owner - 1;
		for (uint32_t k = 1; k < d->nrunq; k++)
			if (d->runq[k] == slot) {
				d->runq[k] = d->runq[0];
				d->runq[0] = (uint16_t)slot;
			}
		sim_compute_begin(device);
	}
	other = earliest(device, slot, false);
	while ((id = earliest(device, slot, true)) != SIM_NONE && submitted_before(id, other)) {
		f->ring[id].granted = 1;
		account(slot, device)->occupancy += sim_op_at(id, f->ring[id].head)->occupancy;
	}
}

/* Switches the engine to the first process of the queue if it is set up for another. The slice begins when the switch
 * ends. */
static bool set_up(struct sim_device *d, uint64_t now_ns)
{
	struct sim_file *f = sim_shm.file;
	uint64_t serial;

	if (!d->nrunq || together())
		return false;
	serial = f->proc[d->runq[0]].serial;
	if (d->context == serial)
		return false;
	if (d->context && f->set.switch_ns) {
		d->switch_end_ns = now_ns + f->set.switch_ns;
		d->slice_end_ns = d->switch_end_ns + f->set.slice_ns;
		d->switches++;
	}
	d->context = serial;
	return true;
}

/* Takes processes out of the queue that have nothing left to run, and ends slices. */
bool sim_compute_rotate(uint64_t now_ns)
{
	struct sim_file *f = sim_shm.file;
	bool other = false;

	for (uint32_t i = 0; i < f->set.devices; i++) {
		struct sim_device *d = &f->device[i];
		uint16_t first = d->runq[0];

		if (d->leaving) {
			uint32_t n = 0;

			for (uint32_t k = 0; k < d->nrunq; k++) {
				struct sim_account *a = account(d->runq[k], i);

				if (a->running || a->waiting) {
					d->runq[n++] = d->runq[k];
				} else {
					a->queued = 0;
					a->last_run_ns = now_ns;
				}
			}
			d->nrunq = n;
			d->leaving = 0;
			if (n && d->runq[0] != first && !fifo())
				sim_compute_begin(i);
		}
		if (timeslice() && d->nrunq > 1 && now_ns >= d->slice_end_ns) {
			first = d->runq[0];
			account(first, i)->last_run_ns = now_ns;
			memmove(&d->runq[0], &d->runq[1], (d->nrunq - 1) * sizeof(d->runq[0]));
			d->runq[d->nrunq - 1] = first;
			sim_compute_begin(i);
		}
		if (fifo())
			dispatch(d, i);
		other |= set_up(d, now_ns);
	}
	return other;
}

/* Returns how many processes of the queue wait for pages: they share the link. */
static uint64_t pagers(struct sim_device *d, uint32_t device)
{
	uint64_t n = 0;

	for (uint32_t k = 0; k < d->nrunq; k++)
		n += account(d->runq[k], device)->page_rem != 0;
	return n;
}

/*
 * Finds what a kernel shares with the running kernels of its process that have its priority: the part of the device
 * that is left for them, and what they would fill together. Returns false if nothing is left: the kernel stands still.
 */
static bool left_for(const struct sim_ring *r, uint32_t *room, uint32_t *occupancy)
{
	const struct sim_file *f = sim_shm.file;
	uint32_t before = 0, same = 0;

	*room = most(r->owner - 1);
	*occupancy = account(r->owner - 1, r->device)->occupancy;
	/* If no other kernel of its process runs, it has the whole. */
	if (!f->priorities || account(r->owner - 1, r->device)->running == 1)
		return true;
	for (uint32_t i = 0; i < f->nactive; i++) {
		uint32_t id = f->active[i];
		const struct sim_ring *o = &f->ring[id];

		if (o->owner != r->owner || o->device != r->device || o->state != SIM_RING_RUNNING ||
			(fifo() && !o->granted) || o->priority > r->priority)
			continue;
		*(o->priority < r->priority ? &before : &same) += sim_op_at(id, o->head)->occupancy;
	}
	*room = *room > before ? *room - before : 0;
	*occupancy = same;
	return *room > 0;
}

/* Returns in how many ns a kernel that proceeds has done the rest of its work if nothing changes. */
static uint64_t kernel_ns(const struct sim_device *d, const struct sim_ring *r)
{
	uint64_t slower = 1000ull * at_engine(d);
	unsigned __int128 rem = r->rem;
	uint32_t room, occupancy;

	if (!left_for(r, &room, &occupancy))
		return UINT64_MAX / 2;
	if (spatial())
		slower = widths(d, r->device) > 1000 ? widths(d, r->device) : 1000;
	if (occupancy > room)
		return (uint64_t)((rem * slower * occupancy + 1000ull * room * SIM_UNIT - 1) /
				  (1000ull * room * SIM_UNIT));
	/* In most cases 64 bits are enough, and a division by a constant takes a few instructions. */
	if (r->rem < 1ull << 40 && slower < 1ull << 23)
		return (r->rem * slower + 1000 * SIM_UNIT - 1) / (1000 * SIM_UNIT);
	return (uint64_t)((rem * slower + 1000 * SIM_UNIT - 1) / (1000 * SIM_UNIT));
}

uint64_t sim_compute_next(uint64_t now_ns, uint64_t next_ns)
{
	struct sim_file *f = sim_shm.file;

	for (uint32_t i = 0; i < f->set.devices; i++) {
		struct sim_device *d = &f->device[i];
		uint32_t n = at_engine(d);
		uint64_t links = n > 1 ? pagers(d, i) : 1;

		if (d->switch_end_ns > now_ns) {
			next_ns = d->switch_end_ns < next_ns ? d->switch_end_ns : next_ns;
			continue;
		}
		if (timeslice() && d->nrunq > 1 && d->slice_end_ns < next_ns)
			next_ns = d->slice_end_ns > now_ns ? d->slice_end_ns : now_ns;
		for (uint32_t k = 0; k < n; k++) {
			uint64_t rem = account(d->runq[k], i)->page_rem;
			uint64_t t = now_ns + sim_work_ns(rem, links);

			if (rem && t < next_ns)
				next_ns = t;
		}
	}
	for (uint32_t i = 0; i < f->nactive; i++) {
		struct sim_ring *r = &f->ring[f->active[i]];
		struct sim_device *d = &f->device[r->device];
		struct sim_account *a;
		uint64_t t;

		if (r->state != SIM_RING_RUNNING || r->held || d->switch_end_ns > now_ns || !proceeds(d, r))
			continue;
		a = account(r->owner - 1, r->device);
		if (a->page_rem)
			continue;
		t = now_ns + kernel_ns(d, r);
		if (t < next_ns)
			next_ns = t;
	}
	return next_ns;
}

/* Returns device time multiplied by the part of the device that was filled. */
static uint64_t width_of(uint64_t units, uint32_t occupancy)
{
	return occupancy == 1000 ? units : (uint64_t)((unsigned __int128)units * occupancy / 1000);
}

/* Charges all processes that have the engine, before anything changes. The parts add up to the whole, to the last unit.
 * In spatial each process is charged for the whole time, at the speed that it had. */
static void charge(struct sim_device *d, uint32_t device, uint64_t units, uint64_t *granted)
{
	uint32_t n = at_engine(d);
	uint64_t links = n > 1 ? pagers(d, device) : 1;
	uint64_t left = units, each = units;
	uint32_t sum = spatial() ? widths(d, device) : 0;

	if (sum > 1000)
		each = (uint64_t)((unsigned __int128)units * 1000 / sum);
	d->any_units += units;
	for (uint32_t k = 0; k < n; k++) {
		struct sim_account *a = account(d->runq[k], device);
		uint64_t part = spatial() ? each : left / (n - k);

		left -= spatial() ? 0 : part;
		a->device_units += part;
		if (!a->page_rem)
			a->width_units += width_of(part, min_u32(a->occupancy, most(d->runq[k])));
		granted[d->runq[k]] = a->page_rem ? 0 : part;
		if (a->page_rem) {
			uint64_t moved = units / links;

			a->paging_units += part;
			a->page_rem -= moved + 1 >= a->page_rem ? a->page_rem : moved;
		}
	}
}

void sim_compute_progress(uint64_t dt_ns)
{
	struct sim_file *f = sim_shm.file;
	uint64_t granted[SIM_MAX_PROCS];

	for (uint32_t i = 0; i < f->set.devices; i++) {
		struct sim_device *d = &f->device[i];

		/* A switch ends at the end of a step, never within it. */
		if (d->switch_end_ns >= f->now_ns) {
			d->switch_units += dt_ns * SIM_UNIT;
			continue;
		}
		if (!d->nrunq)
			continue;
		charge(d, i, dt_ns * SIM_UNIT, granted);
		for (uint32_t k = 0; k < f->nactive; k++) {
			struct sim_ring *r = &f->ring[f->active[k]];
			uint32_t occupancy, room;
			uint64_t part;

			if (r->state != SIM_RING_RUNNING || r->held || r->device != i || !proceeds(d, r))
				continue;
			part = granted[r->owner - 1];
			if (!left_for(r, &room, &occupancy))
				continue;
			if (occupancy > room)
				part = (uint64_t)((unsigned __int128)part * room / occupancy);
			if (part)
				r->rem -= part + 2 >= r->rem ? r->rem : part;
		}
	}
}

/* A process that has the engine pays for its missing pages before its kernels go on. */
void sim_compute_check(void)
{
	struct sim_file *f = sim_shm.file;

	for (uint32_t i = 0; i < f->set.devices; i++) {
		struct sim_device *d = &f->device[i];
		uint32_t n = at_engine(d);

		for (uint32_t k = 0; k < n; k++) {
			struct sim_account *a = account(d->runq[k], i);
			uint64_t bytes;

			if (!a->check || !a->running)
				continue;
			a->check = 0;
			a->last_run_ns = f->now_ns;
			if (a->managed_bytes <= a->resident_bytes)
				continue;
			bytes = sim_page_in(a, i, a->managed_bytes - a->resident_bytes);
			if (!bytes)
				continue;
			a->page_rem += (uint64_t)((double)bytes / f->set.page_gbps * SIM_UNIT);
			/* A new slice begins when the page faults have been served. */
			if (timeslice())
				d->slice_end_ns = max_ns(d->switch_end_ns, f->now_ns) +
						  sim_work_ns(a->page_rem, 1) + f->set.slice_ns;
		}
	}
}

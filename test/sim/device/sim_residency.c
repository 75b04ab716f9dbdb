/* Memory of the processes on each device, and how much managed memory is resident. */
#include "test/sim/device/engine.h"
#include "test/sim/device/shm.h"

#include <errno.h>
#include <stddef.h>

static struct sim_account *account(uint32_t slot, uint32_t device)
{
	return &sim_shm.file->proc[slot].dev[device];
}

/* Returns the room that plain allocations leave for managed pages, and sets how much of it is used. */
static uint64_t page_room(uint32_t device, uint64_t *resident)
{
	struct sim_file *f = sim_shm.file;
	uint64_t plain = 0;

	*resident = 0;
	for (uint32_t p = 0; p < SIM_MAX_PROCS; p++) {
		if (f->proc[p].state != SIM_PROC_LIVE)
			continue;
		plain += account(p, device)->memory_bytes;
		*resident += account(p, device)->resident_bytes;
	}
	return plain < f->device[device].info.memory_bytes ? f->device[device].info.memory_bytes - plain : 0;
}

/* Evicts managed pages, first those of the process that ran longest ago. */
static void evict(uint32_t device, const struct sim_account *keep, uint64_t bytes)
{
	struct sim_file *f = sim_shm.file;

	while (bytes) {
		struct sim_account *oldest = NULL;
		uint64_t n;

		for (uint32_t p = 0; p < SIM_MAX_PROCS; p++) {
			struct sim_account *a = account(p, device);

			if (f->proc[p].state != SIM_PROC_LIVE || a == keep || !a->resident_bytes)
				continue;
			if (!oldest || a->last_run_ns < oldest->last_run_ns)
				oldest = a;
		}
		if (!oldest)
			return;
		n = bytes < oldest->resident_bytes ? bytes : oldest->resident_bytes;
		oldest->resident_bytes -= n;
		bytes -= n;
	}
}

static void note_peak(struct sim_account *a)
{
	uint64_t now = a->memory_bytes + a->resident_bytes;

	if (now > a->peak_bytes)
		a->peak_bytes = now;
}

/* Brings in up to `bytes` more of the process's pages. Returns how many bytes came in. */
uint64_t sim_page_in(struct sim_account *a, uint32_t device, uint64_t bytes)
{
	uint64_t resident, room = page_room(device, &resident);
	uint64_t want = a->resident_bytes + bytes;

	if (want > a->managed_bytes)
		want = a->managed_bytes;
	if (want > room)
		want = room;
	if (want <= a->resident_bytes)
		return 0;
	bytes = want - a->resident_bytes;
	if (resident + bytes > room)
		evict(device, a, resident + bytes - room);
	a->resident_bytes = want;
	note_peak(a);
	return bytes;
}

void sim_migrate(struct sim_account *a, uint32_t device, uint64_t bytes, bool in)
{
	if (in)
		sim_page_in(a, device, bytes);
	else
		a->resident_bytes -= bytes < a->resident_bytes ? bytes : a->resident_bytes;
}

uint64_t sim_memory_used(uint32_t device)
{
	uint64_t resident, room = page_room(device, &resident);

	return sim_shm.file->device[device].info.memory_bytes - room + resident;
}

bool sim_memory_fits(uint32_t device, uint64_t bytes)
{
	uint64_t resident;

	return bytes <= page_room(device, &resident);
}

int sim_memory_take(uint32_t device, uint64_t bytes)
{
	struct sim_account *a = account(sim_shm.slot, device);
	uint64_t resident, room = page_room(device, &resident);

	if (bytes > room)
		return -ENOMEM;
	if (resident + bytes > room)
		evict(device, NULL, resident + bytes - room);
	a->memory_bytes += bytes;
	note_peak(a);
	return 0;
}

void sim_memory_give(uint32_t device, uint64_t bytes)
{
	struct sim_account *a = account(sim_shm.slot, device);

	a->memory_bytes -= bytes < a->memory_bytes ? bytes : a->memory_bytes;
}

void sim_managed_take(uint32_t device, uint64_t bytes)
{
	account(sim_shm.slot, device)->managed_bytes += bytes;
}

void sim_managed_give(uint32_t device, uint64_t bytes)
{
	struct sim_account *a = account(sim_shm.slot, device);

	a->managed_bytes -= bytes < a->managed_bytes ? bytes : a->managed_bytes;
	if (a->resident_bytes > a->managed_bytes)
		a->resident_bytes = a->managed_bytes;
}

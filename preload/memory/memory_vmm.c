/*
 * Physical memory (cuMemCreate), by reference: it lives until its handles are released and its mappings unmapped.
 * Imported memory is not counted here, because it counts for its exporter. One lock is enough, because the driver needs
 * microseconds for these calls.
 */
#include "preload/memory/memory.h"

#include "preload/hooks/compat.h"
#include "preload/process/device.h"

#include <stddef.h>
#include <stdlib.h>

struct physical {
	uint64_t bytes;
	uint64_t references; /* of handles and of mappings */
	struct arb_device *device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The lock is held. */
static void put(struct physical *p)
{
	if (--p->references)
		return;
	memory_release(p->device, p->bytes);
	free(p);
}

/* The lock is held. The handle needs one release more; if the handle is not known, it is put in as one of `p`. */
static bool handle_add(uint64_t handle, struct physical *p)
{
	struct memory_entry e;

	if (memory_table_take(handle, MEMORY_HANDLE, &e))
		p = e.owner;
	else
		e = (struct memory_entry){.key = handle, .owner = p, .kind = MEMORY_HANDLE};
	if (!p)
		return false;
	e.bytes++;
	p->references++;
	return memory_table_put(&e);
}

/* The lock is held. The handle needs one release less; its reference goes to the caller. */
static struct physical *handle_take(uint64_t handle)
{
	struct memory_entry e;

	if (!memory_table_take(handle, MEMORY_HANDLE, &e))
		return NULL;
	if (--e.bytes)
		memory_table_put(&e);
	return e.owner;
}

struct range {
	uint64_t from, to;
	struct physical *found;
};

static bool unmapped(void *argument, const struct memory_entry *e)
{
	const struct range *r = argument;

	if (e->key < r->from || e->key + e->bytes > r->to)
		return false;
	put(e->owner);
	return true;
}

static bool contains(void *argument, const struct memory_entry *e)
{
	struct range *r = argument;

	if (r->from >= e->key && r->from < e->key + e->bytes)
		r->found = e->owner;
	return false;
}

static void unmap(uint64_t from, uint64_t bytes)
{
	struct range r = {.from = from, .to = from + bytes};
	struct memory_entry e;

	/* Mostly the range is one mapping, or several without holes. Otherwise every mapping is looked at. */
	while (r.from < r.to && memory_table_take(r.from, MEMORY_MAPPING, &e)) {
		r.from += e.bytes;
		put(e.owner);
	}
	if (r.from < r.to)
		memory_table_walk(MEMORY_MAPPING, unmapped, &r);
}

bool memory_vmm_before(struct act_call *call, CUresult *result)
{
	const CUmemAllocationProp *prop = call->desc;
	struct physical *p = NULL;
	struct memory_entry e;
	CUdevice ordinal;

	call->token = 0;
	switch (call->id) {
	case HOOK_cuMemCreate:
		if (!prop || !call->bytes || !memory_on_device(&prop->location, &ordinal))
			return true;
		p = calloc(1, sizeof(*p));
		if (!p)
			return true;
		*p = (struct physical){.bytes = call->bytes, .device = memory_device(ordinal)};
		if (!memory_reserve_hard(p->device, p->bytes, MEMORY_ALL)) {
			free(p);
			*result = CUDA_ERROR_OUT_OF_MEMORY;
			return false;
		}
		break;
	case HOOK_cuMemRelease:
		/* Done before the driver's call: afterwards another thread may get the same handle. */
		pthread_mutex_lock(&lock);
		p = handle_take(call->handle);
		pthread_mutex_unlock(&lock);
		break;
	case HOOK_cuMemMap:
		/* Done before the driver's call: as soon as it has mapped, another thread may release the handle. */
		pthread_mutex_lock(&lock);
		if (memory_table_take(call->handle, MEMORY_HANDLE, &e)) {
			p = e.owner;
			p->references++;
			memory_table_put(&e);
		}
		pthread_mutex_unlock(&lock);
		break;
	default:
		break;
	}
	call->token = (uintptr_t)p;
	return true;
}

static void created(struct act_call *call, CUresult result, struct physical *p)
{
	if (result == CUDA_SUCCESS) {
		handle_add(*(CUmemGenericAllocationHandle *)call->out, p);
		return;
	}
	memory_release(p->device, p->bytes);
	free(p);
}

void memory_vmm_after(struct act_call *call, CUresult result)
{
	struct physical *p = (struct physical *)(uintptr_t)call->token;
	struct range r = {.from = call->handle};
	struct memory_entry e;

	pthread_mutex_lock(&lock);
	switch (call->id) {
	case HOOK_cuMemCreate:
		if (p)
			created(call, result, p);
		break;
	case HOOK_cuMemRelease:
		if (p && result != CUDA_SUCCESS)
			handle_add(call->handle, p);
		if (p)
			put(p);
		break;
	case HOOK_cuMemMap:
		if (!p)
			break;
		e = (struct memory_entry){
			.key = call->aux, .bytes = call->bytes, .owner = p, .kind = MEMORY_MAPPING};
		if (result != CUDA_SUCCESS)
			put(p);
		else
			memory_table_put(&e);
		break;
	case HOOK_cuMemUnmap:
		if (result == CUDA_SUCCESS)
			unmap(call->handle, call->bytes);
		break;
	case HOOK_cuMemRetainAllocationHandle:
		if (result != CUDA_SUCCESS)
			break;
		if (!handle_add(*(CUmemGenericAllocationHandle *)call->out, NULL)) {
			memory_table_walk(MEMORY_MAPPING, contains, &r);
			handle_add(*(CUmemGenericAllocationHandle *)call->out, r.found);
		}
		break;
	case HOOK_cuMemImportFromShareableHandle:
		/* Memory of another process is unknown and stays so. The process's own gets one more reference. */
		if (result == CUDA_SUCCESS)
			handle_add(*(CUmemGenericAllocationHandle *)call->out, NULL);
		break;
	default:
		break;
	}
	pthread_mutex_unlock(&lock);
}

void memory_vmm_forget(void)
{
	pthread_mutex_init(&lock, NULL);
}

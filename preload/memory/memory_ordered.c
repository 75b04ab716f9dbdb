/*
 * Stream-ordered allocations where device memory becomes managed. CUDA has no pool of managed memory, so this file
 * is one. A block that a stream frees is kept, with an event behind the work that may still use it. The next
 * allocation of the same size in that stream gets the block at once, because its work comes later; one in another
 * stream gets it when the event has passed. To free a block really, the driver waits for all work of the device, so
 * that is done when there is no work, or when room is needed. Until then the block counts.
 */
#include "preload/memory/memory.h"

#include "preload/hooks/compat.h"
#include "preload/process/device.h"
#include "preload/memory/memory_mark.h"
#include "preload/track/track.h"
#include "shm/base/word.h"

#include <stddef.h>
#include <stdlib.h>

#define NAP_NS 100000u

struct block {
	struct block *next;
	struct memory_entry entry; /* as it was in the table */
	struct memory_place place; /* where it was freed; stream NULL: that stream has ended */
	struct memory_mark mark;
	bool passed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *list; /* the oldest last */
static uint64_t held;      /* bytes in the list */
static unsigned going;     /* blocks that threads are freeing */
static bool ever;          /* such an allocation was made at some time */

bool memory_ordered_any(void)
{
	return arb_word_load(&held) || arb_word_load(&going);
}

/* The lock is held. */
static struct block *take_out(struct block **at)
{
	struct block *b = *at;

	*at = b->next;
	arb_word_store(&held, held - b->entry.bytes);
	return b;
}

static void forget(struct block *b)
{
	memory_mark_drop(&b->mark);
	free(b);
}

/* The default pool is the only one that managed memory may stand in for: the program has not chosen its properties. */
static bool is_default(CUmemoryPool pool, CUdevice ordinal)
{
	__typeof__(cuDeviceGetDefaultMemPool) *get = arb_real(cuDeviceGetDefaultMemPool);
	CUmemoryPool standard = NULL;

	return get && get(&standard, ordinal) == CUDA_SUCCESS && pool == standard;
}

static struct block *reuse(CUcontext ctx, const struct memory_place *place, uint64_t bytes)
{
	struct block **best = NULL, *b = NULL;
	CUstreamCaptureMode mode;

	if (!arb_word_load(&held))
		return NULL;
	mode = track_relax();
	pthread_mutex_lock(&lock);
	for (struct block **at = &list; *at && !best; at = &(*at)->next)
		if ((*at)->entry.bytes == bytes && (*at)->entry.owner == ctx &&
			memory_place_same(&(*at)->place, place))
			best = at;
	for (struct block **at = &list; *at && !best; at = &(*at)->next)
		if ((*at)->entry.bytes == bytes && (*at)->entry.owner == ctx &&
			memory_mark_passed(&(*at)->mark))
			best = at;
	if (best)
		b = take_out(best);
	pthread_mutex_unlock(&lock);
	track_unrelax(mode);
	return b;
}

/* Really frees a block. No lock may be held, because the driver may wait for all work of the device. */
static void free_block(struct block *b)
{
	__typeof__(cuCtxPushCurrent_v2) *push = arb_real(cuCtxPushCurrent_v2);
	__typeof__(cuCtxPopCurrent_v2) *pop = arb_real(cuCtxPopCurrent_v2);
	CUcontext popped;

	if (push && pop && push(b->entry.owner) == CUDA_SUCCESS) {
		arb_real(cuMemFree_v2)(b->entry.key);
		pop(&popped);
	}
	memory_release(b->entry.device, b->entry.bytes);
	forget(b);
}

/* The lock is held. Finds the oldest block of the device whose work has ended. */
static struct block **oldest(const struct arb_device *device)
{
	struct block **found = NULL;

	for (struct block **at = &list; *at; at = &(*at)->next)
		if ((*at)->passed && (*at)->entry.device == device)
			found = at;
	return found;
}

/* Frees blocks whose work has ended, the oldest first, until the device has at most `keep` bytes left. */
static void give_back(const struct arb_device *device, uint64_t keep)
{
	CUstreamCaptureMode mode = track_relax();
	struct block *out = NULL, **at, *b;
	uint64_t kept = 0;

	pthread_mutex_lock(&lock);
	for (b = list; b; b = b->next) {
		b->passed = b->passed || memory_mark_passed(&b->mark);
		kept += b->entry.device == device ? b->entry.bytes : 0;
	}
	while (kept > keep && (at = oldest(device))) {
		b = take_out(at);
		kept -= b->entry.bytes;
		b->next = out;
		out = b;
		arb_word_add(&going, 1);
	}
	pthread_mutex_unlock(&lock);
	while ((b = out)) {
		out = b->next;
		free_block(b);
		arb_word_sub(&going, 1);
	}
	track_unrelax(mode);
}

static bool idle(struct arb_device *device)
{
	CUstreamCaptureMode mode = track_relax();
	struct track *t = tracker_get(device);
	uint64_t asked_ns;
	bool yes;

	track_lock(t);
	yes = streams_ask(t, &asked_ns) == STREAMS_IDLE;
	track_unlock(t);
	track_unrelax(mode);
	return yes;
}

/* Freeing waits for all work of the device. In some programs that work may wait for what the calling thread does next, so
 * there it is done only while no stream has work. */
static void give_back_if_safe(struct arb_device *device, uint64_t keep)
{
	if (device && (!memory_may_wait() || idle(device)))
		give_back(device, keep);
}

void memory_ordered_give_back(void)
{
	uint64_t until;

	if (!memory_ordered_any())
		return;
	for (CUdevice i = 0; i < ARB_DEVICES; i++)
		give_back_if_safe(arb_device_known(i), 0);
	/* Blocks that other threads are freeing give room in a moment. */
	for (until = track_now() + memory_patience_ns(); arb_word_load(&going) && track_now() < until;)
		memory_nap(NAP_NS);
}

bool memory_ordered_wait(struct arb_device *device, uint64_t bytes, enum memory_need need)
{
	uint64_t until = track_now() + memory_patience_ns();

	while (memory_ordered_any() && track_now() < until) {
		memory_nap(NAP_NS);
		memory_ordered_give_back();
		if (memory_reserve(device, bytes, need))
			return true;
	}
	return false;
}

static CUresult make(const struct act_call *call, CUdeviceptr *p)
{
	CUstreamCaptureMode mode = track_relax();
	CUresult result = arb_real(cuMemAllocManaged)(p, call->bytes, CU_MEM_ATTACH_GLOBAL);

	track_unrelax(mode);
	return result;
}

bool memory_ordered_alloc(
	struct act_call *call, struct arb_device *device, CUmemoryPool pool, CUresult *result)
{
	struct memory_entry entry = {.device = device, .kind = MEMORY_ORDERED};
	struct memory_place place;
	CUcontext ctx;
	struct block *b;

	if (!memory_managed_on(device) || !call->out || !is_default(pool, device->ordinal))
		return false;
	ctx = memory_place_here(call);
	if (!ctx)
		return false;
	arb_word_store(&ever, true);
	place = memory_place_of(call);
	entry.bytes = memory_pages(call->bytes);
	entry.epoch = memory_epoch();
	entry.owner = ctx;
	b = reuse(ctx, &place, entry.bytes);
	if (b) {
		entry.key = b->entry.key;
		forget(b);
		*result = CUDA_SUCCESS;
	} else if (!memory_reserve_waiting(device, entry.bytes, MEMORY_ALL, call)) {
		*result = CUDA_ERROR_OUT_OF_MEMORY;
		return true;
	} else {
		*result = make(call, (CUdeviceptr *)&entry.key);
	}
	if (*result == CUDA_SUCCESS) {
		*(CUdeviceptr *)call->out = entry.key;
		memory_table_put(&entry);
	} else {
		memory_release(device, entry.bytes);
		if (*result == CUDA_ERROR_OUT_OF_MEMORY)
			memory_driver_refused(device, entry.bytes);
	}
	return true;
}

bool memory_ordered_free(struct act_call *call, CUresult *result)
{
	struct memory_entry entry;
	struct block *b;

	/* A capture must not free this memory, and the driver says so. */
	if (!arb_word_load(&ever) || !call->handle || streams_capturing(call) ||
		!memory_table_take(call->handle, MEMORY_ORDERED, &entry))
		return false;
	b = calloc(1, sizeof(*b));
	if (!b) {
		*result = arb_real(cuMemFree_v2)(entry.key);
		memory_release(entry.device, entry.bytes);
		return true;
	}
	*result = memory_mark_set(&b->mark, call);
	if (*result != CUDA_SUCCESS) {
		memory_table_put(&entry);
		forget(b);
		return true;
	}
	b->entry = entry;
	b->place = memory_place_of(call);
	pthread_mutex_lock(&lock);
	b->next = list;
	list = b;
	arb_word_store(&held, held + entry.bytes);
	pthread_mutex_unlock(&lock);
	return true;
}

/* Returns how much memory the program lets its default pool keep. */
static uint64_t threshold(const struct arb_device *device)
{
	__typeof__(cuDeviceGetDefaultMemPool) *get = arb_real(cuDeviceGetDefaultMemPool);
	__typeof__(cuMemPoolGetAttribute) *ask = arb_real(cuMemPoolGetAttribute);
	cuuint64_t bytes = 0;
	CUmemoryPool pool;

	if (get && ask && get(&pool, device->ordinal) == CUDA_SUCCESS)
		ask(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
	return bytes;
}

void memory_ordered_synced(void)
{
	struct arb_device *device;
	uint64_t keep;

	if (!arb_word_load(&held))
		return;
	device = arb_device_current();
	keep = device ? threshold(device) : 0;
	if (!device || arb_word_load(&held) <= keep)
		return;
	/* Other streams may still have work, and freeing would wait for it. */
	if (idle(device))
		give_back(device, keep);
}

void memory_ordered_trim(CUmemoryPool pool, CUdevice ordinal, uint64_t keep)
{
	if (memory_ordered_any() && is_default(pool, ordinal))
		give_back_if_safe(arb_device_known(ordinal), keep);
}

struct sum {
	const struct arb_device *device;
	uint64_t bytes;
};

static bool add_up(void *argument, const struct memory_entry *e)
{
	struct sum *sum = argument;

	sum->bytes += e->device == sum->device ? e->bytes : 0;
	return false;
}

/* Adds the memory that is here to what the driver says of its default pool. */
void memory_ordered_attribute(CUmemoryPool pool, CUdevice ordinal, CUmemPool_attribute what, void *value)
{
	struct sum used = {.device = arb_device_known(ordinal)};
	uint64_t kept = 0;

	if (what < CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || !used.device || !is_default(pool, ordinal))
		return;
	memory_table_walk(MEMORY_ORDERED, add_up, &used);
	pthread_mutex_lock(&lock);
	for (const struct block *b = list; b; b = b->next)
		kept += b->entry.device == used.device ? b->entry.bytes : 0;
	pthread_mutex_unlock(&lock);
	if (what == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || what == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		used.bytes += kept;
	*(cuuint64_t *)value += used.bytes;
}

void memory_ordered_stream(CUstream stream)
{
	if (!arb_word_load(&held))
		return;
	pthread_mutex_lock(&lock);
	for (struct block *b = list; b; b = b->next)
		if (b->place.stream == stream)
			b->place.stream = NULL;
	pthread_mutex_unlock(&lock);
}

void memory_ordered_context(CUcontext ctx, uint64_t epoch, enum memory_end what)
{
	struct block *out = NULL, *b;

	pthread_mutex_lock(&lock);
	for (struct block **at = &list; *at;) {
		if ((*at)->entry.epoch <= epoch)
			memory_mark_context(&(*at)->mark, ctx, what);
		if (what != MEMORY_ENDED || (*at)->entry.owner != ctx || (*at)->entry.epoch > epoch) {
			at = &(*at)->next;
			continue;
		}
		b = take_out(at);
		b->next = out;
		out = b;
	}
	pthread_mutex_unlock(&lock);
	while ((b = out)) {
		out = b->next;
		memory_release(b->entry.device, b->entry.bytes);
		free(b);
	}
}

void memory_ordered_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	list = NULL;
	held = 0;
	going = 0;
}

/*
 * Stocks of memory that the driver keeps: pools, and what a device holds for graphs. A stock counts with all the memory
 * that the driver has reserved for it, whether pointers use it or not. Before an allocation the most that it can add is
 * reserved. Afterwards the driver says how much there is, and the rest is given back:
 *
 *     counted = what the driver says + what the calls that are under way may still add
 *
 * This is exact whenever no call is under way, and never too little. A pool gives memory back at synchronisations, so
 * it is asked again after each of them. A destroyed pool cannot be asked. It counts with the memory that is in use, and
 * with freed memory until the streams have come to the free.
 */
#include "preload/memory/memory_stock.h"

#include "preload/process/device.h"
#include "preload/track/track.h"
#include "shm/base/word.h"

#include <stddef.h>
#include <stdlib.h>

#define GRAIN (2u << 20) /* drivers give memory to a pool in steps of this */

static unsigned flying; /* calls that have reserved the most that they may need, and have not settled */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stock *list;

bool memory_pool_any(void)
{
	return arb_word_load_acquire(&list) != NULL;
}

/* With `pool` NULL, finds the stock of the device's graphs. */
struct stock *stock_find(CUmemoryPool pool, CUdevice ordinal)
{
	for (struct stock *s = arb_word_load_acquire(&list); s; s = s->next)
		if (!arb_word_load_acquire(&s->gone) && s->pool == pool && (pool || s->ordinal == ordinal))
			return s;
	return NULL;
}

/* Finds a stock whose pool was destroyed and that has nothing left. It stays `gone` until make() gives it a new pool. */
static struct stock *find_unused(void)
{
	for (struct stock *s = arb_word_load_acquire(&list); s; s = s->next) {
		bool unused;

		if (!arb_word_load_acquire(&s->gone))
			continue;
		pthread_mutex_lock(&s->lock);
		unused = s->gone && !s->counted && !s->live_most && !s->leaving && !s->pending;
		pthread_mutex_unlock(&s->lock);
		if (unused)
			return s;
	}
	return NULL;
}

static struct stock *make(CUmemoryPool pool, CUdevice ordinal, struct arb_device *device)
{
	struct stock *s = find_unused();

	if (s) {
		pthread_mutex_lock(&s->lock);
		s->pool = pool;
		s->ordinal = ordinal;
		s->device = device;
		s->answers = s->queued = false;
		arb_word_store_release(&s->gone, false);
		pthread_mutex_unlock(&s->lock);
		return s;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	*s = (struct stock){.next = list,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.pool = pool,
		.ordinal = ordinal,
		.device = device};
	arb_word_store_release(&list, s);
	return s;
}

struct stock *stock_find_or_make(CUmemoryPool pool, CUdevice ordinal, bool foreign)
{
	struct arb_device *device;
	struct stock *s = stock_find(pool, ordinal);

	if (s)
		return s;
	device = foreign ? NULL : memory_device(ordinal);
	pthread_mutex_lock(&list_lock);
	s = stock_find(pool, ordinal);
	if (!s)
		s = make(pool, ordinal, device);
	pthread_mutex_unlock(&list_lock);
	return s;
}

/* The lock is held. Returns the most that a destroyed pool can still have, because the driver cannot be asked any more. */
static uint64_t rest(struct stock *s)
{
	uint64_t bytes = s->live_most + s->pending;

	for (struct leaving **at = &s->leaving, *l; (l = *at);) {
		if (memory_mark_passed(&l->mark)) {
			*at = l->next;
			memory_mark_drop(&l->mark);
			free(l);
		} else {
			bytes += l->bytes;
			at = &l->next;
		}
	}
	return bytes < s->counted - s->coming ? bytes : s->counted - s->coming;
}

/* The lock is held. Returns what the driver has reserved for the stock. */
static uint64_t reserved(struct stock *s)
{
	__typeof__(cuMemPoolGetAttribute) *pool = arb_real(cuMemPoolGetAttribute);
	__typeof__(cuDeviceGetGraphMemAttribute) *graph = arb_real(cuDeviceGetGraphMemAttribute);
	cuuint64_t bytes = 0;

	if (s->gone)
		return rest(s);
	if (!s->pool)
		return graph && graph(s->ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) ==
					       CUDA_SUCCESS
			       ? bytes
			       : s->counted - s->coming;
	if (pool && pool(s->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS) {
		s->answers = true;
		return bytes;
	}
	/* If the driver has answered before, it fails just now and still has the memory; an old driver never answers. */
	return s->answers ? s->counted - s->coming : s->live_bytes;
}

/* The lock is held. Makes the driver give back what is not in use. */
static void trim(struct stock *s)
{
	__typeof__(cuMemPoolTrimTo) *pool = arb_real(cuMemPoolTrimTo);
	__typeof__(cuDeviceGraphMemTrim) *graph = arb_real(cuDeviceGraphMemTrim);

	if (s->pool && !s->gone && pool)
		pool(s->pool, 0);
	else if (!s->pool && graph)
		graph(s->ordinal);
}

bool stock_settle(struct stock *s, uint64_t done, bool tight)
{
	bool fits = true;
	uint64_t now, want;

	/* While the lock is held nobody destroys the pool. */
	pthread_mutex_lock(&s->lock);
	s->coming -= done;
	if (tight)
		trim(s);
	now = reserved(s);
	/* A stock without memory has no queued frees, either. */
	s->queued &= now != 0;
	/* What the calls of other threads may still add counts, even if `now` has it already. */
	want = now + s->coming;
	if (now > s->counted) {
		/* The driver has taken the memory already. What fits of it is counted, so that at least nobody gets
		 * more. */
		fits = memory_reserve(s->device, now - s->counted, MEMORY_ALL);
		s->counted = fits ? now : s->counted + memory_reserve_rest(s->device, now - s->counted);
	} else if (want < s->counted) {
		memory_release(s->device, s->counted - want);
		s->counted = want;
	}
	pthread_mutex_unlock(&s->lock);
	if (done) {
		memory_settled(s->device);
		arb_word_sub(&flying, 1);
	}
	return fits;
}

bool memory_graph_any(void)
{
	for (struct stock *s = arb_word_load_acquire(&list); s; s = s->next)
		if (!s->pool && s->device)
			return true;
	return false;
}

void stock_come(struct stock *s, uint64_t bytes)
{
	pthread_mutex_lock(&s->lock);
	s->counted += bytes;
	s->coming += bytes;
	pthread_mutex_unlock(&s->lock);
	arb_word_add(&flying, 1);
}

int memory_graph_expect(CUdevice ordinal, uint64_t bytes)
{
	struct stock *s = stock_find(NULL, ordinal);
	int r;

	if (!s || !s->device || !bytes)
		return 0;
	r = memory_try(s->device, bytes, MEMORY_MOST);
	if (r == 0)
		stock_come(s, bytes);
	return r;
}

unsigned memory_calls_flying(void)
{
	return arb_word_load(&flying);
}

void memory_graph_done(CUdevice ordinal, uint64_t bytes)
{
	struct stock *s = stock_find(NULL, ordinal);

	if (s && s->device)
		stock_settle(s, bytes, false);
}

bool memory_pool_owes(void)
{
	for (struct stock *s = arb_word_load_acquire(&list); s; s = s->next)
		if (arb_word_load(&s->counted) && (!s->pool || arb_word_load(&s->queued)))
			return true;
	return false;
}

void memory_pool_settle_all(bool tight)
{
	if (tight)
		memory_graph_trim_begin();
	for (struct stock *s = arb_word_load_acquire(&list); s; s = s->next)
		/* Pools take memory only after a reservation; graphs may take it without. */
		if (s->device && (!s->pool || arb_word_load(&s->counted)))
			stock_settle(s, 0, tight);
	if (tight)
		memory_graph_trim_end();
}

void memory_pool_forget(void)
{
	pthread_mutex_init(&list_lock, NULL);
	list = NULL;
	flying = 0;
}

uint64_t memory_pool_most(uint64_t bytes)
{
	return bytes > UINT64_MAX - GRAIN ? bytes : (bytes + GRAIN - 1) / GRAIN * GRAIN;
}

/* Keeps freed memory counted until its stream has come to the free. False: that cannot be found out, so the memory counts
 * for good. */
static bool leave_later(struct stock *s, const struct act_call *call, uint64_t bytes)
{
	struct leaving *l = calloc(1, sizeof(*l));

	if (!l)
		return false;
	if (memory_mark_set(&l->mark, call) != CUDA_SUCCESS) {
		memory_mark_drop(&l->mark);
		free(l);
		return false;
	}
	l->bytes = bytes;
	pthread_mutex_lock(&s->lock);
	l->next = s->leaving;
	s->leaving = l;
	pthread_mutex_unlock(&s->lock);
	return true;
}

void memory_pool_freed(const struct memory_entry *entry, const struct act_call *call)
{
	bool waited = arb_hooks[call->id].category == CAT_FREE;
	uint64_t bytes = memory_pool_most(entry->bytes);
	struct stock *s = entry->owner;
	bool gone = arb_word_load_acquire(&s->gone), look;

	if (gone && !waited && !leave_later(s, call, bytes))
		return;
	pthread_mutex_lock(&s->lock);
	s->live_bytes -= entry->bytes;
	s->live_most -= bytes;
	s->queued |= !waited;
	look = waited || !s->answers || gone;
	pthread_mutex_unlock(&s->lock);
	/* A queued free gives nothing back before the program synchronises. */
	if (look)
		stock_settle(s, 0, false);
}

void stock_made(struct stock *s, uint64_t bytes)
{
	pthread_mutex_lock(&s->lock);
	s->live_bytes += bytes;
	s->live_most += memory_pool_most(bytes);
	pthread_mutex_unlock(&s->lock);
}

static CUcontext current_context(void)
{
	__typeof__(cuCtxGetCurrent) *current = arb_real(cuCtxGetCurrent);
	CUcontext ctx = NULL;

	return current && current(&ctx) == CUDA_SUCCESS ? ctx : NULL;
}

void stock_end(struct stock *s)
{
	uint64_t now;

	stock_settle(s, 0, true);
	pthread_mutex_lock(&s->lock);
	now = reserved(s);
	/* Memory that is neither in use nor given back waits for frees, in streams that may have ended by now. */
	s->pending = s->queued && now > s->live_bytes ? now - s->live_bytes : 0;
	s->pending_in = current_context();
	arb_word_store_release(&s->gone, true);
	pthread_mutex_unlock(&s->lock);
}

void stock_stay(struct stock *s)
{
	pthread_mutex_lock(&s->lock);
	s->pending = 0;
	arb_word_store_release(&s->gone, false);
	pthread_mutex_unlock(&s->lock);
}

void memory_pool_drained(CUcontext ctx)
{
	if (!ctx)
		ctx = current_context();
	for (struct stock *s = arb_word_load_acquire(&list); s; s = s->next) {
		pthread_mutex_lock(&s->lock);
		if (s->pending_in == ctx)
			s->pending = 0;
		pthread_mutex_unlock(&s->lock);
	}
}

bool memory_pool_pending(void)
{
	for (struct stock *s = arb_word_load_acquire(&list); s; s = s->next)
		if (arb_word_load(&s->pending))
			return true;
	return false;
}

void memory_pool_context(CUcontext ctx, enum memory_end what)
{
	if (what == MEMORY_ENDED)
		memory_pool_drained(ctx);
	for (struct stock *s = arb_word_load_acquire(&list); s; s = s->next) {
		pthread_mutex_lock(&s->lock);
		for (struct leaving *l = s->leaving; l; l = l->next)
			memory_mark_context(&l->mark, ctx, what);
		pthread_mutex_unlock(&s->lock);
	}
}

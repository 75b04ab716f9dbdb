/* Stocks: how much memory a pool, or a device for its graphs, has reserved, and how much of it is counted. */
#ifndef PRELOAD_MEMORY_STOCK_H
#define PRELOAD_MEMORY_STOCK_H

#include "preload/hooks/compat.h"
#include "preload/memory/memory.h"
#include "preload/memory/memory_mark.h"

struct stock {
	struct stock *next; /* a stock is never freed, because others may read it, but used again */
	pthread_mutex_t lock;
	CUmemoryPool pool; /* NULL: the memory of graphs */
	CUdevice ordinal;
	struct arb_device *device; /* NULL: not joined, not device memory, or memory of another process */
	bool gone;                 /* destroyed; lives until its last pointer is freed */
	bool answers;              /* the driver says how much it has; otherwise pointers are counted */
	uint64_t counted;
	uint64_t coming;     /* part of `counted`: what calls under way may still add */
	uint64_t live_bytes; /* of pointers that were not freed */
	uint64_t live_most;  /* live_bytes, with each pointer rounded up to the driver's steps */
	struct leaving *leaving;
	bool queued;      /* memory was freed in streams and may not be given back yet */
	uint64_t pending; /* of a destroyed pool: queued frees, until pending_in has no work */
	CUcontext pending_in;
};

/* Memory that was freed in a stream after its pool was destroyed. The driver has it until the stream has come to the
 * free. */
struct leaving {
	struct leaving *next;
	struct memory_mark mark;
	uint64_t bytes;
};

/* Returns the stock of the pool, or of the device's graphs (pool NULL), if it is known. */
struct stock *stock_find(CUmemoryPool pool, CUdevice ordinal);
/* Returns it, or makes it. `foreign`: its memory is not this process's device memory, so it does not count. */
struct stock *stock_find_or_make(CUmemoryPool pool, CUdevice ordinal, bool foreign);
/* A call may add `bytes`, which the caller has reserved. The lock must not be held. */
void stock_come(struct stock *s, uint64_t bytes);
/* Counts anew what the stock has. `done` bytes are no longer under way, whether they were added or not. `tight`: gives
 * back what is not in use first. False: the stock has more than could be counted. */
bool stock_settle(struct stock *s, uint64_t done, bool tight);
/* A pointer into the stock was made. */
void stock_made(struct stock *s, uint64_t bytes);
/* To be called before the pool is destroyed; and stock_stay if the driver then refused to destroy it. */
void stock_end(struct stock *s);
void stock_stay(struct stock *s);

#endif

/* What a pool, or a device for its graphs, has reserved, and what of it counts. */
#ifndef PRELOAD_MEMORY_STOCK_H
#define PRELOAD_MEMORY_STOCK_H

#include "preload/hooks/compat.h"
#include "preload/memory/memory.h"
#include "preload/memory/memory_mark.h"

struct stock {
	struct stock *next; /* never taken away, because somebody may be reading, but used again */
	pthread_mutex_t lock;
	CUmemoryPool pool; /* NULL: the memory of graphs */
	CUdevice ordinal;
	struct arb_device *device; /* NULL: not joined, not device memory, or another process's */
	bool gone;                 /* destroyed; lives until its last pointer is freed */
	bool answers;              /* the driver says what it has; else pointers are counted */
	uint64_t counted;
	uint64_t coming;     /* of it: for calls under way */
	uint64_t live_bytes; /* of pointers */
	uint64_t live_most;  /* the same, in the steps in which the driver takes it */
	struct leaving *leaving;
	bool queued;      /* some were freed in streams */
	uint64_t pending; /* of a destroyed one: freed in streams before, until this context has no work */
	CUcontext pending_in;
};

/* Freed in a stream after its pool was destroyed: the driver has it until the stream has come to that. */
struct leaving {
	struct leaving *next;
	struct memory_mark mark;
	uint64_t bytes;
};

/* The pool, or the memory of a device's graphs, if it is known; or made known. */
struct stock *stock_find(CUmemoryPool pool, CUdevice ordinal);
struct stock *stock_find_or_make(CUmemoryPool pool, CUdevice ordinal, bool foreign);
/* A call is about to add so much, which is reserved. */
void stock_come(struct stock *s, uint64_t bytes);
/* `done` bytes of what was coming have come, or not. False: there is more than could be counted. */
bool stock_settle(struct stock *s, uint64_t done, bool tight);
/* A pointer into it was made. */
void stock_made(struct stock *s, uint64_t bytes);
/* Its pool is about to be destroyed; and was not, after all. */
void stock_end(struct stock *s);
void stock_stay(struct stock *s);

#endif

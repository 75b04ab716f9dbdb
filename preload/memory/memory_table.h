/*
 * The table of what the process has allocated, by pointer or handle: how many bytes were counted for it, and against
 * which quota. Entries are copied in and out, so that no thread has a pointer to an entry that another thread removes.
 */
#ifndef PRELOAD_MEMORY_TABLE_H
#define PRELOAD_MEMORY_TABLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct arb_device;

enum memory_kind {
	MEMORY_PLAIN = 1,     /* a pointer that ends with its context */
	MEMORY_POOLED = 2,    /* a pointer into a pool, which is what is counted */
	MEMORY_ARRAY = 4,     /* an array or mipmap; ends with its context */
	MEMORY_HANDLE = 8,    /* a handle of physical memory; `bytes` is how many releases it needs */
	MEMORY_MAPPING = 16,  /* where physical memory is mapped */
	MEMORY_MANAGED = 32,  /* a pointer to managed memory in place of device memory */
	MEMORY_CONTEXT = 64,  /* a context */
	MEMORY_EXEC = 128,    /* an executable graph that has memory */
	MEMORY_ORDERED = 256, /* as MEMORY_MANAGED, but allocated in a stream */
	MEMORY_PEERS = 512,   /* an executable graph that copies between GPUs (peers_graph.c) */
};

struct memory_entry {
	uint64_t key;
	uint64_t bytes;
	uint64_t epoch;            /* how many contexts had ended when it was made */
	void *owner;               /* context, pool, physical memory or graph */
	struct arb_device *device; /* whose quota it counts against */
	uint32_t kind;
	uint32_t next;
};

/* A stripe is a part of the table with a lock of its own; a process has MEMORY_STRIPES of them. */
#define MEMORY_STRIPE_BITS 6
#define MEMORY_STRIPES     (1u << MEMORY_STRIPE_BITS)
#define MEMORY_NO_ENTRY    UINT32_MAX
struct memory_stripe {
	pthread_mutex_t lock;
	uint32_t room;   /* number of entries, and of chains: a power of two */
	uint32_t unused; /* first entry of the list of unused ones */
	uint32_t *chain;
	struct memory_entry *entry;
} __attribute__((aligned(128)));
#define MEMORY_STRIPE_INIT                                                                                   \
	{                                                                                                    \
		.lock = PTHREAD_MUTEX_INITIALIZER, .unused = MEMORY_NO_ENTRY                                 \
	}

/* Puts in a copy of the entry; false: there is no memory. Of two entries with the same key the newer is found first. */
bool memory_table_put(const struct memory_entry *entry);
/* Takes out the entry with this key and one of these kinds. Of several threads that try, exactly one gets it. */
bool memory_table_take(uint64_t key, unsigned kinds, struct memory_entry *entry);
/* Copies the entry and leaves it in the table. */
bool memory_table_find(uint64_t key, unsigned kinds, struct memory_entry *entry);
/* Calls `visit` for every entry of these kinds, with its stripe's lock held; takes out those for which it returns true. */
void memory_table_walk(
	unsigned kinds, bool (*visit)(void *argument, const struct memory_entry *entry), void *argument);
/* Empties the table in a forked child: the allocations are the parent's. */
void memory_table_forget(void);

#endif

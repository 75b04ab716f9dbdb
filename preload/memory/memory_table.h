/*
 * What the process has allocated, by pointer or handle: how much was counted for it, and against whom.
 * Entries are copied in and out, so that nobody holds on to one that another thread takes away.
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
	MEMORY_HANDLE = 8,    /* physical memory; `bytes` is how often it is to be released */
	MEMORY_MAPPING = 16,  /* where physical memory is mapped */
	MEMORY_MANAGED = 32,  /* a pointer that was asked for as device memory, and is managed */
	MEMORY_CONTEXT = 64,  /* a context */
	MEMORY_EXEC = 128,    /* an executable graph that has memory */
	MEMORY_ORDERED = 256, /* as MEMORY_MANAGED, asked for in a stream */
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

/* A part of the table, with a lock of its own. A process has so many of them. */
#define MEMORY_STRIPE_BITS 6
#define MEMORY_STRIPES     (1u << MEMORY_STRIPE_BITS)
#define MEMORY_NO_ENTRY    UINT32_MAX
struct memory_stripe {
	pthread_mutex_t lock;
	uint32_t room;   /* a power of two: entries, and chains */
	uint32_t unused; /* list of entries without use */
	uint32_t *chain;
	struct memory_entry *entry;
} __attribute__((aligned(128)));
#define MEMORY_STRIPE_INIT                                                                                   \
	{                                                                                                    \
		.lock = PTHREAD_MUTEX_INITIALIZER, .unused = MEMORY_NO_ENTRY                                 \
	}

/* False: there is no memory for it. Of two entries with the same key the newer is found first. */
bool memory_table_put(const struct memory_entry *entry);
/* Takes out the entry with this key and one of these kinds: exactly one of several threads gets it. */
bool memory_table_take(uint64_t key, unsigned kinds, struct memory_entry *entry);
/* A copy of it, which stays. */
bool memory_table_find(uint64_t key, unsigned kinds, struct memory_entry *entry);
/* Shows every entry of these kinds; those for which `visit` says true are taken out. */
void memory_table_walk(
	unsigned kinds, bool (*visit)(void *argument, const struct memory_entry *entry), void *argument);
/* After fork: what the parent has is not the child's. */
void memory_table_forget(void);

#endif

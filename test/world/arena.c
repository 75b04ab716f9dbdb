/*
 * The memory of the simulated processes. Its addresses are the same in every run, because some decisions depend on
 * them (a hash of a handle). All of it goes with the world, because nobody frees the memory of a killed process.
 */
#include "test/world/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BASE    0x200000000000ull
#define RESERVE (64ull << 30)
#define CLASSES 40

struct block {
	uint32_t size_class;
	uint32_t owner;     /* number of the process that allocated it, + 1; 0: the world itself */
	struct block *next; /* while it is unused */
};
_Static_assert(sizeof(struct block) == 16, "what comes behind it is aligned as malloc's");

static struct {
	char *base;
	uint64_t used;
	struct block *unused[CLASSES];
} arena;

static uint32_t current(void)
{
	return world.current ? world.current->process->number + 1 : 0;
}

static void reserve(void)
{
	arena.base = mmap((void *)BASE, RESERVE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (arena.base == MAP_FAILED) {
		perror("world: memory for its processes");
		exit(2);
	}
}

bool world_owns(const void *p)
{
	return (uint64_t)(uintptr_t)p - BASE < RESERVE;
}

static void *take(uint64_t bytes)
{
	char *at;

	if (!arena.base)
		reserve();
	at = arena.base + arena.used;
	if (arena.used + bytes > RESERVE) {
		fprintf(stderr, "world: its processes have used up their %llu GiB\n",
			(unsigned long long)(RESERVE >> 30));
		exit(2);
	}
	arena.used += bytes;
	return at;
}

void *world_alloc(size_t size)
{
	unsigned k = size <= 16 ? 5 : 64 - (unsigned)__builtin_clzll(size + sizeof(struct block) - 1);
	struct block *b = arena.unused[k];

	if (b)
		arena.unused[k] = b->next;
	else
		b = take(1ull << k);
	b->size_class = k;
	b->owner = current();
	return b + 1;
}

/* Returns aligned memory, which is not used again when it is freed: there are few such blocks. */
void *world_alloc_aligned(size_t alignment, size_t size)
{
	uint64_t skip;
	struct block *b;

	if (!arena.base)
		reserve();
	skip = -(BASE + arena.used + sizeof(*b)) & (alignment - 1);
	b = (struct block *)((char *)take(skip + sizeof(*b) + ((size + 15) & ~15ull)) + skip);
	b->size_class = 0;
	b->owner = current();
	return b + 1;
}

/* Frees memory, but not what a forked child frees of its parent's memory: a real child would free its own copy, while
 * here the memory still belongs to the parent. */
void world_free(void *p)
{
	struct block *b = (struct block *)p - 1;

	if (!p || !b->size_class || (world.current && b->owner && b->owner != current()))
		return;
	b->next = arena.unused[b->size_class];
	arena.unused[b->size_class] = b;
}

void *world_resize(void *p, size_t size)
{
	struct block *b = (struct block *)p - 1;
	size_t had;
	void *more;

	if (!p)
		return world_alloc(size);
	had = (1ull << b->size_class) - sizeof(*b);
	if (size <= had)
		return p;
	more = world_alloc(size);
	memcpy(more, p, had);
	world_free(p);
	return more;
}

void world_arena_reset(void)
{
	if (arena.used)
		madvise(arena.base, arena.used, MADV_DONTNEED);
	arena.used = 0;
	memset(arena.unused, 0, sizeof(arena.unused));
}

/* The heap of threads that are due: a part of sched.c, without any waiting. */
#ifndef WORLD_DUE_H
#define WORLD_DUE_H

#include "test/world/world.h"

/* Each node has four children: the heap is flat, and the nodes that are compared are next to each other. */
#define DUE_CHILDREN 4

/* One number without branches: nobody could foretell them. */
static inline bool world_due_before(const struct world_due *a, const struct world_due *b)
{
	return ((unsigned __int128)a->at_ns << 64 | a->tie) < ((unsigned __int128)b->at_ns << 64 | b->tie);
}

static inline void world_due_put(unsigned i, const struct world_due *d)
{
	world.heap[i] = *d;
	d->thread->place = i + 1;
}

static inline void world_due_sift(unsigned i, struct world_due d)
{
	unsigned child, least, end;

	while (i && world_due_before(&d, &world.heap[(i - 1) / DUE_CHILDREN])) {
		world_due_put(i, &world.heap[(i - 1) / DUE_CHILDREN]);
		i = (i - 1) / DUE_CHILDREN;
	}
	while ((child = DUE_CHILDREN * i + 1) < world.nheap) {
		least = child;
		end = child + DUE_CHILDREN < world.nheap ? child + DUE_CHILDREN : world.nheap;
		while (++child < end)
			if (world_due_before(&world.heap[child], &world.heap[least]))
				least = child;
		if (!world_due_before(&world.heap[least], &d))
			break;
		world_due_put(i, &world.heap[least]);
		i = least;
	}
	world_due_put(i, &d);
}

#endif

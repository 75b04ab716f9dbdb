/* The heap of threads that are due, for sched.c. */
#ifndef WORLD_DUE_H
#define WORLD_DUE_H

#include "test/world/world.h"

/* Four children make the heap flat, and the nodes that are compared lie side by side. */
#define DUE_CHILDREN 4

/* Compares without branches, which the processor could not predict. */
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

/* Returns which thread behind the hole is due first; NULL: there is none. */
static inline struct world_thread *world_due_behind(void)
{
	const struct world_due *first = NULL;

	for (unsigned i = 1; i < world.nheap && i <= DUE_CHILDREN; i++)
		if (!first || world_due_before(&world.heap[i], first))
			first = &world.heap[i];
	world.behind_ns = first ? first->at_ns : UINT64_MAX;
	return first ? first->thread : NULL;
}

static inline void world_due_remove(unsigned i)
{
	struct world_due last = world.heap[--world.nheap];

	if (i < world.nheap)
		world_due_sift(i, last);
	if (world.hole)
		world_due_behind();
}

/* Takes the first thread out and leaves a hole in its place: an entry without a thread that is due before all others.
 * Returns which thread is next. */
static inline struct world_thread *world_due_take(void)
{
	world.heap[0].thread->place = 0;
	world.heap[0] = (struct world_due){0, 0, NULL};
	world.hole = true;
	world.clear_ns = 0;
	return world_due_behind();
}

/* Removes the hole, because the thread that ran has ended or waits without a deadline. */
static inline void world_due_close(void)
{
	if (!world.hole)
		return;
	world.hole = false;
	world_due_remove(0);
}

static inline uint64_t world_due_ns(void)
{
	return world.hole ? world.behind_ns : world.nheap ? world.heap[0].at_ns : UINT64_MAX;
}

#endif

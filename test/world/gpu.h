/* The GPU of the world, and what a process and a thread have of its driver. */
#ifndef WORLD_GPU_H
#define WORLD_GPU_H

#include "test/world/world.h"

/* From here on this world has a GPU: what it is like is read from the environment of `world`. */
void world_gpu_begin(void);
void world_gpu_process(struct world_process *p);
void world_gpu_thread(struct world_thread *t);
void world_gpu_thread_gone(struct world_thread *t);
void world_gpu_enter(struct world_thread *t);
/* It is probably next: what is to be brought comes into the processor's caches meanwhile. */
void world_gpu_fetch(const struct world_thread *t);
void world_gpu_ended(struct world_process *p);
void world_gpu_end(void);

/* What a process has of the first GPU's memory, but for its contexts. */
uint64_t world_gpu_memory(const struct world_process *p);

/* Whether there is a GPU in this world at all. */
bool world_gpu_used(void);

#endif

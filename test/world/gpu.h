/* The GPU of the world, and its driver's state in each process and thread. */
#ifndef WORLD_GPU_H
#define WORLD_GPU_H

#include "test/world/world.h"

/* Gives this world a GPU, with the settings in the environment of this program (GPUSIM_...). */
void world_gpu_begin(void);
void world_gpu_process(struct world_process *p);
void world_gpu_thread(struct world_thread *t);
void world_gpu_thread_gone(struct world_thread *t);
void world_gpu_enter(struct world_thread *t);
/* Brings the state of a thread that probably runs next into the processor's caches. */
void world_gpu_fetch(const struct world_thread *t);
void world_gpu_ended(struct world_process *p);
void world_gpu_end(void);

/* Returns how much of the first GPU's memory a process has, without its contexts. */
uint64_t world_gpu_memory(const struct world_process *p);

/* Returns whether this world has a GPU. */
bool world_gpu_used(void);

#endif

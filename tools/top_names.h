/* What only the machine knows: the models of its GPUs, and its own pids of processes in containers. */
#ifndef TOOLS_TOP_NAMES_H
#define TOOLS_TOP_NAMES_H

#include "nvml.h"
#include "top_model.h"

/* NVML's list, asked in a process of its own, because NVML may hang. At most so long; 0: there is none. */
int top_names_ask(struct nvml_gpu list[NVML_GPUS_MOST], int most_ms);

/*
 * Finds the pids, in this PID namespace, of those clients of the picture that have not got one yet. Looks
 * through /proc, but seldom: only when there are new ones.
 */
void top_names_pids(struct top_gpu *gpu);

#endif

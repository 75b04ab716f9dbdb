/* What only the machine knows: its own pids of processes in containers. */
#ifndef TOOLS_TOP_NAMES_H
#define TOOLS_TOP_NAMES_H

#include "tools/top/top_model.h"

/*
 * Finds the pids, in this PID namespace, of those clients of the picture that have not got one yet. Looks
 * through /proc, but seldom: only when there are new ones.
 */
void top_names_pids(struct top_gpu *gpu);

#endif

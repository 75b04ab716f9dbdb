/* Finds our pids of processes in containers, which only this machine knows. */
#ifndef TOOLS_TOP_NAMES_H
#define TOOLS_TOP_NAMES_H

#include "tools/top/top_model.h"

/* Finds the pids, in our PID namespace, of clients of the picture that have none yet. It looks through /proc only
 * when there are new clients. */
void top_names_pids(struct top_gpu *gpu);

#endif

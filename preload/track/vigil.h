/*
 * A process joins a GPU before the driver makes the first context, which may take a second; the tracker begins after that. In
 * between a thread of this file takes the tracker's place in the ring of clients that watch over each other
 * (shm/client/watch.h). So a process that is killed in that time is cleaned up at once, like any other.
 */
#ifndef PRELOAD_VIGIL_H
#define PRELOAD_VIGIL_H

#include <stdbool.h>

#include "cuda_abi.h"

/* Called before the driver is asked for a context. Does nothing for a GPU that has had one. */
void vigil_begin(CUdevice ordinal);
/* Called after it, also if it failed. If there is a context (`made`), the tracker has begun by now. */
void vigil_end(CUdevice ordinal, bool made);

#endif

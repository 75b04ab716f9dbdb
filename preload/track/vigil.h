/*
 * A process joins a GPU before the driver makes its first context, which may take a second; the tracker's thread
 * begins after that. In between a thread of this file stands in its place in the ring of those that watch over each
 * other (shm/client/watch.h): a process that is killed there is cleaned up behind like any other.
 */
#ifndef PRELOAD_VIGIL_H
#define PRELOAD_VIGIL_H

#include <stdbool.h>

#include "cuda_abi.h"

/* Before the driver is asked for a context. Nothing happens for a GPU that has had one. */
void vigil_begin(CUdevice ordinal);
/* After it, whatever it said: the tracker has begun by now if there is a context. */
void vigil_end(CUdevice ordinal, bool made);

#endif

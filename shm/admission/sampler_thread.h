/* The thread that looks after this process's leases and, where it is the sampler, samples the GPU. */
#ifndef ARB_SAMPLER_THREAD_H
#define ARB_SAMPLER_THREAD_H

#include "shm/admission/shared.h"

/* From now on a forked child knows that it has no such thread. */
void arb_sampler_thread_watch(void);

/* Starts the thread if there is none yet, also in a forked child; it looks after every client that it is given. */
void arb_sampler_thread_add(
	const struct arb_shared_table *table, struct gpuarb_client *client, const char *gpu);

#endif

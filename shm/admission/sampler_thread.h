/* The thread that looks after this process's leases and, where it is elected, samples the GPU. */
#ifndef ARB_SAMPLER_THREAD_H
#define ARB_SAMPLER_THREAD_H

#include "shm/admission/shared.h"

/* A child has no such thread: from now on it knows. */
void arb_sampler_thread_watch(void);

/* Starts it if there is none yet, also in a forked child; every client that is given to it is looked after.
 */
void arb_sampler_thread_add(
	const struct arb_shared_table *table, struct gpuarb_client *client, const char *gpu);

#endif

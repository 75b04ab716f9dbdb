/* The GPU as the driver knows it, asked for in a thread of its own: NVML can hang. */
#ifndef ARB_NVML_H
#define ARB_NVML_H

#include <stdint.h>

/* Hundredths of a percent; -1: there is no NVML, it does not know this GPU, or it did not answer in time. */
int arb_nvml_usage(const char *gpu, uint64_t patience_ns);

/* Does the driver know a GPU of this name? 1, 0, or -1: nobody can tell, as above. */
int arb_nvml_knows(const char *gpu, uint64_t patience_ns);

/* A child has no such thread: from now on it knows. */
void arb_nvml_watch(void);

/* A detached thread with every signal blocked: 0, or -errno. */
int arb_nvml_thread(const char *name, void *(*run)(void *argument), void *argument);

#endif

/* Asks the driver about a GPU, in a thread of its own, because NVML can hang. */
#ifndef ARB_NVML_H
#define ARB_NVML_H

#include <stdint.h>

/* Returns the usage in hundredths of a percent; -1: there is no NVML, it does not know this GPU, or it did not answer
 * in time. */
int arb_nvml_usage(const char *gpu, uint64_t patience_ns);

/* Does the driver know a GPU of this name? 1, 0, or -1: that cannot be told, as above. */
int arb_nvml_knows(const char *gpu, uint64_t patience_ns);

/* From now on a forked child knows that it has no such thread. */
void arb_nvml_watch(void);

/* Starts a detached thread with every signal blocked: 0, or -errno. */
int arb_nvml_thread(const char *name, void *(*run)(void *argument), void *argument);

#endif

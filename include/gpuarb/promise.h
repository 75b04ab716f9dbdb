/*
 * Promises: whoever starts a program says how much of the GPU's memory its account may have, and how much of
 * its time it gets whenever it has work, before it starts. All quotas together may be `oversub_ratio` times what
 * the GPU has, all requests together 100 percent. A promise lives as long as
 * anybody has the descriptor that holds it, however it was inherited.
 */
#ifndef GPUARB_PROMISE_H
#define GPUARB_PROMISE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpuarb/abi.h"
#include "gpuarb/client.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpuarb_promiser;

/*
 * Attaches to the segments of a GPU, and makes them if need be. `physical` is what the driver says that it
 * has, 0: nobody knows; the setting physical_memory_mb stands above it. dir NULL: as everywhere.
 */
GPUARB_API int gpuarb_promiser_open(const char *dir, const char *gpu, uint64_t physical,
	struct gpuarb_promiser **promiser, struct gpuarb_error *err);
/* What has been promised stays so while somebody has the descriptor. */
GPUARB_API void gpuarb_promiser_close(struct gpuarb_promiser *promiser);

/* What its sentences call the GPU, if not by its UUID. */
GPUARB_API void gpuarb_promiser_call(struct gpuarb_promiser *promiser, const char *name);

/* From here to gpuarb_promiser_unlock nobody else promises anything of this GPU. -EAGAIN: somebody is at it,
 * and does not end. */
GPUARB_API int gpuarb_promiser_lock(struct gpuarb_promiser *promiser, struct gpuarb_error *err);
GPUARB_API void gpuarb_promiser_unlock(struct gpuarb_promiser *promiser);

struct gpuarb_promise {
	const char *account;
	uint64_t bytes;       /* 0: no quota, so that nothing is promised; the entry is for whoever places */
	unsigned core_pct;    /* 0: 100 */
	unsigned request_pct; /* of the GPU's time, whenever it has work; 0: none */
};

/* What there is, as somebody who asks for `promise` sees it. With the lock. */
struct gpuarb_room {
	uint64_t physical; /* 0: not known, and everything fits */
	uint64_t most;     /* that may be promised */
	uint64_t promised; /* to other accounts, also to those who queue before us */
	uint64_t bytes; /* what this account would have: what was asked, or what was set or promised before */
	uint64_t free;  /* most - promised, or 0 */
	uint64_t loose; /* used by accounts that have no quota: not promised, but not there either */
	unsigned core_used;   /* percent that other accounts have, by their limits; 100 each without one */
	unsigned request_pct; /* as bytes and promised, of the GPU's time */
	unsigned request_promised;
	bool request_fits;
	bool fits; /* both do */
};

GPUARB_API int gpuarb_promiser_room(
	struct gpuarb_promiser *promiser, const struct gpuarb_promise *promise, struct gpuarb_room *room);

/*
 * With the lock. Promises it: *fd, which is not closed by exec, holds it. -ENOSPC: it does not fit, and the
 * sentence says what is promised to whom; with `queue` it stands in the queue then, for as long as *fd is
 * open, and the next call with the same *fd (else -1) tries again. -E2BIG: it would never fit.
 */
GPUARB_API int gpuarb_promiser_take(struct gpuarb_promiser *promiser, const struct gpuarb_promise *promise,
	bool queue, int *fd, struct gpuarb_error *err);

/* Gives it back, or leaves the queue; *fd becomes -1. */
GPUARB_API void gpuarb_promiser_drop(struct gpuarb_promiser *promiser, int *fd);

#ifdef __cplusplus
}
#endif

#endif

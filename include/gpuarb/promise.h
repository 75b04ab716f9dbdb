/*
 * Promises: the process that starts a program says before the start how much of the GPU's memory its account may
 * have, and how much of its time it gets whenever it has work. All quotas together may be `oversub_ratio` times the
 * GPU's memory, all requests together 100 percent. A promise lives as long as any process has the descriptor that
 * holds it, however that was inherited.
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
 * Attaches to the segments of a GPU, and makes them if need be. `physical`: the bytes that the GPU has, as the driver
 * says (0: not known); the setting physical_memory_mb stands above it. dir NULL: the directory of GPUARB_DIR, else
 * the default.
 */
GPUARB_API int gpuarb_promiser_open(const char *dir, const char *gpu, uint64_t physical,
	struct gpuarb_promiser **promiser, struct gpuarb_error *err);
/* Promises stay while any process has their descriptor. */
GPUARB_API void gpuarb_promiser_close(struct gpuarb_promiser *promiser);

/* Sets the name that its sentences use for the GPU in place of its UUID. */
GPUARB_API void gpuarb_promiser_call(struct gpuarb_promiser *promiser, const char *name);

/* From here to gpuarb_promiser_unlock no other process makes promises of this GPU. -EAGAIN: another process has been
 * making promises for too long. */
GPUARB_API int gpuarb_promiser_lock(struct gpuarb_promiser *promiser, struct gpuarb_error *err);
GPUARB_API void gpuarb_promiser_unlock(struct gpuarb_promiser *promiser);

struct gpuarb_promise {
	const char *account;
	uint64_t bytes;       /* 0: no quota, so no memory is promised; the entry only names the account */
	unsigned core_pct;    /* 0: 100 */
	unsigned request_pct; /* of the GPU's time, whenever it has work; 0: none */
};

/* How much room there is for a process that asks for `promise`. Found with the lock held. */
struct gpuarb_room {
	uint64_t physical; /* 0: not known, and everything fits */
	uint64_t most;     /* the most that may be promised */
	uint64_t promised; /* to other accounts, also to those that queue before this one */
	uint64_t bytes; /* what this account would have: what was asked, or what was set or promised before */
	uint64_t free;  /* most - promised, or 0 */
	uint64_t unpromised;  /* used by accounts that have no quota: not promised, but not free either */
	unsigned core_used;   /* percent that other accounts have, by their limits; 100 each without one */
	unsigned request_pct; /* this and the next: as bytes and promised, of the GPU's time */
	unsigned request_promised;
	bool request_fits;
	bool fits; /* memory and request both fit */
};

GPUARB_API int gpuarb_promiser_room(
	struct gpuarb_promiser *promiser, const struct gpuarb_promise *promise, struct gpuarb_room *room);

/*
 * Makes the promise, with the lock held: *fd, which exec does not close, holds it. -ENOSPC: it does not fit, and the
 * sentence lists what is promised to which accounts. With `queue` it then stands in the queue as long as *fd is open,
 * and the next call with the same *fd (-1 at first) tries again. -E2BIG: it would never fit.
 */
GPUARB_API int gpuarb_promiser_take(struct gpuarb_promiser *promiser, const struct gpuarb_promise *promise,
	bool queue, int *fd, struct gpuarb_error *err);

/* Gives the promise back, or leaves the queue; *fd becomes -1. */
GPUARB_API void gpuarb_promiser_drop(struct gpuarb_promiser *promiser, int *fd);

#ifdef __cplusplus
}
#endif

#endif

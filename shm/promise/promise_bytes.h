/* What is promised of a GPU's memory, and to whom. */
#ifndef ARB_PROMISE_H
#define ARB_PROMISE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpuarb/abi.h"
#include "gpuarb/promise.h"
#include "shm/segment/segment.h"
#include "shm/segment/slot.h"

struct arb_rules;
struct gpuarb_config_limit;

/* Bytes promised to one account: the largest of its promises counts, because they share one quota. */
struct arb_promised {
	char name[ARB_NAME_BYTES];
	uint64_t bytes;    /* promised, set by an administrator, or asked for by living clients */
	uint64_t waiting;  /* bytes that it queues for; 0: it does not queue */
	uint64_t ticket;   /* its place in the queue */
	uint64_t since_ns; /* since when it has been in the queue */
	unsigned core_pct; /* 1..100; 0: it only queues, or it has no client and a request is set for it */
	unsigned request_pct, request_waiting; /* of the time, percent: promised, and waited for */
	uint64_t used;                         /* used by living clients */
	uint32_t index;                        /* of its account, or ARB_NONE */
};

struct arb_promises {
	uint32_t n, most;
	struct arb_promised list[]; /* as many as there are promises, accounts, and requests that are set */
};

/* Allocates a list with room for all promises that there can be; the caller frees it. NULL: out of memory. */
struct arb_promises *arb_promise_alloc(const struct arb_segment *seg);

/* Lists the accounts that have a promise, live under a quota without one, or have a request that is set. `control`
 * may be NULL; slot `without` is not counted (ARB_NONE: all are). */
int arb_promise_list(const struct arb_segment *seg, const struct arb_control *control, uint32_t without,
	struct arb_promises *all);

/* Adds the account if the limits have a request and the list lacks the account. */
void arb_promise_add_set(struct arb_promises *all, const struct gpuarb_config_limit *limit);

/* The bounds for the sum of all promises. */
struct arb_promise_bounds {
	const char *gpu;
	uint64_t physical; /* bytes; 0: not known, and everything fits */
	int64_t ratio_permille;
};

/*
 * Called by the holder of ARB_BYTE_PROMISES: finds how much room there is for a program that asks for `promise` with
 * that ticket (UINT64_MAX: it does not queue). Cleans up after the dead before it says that there is no room. `me`:
 * the slot of a client, which is not counted. Then this never sleeps: -EBUSY if there is no room and a dead client's
 * slot could not be cleaned yet.
 */
int arb_promise_look(struct arb_segment *seg, const struct arb_control *control,
	const struct arb_rules *rules, const struct arb_promise_bounds *bounds,
	const struct gpuarb_promise *promise, uint64_t ticket, uint32_t me, struct arb_promises *all,
	struct gpuarb_room *room);

/* Cleans up behind dead clients, which are counted until then. The caller holds no lock of its process. */
void arb_promise_bury(struct arb_segment *seg, const struct arb_rules *rules);

/* Writes the sentence about a promise that does not fit. Returns -ENOSPC, or -E2BIG if it would never fit. */
int arb_promise_refuse(const struct arb_promises *all, const struct arb_promise_bounds *bounds,
	const char *account, const struct gpuarb_room *room, struct gpuarb_error *err);

/* Returns the quota that the account has if its members ask for `bytes`: what an administrator set stands above
 * that. */
uint64_t arb_promise_share(const struct arb_control *control, const char *account, uint64_t bytes);
/* Returns the request that the account has if its members ask for `request_pct`, in the same way. */
unsigned arb_promise_request(const struct arb_control *control, const char *account, unsigned request_pct);

/* An administrator's change of quotas. Begin refuses it if it would promise too much. From begin to end no other
 * process makes a promise; the caller publishes the draft in between. */
struct arb_promise_change {
	bool open, locked;
	struct arb_segment seg;
	struct arb_lock lock;
};
int arb_promise_change_begin(struct arb_promise_change *change, const char *dir, const char *gpu,
	const struct arb_control *control, const struct arb_control_copy *draft, struct gpuarb_error *err);
void arb_promise_change_end(struct arb_promise_change *change);

/* Returns the bytes that may be promised of a GPU with `physical` bytes. */
uint64_t arb_promise_limit(uint64_t physical, int64_t ratio_permille);

#endif

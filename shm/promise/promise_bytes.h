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
	uint64_t waiting;  /* bytes that it queues for; 0: it does not */
	uint64_t ticket;   /* its place in that queue */
	uint64_t since_ns; /* since when it is there */
	unsigned core_pct; /* 1..100; 0: it only queues, or nobody uses it and a request is set for it */
	unsigned request_pct, request_waiting; /* of the time, percent: promised, and waited for */
	uint64_t used;                         /* used by living clients */
	uint32_t index;                        /* of its account, or ARB_NONE */
};

struct arb_promises {
	uint32_t n, most;
	struct arb_promised list[]; /* as many as there are promises, accounts, and requests that are set */
};

/* Room for all that can be: to be freed. NULL: out of memory. */
struct arb_promises *arb_promise_alloc(const struct arb_segment *seg);

/* Lists the accounts that have a promise, live under a quota without one, or have a request that is set. `control`
 * may be NULL; slot `without` is not counted (ARB_NONE: all are). */
int arb_promise_list(const struct arb_segment *seg, const struct arb_control *control, uint32_t without,
	struct arb_promises *all);

/* Adds the account if the limits have a request, and it is not there. */
void arb_promise_add_set(struct arb_promises *all, const struct gpuarb_config_limit *limit);

/* What the sum of all promises is held against. */
struct arb_promise_bounds {
	const char *gpu;
	uint64_t physical; /* bytes; 0: not known, and everything fits */
	int64_t ratio_permille;
};

/*
 * Called by the holder of ARB_BYTE_PROMISES: finds the room for a program that asks for `promise` with that ticket
 * (UINT64_MAX: it does not queue). Cleans up after the dead before it says that there is no room. With `me`, the slot
 * of a client, which is not counted, it never sleeps: -EBUSY if there is no room and a dead client's slot could not
 * be cleaned yet.
 */
int arb_promise_look(struct arb_segment *seg, const struct arb_control *control,
	const struct arb_rules *rules, const struct arb_promise_bounds *bounds,
	const struct gpuarb_promise *promise, uint64_t ticket, uint32_t me, struct arb_promises *all,
	struct gpuarb_room *room);

/* Cleans up behind dead clients, which are counted until then. The caller holds no lock of its process. */
void arb_promise_bury(struct arb_segment *seg, const struct arb_rules *rules);

/* The sentence about a promise that does not fit: -ENOSPC, or -E2BIG if it never would. */
int arb_promise_refuse(const struct arb_promises *all, const struct arb_promise_bounds *bounds,
	const char *account, const struct gpuarb_room *room, struct gpuarb_error *err);

/* What the account has if its members ask for `bytes`: an administrator's word stands above theirs. */
uint64_t arb_promise_share(const struct arb_control *control, const char *account, uint64_t bytes);
/* What the account's request is if its members ask for `request_pct`, likewise. */
unsigned arb_promise_request(const struct arb_control *control, const char *account, unsigned request_pct);

/* An administrator's change of quotas: from begin, which refuses it if it would promise too much, to end
 * nobody else promises anything. The draft is to be published in between. */
struct arb_promise_change {
	bool open, locked;
	struct arb_segment seg;
	struct arb_lock lock;
};
int arb_promise_change_begin(struct arb_promise_change *change, const char *dir, const char *gpu,
	const struct arb_control *control, const struct arb_control_copy *draft, struct gpuarb_error *err);
void arb_promise_change_end(struct arb_promise_change *change);

/* The bytes that may be promised of a GPU with `physical` bytes. */
uint64_t arb_promise_limit(uint64_t physical, int64_t ratio_permille);

#endif

/* What is promised of a GPU's memory, and to whom. */
#ifndef ARB_PROMISE_H
#define ARB_PROMISE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpuarb/abi.h"
#include "segment.h"

/* One account's: of several promises to it, the largest counts, because they share one quota. */
struct arb_promised {
	char name[ARB_NAME_BYTES];
	uint64_t bytes;    /* promised, set by an administrator, or asked for by those who live */
	uint64_t waiting;  /* bytes that it queues for; 0: it does not */
	uint64_t ticket;   /* its place in that queue */
	uint64_t since_ns; /* since when it is there */
	unsigned core_pct; /* 1..100; 0: it only queues */
	uint64_t used;     /* by those who live */
	uint32_t index;    /* of its account, or ARB_NONE */
};

struct arb_promises {
	uint32_t n;
	struct arb_promised list[]; /* as many as there are promises and accounts */
};

/* Room for all that can be: to be freed. NULL: out of memory. */
struct arb_promises *arb_promise_alloc(const struct arb_segment *seg);

/* Everybody who has a promise, or lives under a quota without one. `control` may be NULL. */
int arb_promise_list(
	const struct arb_segment *seg, const struct arb_control *control, struct arb_promises *all);

/* What may be promised of so much memory. */
uint64_t arb_promise_limit(uint64_t physical, int64_t ratio_permille);

#endif

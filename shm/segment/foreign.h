/* Memory of the GPU that processes use which are no clients: clients that take turns at the memory leave it to them.
 * It is one word of the header, {when, MiB}, written by any process that finds out how much it is. */
#ifndef ARB_FOREIGN_H
#define ARB_FOREIGN_H

#include <stdint.h>

#include "shm/segment/segment.h"

/*
 * How long a value counts that has not been found again. Where clients together have more than the GPU, the memory in
 * use says nothing about the others: then an earlier value is better than none, for a while.
 */
#define ARB_FOREIGN_KEEP_NS 60000000000ull

/* Returns the bytes that were last found; 0: none, or no process has looked. */
uint64_t arb_foreign_read(const struct arb_segment *seg, uint64_t now_ns);

/* Returns the bytes that all clients have by their books; UINT64_MAX / 2 if that is more than any GPU has. */
uint64_t arb_foreign_clients(const struct arb_segment *seg, uint64_t per_client);

/* Writes the bytes, from a caller that can tell processes apart. */
void arb_foreign_found(struct arb_segment *seg, uint64_t bytes, uint64_t now_ns);

/* Writes bounds, from a caller that only knows how much of the GPU is in use. Others have at most this much, and at
 * least what exceeds the clients' allocations and `per_client` for each that has joined. */
void arb_foreign_bound(struct arb_segment *seg, uint64_t used, uint64_t per_client, uint64_t now_ns);

#endif

/* Memory of the GPU used by processes that are no clients: clients that take turns at the memory leave it alone. One
 * word of the header, {when, MiB}, which any process writes that finds something out. */
#ifndef ARB_FOREIGN_H
#define ARB_FOREIGN_H

#include <stdint.h>

#include "shm/segment/segment.h"

/*
 * How long a value stands that nobody has found again. Where clients together have more than the GPU, what is
 * in use says nothing of the others: then a value that was found before is better than none, for a while.
 */
#define ARB_FOREIGN_KEEP_NS 60000000000ull

/* Bytes, as they were last found; 0: none, or nobody has looked. */
uint64_t arb_foreign_read(const struct arb_segment *seg, uint64_t now_ns);

/* What all clients have by their books; UINT64_MAX / 2 if that is more than any GPU has. */
uint64_t arb_foreign_clients(const struct arb_segment *seg, uint64_t per_client);

/* Writes the bytes, from a caller that can tell processes apart. */
void arb_foreign_found(struct arb_segment *seg, uint64_t bytes, uint64_t now_ns);

/* Writes bounds, from a caller that only knows how much of the GPU is in use. Others have at most this much, and at
 * least what exceeds the clients' allocations and `per_client` for each that has joined. */
void arb_foreign_bound(struct arb_segment *seg, uint64_t used, uint64_t per_client, uint64_t now_ns);

#endif

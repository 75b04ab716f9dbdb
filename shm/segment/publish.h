/*
 * Publication: a head word names the one record, of several buffers, that counts. To change anything, read the head
 * and its record, write a changed copy into a buffer that is not the head, CAS the head. The running set and every
 * account are published like this; they differ in what a record holds and in where the buffers are.
 */
#ifndef ARB_PUBLISH_H
#define ARB_PUBLISH_H

#include <stdbool.h>

#include "shm/base/atomic.h"

/* A lost CAS means that another client has made progress; this many in a row mean that something is wrong. */
#define ARB_TRIES 1000000

/* Returns the owner of the buffer with the head's record: a slot, or ARB_HOME. Not yet checked against the number of
 * slots. */
static inline uint32_t publish_owner(uint64_t head)
{
	return (uint32_t)(head >> ARB_HEAD_BUFFER_BITS) & ((1u << ARB_HEAD_INDEX_BITS) - 1);
}

/* Returns the next head. It names the owner's buffer that is not the head: the lowest bit says which of the two. */
static inline uint64_t publish_next(uint64_t head, uint32_t owner)
{
	uint32_t own = owner << ARB_HEAD_BUFFER_BITS;
	uint32_t where = ((uint32_t)head & ((1u << ARB_HEAD_SEQ_SHIFT) - 1)) == own ? own | 1 : own;

	return (((head >> ARB_HEAD_SEQ_SHIFT) + 1) << ARB_HEAD_SEQ_SHIFT) | where;
}

/* Has the head stayed the same since it was seen? If not, what was read since then may be torn. */
static inline bool publish_unchanged(const arb_u64 *head, uint64_t seen)
{
	arb_fence_acquire(); /* pairs SNAPSHOT_REUSE: a field of a later record brings its head with it */
	return arb_load64(head) == seen;
}

/* Called once the record behind `next` is written: makes it the head. False: another client was faster. */
static inline bool publish_commit(arb_u64 *head, uint64_t *seen, uint64_t next)
{
	if (!arb_cas64_full(head, *seen, next)) /* SNAPSHOT_PUBLISH, ACCOUNT_PUBLISH */
		return false;
	*seen = next;
	return true;
}

#endif

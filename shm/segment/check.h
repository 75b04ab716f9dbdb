/* The invariants of abi.h, checked over a segment that may be in use. Reads only. */
#ifndef ARB_CHECK_H
#define ARB_CHECK_H

#include "shm/segment/segment.h"

/* Called for each violation with a sentence. */
typedef void arb_check_say(void *argument, const char *sentence);

/*
 * Returns the number of violations; -EBUSY if the segment never stood still for long enough to be read as a whole.
 * `say` may be NULL. A slot that is just joining or being cleaned is no violation.
 */
int arb_check(const struct arb_segment *seg, arb_check_say *say, void *argument);

/* In debug builds (make DEBUG=1): says what is wrong, and stops there. Else nothing. */
#ifdef ARB_DEBUG
void arb_check_debug(const struct arb_segment *seg);
#else
static inline void arb_check_debug(const struct arb_segment *seg)
{
	(void)seg;
}
#endif

#endif

/* Writes one piece of garbage somewhere into a state segment. */
#ifndef TEST_GARBLE_H
#define TEST_GARBLE_H

#include <stddef.h>

#include "test/harness.h"

/* The part of the header that is written once, before the file gets its name. Garbage is not written there. */
#define ARB_FIXED offsetof(struct arb_state_header, head)

void garble(const struct arb_segment *seg, struct t_random *random);

#endif

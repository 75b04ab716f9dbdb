/*
 * Processes that are frozen by a checkpoint. Only a process's own driver knows that, and only the process itself asks
 * it: a question from another process would be answered by a thread of the frozen process, and never if that is
 * stopped. So each client has a thread that asks about its own process when another client wants to know, and stores
 * the answer in its slot's `frozen`. Any reader may look there.
 */
#ifndef ARB_FROZEN_H
#define ARB_FROZEN_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/segment/segment.h"

/* How long an answer counts. A process that is frozen right after it answered is counted as not frozen for this
 * long. */
#define ARB_FROZEN_FRESH_NS 1000000ull

/* Returns ARB_FROZEN_*, and when that was said (0: that process does not answer). A time in the future is garbage,
 * and no answer. */
unsigned arb_frozen_read(const struct arb_slot *slot, uint64_t now_ns, uint64_t *said_ns);
void arb_frozen_say(struct arb_slot *slot, unsigned state, uint64_t now_ns);

/* Asks the owner, if it answers such questions and its last answer is older than `age_ns`. True: an answer may
 * come. */
bool arb_frozen_ask(struct arb_slot *slot, uint64_t age_ns, uint64_t now_ns);

/* Are its memory and its contexts off the device? */
bool arb_frozen_gone(const struct arb_slot *slot, uint64_t now_ns);

#endif

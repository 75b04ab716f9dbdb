/*
 * Processes that are frozen by a checkpoint. Only their own driver knows, and only they ask it: a question about another
 * process is answered by a thread of that process, and never if that is stopped. So each client has a thread that asks
 * about itself when somebody wants to know, and stores the answer in its slot's `frozen`. Any reader may look.
 */
#ifndef ARB_FROZEN_H
#define ARB_FROZEN_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/segment/segment.h"

/* How long an answer is good. One who is frozen shortly after it is counted as it was for so long. */
#define ARB_FROZEN_FRESH_NS 1000000ull

/* ARB_FROZEN_*, and when that was said (0: nobody answers there). A time that is yet to come is garbage, and no answer. */
unsigned arb_frozen_read(const struct arb_slot *slot, uint64_t now_ns, uint64_t *said_ns);
void arb_frozen_say(struct arb_slot *slot, unsigned state, uint64_t now_ns);

/* Asks the owner, if somebody answers there and has not done so within `age_ns`. True: an answer may come. */
bool arb_frozen_ask(struct arb_slot *slot, uint64_t age_ns, uint64_t now_ns);

/* Are its memory and its contexts off the device? */
bool arb_frozen_gone(const struct arb_slot *slot, uint64_t now_ns);

#endif

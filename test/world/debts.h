/* What accounts owe: accounts that live, and accounts whose last member has died. */
#ifndef WORLD_DEBTS_H
#define WORLD_DEBTS_H

#include "test/world/world.h"

#include "shm/segment/running.h"

void debts_begin(void);
/* After every step. */
void debts_step(const struct arb_segment *seg);

#endif

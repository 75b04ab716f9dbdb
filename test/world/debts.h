/* Checks the debts of accounts that have members, and of accounts whose last member has died. */
#ifndef WORLD_DEBTS_H
#define WORLD_DEBTS_H

#include "test/world/world.h"

#include "shm/segment/running.h"

void debts_begin(void);
/* Called after every step. */
void debts_step(const struct arb_segment *seg);

#endif

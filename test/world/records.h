/* Checks what must hold between a record and the record that follows it. */
#ifndef WORLD_RECORDS_H
#define WORLD_RECORDS_H

#include "test/world/world.h"

#include "shm/segment/running.h"

struct gpuarb_client;

void records_begin(void);
/* Returns the process whose slot this is, or was last; NULL: no process had it. */
const struct world_process *records_owner(const struct arb_segment *seg, uint32_t slot);
/* Called after every step, with the current record of the running set. */
void records_step(const struct arb_segment *seg, const struct arb_snap *snap);
/* Called after every step to check the records of accounts, which have heads of their own. */
void records_accounts(const struct arb_segment *seg);
/* Called when a client has left, or has given up waiting. */
void records_left(const struct gpuarb_client *client);
void records_gave_up(const struct gpuarb_client *client);

#endif

/* What must hold between a record and the one that follows it. */
#ifndef WORLD_RECORDS_H
#define WORLD_RECORDS_H

#include "test/world/world.h"

#include "shm/segment/running.h"

struct gpuarb_client;

void records_begin(void);
/* Whose slot it is, or was until now; NULL: nobody's. */
const struct world_process *records_owner(const struct arb_segment *seg, uint32_t slot);
/* After every step, with the record of the running set that is in force. */
void records_step(const struct arb_segment *seg, const struct arb_snap *snap);
/* After every step: the accounts have heads of their own. */
void records_accounts(const struct arb_segment *seg);
/* A client that has left, or has given up waiting. */
void records_left(const struct gpuarb_client *client);
void records_gave_up(const struct gpuarb_client *client);

#endif

/* What a client's account may use of the window, as the client knows it. With its lock. */
#ifndef ARB_QUOTA_H
#define ARB_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/client/client_state.h"

/* Finds the effective quota anew: by requests and weights if any active account has one, otherwise by the limits. */
void arb_quota_find(struct gpuarb_client *c, const struct arb_snap *snap);

/* May the account use more, as of this snapshot? Moves its cap along where nobody else is short. */
bool arb_quota_left(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t outstanding);

/* What the account has used beyond its cap until now is no debt. */
void arb_quota_forgive(struct gpuarb_client *c);

#endif

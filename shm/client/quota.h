/* What a client's account may use of the window, as far as the client knows. Called with the client's lock. */
#ifndef ARB_QUOTA_H
#define ARB_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/client/client_state.h"

/* Finds the effective quota anew: by requests and weights if any active account has one, otherwise by the limits. */
void arb_quota_find(struct gpuarb_client *c, const struct arb_snap *snap);

/* May the account use more, as of this snapshot? Raises its cap while no other account is short. */
bool arb_quota_left(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t outstanding);

/* Forgives what the account has used beyond its cap until now: it is no debt. */
void arb_quota_forgive(struct gpuarb_client *c);

#endif

/*
 * The owner of an account: the container or pod of its first process; if there is none, the user. Other users join it
 * only if the administrator's entry names them (`members`). They are guests, and what a guest asks for binds only the
 * guest. Any other user that asks for it gets an account of its own, with no more than the limits of the wanted one.
 */
#ifndef ARB_OWNER_H
#define ARB_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/base/os.h"
#include "shm/segment/running.h"

struct gpuarb_client;

/* The owner as one number; never 0. */
uint64_t arb_owner_of(const struct arb_os_identity *id);

/*
 * Returns how many slots, or promises, this owner may have of the segment: slots_per_user. UINT32_MAX: any number.
 * Root of the machine and the owner of the segment are not bound; they could remove it as well.
 */
uint32_t arb_owner_bound(const struct arb_segment *seg, const struct arb_os_identity *id, int user_slots);
/* Writes "user 1001 has" or "this container has", for a sentence about the owner's slots. */
void arb_owner_describe(const struct arb_os_identity *id, char *text, size_t size);

/* Attaches a client that joins to its account, or to one of its own. -EUSERS: its owner has as many slots as it may
 * have, and c->denied says so. -EPERM: the account belongs to another owner, and on_error is closed. */
int arb_client_attach(struct gpuarb_client *c, const struct arb_os_identity *id);

/* Has the guest anything left of the limit that it asked for itself? */
bool arb_guest_has_quota(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t outstanding);

#endif

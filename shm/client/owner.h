/*
 * Whose an account is: the container's or the pod's that its first process was in, else the user's. Others join it only
 * if the administrator's entry names them (`members`); they are guests: what a guest asks for binds itself alone. Whoever
 * else asks for it gets an account of its own, with no more than the limits of the one that it wanted.
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
 * How many slots, or promises, this owner may have of the segment: slots_per_user. UINT32_MAX: any number. Root of the
 * machine and whose the segment is are not bound; they could remove it as well.
 */
uint32_t arb_owner_bound(const struct arb_segment *seg, const struct arb_os_identity *id, int user_slots);
/* "user 1001 has", "this container has": who it is that has so many. */
void arb_owner_describe(const struct arb_os_identity *id, char *text, size_t size);

/* By one that joins: to its account, or to one of its own. -EUSERS: its owner has as many slots
 * as it may have, and c->denied says so. -EPERM: it is somebody else's, and on_error is closed. */
int arb_client_attach(struct gpuarb_client *c, const struct arb_os_identity *id);

/* Has a guest anything left of the limit that it asked for itself? */
bool arb_guest_has_quota(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t outstanding);

#endif

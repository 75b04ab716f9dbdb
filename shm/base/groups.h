/* Groups of this process and of the machine, without a name service. */
#ifndef ARB_GROUPS_H
#define ARB_GROUPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Is this process in that group? Returns true also where there are too many groups to tell. */
bool arb_rights_is_member(gid_t group);
/* Returns the number of the group with this name, or -1 if there is none. getgrnam() is not used, because it would
 * load name services into another program. */
int64_t arb_rights_group(const char *name);

#endif

/* Groups of this process and of the machine, without a name service. */
#ifndef ARB_GROUPS_H
#define ARB_GROUPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Is this process in that group? True as well where there are too many groups to tell. */
bool arb_rights_is_member(gid_t group);
/* The number of a group of that name, -1: there is none. Not getgrnam(): it would load name services into somebody
 * else's program. */
int64_t arb_rights_group(const char *name);

#endif

/* The users, groups and containers that an administrator lets into an account of another owner, each as one
 * number. */
#ifndef ARB_MEMBERS_H
#define ARB_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm/base/os.h"

/* "1001", "@video" or the id of a container (12 hexadecimal digits of it count); empty: nobody. */
bool arb_members_parse(const char *text, int64_t *value);
/* Writes such a number as text; a group by its number. */
void arb_members_format(int64_t value, char *text, size_t size);
/* Is this process one of the members? */
bool arb_members_has(const int64_t members[ARB_MEMBERS], const struct arb_os_identity *id);

#endif

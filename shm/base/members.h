/* Whom an administrator lets into an account that is not theirs: users, groups and containers, each in one number. */
#ifndef ARB_MEMBERS_H
#define ARB_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm/base/os.h"

/* "1001", "@video" or the id of a container (12 hexadecimal digits of it count); empty: nobody. */
bool arb_members_parse(const char *text, int64_t *value);
/* The other way round; a group by its number. */
void arb_members_format(int64_t value, char *text, size_t size);
/* Is this process one of them? */
bool arb_members_has(const int64_t members[ARB_MEMBERS], const struct arb_os_identity *id);

#endif

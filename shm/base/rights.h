/* What somebody without a right has to do: the end of a sentence that says what is forbidden. */
#ifndef ARB_RIGHTS_H
#define ARB_RIGHTS_H

#include <stddef.h>

/* The group whose members use the GPUs of a machine through gpuarb, unless arbiter.conf names another. */
#define ARB_GROUP_NAME "gpuarb"

/*
 * For what could not be opened, made or listed: "; members of the group gpuarb may: ..." with the command, by the
 * rights of the nearest part of the path that can be seen. Empty where `code` is no -EACCES or -EPERM, or where no
 * command helps (root, whose capabilities were taken). Asks no name service: it runs in other people's programs.
 * Returns `text`.
 */
const char *arb_rights_hint(const char *path, int code, char *text, size_t size);

#endif

/* What a user without a right has to do: the end of a sentence that says what is forbidden. */
#ifndef GPUARB_RIGHTS_H
#define GPUARB_RIGHTS_H

#include <stddef.h>

#include "gpuarb/client.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Writes the end of a sentence about a path that could not be opened, made or listed: "; members of the group gpuarb
 * may: ..." with the command that helps, by the rights of the nearest part of the path that can be seen. Empty where
 * `code` is neither -EACCES nor -EPERM, or where no command helps (root, whose capabilities were taken). Asks no name
 * service, because it runs in other people's programs. Returns `text`.
 */
GPUARB_API const char *gpuarb_rights_hint(const char *path, int code, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif

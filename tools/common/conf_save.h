/* Writes changes to arbiter.conf in two steps: all that can fail is done before the change takes hold. */
#ifndef TOOLS_CONF_SAVE_H
#define TOOLS_CONF_SAVE_H

#include <stddef.h>

#include "gpuarb/control.h"

struct conf_save;

/* Writes a file with the changes next to arbiter.conf, and reads it back as a client would. Ends the program with a
 * sentence if it cannot be written or would not be understood. */
struct conf_save *conf_save_prepare(const struct gpuarb_change *changes, size_t count);
struct conf_save *conf_save_prepare_classes(const struct gpuarb_class_change *changes, size_t count);
/* Moves the file into place. A reader sees either the old file or the new one. */
void conf_save_finish(struct conf_save *save);
void conf_save_abandon(struct conf_save *save);

#endif

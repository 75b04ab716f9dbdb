/* gpuarb-set --class: task classes. */
#ifndef TOOLS_SET_CLASS_H
#define TOOLS_SET_CLASS_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/set_where.h"

/* What is typed wrong ends the program with a sentence. */
void set_class_check(const char *name, char *const *keys, char *const *values, size_t count);
/* All of the changes to a class, on all of the GPUs, or none; an empty value is the default. count 0: the
 * class goes. `save`: in arbiter.conf as well. */
void set_class(const char *dir, const struct set_gpus *gpus, const char *name, char *const *keys,
	char *const *values, size_t count, bool save);
/* Every class with its settings, as they are set. */
void set_class_show(const char *dir, const char *gpu);

#endif

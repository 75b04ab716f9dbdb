/* gpuarb-set --class: task classes. */
#ifndef TOOLS_SET_CLASS_H
#define TOOLS_SET_CLASS_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/set_where.h"

/* Ends the program with a sentence if there is a mistake on the command line. */
void set_class_check(const char *name, char *const *keys, char *const *values, size_t count);
/* Changes a class on all of the GPUs, or on none; an empty value restores the default. count 0 removes the class.
 * `save`: in arbiter.conf as well. */
void set_class(const char *dir, const struct set_gpus *gpus, const char *name, char *const *keys,
	char *const *values, size_t count, bool save);
/* Prints every class with its settings. */
void set_class_show(const char *dir, const char *gpu);

#endif

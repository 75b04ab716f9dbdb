/* What gpuarb-set shows. */
#ifndef TOOLS_SET_SHOW_H
#define TOOLS_SET_SHOW_H

#include <stdbool.h>

/*
 * The settings of a GPU, the limits that were set, and those in force for the accounts that are there. With a
 * name, what there is of that account alone, below the GPU's name if it is one of `several`; false: nothing
 * is.
 */
bool set_show(const char *dir, const char *gpu, const char *account, bool several);
/* Every key with what it may be and what it means; `names_only` for shells. */
void set_show_keys(int names_only);

#endif

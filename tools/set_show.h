/* What gpuarb-set shows. */
#ifndef TOOLS_SET_SHOW_H
#define TOOLS_SET_SHOW_H

#include <stdbool.h>

/*
 * Prints the settings of a GPU, the limits that were set, and the limits in force for the accounts that are there.
 * With a name, prints only what there is of that account, below the GPU's name if it is one of `several`, and returns
 * false if there is nothing.
 */
bool set_show(const char *dir, const char *gpu, const char *account, bool several);
/* Prints every key with its allowed values and its meaning; `names_only` is for shells. */
void set_show_keys(int names_only);

#endif

/* Shared by the tools' functions. */
#ifndef ARB_CONTROL_H
#define ARB_CONTROL_H

#include "settings.h"

/* The directory that was asked for, or GPUARB_DIR's, or the default. */
const char *arb_control_dir(const char *dir);
/* The rules in force for a GPU; the defaults where it has no control segment. */
void arb_control_rules(const char *dir, const char *gpu, struct arb_rules *rules);

#endif

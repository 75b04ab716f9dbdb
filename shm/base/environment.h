/* The environment variables that gpuarb knows. Those of settings are in keys.def, all others here. */
#ifndef ARB_ENVIRONMENT_H
#define ARB_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether gpuarb reads or sets this variable, GPUARB_..., or cannot judge it, because its name may be another
 * program's. */
bool arb_environment_knows(const char *name);
/* Returns the known name that was meant, or NULL. */
const char *arb_environment_meant(const char *name);

#endif

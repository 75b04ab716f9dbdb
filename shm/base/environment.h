/* Which environment variables there are. Those of settings are in keys.def, all others here. */
#ifndef ARB_ENVIRONMENT_H
#define ARB_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/* Is this name, GPUARB_..., one that something of ours reads or sets, or one that is not ours to judge? */
bool arb_environment_knows(const char *name);
/* The known name that was meant, or NULL. */
const char *arb_environment_meant(const char *name);

#endif

/* Which environment variables there are. Those of settings are in keys.def, all others here. */
#ifndef ARB_ENVIRONMENT_H
#define ARB_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether this name, GPUARB_..., is one that we read or set, or one that is not for us to judge. */
bool arb_environment_knows(const char *name);
/* The known name that was meant, or NULL. */
const char *arb_environment_meant(const char *name);

#endif

/*
 * NVML: the names without a model. They never look at their arguments, so that one signature does for
 * all of them on every calling convention in which the caller cleans up.
 */
#include "test/sim/nvml/nvml.h"

#define NVML_CALL(name)                                                                                      \
	NVML_API name(void);                                                                                 \
	nvmlReturn_t name(void)                                                                              \
	{                                                                                                    \
		return nvml_ready() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_NOT_SUPPORTED;                   \
	}
#include "test/sim/nvml/nvml.def"

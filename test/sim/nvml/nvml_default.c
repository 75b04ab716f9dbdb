/*
 * NVML: the names without a model. They never read their arguments, so one signature fits all of them
 * wherever the caller cleans up the arguments of a call.
 */
#include "test/sim/nvml/sim_nvml.h"

#define NVML_CALL(name)                                                                                      \
	NVML_API name(void);                                                                                 \
	nvmlReturn_t name(void)                                                                              \
	{                                                                                                    \
		return nvml_ready() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_NOT_SUPPORTED;                   \
	}
#include "test/sim/nvml/sim_nvml.def"

#include "gpuarb/nvml_load.h"

#include <dlfcn.h>

const char *gpuarb_nvml_load(const struct gpuarb_nvml_call *calls, size_t count)
{
	void *library = dlopen(NVML_LIBRARY, RTLD_LAZY | RTLD_LOCAL);
	const char *missing;

	if (!library)
		return "there is no " NVML_LIBRARY ": NVIDIA's driver is not installed here";
	missing = gpuarb_nvml_begin(library, dlsym, calls, count);
	if (missing)
		dlclose(library);
	return missing;
}

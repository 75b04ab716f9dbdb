#include "gpuarb/nvml_load.h"

#include <dlfcn.h>
#include <string.h>

static bool find(void *library, const char *name, void *place)
{
	void *found = dlsym(library, name);

	memcpy(place, &found, sizeof(found));
	return found != NULL;
}

static const char *begin(void *library, const struct gpuarb_nvml_call *calls, size_t count)
{
	int (*init)(void);

	if (!find(library, "nvmlInit_v2", &init))
		return "libnvidia-ml.so.1 is too old: it cannot list GPUs";
	for (size_t i = 0; i < count; i++)
		if (!find(library, calls[i].name, calls[i].place) && !calls[i].optional)
			return "libnvidia-ml.so.1 is too old: it cannot list GPUs";
	return init() == 0 ? NULL : "libnvidia-ml.so.1 finds no working driver";
}

const char *gpuarb_nvml_load(const struct gpuarb_nvml_call *calls, size_t count)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
	const char *missing;

	if (!library)
		return "there is no libnvidia-ml.so.1: NVIDIA's driver is not installed here";
	missing = begin(library, calls, count);
	if (missing)
		dlclose(library);
	return missing;
}

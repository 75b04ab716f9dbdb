#include "gpuarb/nvml_load.h"

#include <string.h>

#define TOO_OLD NVML_LIBRARY " is too old: it cannot list GPUs"

const char *gpuarb_nvml_begin(void *library, void *(*find)(void *library, const char *name),
	const struct gpuarb_nvml_call *calls, size_t count)
{
	int (*init)(void) = (__typeof__(init))find(library, "nvmlInit_v2");

	if (!init)
		return TOO_OLD;
	for (size_t i = 0; i < count; i++) {
		void *found = find(library, calls[i].name);

		if (!found && !calls[i].optional)
			return TOO_OLD;
		memcpy(calls[i].place, &found, sizeof(found));
	}
	return init() == NVML_SUCCESS ? NULL : NVML_LIBRARY " finds no working driver";
}

/* Requests that take a lease: gpuarb_acquire before each, gpuarb_release after it. */
#include "test/load/simload.h"

#include <dlfcn.h>
#include <stdio.h>

static __typeof__(gpuarb_acquire) *acquire;
static __typeof__(gpuarb_release) *release;

bool simload_lease_open(const char *library)
{
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);

	if (lib) {
		*(void **)&acquire = dlsym(lib, "gpuarb_acquire");
		*(void **)&release = dlsym(lib, "gpuarb_release");
	}
	if (lib && acquire && release)
		return true;
	fprintf(stderr, "simload: no leases: %s\n", lib ? "the library has none" : dlerror());
	return false;
}

bool simload_lease_take(const struct load *load, struct gpuarb_lease *lease)
{
	struct gpuarb_request request = {.task_class = load->lease};

	return acquire(NULL, &request, lease) == GPUARB_OK;
}

void simload_lease_give(struct gpuarb_lease *lease)
{
	release(lease);
}

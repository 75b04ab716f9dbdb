/*
 * A program with raised privileges that uses the GPU. Its driver is named by its path, because the dynamic
 * linker does not look into the environment for it. Usage: preload_secure DRIVER
 */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/auxv.h>

#include "cuda_abi.h"

int main(int argc, char **argv)
{
	void *driver = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	__typeof__(cuInit) *init = driver ? (__typeof__(cuInit) *)dlsym(driver, "cuInit") : NULL;
	__typeof__(cuCtxCreate_v2) *create =
		driver ? (__typeof__(cuCtxCreate_v2) *)dlsym(driver, "cuCtxCreate_v2") : NULL;
	CUcontext context;

	if (!getauxval(AT_SECURE))
		return 3;
	if (!dlsym(RTLD_DEFAULT, "gpuarb_preload_seen"))
		return 4;
	if (!init || !create)
		return 5;
	return init(0) || create(&context, 0, 0);
}

/* Every call of the driver goes on to the one behind it, unless misbehave.c has its own. */
#include <dlfcn.h>
#include <stdlib.h>

#include "cuda_abi.h"

#include "test/gpu/misbehave.h"

void *misbehave_next(const char *name)
{
	static void *driver;

	if (!driver)
		driver = dlopen(getenv("MISBEHAVE_DRIVER"), RTLD_NOW | RTLD_LOCAL);
	return driver ? dlsym(driver, name) : NULL;
}

#define forward_find(name)         misbehave_next(name)
#define forward_said(name, result) (result)
#include "preload_forward.inc"

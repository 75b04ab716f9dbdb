/* Forwards every call of the driver to the driver behind, unless misbehave.c has a function of its own for it. */
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

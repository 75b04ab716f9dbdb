/* How the preload and the load find the driver: by name, among the functions of the simulated one. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "../../preload/elf.h"
#include "../../preload/hooks.h"
#include "../../preload/symbols.h"
#include "world.h"

/* Its functions are linked in under names with this in front of them. */
#define PREFIX "sim_"

void *__real_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name);
void *__wrap_dlopen(const char *file, int mode);

static void *driver_function(const char *name)
{
	char full[128];

	snprintf(full, sizeof(full), PREFIX "%s", name);
	return __real_dlsym(RTLD_DEFAULT, full);
}

bool arb_elf_at(const void *address, struct elf_object *object)
{
	(void)address;
	(void)object;
	return false;
}

bool arb_elf_named(const char *name, struct elf_object *object)
{
	if (strncmp(name, "libcuda", 7))
		return false;
	*object = (struct elf_object){.path = "libcuda.so.1"};
	return true;
}

bool arb_elf_is(const struct elf_object *object, const char *name)
{
	return object->path && !strncmp(object->path, name, strlen(name));
}

void *arb_elf_symbol(const struct elf_object *object, const char *name)
{
	(void)object;
	return driver_function(name);
}

void *arb_elf_next(const void *address, const char *name)
{
	(void)address;
	return driver_function(name);
}

arb_dlopen_fn *arb_libc_dlopen(void)
{
	return NULL;
}

arb_dlsym_fn *arb_libc_dlsym(void)
{
	return NULL;
}

/* As a program's look-up goes with the preload: what it hooks is its own. */
void *__wrap_dlsym(void *handle, const char *name)
{
	const struct hook *hook;

	if (!world.current)
		return __real_dlsym(handle, name);
	hook = arb_hook_find(name);
	return hook ? hook->wrapper : driver_function(name);
}

void *__wrap_dlopen(const char *file, int mode)
{
	(void)file;
	(void)mode;
	return &world;
}

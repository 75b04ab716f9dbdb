/* How the preload and the load find the driver: by name, among the functions of the simulated one. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/hooks/elf.h"
#include "preload/hooks/hooks.h"
#include "preload/hooks/symbols.h"
#include "test/world/faults.h"
#include "test/world/world.h"

/* Its functions are linked in under names with this in front of them. */
#define PREFIX "sim_"

void *__real_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name);
void *__wrap_dlopen(const char *file, int mode);

static void *find(const char *name)
{
	char full[128];

	snprintf(full, sizeof(full), PREFIX "%s", name);
	return __real_dlsym(RTLD_DEFAULT, full);
}

/*
 * Calls that may fail, by the faults of the world. They are those that the preload makes for itself as well: it
 * must do without what they would have said.
 */
#define MAY_FAIL(symbol, params, args)                                                                       \
	static CUresult failing_##symbol params                                                              \
	{                                                                                                    \
		static __typeof__(symbol) *real;                                                             \
                                                                                                             \
		if (world_chance_once_in(&world.programs, faults.fails))                                     \
			return CUDA_ERROR_UNKNOWN;                                                           \
		if (!real)                                                                                   \
			real = (__typeof__(symbol) *)find(#symbol);                                          \
		return real args;                                                                            \
	}
MAY_FAIL(cuEventCreate, (CUevent * event, unsigned flags), (event, flags))
MAY_FAIL(cuEventRecord, (CUevent event, CUstream stream), (event, stream))
MAY_FAIL(cuEventRecord_ptsz, (CUevent event, CUstream stream), (event, stream))
MAY_FAIL(cuEventQuery, (CUevent event), (event))
MAY_FAIL(cuStreamQuery, (CUstream stream), (stream))
MAY_FAIL(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags))
MAY_FAIL(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data), (stream, function, data))

static void *driver_function(const char *name)
{
	static const struct {
		const char *name;
		void *function;
	} failing[] = {
		{"cuEventCreate", (void *)failing_cuEventCreate},
		{"cuEventRecord", (void *)failing_cuEventRecord},
		{"cuEventRecord_ptsz", (void *)failing_cuEventRecord_ptsz},
		{"cuEventQuery", (void *)failing_cuEventQuery},
		{"cuStreamQuery", (void *)failing_cuStreamQuery},
		{"cuStreamWaitEvent", (void *)failing_cuStreamWaitEvent},
		{"cuLaunchHostFunc", (void *)failing_cuLaunchHostFunc},
	};

	for (unsigned i = 0; i < sizeof(failing) / sizeof(failing[0]); i++)
		if (!strcmp(failing[i].name, name))
			return failing[i].function;
	return find(name);
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

/* As a program's look-up goes with the preload: what it hooks is its own. Not for one that is run without it. */
void *__wrap_dlsym(void *handle, const char *name)
{
	const struct hook *hook;

	if (!world.current)
		return __real_dlsym(handle, name);
	if (!strcmp(name, "gpuarb_acquire"))
		return (void *)world_acquire;
	if (!strcmp(name, "gpuarb_release"))
		return (void *)world_release;
	hook = getenv("WORLD_WITHOUT_PRELOAD") ? NULL : arb_hook_find(name);
	return hook ? hook->wrapper : driver_function(name);
}

void *__wrap_dlopen(const char *file, int mode)
{
	(void)file;
	(void)mode;
	return &world;
}

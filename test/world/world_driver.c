/* How the preload and the load find the driver: by name, among the functions of the simulated driver. */
#include "test/world/world.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/hooks/elf.h"
#include "preload/hooks/hooks.h"
#include "preload/hooks/symbols.h"
#include "preload/track/track.h"
#include "test/world/faults.h"

/* The simulated driver's functions are linked in under their names with this prefix. */
#define PREFIX "sim_"
/* The longest that a call of the driver takes because it, or another thread, loads a module. */
#define HELD_MOST_NS (4 * WORLD_MS)

void *__real_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name);
void *__wrap_dlopen(const char *file, int mode);

static void *find(const char *name)
{
	char full[128];

	snprintf(full, sizeof(full), PREFIX "%s", name);
	return __real_dlsym(RTLD_DEFAULT, full);
}

/* Returns whether this thread holds a lock of the preload that must not be held in a call of the driver. */
static bool has_a_lock(void)
{
	for (unsigned i = 0; i < tracks_high(); i++)
		if (world_mutex_is_mine(&arb_own.tracks[i].lock))
			return true;
	return world_mutex_is_mine(&arb_own.starting);
}

/*
 * Stands before each of the driver's functions. A driver has locks of its own, may wait for them as long as another
 * thread loads a module, and calls the program from threads of its own. So the preload must hold no lock when it calls
 * the driver, which is checked here. As the faults of the world say, a call takes long now and then.
 */
static void __attribute__((noinline)) called_slowly(const char *name)
{
	if (has_a_lock())
		world_fail("%s is called with a lock of the preload's", name);
	if (world_chance_once_in(&world.programs, faults.holds))
		world_sleep(world_chance_below(&world.programs, HELD_MOST_NS));
}

static inline void called(const char *name)
{
	if (world.current && __builtin_expect((world.current->mutexes | faults.holds) != 0, 0))
		called_slowly(name);
}

#define CALLED(symbol, params, args)                                                                         \
	static CUresult called_##symbol params                                                               \
	{                                                                                                    \
		static __typeof__(symbol) *real;                                                             \
                                                                                                             \
		called(#symbol);                                                                             \
		if (!real)                                                                                   \
			real = (__typeof__(symbol) *)find(#symbol);                                          \
		return real args;                                                                            \
	}
#define HOOK(symbol, base, version, variant, category, params, args, facts) CALLED(symbol, params, args)
#include "preload/hooks/hooks.def"
#undef HOOK
CALLED(cuEventElapsedTime, (float *ms, CUevent start, CUevent end), (ms, start, end))
CALLED(cuStreamGetFlags, (CUstream stream, unsigned *flags), (stream, flags))
CALLED(cuStreamGetPriority, (CUstream stream, int *priority), (stream, priority))

/* A thread that destroys a context must first wait for threads that ask the driver about objects in that context. */
static CUresult destroys_cuCtxDestroy_v2(CUcontext ctx)
{
	for (unsigned i = 0; i < tracks_high(); i++)
		for (const struct track_ask *ask = arb_own.tracks[i].asks; ask; ask = ask->next)
			if (ctx && ask->ctx == ctx)
				world_fail("a context is destroyed while another thread asks about it");
	return called_cuCtxDestroy_v2(ctx);
}

/* Calls that fail now and then, as the faults of the world say. The preload makes these calls for itself, too, and must
 * work without their answers. */
#define MAY_FAIL(symbol, params, args)                                                                       \
	static CUresult failing_##symbol params                                                              \
	{                                                                                                    \
		if (faults.fails && world_chance_once_in(&world.programs, faults.fails))                     \
			return CUDA_ERROR_UNKNOWN;                                                           \
		return called_##symbol args;                                                                 \
	}
MAY_FAIL(cuEventCreate, (CUevent * event, unsigned flags), (event, flags))
MAY_FAIL(cuEventRecord, (CUevent event, CUstream stream), (event, stream))
MAY_FAIL(cuEventRecord_ptsz, (CUevent event, CUstream stream), (event, stream))
MAY_FAIL(cuEventQuery, (CUevent event), (event))
MAY_FAIL(cuStreamQuery, (CUstream stream), (stream))
MAY_FAIL(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags))
MAY_FAIL(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data), (stream, function, data))

struct function {
	const char *name;
	void *function;
};

#define FUNCTION(how, symbol)                                                                                \
	{                                                                                                    \
#symbol, (void *)how##_##symbol                                                              \
	}
static const struct function functions[] = {
	FUNCTION(failing, cuEventCreate),
	FUNCTION(failing, cuEventRecord),
	FUNCTION(failing, cuEventRecord_ptsz),
	FUNCTION(failing, cuEventQuery),
	FUNCTION(failing, cuStreamQuery),
	FUNCTION(failing, cuStreamWaitEvent),
	FUNCTION(failing, cuLaunchHostFunc),
	FUNCTION(destroys, cuCtxDestroy_v2),
	FUNCTION(called, cuEventElapsedTime),
	FUNCTION(called, cuStreamGetFlags),
	FUNCTION(called, cuStreamGetPriority),
#define HOOK(symbol, base, version, variant, category, params, args, facts) FUNCTION(called, symbol),
#include "preload/hooks/hooks.def"
#undef HOOK
};

static void *driver_function(const char *name)
{
	void *real = find(name);

	for (unsigned i = 0; real && i < sizeof(functions) / sizeof(functions[0]); i++)
		if (!strcmp(functions[i].name, name))
			return functions[i].function;
	return real;
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

/* Looks up a name as in a program with the preload: a function that the preload hooks is the preload's. In a program
 * without the preload it is the driver's. */
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

/*
 * dlsym, dlvsym, dlopen and dlmopen as every program sees them. A look-up that has nothing to do with CUDA goes on to the
 * real function by a jump, not by a call, because the real function looks at its return address: it tells the library whose
 * RTLD_NEXT, run path and namespace are meant (this file needs -foptimize-sibling-calls).
 */
#include "preload/hooks/symbols.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "preload/process/act.h"
#include "shm/base/word.h"

#define EXPORT      __attribute__((visibility("default")))
#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

typedef void *dlvsym_fn(void *handle, const char *name, const char *version);
typedef void *dlmopen_fn(Lmid_t namespace, const char *file, int mode);

/* Our definitions shadow the dynamic linker's, so its functions can only be found by reading the symbols of loaded objects. */
static void *find_next(void **place, const char *name)
{
	void *found = arb_word_load(place);

	if (likely(found))
		return found;
	found = arb_elf_next((const void *)find_next, name);
	arb_word_store(place, found);
	return found;
}

static void *next_dlsym, *next_dlvsym, *next_dlopen, *next_dlmopen;

arb_dlsym_fn *arb_libc_dlsym(void)
{
	return (arb_dlsym_fn *)find_next(&next_dlsym, "dlsym");
}

arb_dlopen_fn *arb_libc_dlopen(void)
{
	return (arb_dlopen_fn *)find_next(&next_dlopen, "dlopen");
}

static dlvsym_fn *libc_dlvsym(void)
{
	return (dlvsym_fn *)find_next(&next_dlvsym, "dlvsym");
}

static inline bool may_be_hooked(const char *name)
{
	if (!name)
		return false;
	if (name[0] == 'c')
		return name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
	return name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'l';
}

/*
 * Returns what the program gets for the address that the real look-up found. Only the driver's own function is replaced.
 * Another library may define the same name, and our table has no wrappers for the functions of a second driver.
 */
static void *replace(const struct hook *hook, void *found, const void *caller)
{
	int saved = errno;

	if (!found)
		return NULL;
	if (arb_is_ours(found)) {
		/* The look-up found our exported name in the global scope. If no other object defines the name, this second
		 * look-up fails, as it would without us, and sets the message of dlerror. */
		void *next = arb_libc_dlsym()(RTLD_NEXT, hook->symbol);

		/* A look-up by the driver itself gets the driver's own function. */
		if (next && !arb_is_inside(hook->library, caller))
			next = found;
		errno = saved;
		return next;
	}
	if (arb_library_owns(hook->library, found)) {
		if (arb_real_get(arb_hook_id(hook)) == found)
			found = hook->wrapper;
		else
			act_note(NOTE_OTHER_DRIVER);
	}
	errno = saved;
	return found;
}

static __attribute__((noinline)) void *look_up(
	void *handle, const char *name, const char *version, void *caller)
{
	const struct hook *hook = arb_hook_find(name);
	void *found;

	/* RTLD_NEXT depends on the caller, and the real function would take this library for the caller. */
	if (handle == RTLD_NEXT) {
		found = arb_elf_next(caller, name);
		if (!found)
			found = arb_libc_dlsym()(RTLD_NEXT, name);
	} else if (version) {
		found = libc_dlvsym()(handle, name, version);
	} else {
		found = arb_libc_dlsym()(handle, name);
	}
	return hook ? replace(hook, found, caller) : found;
}

/* Counts a name that the driver has and that is in no table of ours. Called before the real look-up, because dlsym has to
 * end in a jump to it. */
static __attribute__((noinline)) void note_unknown(const char *name)
{
	struct elf_object driver;
	int saved = errno;

	if (name[0] == 'c' && arb_library_loaded(LIBRARY_CUDA, &driver) && !arb_hook_knows(name) &&
		arb_elf_symbol(&driver, name))
		act_unknown(name);
	errno = saved;
}

EXPORT void *dlsym(void *handle, const char *name);
EXPORT void *dlvsym(void *handle, const char *name, const char *version);

void *dlsym(void *handle, const char *name)
{
	arb_dlsym_fn *next = arb_libc_dlsym();

	if (unlikely(!next))
		return NULL;
	if (unlikely(may_be_hooked(name))) {
		if (arb_hook_find(name))
			return look_up(handle, name, NULL, __builtin_return_address(0));
		note_unknown(name);
	}
	return next(handle, name);
}

void *dlvsym(void *handle, const char *name, const char *version)
{
	dlvsym_fn *next = libc_dlvsym();

	if (unlikely(!next))
		return NULL;
	if (unlikely(may_be_hooked(name))) {
		if (arb_hook_find(name))
			return look_up(handle, name, version, __builtin_return_address(0));
		note_unknown(name);
	}
	return next(handle, name, version);
}

/*
 * RTLD_DEEPBIND makes a library prefer its own dependencies. So the calls of a library that is linked with the driver, and
 * its calls of dlsym, would go past us. The flag is dropped; GPUARB_DEEPBIND=keep leaves it.
 */
static __attribute__((noinline)) int without_deepbind(int mode)
{
	const char *keep = secure_getenv("GPUARB_DEEPBIND");

	act_note(NOTE_DEEPBIND);
	return keep && !strcmp(keep, "keep") ? mode : mode & ~RTLD_DEEPBIND;
}

EXPORT void *dlopen(const char *file, int mode);
EXPORT void *dlmopen(Lmid_t namespace, const char *file, int mode);

void *dlopen(const char *file, int mode)
{
	arb_dlopen_fn *next = arb_libc_dlopen();

	if (unlikely(!next))
		return NULL;
	if (unlikely(mode & RTLD_DEEPBIND))
		mode = without_deepbind(mode);
	return next(file, mode);
}

void *dlmopen(Lmid_t namespace, const char *file, int mode)
{
	dlmopen_fn *next = (dlmopen_fn *)find_next(&next_dlmopen, "dlmopen");

	if (unlikely(!next))
		return NULL;
	/* Another namespace has its own libc, and the preload is not in it. */
	if (namespace != LM_ID_BASE)
		act_note(NOTE_NAMESPACE);
	return next(namespace, file, mode);
}

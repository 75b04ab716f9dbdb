/*
 * dlsym, dlvsym, dlopen and dlmopen as every program sees them. A look-up that has nothing to do with CUDA
 * goes on to the real function by a jump, not a call: the real one looks at its return address to know
 * whose RTLD_NEXT, whose run path and whose namespace is meant (this file needs -foptimize-sibling-calls).
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

/* Our definitions shadow the dynamic linker's, so that these can only be found by reading its symbols. */
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
 * What a program gets for what the real look-up found. Only the driver's own function is replaced; another
 * library may define the same name, and a second driver has functions that our table does not lead to.
 */
static void *replace(const struct hook *hook, void *found, const void *caller)
{
	int saved = errno;

	if (!found)
		return NULL;
	if (arb_is_ours(found)) {
		/* Found in the global scope, where we put it. If nothing would be there without us, this
		 * fails, and leaves the right words for dlerror. */
		void *next = arb_libc_dlsym()(RTLD_NEXT, hook->symbol);

		/* The driver itself looks for its own. */
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

	/* The real function would take us for the caller, who alone knows what is next. */
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

/* The driver has it, and it is in no table of ours. Asked before the look-up, which has to end in a jump. */
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
 * RTLD_DEEPBIND makes a library prefer its own dependencies, so that one that is linked with the driver
 * would go past us, and its dlsym as well. The flag is dropped; GPUARB_DEEPBIND=keep leaves it.
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
	/* A namespace of its own has its own libc and does not see us. */
	if (namespace != LM_ID_BASE)
		act_note(NOTE_NAMESPACE);
	return next(namespace, file, mode);
}

/* The dynamic linker's own functions, behind the ones that we define. */
#ifndef PRELOAD_SYMBOLS_H
#define PRELOAD_SYMBOLS_H

#include <stdbool.h>

#include "preload/hooks/elf.h"
#include "preload/hooks/hooks.h"

typedef void *arb_dlopen_fn(const char *file, int mode);
typedef void *arb_dlsym_fn(void *handle, const char *name);

/* The next definition behind ours; NULL if there is none. */
arb_dlopen_fn *arb_libc_dlopen(void);
arb_dlsym_fn *arb_libc_dlsym(void);

/* Whether the library is loaded; if so it is never unloaded again. */
bool arb_library_loaded(enum hook_library library, struct elf_object *object);
bool arb_library_owns(enum hook_library library, const void *address);

#endif

/* The dynamic linker's own functions, which our definitions shadow. */
#ifndef PRELOAD_SYMBOLS_H
#define PRELOAD_SYMBOLS_H

#include <stdbool.h>

#include "preload/hooks/elf.h"
#include "preload/hooks/hooks.h"

typedef void *arb_dlopen_fn(const char *file, int mode);
typedef void *arb_dlsym_fn(void *handle, const char *name);

/* Both return the next definition behind ours; NULL if there is none. */
arb_dlopen_fn *arb_libc_dlopen(void);
arb_dlsym_fn *arb_libc_dlsym(void);

/* Whether the library is loaded. If it is, keeps it loaded for good and describes it in *object. */
bool arb_library_loaded(enum hook_library library, struct elf_object *object);
/* Whether the address is in a library of this name. */
bool arb_library_owns(enum hook_library library, const void *address);

#endif

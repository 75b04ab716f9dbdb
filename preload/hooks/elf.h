/*
 * Loaded objects and their symbols, read from memory. So the preload, which defines dlsym itself, finds the real
 * dlsym in every version of glibc, and finds the driver's functions without a dlsym that another library may
 * have replaced. Takes no lock of ours, allocates nothing, and calls nothing but dl_iterate_phdr.
 */
#ifndef PRELOAD_ELF_H
#define PRELOAD_ELF_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>

struct elf_object {
	ElfW(Addr) base;
	ElfW(Addr) first, end; /* its first byte in memory, and the byte after its last */
	const ElfW(Dyn) * dynamic;
	const char *path; /* valid as long as the object is loaded */
};

/* Finds the loaded object of the main namespace that contains this address. */
bool arb_elf_at(const void *address, struct elf_object *object);
/* Finds the first loaded object whose file name or soname starts with `name` ("libcuda.so"). */
bool arb_elf_named(const char *name, struct elf_object *object);
/* Whether the object's file name or soname starts with `name`. */
bool arb_elf_is(const struct elf_object *object, const char *name);
/* Returns the function or variable of this name that the object defines, in any version, or NULL. */
void *arb_elf_symbol(const struct elf_object *object, const char *name);
/* Returns the first definition in load order behind the object that contains `address`: what RTLD_NEXT means there. */
void *arb_elf_next(const void *address, const char *name);

#endif

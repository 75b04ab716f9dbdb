/*
 * Loaded objects and their symbols, read from memory. This is how the real dlsym is found by a library
 * that defines dlsym itself, in every version of glibc, and how the driver's functions are found without
 * asking anybody else's dlsym. No lock of ours, no allocation, nothing but dl_iterate_phdr.
 */
#ifndef PRELOAD_ELF_H
#define PRELOAD_ELF_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>

struct elf_object {
	ElfW(Addr) base;
	ElfW(Addr) first, end; /* from its first byte in memory to behind its last */
	const ElfW(Dyn) * dynamic;
	const char *path; /* valid as long as the object is loaded */
};

/* The loaded object that contains this address, of the main namespace. */
bool arb_elf_at(const void *address, struct elf_object *object);
/* The first loaded object whose file name or soname starts with `name` ("libcuda.so"). */
bool arb_elf_named(const char *name, struct elf_object *object);
/* Whether it is one. */
bool arb_elf_is(const struct elf_object *object, const char *name);
/* A function or object that it defines, in any version, or NULL. */
void *arb_elf_symbol(const struct elf_object *object, const char *name);
/* The first definition in load order behind the object that contains `address`: what RTLD_NEXT means there.
 */
void *arb_elf_next(const void *address, const char *name);

#endif

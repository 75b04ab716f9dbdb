/* Libraries that reach the driver, or only seem to, each in its own way; rules.mk chooses by macros. */
#include <dlfcn.h>
#include <stddef.h>

#include "cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int lib_launch(void);
EXPORT void *lib_next(const char *name);
EXPORT void *lib_open(const char *file);
EXPORT void *lib_symbol(const char *name);
EXPORT int lib_marker(void);
EXPORT int lib_constructed(void);

#ifdef LIB_OWN
/* A function of the library itself, with the name of a function of the driver. */
CUresult cuInit(unsigned int flags)
{
	return (CUresult)(4242 + flags);
}

int lib_launch(void)
{
	int result = cuInit(1);

	/* Not a tail call: the return address has to be in this library. */
	__asm__ volatile("" : "+r"(result));
	return result;
}
#endif

#ifdef LIB_LINKED
int lib_launch(void)
{
	return cuInit(1);
}
#endif

#ifdef LIB_CONSTRUCTOR
static int constructed = -1;

__attribute__((constructor)) static void construct(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
	__typeof__(cuInit) *init = driver ? (__typeof__(cuInit) *)dlsym(driver, "cuInit") : NULL;

	constructed = init ? (int)init(0) : -2;
}

int lib_constructed(void)
{
	return constructed;
}
#endif

#ifdef LIB_MARKER
int lib_marker(void)
{
	return LIB_MARKER;
}

/* The caller of dlsym decides what is next, and on whose run path a file is looked for. */
void *lib_next(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	__asm__ volatile("" : "+r"(found));
	return found;
}

void *lib_open(const char *file)
{
	void *found = dlopen(file, RTLD_NOW);

	__asm__ volatile("" : "+r"(found));
	return found;
}

void *lib_symbol(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	__asm__ volatile("" : "+r"(found));
	return found;
}
#endif

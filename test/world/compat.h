/* In place of preload/hooks/compat.h: one C library, and the linker leads its calls to the world. */
#ifndef PRELOAD_COMPAT_H
#define PRELOAD_COMPAT_H

#include <pthread.h>

#define COMPAT_OLD(name)
#define COMPAT_WEAK(name)

#endif

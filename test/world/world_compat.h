/* Replaces preload/hooks/compat.h: the world has one C library, whose calls the linker leads to the world. */
#ifndef PRELOAD_COMPAT_H
#define PRELOAD_COMPAT_H

#include <pthread.h>

#define COMPAT_OLD(name)
#define COMPAT_WEAK(name)

#endif

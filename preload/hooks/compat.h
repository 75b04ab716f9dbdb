/*
 * Binds symbols to the oldest version that every glibc since 2.17 has, so that one build loads everywhere. Symbols
 * that were in libpthread before glibc 2.34 are weak, because a program without threads may not have them. They are
 * not needed before there is a CUDA context, and then the driver has loaded libpthread. Include this before their use.
 */
#ifndef PRELOAD_COMPAT_H
#define PRELOAD_COMPAT_H

#include <pthread.h>

#ifdef __GLIBC__
#if defined(__x86_64__)
#define COMPAT_BASE "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define COMPAT_BASE "GLIBC_2.17"
#elif defined(__powerpc64__)
#define COMPAT_BASE "GLIBC_2.17"
#endif
#endif

#ifdef COMPAT_BASE
#define COMPAT_OLD(name) __asm__(".symver " #name ", " #name "@" COMPAT_BASE);
#else
#define COMPAT_OLD(name)
#endif

#define COMPAT_WEAK(name)                                                                                    \
	COMPAT_OLD(name)                                                                                     \
	extern __typeof__(name) name __attribute__((weak));

COMPAT_WEAK(pthread_key_create)
COMPAT_WEAK(pthread_setspecific)

#endif

/*
 * What libgpuarb calls and old C libraries have under another name or not at all. These definitions stay
 * inside the library.
 */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's struct stat is the C library's on the 64-bit machines that have a driver. */
int fstat(int fd, struct stat *st)
{
	return (int)syscall(SYS_fstat, fd, st);
}

int stat(const char *restrict path, struct stat *restrict st)
{
	return (int)syscall(SYS_newfstatat, -100 /* AT_FDCWD */, path, st, 0);
}

/* A program without threads may have no libpthread. */
int pthread_once(pthread_once_t *once, void (*routine)(void))
{
	int *state = (int *)once, none = PTHREAD_ONCE_INIT;

	if (__atomic_load_n(state, __ATOMIC_ACQUIRE) == 2)
		return 0;
	if (__atomic_compare_exchange_n(state, &none, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
		routine();
		__atomic_store_n(state, 2, __ATOMIC_RELEASE);
		return 0;
	}
	while (__atomic_load_n(state, __ATOMIC_ACQUIRE) != 2)
		sched_yield();
	return 0;
}

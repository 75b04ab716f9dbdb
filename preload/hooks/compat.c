/*
 * Functions that the segment's library calls, and that older versions of glibc do not have, or have in another library.
 * They are defined here for the preload alone, so that one build loads into programs with any glibc since 2.17.
 */
#include "preload/hooks/compat.h"

#include "preload/hooks/elf.h"
#include "shm/base/word.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33) && defined(__LP64__)

/* On 64-bit machines struct stat is the kernel's own. */
__attribute__((visibility("hidden"))) int fstat(int fd, struct stat *buffer)
{
	return (int)syscall(SYS_fstat, fd, buffer);
}

__attribute__((visibility("hidden"))) int stat(const char *restrict path, struct stat *restrict buffer)
{
	return (int)syscall(SYS_newfstatat, AT_FDCWD, path, buffer, 0);
}

#endif

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)

/*
 * Before glibc 2.34 it was in libpthread. The state holds the pid of the process whose thread runs the routine: a child
 * that was forked meanwhile has no such thread to wait for, sees another pid, and runs the routine itself.
 */
__attribute__((visibility("hidden"))) int pthread_once(pthread_once_t *once, void (*routine)(void))
{
	enum { DONE = 2 };
	int mine = (int)((unsigned)getpid() << 2 | 1);

	for (;;) {
		int state = arb_word_load_acquire(once);

		if (state == DONE)
			return 0;
		if (state == mine) {
			sched_yield();
		} else if (arb_word_cas_acquire(once, &state, mine)) {
			routine();
			arb_word_store_release(once, DONE);
			return 0;
		}
	}
}

#endif

/*
 * glibc's pthread_atfork is not in its shared library, and calls this function. musl does not have it, so a strong
 * reference would keep every musl program from starting.
 */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object)
	__attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

__attribute__((visibility("hidden"))) int pthread_atfork(
	void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	int (*other)(void (*)(void), void (*)(void), void (*)(void));

	if (__register_atfork)
		return __register_atfork(prepare, parent, child, __dso_handle);
	other = (int (*)(void (*)(void), void (*)(void), void (*)(void)))arb_elf_next(
		(const void *)pthread_atfork, "pthread_atfork");
	return other ? other(prepare, parent, child) : ENOSYS;
}

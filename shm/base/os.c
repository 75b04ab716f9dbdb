#include "shm/base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/base/atomic.h"
#include "shm/base/os_proc.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

const struct arb_os_hooks *arb_os_hooks;
int64_t arb_os_clock_offset_ns;

/* The inode that the kernel gives the initial time namespace. */
#define TIME_NS_INIT_INO 0xEFFFFFFAu

/* Writes the offset only if it changes. It changes at the first look, and in a child that was forked into another
 * namespace: before there are threads that read the clock. */
static void set_offset(int64_t ns)
{
	if (arb_os_clock_offset_ns != ns)
		arb_os_clock_offset_ns = ns;
}

int arb_os_clock_init(void)
{
	int saved = errno, result = 0;
	uint64_t own = arb_os_proc_inode("/proc/self/ns/time");
	char text[256], *line;
	long long seconds, nanoseconds;

	/* There is no such file: the kernel has no time namespaces, or there is no /proc and so no way to tell. */
	if (own == 0 || own == TIME_NS_INIT_INO) {
		set_offset(0);
		goto out;
	}
	/* timens_offsets is about the namespace that children get, which need not be ours. */
	if (own != arb_os_proc_inode("/proc/self/ns/time_for_children") ||
		arb_os_proc_text("/proc/self/timens_offsets", text, sizeof(text)) < 0) {
		result = -ENOTSUP;
		goto out;
	}
	line = strstr(text, "monotonic");
	if (!line || sscanf(line, "monotonic %lld %lld", &seconds, &nanoseconds) != 2)
		result = -ENOTSUP;
	else
		set_offset((int64_t)seconds * 1000000000 + nanoseconds);
out:
	errno = saved;
	return result;
}

int arb_os_futex_wait(arb_u32 *word, uint32_t value, uint64_t timeout_ns)
{
	struct timespec ts = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
	int saved = errno, result = 0;

	if (arb_os_hooks && arb_os_hooks->futex_wait)
		return arb_os_hooks->futex_wait(word, value, timeout_ns);
	if (syscall(SYS_futex, &word->v, FUTEX_WAIT, value, &ts, NULL, 0) != 0)
		result = errno == EAGAIN ? 0 : -errno;
	errno = saved;
	return result;
}

int arb_os_futex_wait_until(arb_u32 *word, uint32_t value, uint64_t until_ns)
{
	uint64_t local = until_ns + (uint64_t)arb_os_clock_offset_ns, now;
	struct timespec ts = {(time_t)(local / 1000000000u), (long)(local % 1000000000u)};
	int saved = errno, result = 0;

	if (arb_os_hooks && arb_os_hooks->futex_wait_until)
		return arb_os_hooks->futex_wait_until(word, value, until_ns);
	/* A clock that a test sets by hand means nothing to the kernel. */
	if (arb_os_hooks) {
		now = arb_os_now_ns();
		return arb_os_futex_wait(word, value, until_ns > now ? until_ns - now : 0);
	}
	/* This operation takes a time of the clock, not a length. */
	if (syscall(SYS_futex, &word->v, FUTEX_WAIT_BITSET, value, &ts, NULL, FUTEX_BITSET_MATCH_ANY) != 0)
		result = errno == EAGAIN ? 0 : -errno;
	errno = saved;
	return result;
}

void arb_os_wake(arb_u32 *word)
{
	int saved = errno;

	arb_add32_full(word, 1);
	if (arb_os_hooks && arb_os_hooks->futex_wake)
		arb_os_hooks->futex_wake(word);
	else
		syscall(SYS_futex, &word->v, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	errno = saved;
}

void arb_os_park(uint32_t *word, uint32_t value, uint64_t ns)
{
	struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
	int saved = errno;

	if (arb_os_hooks && arb_os_hooks->park) {
		arb_os_hooks->park(word, value, ns);
		return;
	}
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ns ? &ts : NULL, NULL, 0);
	errno = saved;
}

void arb_os_unpark(uint32_t *word)
{
	int saved = errno;

	if (arb_os_hooks && arb_os_hooks->unpark) {
		arb_os_hooks->unpark(word);
		return;
	}
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	errno = saved;
}

/* The value in linux/futex.h, which has it from 5.16 on. */
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#define WAIT_32BIT   2u
#define WAIT_PRIVATE 128u

struct waitv {
	uint64_t value, address;
	uint32_t flags, reserved;
};

int arb_os_park_any(const struct arb_os_word *words, unsigned n, uint64_t ns)
{
	uint64_t until = ns ? arb_os_local_ns() + ns : 0;
	struct timespec ts = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
	struct waitv list[ARB_OS_WORDS];
	int saved = errno, result = 0;

	if (arb_os_hooks)
		return arb_os_hooks->park_any ? arb_os_hooks->park_any(words, n, ns) : -ENOSYS;
	if (n > ARB_OS_WORDS)
		return -EINVAL;
	for (unsigned i = 0; i < n; i++)
		list[i] = (struct waitv){words[i].value, (uintptr_t)words[i].word,
			WAIT_32BIT | (words[i].shared ? 0 : WAIT_PRIVATE), 0};
	if (syscall(SYS_futex_waitv, list, n, 0, ns ? &ts : NULL, CLOCK_MONOTONIC) < 0)
		result = errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR ? 0 : -errno;
	errno = saved;
	return result;
}

_Static_assert(sizeof(struct arb_os_robust) == sizeof(struct robust_list_head), "the kernel's own");

int arb_os_robust(struct arb_os_robust *list, uint32_t *thread)
{
	int saved = errno, result = 0;

	if (arb_os_hooks)
		return arb_os_hooks->robust ? arb_os_hooks->robust(list, thread) : -ENOSYS;
	if (thread)
		*thread = (uint32_t)syscall(SYS_gettid);
	if (syscall(SYS_set_robust_list, list, sizeof(*list)) != 0)
		result = -ENOSYS;
	errno = saved;
	return result;
}

void *arb_os_robust_list(void)
{
	void *list = NULL;
	size_t size = 0;
	int saved = errno;

	if (!arb_os_hooks && syscall(SYS_get_robust_list, 0, &list, &size) != 0)
		list = NULL;
	errno = saved;
	return list;
}

void arb_os_sleep_ns(uint64_t ns)
{
	struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
	int saved = errno;

	if (arb_os_hooks && arb_os_hooks->sleep_ns) {
		arb_os_hooks->sleep_ns(ns);
		return;
	}
	syscall(SYS_nanosleep, &ts, NULL);
	errno = saved;
}

void arb_os_yield(void)
{
	if (arb_os_hooks && arb_os_hooks->yield)
		arb_os_hooks->yield();
	else
		sched_yield();
}

uint64_t arb_os_cpu_ns(void)
{
	struct timespec ts;
	int saved = errno;

	if (arb_os_hooks && arb_os_hooks->cpu_ns)
		return arb_os_hooks->cpu_ns();
	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts) != 0) {
		errno = saved;
		return 0;
	}
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int arb_os_barrier(bool announce)
{
	int saved = errno, r;

	if (arb_os_hooks && arb_os_hooks->barrier)
		return arb_os_hooks->barrier(announce);
	r = (int)syscall(SYS_membarrier,
		announce ? MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED : MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0,
		0);
	if (r != 0)
		r = -errno;
	errno = saved;
	return r;
}

int arb_os_open(const char *path, int flags)
{
	int saved = errno, fd;

	if (arb_os_hooks && arb_os_hooks->open)
		return arb_os_hooks->open(path, flags);
	do
		fd = arb_os_plain_open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	while (fd < 0 && errno == EINTR);
	if (fd < 0)
		fd = -errno;
	errno = saved;
	return fd;
}

void arb_os_close(int fd)
{
	int saved = errno;

	if (arb_os_hooks && arb_os_hooks->close) {
		arb_os_hooks->close(fd);
		return;
	}
	syscall(SYS_close, fd);
	errno = saved;
}

static int lock_call(int fd, int command, short type, uint64_t byte, struct flock *lock)
{
	int saved = errno, result = 0;

	memset(lock, 0, sizeof(*lock));
	lock->l_type = type;
	lock->l_whence = SEEK_SET;
	lock->l_start = (off_t)byte;
	lock->l_len = 1;
	if (fcntl(fd, command, lock) != 0)
		result = errno == EACCES ? -EAGAIN : -errno;
	errno = saved;
	return result;
}

int arb_os_lock(int fd, uint64_t byte)
{
	struct flock lock;

	if (arb_os_hooks && arb_os_hooks->lock)
		return arb_os_hooks->lock(fd, byte);
	return lock_call(fd, F_OFD_SETLK, F_WRLCK, byte, &lock);
}

void arb_os_unlock(int fd, uint64_t byte)
{
	struct flock lock;

	if (arb_os_hooks && arb_os_hooks->unlock)
		arb_os_hooks->unlock(fd, byte);
	else
		lock_call(fd, F_OFD_SETLK, F_UNLCK, byte, &lock);
}

int arb_os_is_locked(int fd, uint64_t byte)
{
	struct flock lock;
	int result;

	if (arb_os_hooks && arb_os_hooks->is_locked)
		return arb_os_hooks->is_locked(fd, byte);
	result = lock_call(fd, F_OFD_GETLK, F_WRLCK, byte, &lock);
	return result < 0 ? result : lock.l_type != F_UNLCK;
}

bool arb_os_only_readers(int fd, uint64_t byte)
{
	struct flock lock;

	if (arb_os_hooks && arb_os_hooks->is_locked)
		return false;
	return lock_call(fd, F_OFD_GETLK, F_RDLCK, byte, &lock) >= 0 && lock.l_type == F_UNLCK;
}

static void *map_page(int fd, int flags, int advice, int *error)
{
	int saved = errno;
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, size, fd < 0 ? PROT_READ | PROT_WRITE : PROT_READ, flags, fd, 0);

	*error = 0;
	if (page == MAP_FAILED) {
		*error = -errno;
		page = NULL;
	} else if (madvise(page, size, advice) != 0) {
		*error = -errno;
		munmap(page, size);
		page = NULL;
	}
	errno = saved;
	return page;
}

void *arb_os_lock_page(int fd, int *error)
{
	if (arb_os_hooks && arb_os_hooks->lock_page)
		return arb_os_hooks->lock_page(fd, error);
	return map_page(fd, MAP_SHARED, MADV_DONTFORK, error);
}

void *arb_os_fork_page(int *error)
{
	if (arb_os_hooks && arb_os_hooks->fork_page)
		return arb_os_hooks->fork_page(error);
	return map_page(-1, MAP_PRIVATE | MAP_ANONYMOUS, MADV_WIPEONFORK, error);
}

void arb_os_unmap(void *address, size_t size)
{
	int saved = errno;

	if (address && arb_os_hooks && arb_os_hooks->unmap)
		arb_os_hooks->unmap(address, size);
	else if (address)
		munmap(address, size ? size : (size_t)sysconf(_SC_PAGESIZE));
	errno = saved;
}

/* The functions of os.h about files, as the kernel does them. */
#include "shm/base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void describe(const struct stat *st, struct arb_os_file *file)
{
	*file = (struct arb_os_file){.dev = st->st_dev,
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.regular = S_ISREG(st->st_mode),
		.mode = st->st_mode & 07777,
		.uid = st->st_uid,
		.gid = st->st_gid};
}

int arb_os_stat(int fd, struct arb_os_file *file)
{
	struct stat st;
	int saved = errno, r = 0;

	if (arb_os_hooks && arb_os_hooks->stat)
		return arb_os_hooks->stat(fd, file);
	if (fstat(fd, &st) != 0)
		r = -errno;
	else
		describe(&st, file);
	errno = saved;
	return r;
}

int arb_os_look(const char *path, struct arb_os_file *file)
{
	struct stat st;
	int saved = errno, r = 0;

	if (arb_os_hooks && arb_os_hooks->look)
		return arb_os_hooks->look(path, file);
	if (stat(path, &st) != 0)
		r = -errno;
	else
		describe(&st, file);
	errno = saved;
	return r;
}

int arb_os_read(int fd, void *buffer, size_t size, uint64_t at)
{
	int saved = errno, r;

	if (arb_os_hooks && arb_os_hooks->read)
		return arb_os_hooks->read(fd, buffer, size, at);
	r = (int)syscall(SYS_pread64, fd, buffer, size, at);
	if (r < 0)
		r = -errno;
	errno = saved;
	return r;
}

void *arb_os_map(int fd, size_t size, bool writable, int *error)
{
	int saved = errno;
	void *base;

	if (arb_os_hooks && arb_os_hooks->map)
		return arb_os_hooks->map(fd, size, writable, error);
	base = mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	*error = base == MAP_FAILED ? -errno : 0;
	errno = saved;
	return base == MAP_FAILED ? NULL : base;
}

int arb_os_temporary(const char *directory)
{
	int saved = errno, fd;

	if (arb_os_hooks && arb_os_hooks->temporary)
		return arb_os_hooks->temporary(directory);
	fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		fd = -errno;
	errno = saved;
	return fd;
}

int arb_os_allocate(int fd, size_t size)
{
	if (arb_os_hooks && arb_os_hooks->allocate)
		return arb_os_hooks->allocate(fd, size);
	return -posix_fallocate(fd, 0, (off_t)size);
}

int arb_os_mode(int fd, mode_t mode)
{
	int saved = errno, r = 0;

	if (arb_os_hooks && arb_os_hooks->mode)
		return arb_os_hooks->mode(fd, mode);
	if (fchmod(fd, mode) != 0)
		r = -errno;
	errno = saved;
	return r;
}

bool arb_os_exists(const char *path)
{
	int saved = errno;
	bool there;

	if (arb_os_hooks && arb_os_hooks->exists)
		return arb_os_hooks->exists(path);
	there = access(path, F_OK) == 0;
	errno = saved;
	return there;
}

/* Writes all of it, or returns -errno. Beyond the process's limit for the size of files the kernel would answer with
 * a signal that ends the process. */
static int write_all(int fd, const char *data, size_t size)
{
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
	struct stat st;

	if (fstat(fd, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	getrlimit(RLIMIT_FSIZE, &limit);
	if (limit.rlim_cur != RLIM_INFINITY && (uint64_t)st.st_size + size > limit.rlim_cur)
		return -EFBIG;
	while (size) {
		long n = syscall(SYS_write, fd, data, size);

		if (n <= 0 && errno != EINTR)
			return n ? -errno : -EIO;
		if (n > 0) {
			data += n;
			size -= (size_t)n;
		}
	}
	return 0;
}

int arb_os_append(const char *path, bool create, const void *data, size_t size)
{
	int saved = errno, fd, r;

	if (arb_os_hooks && arb_os_hooks->append)
		return arb_os_hooks->append(path, create, data, size);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path,
		O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK |
			(create ? O_CREAT | O_EXCL : 0),
		0600);
	r = fd < 0 ? -errno : write_all(fd, data, size);
	if (fd >= 0)
		syscall(SYS_close, fd);
	errno = saved;
	return r;
}

int arb_os_name(int fd, const char *path)
{
	int saved = errno, r = 0;
	char self[64];

	if (arb_os_hooks && arb_os_hooks->name)
		return arb_os_hooks->name(fd, path);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	/* Without /proc a privileged process can still give the file its name. */
	if (linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) != 0 &&
		(errno != ENOENT || linkat(fd, "", AT_FDCWD, path, AT_EMPTY_PATH) != 0))
		r = -errno;
	errno = saved;
	return r;
}

/* Making and opening one shared file: the part that both segments have in common. */
#include "shm/segment/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpuarb/rights.h"

#include "shm/base/error.h"
#include "shm/base/fault.h"
#include "shm/base/os.h"

/* Says what cannot be done and, where it is forbidden, what the user has to do. */
static int fail_at(struct gpuarb_error *err, int code, const char *what, const char *path)
{
	char hint[384];

	return arb_fail(err, code, "cannot %s %s: %s%s", what, path, strerror(-code),
		gpuarb_rights_hint(path, code, hint, sizeof(hint)));
}

/* A directory that others may write to gets the sticky bit, so that nobody removes another's segment. */
static mode_t directory_mode(mode_t file_mode)
{
	mode_t mode = file_mode | 0700;

	if (file_mode & 0040)
		mode |= 0010;
	if (file_mode & 0004)
		mode |= 0001;
	return file_mode & 0022 ? mode | 01000 : mode;
}

/* Puts a finished directory in its place. If another process was faster, its directory stays. */
static int place_directory(const char *temporary, const char *path)
{
	if (syscall(SYS_renameat2, AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
		return 0;
	/* Where the kernel or the file system lacks this call: an ordinary rename replaces nothing but an empty
	 * directory. */
	if ((errno == ENOSYS || errno == EINVAL) && rename(temporary, path) == 0)
		return 0;
	return -errno;
}

/* Makes the directory beside its place, so that it is never seen without its rights, not even if this process dies
 * half-way. */
static int make_directory(const char *path, mode_t mode, gid_t gid, struct gpuarb_error *err)
{
	char temporary[PATH_MAX + 64];
	int r;

	if (arb_os_exists(path))
		return 0;
	snprintf(temporary, sizeof(temporary), "%s.new-%ld-%llx", path, (long)getpid(),
		(unsigned long long)arb_os_now_ns());
	if (mkdir(temporary, 0700) != 0)
		return fail_at(err, -errno, "make the directory", path);
	if (gid != (gid_t)-1 && chown(temporary, (uid_t)-1, gid) != 0)
		r = arb_fail(
			err, -errno, "cannot give %s to group %u: %s", path, (unsigned)gid, strerror(errno));
	else if (chmod(temporary, mode) != 0)
		r = arb_fail(err, -errno, "cannot set the mode of %s: %s", path, strerror(errno));
	else if ((r = place_directory(temporary, path)) < 0 && r != -EEXIST && r != -ENOTEMPTY)
		fail_at(err, r, "make the directory", path);
	if (r < 0)
		rmdir(temporary);
	return r == -EEXIST || r == -ENOTEMPTY ? 0 : r;
}

int arb_file_directories(
	const char *dir, const char *sub, mode_t file_mode, gid_t gid, struct gpuarb_error *err)
{
	char path[PATH_MAX];
	int saved = errno, r;

	/* The upper directory only leads to the two below, which differ in their rights. */
	r = make_directory(dir, 0755, gid, err);
	if (r == 0) {
		snprintf(path, sizeof(path), "%s/%s", dir, sub);
		r = make_directory(path, directory_mode(file_mode), gid, err);
	}
	errno = saved;
	return r;
}

/* Fills a new, still nameless or temporary file. */
static int fill(int fd, const struct arb_file_plan *plan, struct gpuarb_error *err)
{
	struct arb_os_file st;
	void *base;
	int r = plan->size ? arb_os_allocate(fd, plan->size) : 0;

	if (r < 0)
		return arb_fail(
			err, r, "no room for the %zu bytes of %s: %s", plan->size, plan->path, strerror(-r));
	/* Left out if the file has that group already: in a user namespace the group may have no number. */
	if (plan->gid != (gid_t)-1 && (arb_os_stat(fd, &st) < 0 || st.gid != plan->gid) &&
		fchown(fd, (uid_t)-1, plan->gid) != 0)
		return arb_fail(err, -errno, "cannot give %s to group %u: %s", plan->path,
			(unsigned)plan->gid, strerror(errno));
	if (plan->size) {
		base = arb_os_map(fd, plan->size, true, &r);
		if (!base)
			return arb_fail(err, r, "cannot map %s: %s", plan->path, strerror(-r));
		plan->initialise(base, plan->argument);
		arb_os_unmap(base, plan->size);
	}
	/* The mode comes last, and not through open(): the umask must not decide which users may join. */
	if ((r = arb_os_mode(fd, plan->mode)) < 0)
		return arb_fail(err, r, "cannot set the mode of %s: %s", plan->path, strerror(-r));
	return 0;
}

/* For file systems without O_TMPFILE: makes the file under a temporary name, then links it to its name. */
static int create_by_name(const struct arb_file_plan *plan, struct gpuarb_error *err)
{
	char temporary[PATH_MAX + 64];
	int fd, r;

	snprintf(temporary, sizeof(temporary), "%s/.new-%ld-%llx", plan->directory, (long)getpid(),
		(unsigned long long)arb_os_now_ns());
	fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return fail_at(err, -errno, "create", plan->path);
	r = fill(fd, plan, err);
	if (r == 0 && link(temporary, plan->path) != 0)
		r = errno == EEXIST ? -EEXIST : fail_at(err, -errno, "create", plan->path);
	unlink(temporary);
	close(fd);
	return r;
}

int arb_file_create(const struct arb_file_plan *plan, struct gpuarb_error *err)
{
	int saved = errno, r;
	int fd = arb_os_temporary(plan->directory);

	if (fd >= 0) {
		r = fill(fd, plan, err);
		if (r == 0)
			r = arb_os_name(fd, plan->path);
		arb_os_close(fd);
		if (r == -ENOENT || r == -EOPNOTSUPP)
			r = create_by_name(plan, err);
		else if (r < 0 && r != -EEXIST && (!err || err->code != r))
			fail_at(err, r, "create", plan->path);
	} else if (fd == -EOPNOTSUPP || fd == -EISDIR || fd == -ENOSYS) {
		r = create_by_name(plan, err);
	} else {
		r = fail_at(err, fd, "create", plan->path);
	}
	errno = saved;
	return r;
}

/* Both kinds of segment have their size at the same offset. */
_Static_assert(offsetof(struct arb_state_header, size) == offsetof(struct arb_control, size), "");
static size_t size_of(const char *header)
{
	uint64_t size;

	memcpy(&size, header + offsetof(struct arb_state_header, size), sizeof(size));
	return (size_t)size;
}

int arb_file_map(struct arb_file *file, bool writable, size_t header_size,
	int (*check)(const void *header, size_t size, const char *path, struct gpuarb_error *err),
	struct gpuarb_error *err)
{
	int saved = errno, r = 0;
	int fd = arb_os_open(file->path, writable ? O_RDWR : O_RDONLY);
	struct arb_os_file st;
	/* Room for the largest header, which is checked in a copy before anything is mapped. Aligned as the structs
	 * that are read from it. */
	char header[512] __attribute__((aligned(4096))) = {0};

	if (fd < 0)
		return fail_at(err, fd, "open", file->path);
	r = arb_os_stat(fd, &st);
	if (r < 0) {
		arb_fail(err, r, "cannot look at %s: %s", file->path, strerror(-r));
	} else if (!st.regular) {
		r = arb_fail(err, -EINVAL, "%s is not a regular file", file->path);
	} else if (header_size > sizeof(header) || st.size < header_size ||
		   arb_os_read(fd, header, header_size, 0) != (int)header_size) {
		r = arb_fail(err, -EBADMSG,
			"%s is truncated: it has %lld bytes, too few for a header; it is left as it is",
			file->path, (long long)st.size);
	} else {
		r = check(header, (size_t)st.size, file->path, err);
	}
	if (r == 0) {
		file->size = size_of(header);
		file->dev = st.dev;
		file->ino = st.ino;
		file->mode = st.mode;
		file->uid = st.uid;
		file->gid = st.gid;
		file->base = arb_os_map(fd, file->size, writable, &r);
		if (!file->base)
			arb_fail(err, r, "cannot map %s: %s", file->path, strerror(-r));
		else
			file->guard = arb_fault_guard(file->base, file->size);
	}
	arb_os_close(fd);
	errno = saved;
	return r;
}

int arb_file_alone(struct arb_file *file, const struct arb_file_plan *plan, struct gpuarb_error *err)
{
	int saved = errno, r = 0;
	void *base = mmap(NULL, plan->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (base == MAP_FAILED) {
		r = arb_fail(err, -errno, "no memory for the %zu bytes of a segment: %s", plan->size,
			strerror(errno));
	} else {
		plan->initialise(base, plan->argument);
		file->base = base;
		file->size = plan->size;
	}
	errno = saved;
	return r;
}

int arb_file_find(struct arb_file *file, struct arb_file_plan *plan, struct gpuarb_error *err)
{
	struct arb_os_file st = {0};
	int r, fd = arb_os_open(file->path, O_RDWR);

	if (fd == -ENOENT && plan) {
		r = arb_file_create(plan, err);
		if (r < 0 && r != -EEXIST)
			return r;
		fd = arb_os_open(file->path, O_RDWR);
	}
	if (fd < 0)
		return fail_at(err, fd, "open", file->path);
	r = arb_os_stat(fd, &st);
	if (r < 0)
		arb_fail(err, r, "cannot look at %s: %s", file->path, strerror(-r));
	else if (!st.regular)
		r = arb_fail(err, -EINVAL, "%s is not a regular file", file->path);
	file->dev = st.dev;
	file->ino = st.ino;
	arb_os_close(fd);
	return r;
}

int arb_file_open(const struct arb_file *file, int flags)
{
	struct arb_os_file st;
	int fd = arb_os_open(file->path, flags);

	if (fd >= 0 &&
		(arb_os_stat(fd, &st) < 0 || (file->ino && (st.ino != file->ino || st.dev != file->dev)))) {
		arb_os_close(fd);
		fd = -ESTALE;
	}
	return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP ? -ESTALE : fd;
}

void arb_file_unmap(struct arb_file *file)
{
	/* This comes first, because the next mapping at this address may not be ours. */
	arb_fault_unguard(file->guard);
	file->guard = 0;
	arb_os_unmap(file->base, file->size);
	file->base = NULL;
}

/* Attacks by locks on bytes. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "test/hostile/hostile.h"

/* Takes locks, with the rights that it has. */
static void lock_in(const char *path, uint64_t first, uint64_t length)
{
	int fd = open(path, O_RDWR), reads = fd < 0;
	struct flock l = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)first, .l_len = (off_t)length};

	if (reads) {
		fd = open(path, O_RDONLY);
		l.l_type = F_RDLCK;
	}
	/* Takes one byte after the other, so that locked bytes do not keep it from the free ones. */
	l.l_len = 1;
	for (uint64_t i = 0; fd >= 0 && i < length; i++) {
		l.l_start = (off_t)(first + i);
		fcntl(fd, F_OFD_SETLK, &l);
	}
}

/* Takes locks on the segment itself and on the file of its locks. */
static void lock(struct target *t, uint64_t first, uint64_t length)
{
	char path[PATH_MAX];

	lock_in(t->state, first, length);
	lock_in(locks_of(t, path), first, length);
}

void attack_lock_all(struct target *t)
{
	lock(t, 0, 4096);
}

void attack_lock_directory(struct target *t)
{
	lock(t, ARB_BYTE_DIRECTORY(256), 1);
}

void attack_lock_control(struct target *t)
{
	char path[PATH_MAX];
	const char *name = strrchr(t->state, '/');
	struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
	int fd;

	snprintf(path, sizeof(path), "%s/control%s", t->dir, name);
	fd = open(path, O_RDONLY);
	if (fd < 0 || fcntl(fd, F_OFD_SETLK, &l) != 0)
		perror("lock");
}

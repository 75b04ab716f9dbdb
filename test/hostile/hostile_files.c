/* Attacks on the files of a segment: they are truncated, removed, replaced, or made inaccessible. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/hostile/hostile.h"

const char *locks_of(const struct target *t, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/state/.%s.locks", t->dir, strrchr(t->state, '/') + 1);
	return path;
}

void attack_truncate_all(struct target *t)
{
	if (truncate(t->state, 0) != 0)
		perror("truncate");
}

void attack_truncate_half(struct target *t)
{
	if (truncate(t->state, (off_t)t->seg.file.size / 2) != 0)
		perror("truncate");
}

void attack_grow(struct target *t)
{
	if (truncate(t->state, (off_t)t->seg.file.size + 4096) != 0)
		perror("truncate");
}

void attack_punch(struct target *t)
{
	int fd = open(t->state, O_RDWR | O_CLOEXEC);

	if (fd < 0 ||
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)t->seg.file.size) != 0)
		perror("fallocate");
	close(fd);
}

void attack_unlink_it(struct target *t)
{
	unlink(t->state);
}

void attack_fifo(struct target *t)
{
	unlink(t->state);
	if (mkfifo(t->state, 0666) != 0)
		perror("mkfifo");
}

void attack_link_elsewhere(struct target *t)
{
	unlink(t->state);
	if (symlink("/etc/passwd", t->state) != 0)
		perror("symlink");
}

void attack_directory(struct target *t)
{
	unlink(t->state);
	if (mkdir(t->state, 0700) != 0)
		perror("mkdir");
}

void attack_closed(struct target *t)
{
	if (chmod(t->state, 0) != 0)
		perror("chmod");
}

void attack_unlink_locks(struct target *t)
{
	char path[PATH_MAX];

	unlink(locks_of(t, path));
}

void attack_fifo_locks(struct target *t)
{
	char path[PATH_MAX];

	attack_unlink_locks(t);
	if (mkfifo(locks_of(t, path), 0666) != 0)
		perror("mkfifo");
}

void attack_closed_locks(struct target *t)
{
	char path[PATH_MAX];

	if (chmod(locks_of(t, path), 0) != 0)
		perror("chmod");
}

/* Small files that are replaced as a whole: the limits files that the product reads. */
#include "test/world/world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TEXTS    16
#define OPEN     64
#define FIRST_FD 100000
#define ROOT     "/world/limits/"

/* Only the linker uses these names, so no header declares them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static struct text {
	char path[64], content[200];
	bool there;
	uint64_t inode, written_ns;
} texts[TEXTS];

/* Open files. A reader sees a file as it was when the reader opened it. */
static struct {
	struct text was;
	size_t at;
	bool used;
} opened[OPEN];

static uint64_t inodes;

static struct text *find(const char *path)
{
	for (unsigned i = 0; i < TEXTS; i++)
		if (!strcmp(texts[i].path, path))
			return &texts[i];
	return NULL;
}

void world_text(const char *path, const char *text)
{
	struct text *t = find(path);

	for (unsigned i = 0; !t && i < TEXTS; i++)
		if (!texts[i].path[0])
			t = &texts[i];
	if (!t)
		return;
	snprintf(t->path, sizeof(t->path), "%s", path);
	snprintf(t->content, sizeof(t->content), "%s", text ? text : "");
	t->there = text != NULL;
	t->inode = ++inodes;
	t->written_ns = world.now_ns;
}

int world_text_open(const char *path)
{
	const struct text *t = find(path);

	for (unsigned i = 0; t && t->there && i < OPEN; i++)
		if (!opened[i].used) {
			opened[i].was = *t;
			opened[i].at = 0;
			opened[i].used = true;
			return (int)(FIRST_FD + i);
		}
	errno = ENOENT;
	return -1;
}

long world_text_read(int fd, void *buffer, size_t size)
{
	unsigned i = (unsigned)(fd - FIRST_FD);
	size_t left;

	if (i >= OPEN || !opened[i].used) {
		errno = EBADF;
		return -1;
	}
	left = strlen(opened[i].was.content) - opened[i].at;
	size = size < left ? size : left;
	memcpy(buffer, opened[i].was.content + opened[i].at, size);
	opened[i].at += size;
	return (long)size;
}

bool world_text_close(int fd)
{
	unsigned i = (unsigned)(fd - FIRST_FD);

	if (i >= OPEN)
		return false;
	opened[i].used = false;
	return true;
}

void world_texts_end(void)
{
	memset(texts, 0, sizeof(texts));
	memset(opened, 0, sizeof(opened));
	inodes = 0;
}

static int answer(const struct text *t, struct stat *st)
{
	if (!t || !t->there) {
		errno = ENOENT;
		return -1;
	}
	memset(st, 0, sizeof(*st));
	st->st_dev = 1;
	st->st_ino = t->inode;
	st->st_mode = S_IFREG | 0644;
	st->st_size = (off_t)strlen(t->content);
	st->st_mtim = st->st_ctim =
		(struct timespec){(time_t)(t->written_ns / WORLD_S), (long)(t->written_ns % WORLD_S)};
	return 0;
}

int __real_stat(const char *path, struct stat *st);
int __real_fstat(int fd, struct stat *st);

int __wrap_stat(const char *path, struct stat *st)
{
	if (!world.current || strncmp(path, ROOT, strlen(ROOT)))
		return __real_stat(path, st);
	world_spend(world.weather.call_ns);
	world_meet();
	return answer(find(path), st);
}

int __wrap_fstat(int fd, struct stat *st)
{
	unsigned i = (unsigned)(fd - FIRST_FD);

	return i < OPEN ? answer(&opened[i].was, st) : __real_fstat(fd, st);
}

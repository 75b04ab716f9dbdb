#include "test/world/traces.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char file[PATH_MAX];
static uint64_t bound, written;
static bool begun;

bool world_traces_to(const char *path, uint64_t most)
{
	char folder[PATH_MAX], whole[PATH_MAX];
	char *slash;

	snprintf(folder, sizeof(folder), "%s%s", *path == '/' ? "" : "./", path);
	slash = strrchr(folder, '/');
	*slash = '\0';
	if (!realpath(*folder ? folder : "/", whole))
		return false;
	bound = most;
	return snprintf(file, sizeof(file), "%s/%s", whole, slash + 1) < (int)sizeof(file);
}

char *world_traces_path(void)
{
	return *file ? file : NULL;
}

void world_traces_begin(void)
{
	begun = false;
	written = 0;
}

/* Takes no virtual time, so that recording changes nothing in the world. Only the first process that records writes. */
int world_traces_append(const char *path, bool create, const void *data, size_t size)
{
	FILE *f;

	if (strcmp(path, file) != 0)
		return 0;
	if (create && begun)
		return -EEXIST;
	if (size > bound - written)
		size = bound - written;
	f = fopen(file, create ? "wb" : "ab");
	if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) {
		fprintf(stderr, "world: %s cannot be written\n", file);
		exit(2);
	}
	begun = true;
	written += size;
	return 0;
}

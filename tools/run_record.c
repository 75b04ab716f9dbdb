/* gpuarb-run --record: checks the trace's file before the program starts. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/cli.h"
#include "tools/run.h"
#include "preload/book/codec.h"

/* Removes an earlier trace; any other file is an error. */
static void remove_earlier(const char *path, bool only_look)
{
	char begin[sizeof(TRACE_MAGIC)] = "";
	FILE *file = fopen(path, "rb");
	size_t n;

	if (!file && errno == ENOENT)
		return;
	if (!file)
		die("--record: %s cannot be written: %s", path, strerror(errno));
	n = fread(begin, 1, strlen(TRACE_MAGIC), file);
	fclose(file);
	if (n && strncmp(begin, TRACE_MAGIC, strcspn(TRACE_MAGIC, "1")) != 0)
		die("--record: %s exists and is no trace: it is left as it is", path);
	if (!only_look && unlink(path) != 0)
		die("--record: %s cannot be replaced: %s", path, strerror(errno));
}

void run_record(const struct run_options *o)
{
	char path[PATH_MAX], folder[PATH_MAX];
	char *slash;
	int n;

	if (!*o->record)
		die_usage("--record needs the name of a file");
	if (o->record[0] != '/' && !getcwd(folder, sizeof(folder)))
		die("--record: %s: %s", o->record, strerror(errno));
	n = o->record[0] == '/' ? snprintf(path, sizeof(path), "%s", o->record)
				: snprintf(path, sizeof(path), "%s/%s", folder, o->record);
	if (n >= (int)sizeof(path))
		die("--record: the name is too long");
	snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	slash[slash == folder] = '\0';
	if (access(folder, W_OK | X_OK) != 0)
		die("--record: %s cannot be written: %s", path, strerror(errno));
	remove_earlier(path, o->dry_run);
	run_set(o, "GPUARB_TRACE", path);
}

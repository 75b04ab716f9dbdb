/* Checks what this machine needs before a container can be held to its limits. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "gpuarb/control.h"

#include "tools/runtime/runtime.h"

static void directory(const char *path, bool writable, struct stat *st)
{
	struct statvfs fs;

	if (stat(path, st) != 0 || statvfs(path, &fs) != 0)
		runtime_fail(
			"%s: %s; gpuarb-node makes the directories of the segments", path, strerror(errno));
	if (!S_ISDIR(st->st_mode))
		runtime_fail("%s is not a directory", path);
	if (writable && (fs.f_flag & ST_RDONLY))
		runtime_fail("%s is on a file system that is mounted read-only: no client could join", path);
}

/* Checks the library: if it may not be executed, the dynamic linker ignores it and the program runs without limits.
 */
static void library(const char *path)
{
	struct statvfs fs;

	if (access(path, R_OK) != 0 || statvfs(path, &fs) != 0)
		runtime_fail("the library %s: %s", path, strerror(errno));
	if (fs.f_flag & ST_NOEXEC)
		runtime_fail("the library %s is on a file system that is mounted noexec: programs would run "
			     "without it",
			path);
}

int runtime_node_gpus(const struct runtime_conf *conf)
{
	static char names[RUNTIME_GPUS_MOST][ARB_UUID_BYTES];
	struct gpuarb_error err;

	return gpuarb_control_list(conf->dir, names, RUNTIME_GPUS_MOST, &err);
}

gid_t runtime_node_check(const struct runtime_conf *conf, bool user_namespace, bool is_root)
{
	static char names[RUNTIME_GPUS_MOST][ARB_UUID_BYTES];
	char path[PATH_MAX + 16];
	struct gpuarb_error err;
	struct stat st;
	gid_t gid = 0;
	int n;

	library(conf->library);
	snprintf(path, sizeof(path), "%s/control", conf->dir);
	directory(path, false, &st);
	snprintf(path, sizeof(path), "%s/state", conf->dir);
	directory(path, true, &st);
	n = gpuarb_control_list(conf->dir, names, RUNTIME_GPUS_MOST, &err);
	if (n < 0)
		runtime_fail("%s", err.text);
	for (int i = 0; i < n && i < RUNTIME_GPUS_MOST; i++) {
		char file[PATH_MAX + 16 + ARB_UUID_BYTES];

		snprintf(file, sizeof(file), "%s/%.*s", path, ARB_UUID_BYTES - 1, names[i]);
		if (stat(file, &st) != 0)
			continue;
		/* The ids of a container with a user namespace mean nothing outside. */
		if (user_namespace && !(st.st_mode & S_IWOTH))
			runtime_fail("%s: a container with a user namespace of its own cannot join; "
				     "segment_mode = 0666 "
				     "lets everybody",
				file);
		if (st.st_mode & S_IWOTH)
			continue;
		gid = st.st_gid;
		/* No container is given the group root. */
		if (!gid && !is_root)
			runtime_fail("%s belongs to the group root: a container that is not root cannot "
				     "join; gpuarb-node gives "
				     "it to the group gpuarb",
				file);
	}
	return gid;
}

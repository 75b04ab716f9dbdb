#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb/abi.h"
#include "gpuarb/control.h"
#include "gpuarb/places.h"

#include "tools/common/cli.h"
#include "tools/run.h"

/* Prints a mount as a flag. The shell puts it on a command line and divides it at spaces. */
static void mount(const char *path, const char *inside, const char *mode)
{
	char whole[PATH_MAX];

	if (!realpath(path, whole))
		die("%s: %s; gpuarb-node makes the directories of the segments", path, strerror(errno));
	if (strpbrk(whole, RUN_SPECIAL ":"))
		die("%s cannot be written as a flag: its name has a space, a colon or another sign that a "
		    "shell or "
		    "an engine takes for its own",
			whole);
	run_print("-v %s:%s:%s\n", whole, inside, mode);
}

void run_container(const struct run_options *o, const char *library)
{
	const char *dir = gpuarb_control_dir(o->dir);
	char path[PATH_MAX];

	mount(library, CLI_LIBRARY_INSIDE, "ro");
	snprintf(path, sizeof(path), "%s/state", dir);
	mount(path, ARB_DIR_DEFAULT "/state", "rw");
	snprintf(path, sizeof(path), "%s/control", dir);
	mount(path, ARB_DIR_DEFAULT "/control", "ro");
	run_set(o, "GPUARB_DIR", ARB_DIR_DEFAULT);
	run_set(o, "LD_PRELOAD", CLI_LIBRARY_INSIDE);
}

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "gpuarb/control.h"

#include "cli.h"
#include "cli_gpu.h"
#include "config.h"
#include "control.h"
#include "run.h"
#include "segment.h"

#define GPUS_MOST 64

const char *run_check_gpu(const struct run_options *o)
{
	const char *uuid;
	int count;

	if (strcmp(o->gpu, "auto") == 0)
		return o->gpu;
	uuid = cli_gpu_known(o->gpu, &count);
	if (!uuid && count >= 0)
		die("there is no GPU %.70s; the driver knows %d, see gpuarb-node --list", o->gpu, count);
	/* Without a driver to ask, the program's own will say what it thinks of it. */
	return uuid ? uuid : o->gpu;
}

static void compare(const char *dir, const char *gpu, const char *wanted)
{
	struct gpuarb_error err;
	char now[64];

	if (gpuarb_control_get(dir, gpu, NULL, "policy", now, sizeof(now), &err) == 0 && strcmp(now, wanted))
		die("the policy of %s is %s already; for everybody on it, 'gpuarb-set --gpu %s policy=%s' "
		    "changes it",
			gpu, now, gpu, wanted);
}

void run_check_policy(const struct run_options *o)
{
	static char names[GPUS_MOST][ARB_UUID_BYTES];
	struct gpuarb_error err;
	char wanted[64];
	int64_t value;
	int n;

	/* As it is shown, however it was written. */
	if (arb_config_parse(ARB_KEY_POLICY, o->policy, "", &value, &err) < 0)
		die("%s", err.text);
	arb_config_format(ARB_KEY_POLICY, value, wanted, sizeof(wanted));
	if (o->gpu && arb_segment_name_ok(o->gpu)) {
		compare(o->dir, o->gpu, wanted);
		return;
	}
	n = gpuarb_control_list(o->dir, names, GPUS_MOST, &err);
	for (int i = 0; i < n && i < GPUS_MOST; i++)
		compare(o->dir, names[i], wanted);
}

/* The file system that a directory is, or would be, on. */
static int room_at(const char *dir, struct statvfs *fs)
{
	char path[PATH_MAX], *slash;

	snprintf(path, sizeof(path), "%s", dir);
	while (statvfs(path, fs) != 0) {
		slash = strrchr(path, '/');
		if (errno != ENOENT || !slash || slash == path)
			return -errno;
		*slash = '\0';
	}
	return 0;
}

void run_check_room(const struct run_options *o)
{
	const char *dir = arb_control_dir(o->dir);
	char names[1][ARB_UUID_BYTES], needed[32], there[32];
	struct gpuarb_error err = {0};
	struct arb_config config;
	unsigned long long free_bytes, bytes;
	uint32_t slots;
	struct statvfs fs;

	/* With one GPU there mostly is but one; and what is there needs no more room. */
	if (gpuarb_control_list(dir, names, 1, &err) != 0 || room_at(dir, &fs) < 0)
		return;
	if (arb_config_load(&config, NULL, false, &err) < 0)
		die("%s", err.text);
	slots = (uint32_t)config.value[ARB_KEY_SLOTS];
	arb_config_free(&config);
	bytes = arb_segment_size(slots, arb_segment_accounts_for(slots), ARB_EVENTS) +
		sizeof(struct arb_control);
	free_bytes = (unsigned long long)fs.f_bavail * fs.f_frsize;
	if (free_bytes < bytes)
		die("no room in %s: the segments of a GPU take %s and %s are free; make room, or have fewer "
		    "slots "
		    "(GPUARB_SLOTS, %u now)",
			dir, cli_bytes(bytes, needed, sizeof(needed)),
			cli_bytes(free_bytes, there, sizeof(there)), slots);
}

/* Checks whether the segments exist where they should be, or can be made. If not, on_error says what follows. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"
#include "gpuarb/rights.h"

#include "tools/common/cli.h"
#include "tools/run.h"

/* Whether the state segment that the program will use exists, where that can be told. */
static bool there_is(
	const struct run_options *o, const char *dir, char path[PATH_MAX], struct gpuarb_error *err)
{
	char names[1][ARB_UUID_BYTES];
	bool named = o->gpu && gpuarb_gpu_name_ok(o->gpu);
	int n = gpuarb_control_list(dir, names, 1, err);

	snprintf(path, PATH_MAX, "%s/state/%s", dir, named ? o->gpu : names[0]);
	return n > 0 && (named || n == 1) && access(path, F_OK) == 0;
}

/* Shortens a path to the part that exists. */
static void nearest(char *path)
{
	char *slash;

	while (access(path, F_OK) != 0 && errno == ENOENT && (slash = strrchr(path, '/')) != NULL)
		slash[slash == path] = '\0';
}

static int make_at(const char *dir, uint32_t slots, struct gpuarb_error *err)
{
	unsigned long long bytes = gpuarb_control_bytes(slots);
	char path[PATH_MAX], needed[32], free_text[32], hint[384];
	unsigned long long free_bytes;
	struct statvfs fs;

	snprintf(path, sizeof(path), "%s/state", dir);
	nearest(path);
	if (faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) != 0 || statvfs(path, &fs) != 0) {
		err->code = -errno;
		snprintf(err->text, sizeof(err->text), "%.200s cannot be written to: %s%s", path,
			strerror(-err->code), gpuarb_rights_hint(path, err->code, hint, sizeof(hint)));
		return err->code;
	}
	free_bytes = (unsigned long long)fs.f_bavail * fs.f_frsize;
	if (free_bytes >= bytes)
		return 0;
	err->code = -ENOSPC;
	snprintf(err->text, sizeof(err->text),
		"no room in %.200s: the segments of a GPU take %s and %s are free; make room, or have fewer "
		"slots "
		"(GPUARB_SLOTS, %u now)",
		dir, cli_bytes(bytes, needed, sizeof(needed)),
		cli_bytes(free_bytes, free_text, sizeof(free_text)), slots);
	return err->code;
}

/* Returns 0, or an error that says what prevents it. */
static int look(const struct run_options *o, uint32_t slots, struct gpuarb_error *err)
{
	const char *dir = gpuarb_control_dir(o->dir);
	char path[PATH_MAX], hint[384];

	err->code = 0;
	if (there_is(o, dir, path, err)) {
		if (faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) == 0)
			return 0;
		err->code = -errno;
		snprintf(err->text, sizeof(err->text), "cannot open %.200s: %s%s", path, strerror(-err->code),
			gpuarb_rights_hint(path, err->code, hint, sizeof(hint)));
		return err->code;
	}
	return err->code < 0 ? err->code : make_at(dir, slots, err);
}

static bool is_closed(uint32_t *slots)
{
	struct gpuarb_error err;
	struct gpuarb_config config;
	bool closed;

	if (gpuarb_config_load(&config, NULL, false, &err) < 0)
		die("%s", err.text);
	closed = config.value[ARB_KEY_ON_ERROR] == 1;
	*slots = (uint32_t)config.value[ARB_KEY_SLOTS];
	gpuarb_config_free(&config);
	return closed;
}

void run_check_directory(const struct run_options *o)
{
	struct gpuarb_error err;
	uint32_t slots;

	/* With on_error = open the program itself reports that it goes on without a segment, when it first uses a
	 * GPU. */
	if (is_closed(&slots) && !o->container_flags && look(o, slots, &err) < 0)
		die("%s; nothing is started (on_error = closed)", err.text);
}

bool run_without_segment(const struct gpuarb_error *err, const char *then)
{
	uint32_t slots;

	switch (err->code) {
	case -ENOSPC:
	case -EROFS:
	case -EACCES:
	case -EPERM:
		if (is_closed(&slots))
			die("%s; nothing is started (on_error = closed)", err->text);
		fprintf(stderr, "%s: %s: %s (on_error = open)\n", program_invocation_short_name, err->text,
			then);
		return true;
	default:
		return false;
	}
}

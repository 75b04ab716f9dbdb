/*
 * Writes a CDI spec (Container Device Interface). With it docker, podman, containerd and CRI-O make any unmodified
 * image a client, by the name of a device. NVIDIA's own spec says which GPU and driver a container gets; this one
 * adds the library, the segments and the limit.
 */
#include <argp.h>
#include <errno.h>
#include <grp.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"
#include "gpuarb/places.h"

#include "tools/common/cli.h"
#include "tools/common/cli_gpu.h"
#include "tools/common/nvml.h"

#define KIND "gpuarb.dev/gpu"
/* Paths inside the container, whatever they are outside. */
#define INSIDE_DIR     ARB_DIR_DEFAULT
#define INSIDE_PRELOAD "/etc/ld.so.preload"

struct options {
	const char *dir, *library, *output, *account, *group;
	struct cli_gpu_names wanted;
	struct nvml_gpu gpus[NVML_GPUS_MOST];
	int ngpus;
	bool percent[101];
	bool file_preload;
};

/* Returns the library's real path on this machine, which lasts. */
static const char *own_library(void)
{
	static char found[PATH_MAX];
	const char *path = cli_library("; name it with --library");

	if (!realpath(path, found))
		die("%s: %s", path, strerror(errno));
	return found;
}

/* Checks a path that every container is made with: if it were missing, no container would start. */
static void must_exist(const char *path, const char *what)
{
	if (*path != '/')
		die_usage("%s must be given with its full path, not %s", what, path);
	if (access(path, F_OK) != 0)
		die("%s %s: %s; gpuarb-node makes the directories of the segments", what, path,
			strerror(errno));
}

static json_t *must(json_t *made)
{
	if (!made)
		die("out of memory, or text that is not UTF-8");
	return made;
}

static void add(json_t *array, json_t *item)
{
	if (json_array_append_new(array, must(item)) != 0)
		die("out of memory");
}

static json_t *mount(const char *host, const char *inside, const char *mode, const char *exec)
{
	json_t *options = must(json_pack("[s, s, s, s]", "bind", mode, "nosuid", "nodev"));

	if (exec)
		add(options, json_string(exec));
	return must(json_pack(
		"{s: s, s: s, s: o}", "hostPath", host, "containerPath", inside, "options", options));
}

static json_t *variable(const char *name, const char *value)
{
	return must(json_sprintf("%s=%s", name, value));
}

/* A file for the container's dynamic linker, next to the library: programs that clean their environment still obey
 * it. */
static const char *preload_file(const char *library)
{
	static char path[PATH_MAX];
	FILE *file;
	char line[PATH_MAX] = "";

	snprintf(path, sizeof(path), "%.*s/ld.so.preload", (int)(strrchr(library, '/') - library), library);
	file = fopen(path, "re");
	if (!file || !fgets(line, sizeof(line), file) || strcmp(line, CLI_LIBRARY_INSIDE "\n"))
		die("%s must exist and hold the one line " CLI_LIBRARY_INSIDE, path);
	fclose(file);
	return path;
}

/* What each device adds to a container. */
static json_t *common(const struct options *o)
{
	json_t *env = must(json_array()), *mounts = must(json_array());
	char path[PATH_MAX];

	add(mounts, mount(o->library, CLI_LIBRARY_INSIDE, "ro", NULL));
	snprintf(path, sizeof(path), "%s/state", o->dir);
	must_exist(path, "the directory");
	add(mounts, mount(path, INSIDE_DIR "/state", "rw", "noexec"));
	snprintf(path, sizeof(path), "%s/control", o->dir);
	must_exist(path, "the directory");
	add(mounts, mount(path, INSIDE_DIR "/control", "ro", "noexec"));
	if (o->file_preload)
		add(mounts, mount(preload_file(o->library), INSIDE_PRELOAD, "ro", "noexec"));
	else
		add(env, variable("LD_PRELOAD", CLI_LIBRARY_INSIDE));
	add(env, variable("GPUARB_DIR", INSIDE_DIR));
	add(env, variable("GPUARB_ACCOUNT", o->account));
	return must(json_pack("{s: o, s: o}", "env", env, "mounts", mounts));
}

/* Writes one device; uuid NULL: for all GPUs that the container sees. */
static void device(json_t *devices, const char *name, const char *uuid, int percent)
{
	json_t *env = must(json_array());
	char number[16];

	if (uuid)
		add(env, variable("CUDA_VISIBLE_DEVICES", uuid));
	if (percent) {
		snprintf(number, sizeof(number), "%d", percent);
		add(env, variable("GPUARB_CORE_LIMIT", number));
	}
	/* "all" without limits changes nothing, but an engine may refuse a file with an empty list of changes. */
	if (!uuid && !percent)
		add(env, variable("GPUARB_CDI", "all"));
	add(devices, json_pack("{s: s, s: {s: o}}", "name", name, "containerEdits", "env", env));
}

static void devices_named(json_t *devices, const struct options *o, const char *name, const char *uuid)
{
	char with[160];

	device(devices, name, uuid, 0);
	for (int percent = 1; percent <= 100; percent++)
		if (o->percent[percent]) {
			snprintf(with, sizeof(with), "%s-%d", name, percent);
			device(devices, with, uuid, percent);
		}
}

static json_t *spec(const struct options *o)
{
	json_t *devices = must(json_array()), *edits = common(o);

	for (int i = 0; i < o->ngpus; i++) {
		if (o->gpus[i].index[0])
			devices_named(devices, o, o->gpus[i].index, o->gpus[i].uuid);
		devices_named(devices, o, o->gpus[i].uuid, o->gpus[i].uuid);
	}
	devices_named(devices, o, "all", NULL);
	if (o->group) {
		struct group *group = getgrnam(o->group);

		if (!group)
			die("there is no group %s", o->group);
		if (json_object_set_new(
			    edits, "additionalGids", must(json_pack("[I]", (json_int_t)group->gr_gid))) != 0)
			die("out of memory");
	}
	/* Names that begin with a digit need 0.5.0, groups need 0.7.0. The version is not newer than needed, so that
	 * old engines can read the file. */
	return must(json_pack("{s: s, s: s, s: o, s: o}", "cdiVersion", o->group ? "0.7.0" : "0.5.0", "kind",
		KIND, "devices", devices, "containerEdits", edits));
}

/* Writes a temporary file and moves it into place, so that an engine reads either the old file or the new one. */
static void write_spec(const struct options *o, json_t *json)
{
	char temporary[PATH_MAX];
	FILE *file = stdout;
	int failed;

	if (o->output) {
		/* Engines read *.json, and so not this file. */
		snprintf(temporary, sizeof(temporary), "%s.new-%ld", o->output, (long)getpid());
		file = fopen(temporary, "we");
		if (!file)
			die("cannot write %s: %s", temporary, strerror(errno));
	}
	failed = json_dumpf(json, file, JSON_INDENT(1)) != 0 || fputc('\n', file) == EOF || fflush(file) != 0;
	if (!o->output) {
		if (failed)
			die("cannot write the spec: %s", strerror(errno));
		return;
	}
	failed |= fchmod(fileno(file), 0644) != 0;
	failed |= fclose(file) != 0;
	if (failed || rename(temporary, o->output) != 0) {
		int code = errno;

		unlink(temporary);
		die("cannot write %s: %s", o->output, strerror(code));
	}
}

/* 25,50 or 10-90 */
static void percents(struct options *o, char *text)
{
	memset(o->percent, 0, sizeof(o->percent));
	for (char *save, *item = strtok_r(text, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		char *dash = strchr(item, '-');
		long from, to;

		if (dash)
			*dash = '\0';
		from = cli_number("--percents", item, 1, 100, "percent");
		to = dash ? cli_number("--percents", dash + 1, from, 100, "percent") : from;
		for (; from <= to; from++)
			o->percent[from] = true;
	}
}

static const struct argp_option option_table[] = {
	{CLI_OPTION(OUTPUT), "FILE", 0,
		"Write the spec to this file (default: standard output); engines read /etc/cdi and /run/cdi",
		0},
	{CLI_OPTION(PERCENTS), "LIST", 0,
		"Shares to make devices for, such as 25,50 or 10-90 (default: 1-100)", 0},
	{CLI_OPTION(GPU), "GPU", 0,
		"Describe this GPU: its number, its UUID, or the beginning of its UUID; may be repeated (default: "
		"all that NVML finds)",
		0},
	CLI_OPTION_DIR(0),
	{CLI_OPTION(LIBRARY), "FILE", 0, "The preloaded library on this machine (default: the one installed)",
		0},
	{CLI_OPTION(LD_SO_PRELOAD), NULL, 0, "Preload by /etc/ld.so.preload instead of LD_PRELOAD", 0},
	{CLI_OPTION(ACCOUNT), "NAME", 0,
		"Account of the containers (default: @container, each is an account of its own)", 0},
	{CLI_OPTION(GROUP), "GROUP", 0,
		"Give containers this group, so that they may join without being root", 0},
	{0},
};

static error_t on_option(int key, char *text, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case OPT_OUTPUT:
		o->output = text;
		return 0;
	case OPT_PERCENTS:
		percents(o, text);
		return 0;
	case OPT_GPU:
		cli_gpu_add(state, &o->wanted, text);
		return 0;
	case OPT_LIBRARY:
		o->library = text;
		return 0;
	case OPT_LD_SO_PRELOAD:
		o->file_preload = true;
		return 0;
	case OPT_ACCOUNT:
		o->account = cli_account("--account", text);
		return 0;
	case OPT_GROUP:
		o->group = text;
		return 0;
	default:
		return cli_option(key, text, state, &o->dir, NULL);
	}
}

int main(int argc, char **argv)
{
	static const struct argp parser = {option_table, on_option, NULL,
		"Writes a CDI spec, so that container engines know gpuarb's devices by name.\v"
		"  gpuarb-cdi --output /etc/cdi/gpuarb.json\n"
		"  podman run --device nvidia.com/gpu=0 --device " KIND "=0-30 IMAGE\n\n"
		"Devices: a GPU's number or UUID, or 'all'; with -N behind it, N percent of the GPU's "
		"time.\n\n"
		"Exit status: 0 done, 1 failed, 2 usage.",
		NULL, NULL, NULL};
	static struct options o = {.account = "@container"};
	const char *why;
	json_t *json;

	memset(o.percent + 1, true, 100);
	cli_parse(&parser, argc, argv, 0, &o);
	for (; o.ngpus < o.wanted.count; o.ngpus++)
		o.gpus[o.ngpus] = cli_gpu_must_exist(o.dir, o.wanted.name[o.ngpus]);
	if (!o.wanted.count) {
		o.ngpus = nvml_list(o.gpus, &why);
		if (o.ngpus < 0)
			die("%s; name the GPUs with --gpu", why);
		if (o.ngpus == 0)
			die("NVML finds no GPU");
	}
	o.dir = gpuarb_control_dir(o.dir);
	if (!o.library)
		o.library = own_library();
	must_exist(o.library, "the library");
	json = spec(&o);
	write_spec(&o, json);
	json_decref(json);
	return 0;
}

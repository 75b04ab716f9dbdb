/*
 * Sets up a node: an administrator makes the directories and segments of its GPUs before any client comes. A segment
 * that the first client makes belongs to that client's user, and the system removes it with the user's other files in
 * shared memory when the user's last session ends.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"
#include "gpuarb/promise.h"

#include "tools/common/cli.h"
#include "tools/common/cli_gpu.h"
#include "tools/node.h"
#include "tools/common/nvml.h"

struct options {
	const char *dir;
	struct cli_gpu_names wanted;
	struct nvml_gpu gpus[NVML_GPUS_MOST];
	int ngpus;
	bool list, replace, check;
};

/* Each client holds a lock on a byte, which the kernel shows here. Read locks, of users who may only look, do not
 * count. */
static bool is_locked(const char *path)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool used = false;

	if (fd < 0)
		return errno != ENOENT;
	if (fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK)
		used = true;
	close(fd);
	return used;
}

/* The files of a GPU, in the order in which they are removed: no client joins a segment that has no name any more. */
static const char *const places[] = {"%s/state/%s", "%s/state/.%s.locks", "%s/control/%s"};
#define PLACES (sizeof(places) / sizeof(places[0]))

static const char *place(size_t i, const char *dir, const char *gpu, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, places[i], dir, gpu);
	return path;
}

/* Versions up to 2 locked bytes of the segment itself. */
static bool in_use(const char *dir, const char *gpu)
{
	char path[PATH_MAX];

	return is_locked(place(0, dir, gpu, path)) || is_locked(place(1, dir, gpu, path));
}

/* Removes what stands at `path`, whatever it is; a directory that is not empty is moved aside. */
static void take_away(const char *dir, const char *path)
{
	char aside[PATH_MAX];

	if (unlink(path) == 0 || errno == ENOENT || rmdir(path) == 0)
		return;
	snprintf(aside, sizeof(aside), "%s/broken-%d", dir, (int)getpid());
	if (rename(path, aside) != 0)
		die("cannot remove %s: %s", path, strerror(errno));
}

/* Removes what stands in a segment's place and is no file of its own, such as a FIFO or a link, before rights are
 * set. */
static void remove_foreign(const char *dir, const char *gpu)
{
	char path[PATH_MAX];
	struct stat st;

	for (size_t i = 0; i < PLACES; i++) {
		place(i, dir, gpu, path);
		if (lstat(path, &st) != 0 || (S_ISREG(st.st_mode) && st.st_nlink == 1))
			continue;
		take_away(dir, path);
		printf("%s: removed, because it was no file of its own\n", path);
	}
}

/* Nobody can use a segment that is truncated or damaged; clients that had joined it go on alone. */
static bool is_broken(int error)
{
	return error == -EBADMSG;
}

/* Removes segments of another version once the last of their clients has ended, and broken ones at once. */
static void make_way(const char *dir, const char *gpu, int error, const char *why)
{
	char path[PATH_MAX];

	if (!is_broken(error) && in_use(dir, gpu))
		die("%s; it is still in use", why);
	for (size_t i = 0; i < PLACES; i++)
		take_away(dir, place(i, dir, gpu, path));
	if (is_broken(error))
		printf("%s: removed segments that nobody could use\n", gpu);
	else
		printf("%s: segments of another version removed, nobody used them\n", gpu);
}

/* Notes the GPU's memory, so that memory can be promised before the first program asks the driver. */
static void tell_memory(const char *dir, const struct nvml_gpu *gpu)
{
	struct gpuarb_promiser *promiser;
	struct gpuarb_error err;

	if (gpu->memory_bytes &&
		gpuarb_promiser_open(dir, gpu->uuid, gpu->memory_bytes, &promiser, &err) == 0)
		gpuarb_promiser_close(promiser);
}

static void make(const struct options *o, const char *dir, const struct nvml_gpu *gpu,
	const struct gpuarb_config *config)
{
	struct gpuarb_error err = {0};
	char name[CLI_GPU_TEXT];
	unsigned slots;
	int r;

	snprintf(name, sizeof(name), *gpu->index ? "%.63s (GPU %s)" : "%.63s", gpu->uuid, gpu->index);
	r = gpuarb_control_create(dir, gpu->uuid, config, &slots, &err);
	if (o->replace && (r == -EPROTO || is_broken(r))) {
		make_way(dir, gpu->uuid, r, err.text);
		r = gpuarb_control_create(dir, gpu->uuid, config, &slots, &err);
	}
	if (r < 0)
		die("%s", err.text);
	printf("%s: ready, %u slots\n", name, slots);
	tell_memory(dir, gpu);
}

static const struct argp_option option_table[] = {
	{CLI_OPTION(GPU), "GPU", 0,
		"Make the segment of this GPU: its number, its UUID, or the beginning of its UUID; may be repeated "
		"(default: all that NVML finds)",
		0},
	CLI_OPTION_DIR(0),
	{CLI_OPTION(REPLACE), NULL, 0,
		"Replace segments that are broken, and those of another version that nobody uses any more; give "
		"segments the rights and the group that they lack",
		0},
	{CLI_OPTION(CHECK), NULL, 0,
		"Make nothing; look whether everything is there that programs need here, and print the command "
		"for what is missing",
		0},
	{CLI_OPTION(LIST), NULL, 0, "Only list the GPUs: number, UUID, bytes of memory, name", 0},
	{0},
};

static error_t on_option(int key, char *text, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case OPT_GPU:
		cli_gpu_add(state, &o->wanted, text);
		return 0;
	case OPT_REPLACE:
		o->replace = true;
		return 0;
	case OPT_LIST:
		o->list = true;
		return 0;
	case OPT_CHECK:
		o->check = true;
		return 0;
	case ARGP_KEY_END:
		if (o->check && (o->list || o->replace))
			argp_error(state, "--check makes nothing and lists nothing: no --replace, no --list");
		return 0;
	default:
		return cli_option(key, text, state, &o->dir, NULL);
	}
}

/* Finds all GPUs before anything is made for the first. Returns NULL, or why there is none. */
static const char *find_gpus(struct options *o)
{
	const char *why = NULL;

	for (; o->ngpus < o->wanted.count; o->ngpus++)
		o->gpus[o->ngpus] = cli_gpu_must_exist(o->dir, o->wanted.name[o->ngpus]);
	if (o->wanted.count)
		return NULL;
	o->ngpus = nvml_list(o->gpus, &why);
	return o->ngpus < 0 ? why : o->ngpus == 0 ? "NVML finds no GPU" : NULL;
}

int main(int argc, char **argv)
{
	static const struct argp parser = {option_table, on_option, NULL,
		"Makes the directories and segments of this machine's GPUs, for the members of the group "
		"gpuarb (which it makes, too) or with the rights that arbiter.conf says.\v"
		"Root runs it once after the machine has started, before the first client. What root has made "
		"before is left as it is; what a user has made before is given to root and the group.\n\n"
		"Exit status: 0 done, 1 failed or (--check) something is missing, 2 usage.",
		NULL, NULL, NULL};
	static struct options o;
	struct gpuarb_config config;
	struct gpuarb_error err = {0};
	struct node_group group;
	const char *dir, *why;

	cli_parse(&parser, argc, argv, 0, &o);
	dir = gpuarb_control_dir(o.dir);
	why = find_gpus(&o);
	if (o.check)
		return node_check(dir, o.gpus, why ? 0 : o.ngpus, why);
	if (why)
		die("%s", why);
	if (o.list) {
		for (int i = 0; i < o.ngpus; i++)
			printf("%s\t%s\t%llu\t%s\n", o.gpus[i].index, o.gpus[i].uuid,
				(unsigned long long)o.gpus[i].memory_bytes, o.gpus[i].name);
		return 0;
	}
	if (gpuarb_config_load(&config, NULL, false, &err) < 0)
		die("%s", err.text);
	group = node_group_find(dir, &config);
	node_rights_directories(dir, &group, &config);
	for (int i = 0; i < o.ngpus; i++) {
		if (o.replace)
			remove_foreign(dir, o.gpus[i].uuid);
		node_rights_segments(dir, o.gpus[i].uuid, &group, &config, o.replace);
		make(&o, dir, &o.gpus[i], &config);
	}
	node_say_next(&group);
	gpuarb_config_free(&config);
	return 0;
}

/*
 * Keeps a note about each container while the container exists: a directory with what it was granted. A process that
 * starts a container holds a lock from reading the notes to writing its own, so that of two that start at once the
 * second sees the first. A note whose bundle is gone belongs to a container that nobody deleted, and is removed. So
 * is a note whose container was never made: until the real runtime has made the container, the starter holds a lock
 * on a file in the note's directory, which the kernel releases when the starter dies.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/common/cli.h"
#include "tools/runtime/runtime.h"

#define PLACE  "containers"
#define NOTE   "grant.json"
#define STARTS "starts"
/* The holder of the lock only reads some files and segments. If it takes longer than this, it was stopped. */
#define LOCK_SECONDS 20

/* The file of the container that this process starts. */
static int starts_fd = -1;

/* Makes a directory's name of a container's name, as OCI allows it. Returns false if it cannot be one. */
static bool make_key(const struct runtime_args *args, char *key, size_t size)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-.";
	uint32_t hash = 2166136261u;

	if (!*args->id || args->id[0] == '.' || args->id[strspn(args->id, allowed)] || strlen(args->id) > 200)
		return false;
	/* Two engines, or two namespaces of an engine, have different root directories. */
	for (const char *c = args->root ? args->root : ""; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 16777619u;
	snprintf(key, size, "%s@%08x", args->id, hash);
	return true;
}

const char *runtime_grant_path(
	const struct runtime_conf *conf, const struct runtime_grant *grant, const char *name, char *path)
{
	if (snprintf(path, PATH_MAX, "%s/" PLACE "/%s%s%s", conf->run, grant->key, *name ? "/" : "", name) >=
		PATH_MAX)
		runtime_fail("%s: the path is too long", conf->run);
	return path;
}

static void make_directory(const char *path, mode_t mode)
{
	if (mkdir(path, mode) != 0 && errno != EEXIST)
		runtime_fail("cannot make %s: %s", path, strerror(errno));
}

/* Takes the lock of all notes; returns -1 after a while, with a sentence in `why`. */
static int try_lock(const struct runtime_conf *conf, char why[PATH_MAX + 64])
{
	char path[PATH_MAX];
	int fd;

	make_directory(conf->run, 0755);
	runtime_grant_path(conf, &(struct runtime_grant){.key = ""}, "", path);
	/* A container with a user namespace must reach its own files in here, but may not list others. */
	make_directory(path, 0711);
	runtime_grant_path(conf, &(struct runtime_grant){.key = ".lock"}, "", path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		snprintf(why, PATH_MAX + 64, "cannot open %s: %s", path, strerror(errno));
		return -1;
	}
	for (int tries = LOCK_SECONDS * 100; flock(fd, LOCK_EX | LOCK_NB) != 0; tries--) {
		if (tries == 0 || (errno != EWOULDBLOCK && errno != EINTR)) {
			snprintf(why, PATH_MAX + 64, "%s is held by another start of a container: %s", path,
				strerror(errno));
			close(fd);
			return -1;
		}
		nanosleep(&(struct timespec){0, 10000000}, NULL);
	}
	return fd;
}

static int lock(const struct runtime_conf *conf)
{
	char why[PATH_MAX + 64];
	int fd = try_lock(conf, why);

	if (fd < 0)
		runtime_fail("%s", why);
	return fd;
}

static void remove_all(const struct runtime_conf *conf, const struct runtime_grant *grant)
{
	static const char *const files[] = {NOTE, NOTE ".new", STARTS, "granted", "ld.so.preload"};
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		unlink(runtime_grant_path(conf, grant, files[i], path));
	rmdir(runtime_grant_path(conf, grant, "", path));
}

static const char *text_of(const json_t *note, const char *name)
{
	const char *text = json_string_value(json_object_get(note, name));

	return text ? text : "";
}

/* Reads a note. Returns false if there is none that could be read. */
static bool read_note(const struct runtime_conf *conf, struct runtime_grant *grant)
{
	char path[PATH_MAX];
	json_t *note = json_load_file(runtime_grant_path(conf, grant, NOTE, path), 0, NULL), *gpus, *gpu;
	size_t i;

	if (!note)
		return false;
	snprintf(grant->bundle, sizeof(grant->bundle), "%s", text_of(note, "bundle"));
	snprintf(grant->account, sizeof(grant->account), "%s", text_of(note, "account"));
	grant->share = (unsigned)json_integer_value(json_object_get(note, "share"));
	grant->core = (unsigned)json_integer_value(json_object_get(note, "core"));
	grant->mem_bytes = (uint64_t)json_integer_value(json_object_get(note, "mem_bytes"));
	grant->gid = (gid_t)json_integer_value(json_object_get(note, "gid"));
	gpus = json_object_get(note, "gpus");
	grant->ngpus = 0;
	json_array_foreach(gpus, i, gpu) if (json_is_string(gpu) && grant->ngpus < RUNTIME_GPUS_MOST)
		snprintf(grant->gpu[grant->ngpus++], ARB_UUID_BYTES, "%s", json_string_value(gpu));
	json_decref(note);
	return true;
}

static void write_note(const struct runtime_conf *conf, const struct runtime_grant *grant)
{
	json_t *gpus = json_array(), *note;
	char path[PATH_MAX], fresh[PATH_MAX];

	for (unsigned i = 0; i < grant->ngpus; i++)
		json_array_append_new(gpus, json_string(grant->gpu[i]));
	note = json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:o}", "bundle", grant->bundle, "account",
		grant->account, "share", (int)grant->share, "core", (int)grant->core, "mem_bytes",
		(json_int_t)grant->mem_bytes, "gid", (json_int_t)grant->gid, "gpus", gpus);
	make_directory(runtime_grant_path(conf, grant, "", path), 0711);
	starts_fd = open(runtime_grant_path(conf, grant, STARTS, path),
		O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (starts_fd < 0 || flock(starts_fd, LOCK_EX | LOCK_NB) != 0)
		runtime_fail("cannot lock %s: %s", path, strerror(errno));
	runtime_grant_path(conf, grant, NOTE ".new", fresh);
	runtime_grant_path(conf, grant, NOTE, path);
	if (!note || json_dump_file(note, fresh, JSON_INDENT(1)) != 0 || rename(fresh, path) != 0) {
		int code = errno;

		remove_all(conf, grant);
		runtime_fail("cannot write %s: %s", path, strerror(code));
	}
	json_decref(note);
}

/* Whether the process that was to make the container died before it did. A start that ends well removes the file
 * before it releases the lock, perhaps after the file was opened here. */
static bool given_up(const struct runtime_conf *conf, const struct runtime_grant *grant)
{
	char path[PATH_MAX];
	int fd = open(runtime_grant_path(conf, grant, STARTS, path), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	bool up = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0;

	if (fd >= 0)
		close(fd);
	return up;
}

/* Whether the bundle still exists. */
static bool stands(const struct runtime_conf *conf, const struct runtime_grant *grant)
{
	return *grant->bundle && access(grant->bundle, F_OK) == 0 && !given_up(conf, grant);
}

int runtime_grant_all(const struct runtime_conf *conf, struct runtime_grant **all)
{
	char path[PATH_MAX];
	struct dirent *entry;
	int n = 0;
	DIR *dir = opendir(runtime_grant_path(conf, &(struct runtime_grant){.key = ""}, "", path));

	*all = NULL;
	while (dir && (entry = readdir(dir))) {
		struct runtime_grant *grown, *g;

		if (entry->d_name[0] == '.' || strlen(entry->d_name) >= sizeof(g->key))
			continue;
		grown = realloc(*all, (size_t)(n + 1) * sizeof(*grown));
		if (!grown)
			runtime_fail("out of memory");
		*all = grown;
		g = &grown[n];
		*g = (struct runtime_grant){0};
		memcpy(g->key, entry->d_name, strlen(entry->d_name) + 1);
		if (read_note(conf, g) && stands(conf, g))
			n++;
		else
			remove_all(conf, g);
	}
	if (dir)
		closedir(dir);
	return n;
}

void runtime_grant_take(const struct runtime_conf *conf, const struct runtime_args *args,
	const struct runtime_wish *wish, const char *among, struct runtime_grant *grant)
{
	struct runtime_grant *others;
	int fd = lock(conf), n;
	gid_t gid = grant->gid;

	*grant = (struct runtime_grant){
		.gid = gid, .share = wish->share, .core = wish->core, .mem_bytes = wish->mem_bytes};
	if (!make_key(args, grant->key, sizeof(grant->key)))
		runtime_fail("'%.60s' cannot be the name of a container", args->id);
	snprintf(grant->account, sizeof(grant->account), "%s", wish->account);
	runtime_bundle_path(args, grant->bundle);
	/* A container that is made once more gives back what it had. */
	remove_all(conf, grant);
	n = runtime_grant_all(conf, &others);
	runtime_room_choose(conf, wish, among, others, n, grant);
	write_note(conf, grant);
	free(others);
	close(fd);
}

void runtime_grant_begun(const struct runtime_conf *conf, const struct runtime_grant *grant)
{
	char path[PATH_MAX];

	unlink(runtime_grant_path(conf, grant, STARTS, path));
	close(starts_fd);
	starts_fd = -1;
}

bool runtime_grant_find(
	const struct runtime_conf *conf, const struct runtime_args *args, struct runtime_grant *grant)
{
	*grant = (struct runtime_grant){0};
	return make_key(args, grant->key, sizeof(grant->key)) && read_note(conf, grant);
}

void runtime_grant_drop(const struct runtime_conf *conf, const struct runtime_args *args)
{
	struct runtime_grant grant;
	char why[PATH_MAX + 64];
	int fd;

	if (!runtime_grant_find(conf, args, &grant))
		return;
	/* Without the lock the note stays until a later start finds the bundle gone. */
	fd = try_lock(conf, why);
	if (fd < 0)
		return;
	remove_all(conf, &grant);
	close(fd);
}

void runtime_grant_list(const struct runtime_conf *conf)
{
	struct runtime_grant *all;
	int fd = lock(conf), n = runtime_grant_all(conf, &all);
	char bytes[32];

	close(fd);
	for (int i = 0; i < n; i++)
		for (unsigned k = 0; k < all[i].ngpus; k++)
			printf("%s\t%u\t%u\t%s\t%s\t%s\n", all[i].gpu[k], all[i].share, all[i].core,
				all[i].mem_bytes ? cli_bytes(all[i].mem_bytes, bytes, sizeof(bytes)) : "-",
				all[i].account, all[i].key);
	free(all);
}

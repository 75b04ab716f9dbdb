/* Edits the bundle's config.json. What we add replaces what an earlier start added, and what the container's author
 * mounted in the same places. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpuarb/config.h"
#include "gpuarb/places.h"

#include "tools/common/cli.h"
#include "tools/runtime/runtime.h"

#define INSIDE_DIR     ARB_DIR_DEFAULT
#define INSIDE_LIB     "/usr/lib/gpuarb"
#define INSIDE_PRELOAD "/etc/ld.so.preload"
/* A longer file is refused; the files of real images name a few libraries. */
#define PRELOAD_BYTES_MOST 4096

void runtime_bundle_path(const struct runtime_args *args, char path[PATH_MAX])
{
	char whole[PATH_MAX];
	const char *bundle = args->bundle ? args->bundle : ".",
		   *name = args->config ? args->config : "config.json";

	if (!realpath(bundle, whole))
		runtime_fail("the bundle %s: %s", bundle, strerror(errno));
	if (snprintf(path, PATH_MAX, "%s%s%s", *name == '/' ? "" : whole, *name == '/' ? "" : "/", name) >=
		PATH_MAX)
		runtime_fail("the bundle %s: its path is too long", whole);
}

static json_t *must(json_t *made)
{
	if (!made)
		runtime_fail("out of memory");
	return made;
}

json_t *runtime_bundle_array(json_t *object, const char *name)
{
	json_t *array = json_object_get(object, name);

	if (json_is_array(array))
		return array;
	/* The real runtime would refuse something that is no list, and must not start a container without what was in
	 * it. */
	if (array && !json_is_null(array))
		runtime_fail("the bundle's \"%s\" is not a list", name);
	array = must(json_array());
	if (json_object_set_new(object, name, array) != 0)
		runtime_fail("out of memory");
	return array;
}

static bool is_variable(const json_t *entry, const char *name)
{
	const char *text = json_string_value(entry);
	size_t n = strlen(name);

	return text && !strncmp(text, name, n) && text[n] == '=';
}

const char *runtime_bundle_env(const json_t *process, const char *name)
{
	const json_t *env = json_object_get(process, "env"), *entry;
	const char *found = NULL;
	size_t i;

	/* The last of several entries counts. */
	json_array_foreach(env, i, entry) if (is_variable(entry, name)) found =
		json_string_value(entry) + strlen(name) + 1;
	return found;
}

void runtime_bundle_unset(json_t *env, const char *name)
{
	for (size_t i = json_array_size(env); i-- > 0;)
		if (is_variable(json_array_get(env, i), name))
			json_array_remove(env, i);
}

void runtime_bundle_set(json_t *env, const char *name, const char *value)
{
	runtime_bundle_unset(env, name);
	if (json_array_append_new(env, must(json_sprintf("%s=%s", name, value))) != 0)
		runtime_fail("out of memory");
}

/* Removes variables of settings: they would be ignored inside, and mislead a user who looks. */
static void unset_limits(json_t *env)
{
	for (int key = 0; key < ARB_KEY_COUNT; key++) {
		runtime_bundle_unset(env, gpuarb_keys[key].env);
		if (gpuarb_keys[key].alias)
			runtime_bundle_unset(env, gpuarb_keys[key].alias);
	}
	runtime_bundle_unset(env, "GPUARB_DISABLE");
	runtime_bundle_unset(env, "GPUARB_CONF");
}

void runtime_bundle_edit_process(const struct runtime_grant *grant, json_t *process)
{
	json_t *env = runtime_bundle_array(process, "env"), *user = json_object_get(process, "user"), *gids,
	       *gid;
	char number[32];
	size_t i;

	unset_limits(env);
	runtime_gpus_show_process(process, grant);
	runtime_bundle_set(env, "GPUARB_DIR", INSIDE_DIR);
	runtime_bundle_set(env, "GPUARB_ACCOUNT", grant->account);
	snprintf(number, sizeof(number), "%u", grant->core);
	if (grant->core)
		runtime_bundle_set(env, "GPUARB_CORE_LIMIT", number);
	snprintf(number, sizeof(number), "%llu", (unsigned long long)grant->mem_bytes);
	if (grant->mem_bytes)
		runtime_bundle_set(env, "GPUARB_MEM_LIMIT", number);
	if (!grant->gid || !json_is_object(user))
		return;
	gids = runtime_bundle_array(user, "additionalGids");
	json_array_foreach(gids, i, gid) if (json_integer_value(gid) == (json_int_t)grant->gid) return;
	if (json_array_append_new(gids, must(json_integer((json_int_t)grant->gid))) != 0)
		runtime_fail("out of memory");
}

/* Adds mounts that only we know of, in the order in which they are mounted. */
static void add_mount(json_t *mounts, const char *from, const char *to, const char *mode, bool exec)
{
	json_t *mount = must(json_pack("{s:s, s:s, s:s, s:[s, s, s, s, s]}", "destination", to, "type",
		"bind", "source", from, "options", "bind", mode, "nosuid", "nodev", "rprivate"));

	if (!exec)
		json_array_append_new(json_object_get(mount, "options"), must(json_string("noexec")));
	if (json_array_append_new(mounts, mount) != 0)
		runtime_fail("out of memory");
}

static bool below(const char *path, const char *directory)
{
	size_t n = strlen(directory);

	return !strncmp(path, directory, n) && (!path[n] || path[n] == '/');
}

static const char *const places[] = {INSIDE_DIR, INSIDE_LIB, INSIDE_PRELOAD};

/* Gives the plain form of a path: "usr//lib/./gpuarb/" is /usr/lib/gpuarb. */
static const char *clean(const char *path, char to[PATH_MAX])
{
	size_t n = 0;

	while (*path) {
		size_t part = strcspn(path, "/");

		if (part == 2 && !strncmp(path, "..", 2)) {
			while (n && to[--n] != '/')
				;
		} else if (part && !(part == 1 && *path == '.')) {
			if (n + part + 2 > PATH_MAX)
				runtime_fail("the bundle has a mount whose path is too long");
			to[n++] = '/';
			memcpy(to + n, path, part);
			n += part;
		}
		path += part + (path[part] == '/');
	}
	to[n] = '\0';
	return to;
}

/* Removes mounts that the engine was told to make where ours go. */
static void remove_mounts(json_t *mounts)
{
	char path[PATH_MAX];

	for (size_t i = json_array_size(mounts); i-- > 0;) {
		const char *to = json_string_value(json_object_get(json_array_get(mounts, i), "destination"));

		for (size_t k = 0; to && k < sizeof(places) / sizeof(places[0]); k++)
			if (below(clean(to, path), places[k])) {
				json_array_remove(mounts, i);
				break;
			}
	}
}

/* Refuses masks: the real runtime covers such paths after all mounts, and a covered library is not preloaded. */
static void refuse_masks(const json_t *spec)
{
	const json_t *masked = json_object_get(json_object_get(spec, "linux"), "maskedPaths"), *entry;
	char path[PATH_MAX];
	size_t i;

	json_array_foreach(masked, i, entry)
	{
		for (size_t k = 0; json_is_string(entry) && k < sizeof(places) / sizeof(places[0]); k++)
			if (below(clean(json_string_value(entry), path), places[k]) || below(places[k], path))
				runtime_fail("the container masks %s, where gpuarb's %s has to be", path,
					places[k]);
	}
}

static void write_text(const char *path, const char *text)
{
	bool failed;
	int fd;

	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	failed = fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || fchmod(fd, 0644) != 0;
	if (fd >= 0)
		failed |= close(fd) != 0;
	if (failed)
		runtime_fail("cannot write %s: %s", path, strerror(errno));
}

/* Keeps what the image itself preloads, after our library. Its paths are looked up only inside its own root. */
static void image_preload(const struct runtime_grant *grant, const json_t *spec, char *text, size_t size)
{
	const char *root = json_string_value(json_object_get(json_object_get(spec, "root"), "path"));
	struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK, .resolve = RESOLVE_IN_ROOT};
	char path[2 * PATH_MAX];
	struct stat st;
	int dir, fd;
	ssize_t n;

	if (!root)
		return;
	snprintf(path, sizeof(path), "%.*s/%s", (int)(strrchr(grant->bundle, '/') - grant->bundle),
		grant->bundle, root);
	dir = open(*root == '/' ? root : path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = dir < 0 ? -1 : (int)syscall(SYS_openat2, dir, INSIDE_PRELOAD, &how, sizeof(how));
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		if (st.st_size >= (off_t)size)
			runtime_fail("the image's " INSIDE_PRELOAD
				     " has %lld bytes; what it preloads would be "
				     "lost behind %zu",
				(long long)st.st_size, size - 1);
		n = read(fd, text, size - 1);
		text[n > 0 ? n : 0] = '\0';
	}
	if (fd >= 0)
		close(fd);
	if (dir >= 0)
		close(dir);
}

static void write_preload(const char *path, const struct runtime_grant *grant, const json_t *spec)
{
	char theirs[PRELOAD_BYTES_MOST] = "", text[PRELOAD_BYTES_MOST + 128];

	image_preload(grant, spec, theirs, sizeof(theirs));
	snprintf(text, sizeof(text), "%s\n%s", CLI_LIBRARY_INSIDE,
		strstr(theirs, CLI_LIBRARY_INSIDE) ? "" : theirs);
	write_text(path, text);
}

/*
 * Writes the limits that programs inside follow, whatever their environment says (gpuarb/places.h). A program that
 * cannot join, for example because it has dropped its groups, would have the whole limit for itself: it is refused
 * the GPU.
 */
static void write_granted(
	const char *path, const struct runtime_grant *grant, const struct runtime_wish *wish)
{
	char text[ARB_GRANTED_BYTES_MAX];
	int n = snprintf(text, sizeof(text),
		"GPUARB_ACCOUNT=%s\nGPUARB_DIR=" INSIDE_DIR "\nGPUARB_CONF=/dev/null\n"
		"GPUARB_ON_ERROR=closed\n",
		grant->account);

	if (grant->core)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "GPUARB_CORE_LIMIT=%u\n", grant->core);
	if (grant->mem_bytes)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "GPUARB_MEM_LIMIT=%llu\n",
			(unsigned long long)grant->mem_bytes);
	if (wish->request)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "GPUARB_REQUEST=%u\n", wish->request);
	if (wish->weight)
		snprintf(text + n, sizeof(text) - (size_t)n, "GPUARB_WEIGHT=%u\n", wish->weight);
	write_text(path, text);
}

void runtime_bundle_edit(const struct runtime_conf *conf, const struct runtime_grant *grant,
	const struct runtime_wish *wish, json_t *spec)
{
	json_t *mounts = runtime_bundle_array(spec, "mounts");
	char path[PATH_MAX], from[PATH_MAX + 16];

	refuse_masks(spec);
	runtime_bundle_edit_process(grant, json_object_get(spec, "process"));
	runtime_gpus_show(spec, grant);
	remove_mounts(mounts);
	add_mount(mounts, conf->library, CLI_LIBRARY_INSIDE, "ro", true);
	write_granted(runtime_grant_path(conf, grant, "granted", path), grant, wish);
	add_mount(mounts, path, ARB_GRANTED_FILE, "ro", false);
	write_preload(runtime_grant_path(conf, grant, "ld.so.preload", path), grant, spec);
	add_mount(mounts, path, INSIDE_PRELOAD, "ro", false);
	snprintf(from, sizeof(from), "%s/state", conf->dir);
	add_mount(mounts, from, INSIDE_DIR "/state", "rw", false);
	snprintf(from, sizeof(from), "%s/control", conf->dir);
	add_mount(mounts, from, INSIDE_DIR "/control", "ro", false);
}

bool runtime_bundle_has_user_namespace(const json_t *spec)
{
	const json_t *linux_part = json_object_get(spec, "linux"), *namespace;
	size_t i;

	json_array_foreach(json_object_get(linux_part, "namespaces"), i, namespace)
	{
		const char *type = json_string_value(json_object_get(namespace, "type"));

		if (type && !strcmp(type, "user"))
			return true;
	}
	return false;
}

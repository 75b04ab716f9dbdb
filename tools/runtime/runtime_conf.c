/* Reads /etc/gpuarb/runtime.conf: lines "name = value". A mistake in it keeps containers from starting, with a
 * sentence. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb/places.h"

#include "tools/common/cli.h"
#include "tools/runtime/runtime.h"

#define CONF_DEFAULT "/etc/gpuarb/runtime.conf"
#define RUN_DEFAULT  "/run/gpuarb"
/* Engines may start this program with an empty environment. */
#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* True where a container is to start: there a mistake ends the program. Otherwise the wrong line is ignored. */
static bool strict;
#define wrong(...) (strict ? runtime_fail(__VA_ARGS__) : (void)0)

/* Copies a value that must be a full path. */
static void path_value(char to[PATH_MAX], const char *value, const char *where)
{
	if (*value && *value != '/')
		wrong("%s: '%s' must be a full path", where, value);
	else if (strlen(value) >= PATH_MAX)
		wrong("%s: the path is too long", where);
	else
		snprintf(to, PATH_MAX, "%s", value);
}

static void set(struct runtime_conf *conf, const char *name, const char *value, const char *where)
{
	static const char *const without[] = {"refuse", "hide", "pass"};

	if (!strcmp(name, "runtime") && strlen(value) >= PATH_MAX)
		wrong("%s: the path is too long", where);
	else if (!strcmp(name, "runtime"))
		snprintf(conf->runtime, sizeof(conf->runtime), "%s", value);
	else if (!strcmp(name, "pod_command"))
		path_value(conf->pod_command, value, where);
	else if (!strcmp(name, "dir"))
		path_value(conf->dir, value, where);
	else if (!strcmp(name, "library"))
		path_value(conf->library, value, where);
	else if (!strcmp(name, "run"))
		path_value(conf->run, value, where);
	else if (!strcmp(name, "memory") && (!strcmp(value, "share") || !strcmp(value, "free")))
		conf->memory_by_share = *value == 's';
	else if (!strcmp(name, "memory"))
		wrong("%s: memory cannot be '%s'; allowed: share or free", where, value);
	else if (!strcmp(name, "selinux") && (!strcmp(value, "refuse") || !strcmp(value, "pass")))
		conf->selinux_pass = *value == 'p';
	else if (!strcmp(name, "selinux"))
		wrong("%s: selinux cannot be '%s'; allowed: refuse or pass", where, value);
	else if (!strcmp(name, "without_share")) {
		for (int i = 0; i < 3; i++)
			if (!strcmp(value, without[i])) {
				conf->without_share = (enum runtime_without)i;
				return;
			}
		wrong("%s: without_share cannot be '%s'; allowed: refuse, hide or pass", where, value);
	} else {
		wrong("%s: there is no setting '%s'; there are runtime, without_share, memory, selinux, "
		      "pod_command, dir, library and run",
			where, name);
	}
}

static char *trimmed(char *text)
{
	size_t n;

	while (isspace((unsigned char)*text))
		text++;
	n = strlen(text);
	while (n && isspace((unsigned char)text[n - 1]))
		text[--n] = '\0';
	return text;
}

/* Reads one line, which ends in a NUL. */
static void read_line(struct runtime_conf *conf, char *line, const char *where)
{
	char *name = trimmed(line), *value = strchr(name, '=');

	if (!*name || *name == '#')
		return;
	if (!value) {
		wrong("%s: this is not 'name = value'", where);
		return;
	}
	*value++ = '\0';
	set(conf, trimmed(name), trimmed(value), where);
}

static void read_file(struct runtime_conf *conf, const char *path, bool must_exist)
{
	char *line = NULL, where[PATH_MAX + 16];
	FILE *file = fopen(path, "re");
	size_t size = 0;
	ssize_t n;

	if (!file && (errno != ENOENT || must_exist))
		wrong("cannot read %s: %s", path, strerror(errno));
	for (int number = 1; file && (n = getline(&line, &size, file)) > 0; number++) {
		snprintf(where, sizeof(where), "%s:%d", path, number);
		if (memchr(line, '\0', (size_t)n))
			wrong("%s: there is a NUL byte in it", where);
		else
			read_line(conf, line, where);
	}
	free(line);
	if (file)
		fclose(file);
}

/* Finds an executable of that name in the directories of PATH that is not this program; returns whether there is one.
 */
static bool find(const char *name, char found[PATH_MAX])
{
	const char *path = getenv("PATH");
	char self[PATH_MAX], whole[PATH_MAX], list[PATH_MAX], *save = NULL;

	if (!realpath("/proc/self/exe", self))
		*self = '\0';
	if (*name == '/') {
		snprintf(found, PATH_MAX, "%s", name);
		return access(found, X_OK) == 0 && (!realpath(found, whole) || strcmp(whole, self) != 0);
	}
	snprintf(list, sizeof(list), "%s", path && *path ? path : PATH_DEFAULT);
	for (char *dir = strtok_r(list, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
		if (*dir != '/' || snprintf(found, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
			continue;
		if (access(found, X_OK) == 0 && realpath(found, whole) && strcmp(whole, self) != 0)
			return true;
	}
	return false;
}

static bool real_runtime(struct runtime_conf *conf)
{
	/* NVIDIA's runtime itself calls runc, and gives the container the GPU that we choose. */
	static const char *const known[] = {"nvidia-container-runtime", "runc", "crun"};
	char found[PATH_MAX];
	bool there = false;

	if (*conf->runtime)
		there = find(conf->runtime, found);
	for (int i = 0; i < 3 && !there && !*conf->runtime; i++)
		there = find(known[i], found);
	if (there)
		snprintf(conf->runtime, sizeof(conf->runtime), "%s", found);
	return there;
}

static void read_settings(struct runtime_conf *conf)
{
	const char *named = secure_getenv("GPUARB_RUNTIME_CONF");
	char beside[PATH_MAX];

	*conf = (struct runtime_conf){.dir = ARB_DIR_DEFAULT, .run = RUN_DEFAULT, .memory_by_share = true};
	/* If a pod of the cluster has set the node up, all files are in one directory. */
	cli_own_directory(beside, sizeof(beside) - 16);
	strcat(beside, "/runtime.conf");
	if (named)
		read_file(conf, named, true);
	else
		read_file(conf, access(CONF_DEFAULT, F_OK) == 0 ? CONF_DEFAULT : beside, false);
}

bool runtime_conf_try(struct runtime_conf *conf)
{
	strict = false;
	read_settings(conf);
	return real_runtime(conf);
}

void runtime_conf_load(struct runtime_conf *conf)
{
	const char *library;

	strict = true;
	read_settings(conf);
	if (!real_runtime(conf) && *conf->runtime)
		runtime_fail("runtime = %s: there is no such program, or it is this one", conf->runtime);
	if (!*conf->runtime)
		runtime_fail("there is neither nvidia-container-runtime nor runc nor crun here; %s names it: "
			     "runtime = /...",
			CONF_DEFAULT);
	library = *conf->library ? conf->library : cli_library_find();
	if (!library || !realpath(library, conf->library))
		runtime_fail("the library %s is not there: %s", library ? library : "libgpuarb-preload.so",
			strerror(library ? errno : ENOENT));
}

#include "tools/common/conf_save.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpuarb/config.h"
#include "gpuarb/places.h"

#include "tools/common/cli.h"
#include "tools/common/conf_edit.h"

#define CONF_MOST (1 << 20)

struct conf_save {
	char path[PATH_MAX]; /* the file itself, where GPUARB_CONF is a link to it */
	char temporary[PATH_MAX + 32];
};

static const char *conf_path(void)
{
	const char *path = secure_getenv("GPUARB_CONF");

	return path && *path ? path : ARB_CONF_DEFAULT;
}

static char *read_conf(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = calloc(1, CONF_MOST);

	if (!text)
		die("out of memory");
	if (!file && errno != ENOENT)
		die("cannot read %s: %s", path, strerror(errno));
	if (file && fread(text, 1, CONF_MOST - 1, file) == CONF_MOST - 1)
		die("%s is too large to be an arbiter.conf", path);
	if (file)
		fclose(file);
	return text;
}

static char *instead(char *text, char *next)
{
	free(text);
	if (!next)
		die("out of memory");
	return next;
}

static char *edited(char *text, const struct gpuarb_change *changes, size_t count)
{
	char section[ARB_NAME_BYTES + 16];

	for (size_t i = 0; i < count; i++) {
		snprintf(section, sizeof(section), changes[i].account ? "account %s" : "gpu",
			changes[i].account);
		text = instead(text, conf_edit(text, section, changes[i].key, changes[i].value));
	}
	return text;
}

/* Values that equal the default are written as well: a class without a line would not exist. */
static char *edited_classes(char *text, const struct gpuarb_class_change *changes, size_t count)
{
	char section[ARB_CLASS_BYTES + 16], value[64];

	for (size_t i = 0; i < count; i++) {
		snprintf(section, sizeof(section), "class %s", changes[i].task_class);
		if (!changes[i].key) {
			text = instead(text, conf_drop(text, section));
			continue;
		}
		gpuarb_class_format(&gpuarb_class_default, changes[i].key, value, sizeof(value));
		text = instead(text, conf_edit(text, section, changes[i].key,
					     changes[i].value ? changes[i].value : value));
	}
	return text;
}

/* Writes the new file with the rights of the file that it replaces. */
static int write_conf(const struct conf_save *s, const char *text)
{
	size_t length = strlen(text);
	struct stat st;
	int fd, code;

	fd = open(s->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	if (stat(s->path, &st) == 0) {
		/* A user who may not give the file to its former owner keeps it; then only the user can write it. */
		if (fchown(fd, st.st_uid, st.st_gid) != 0)
			st.st_mode &= ~(mode_t)0022;
		fchmod(fd, st.st_mode & 07777);
	}
	if (write(fd, text, length) == (ssize_t)length && fsync(fd) == 0)
		return close(fd) == 0 ? 0 : -errno;
	code = errno ? -errno : -ENOSPC;
	close(fd);
	return code;
}

static bool holds(const struct gpuarb_config *config, const struct gpuarb_change *change)
{
	enum arb_key key = gpuarb_config_find(change->key);
	struct gpuarb_error err;
	int64_t value, members[ARB_MEMBERS];

	if (!change->value || gpuarb_config_parse(key, change->value, "", &value, &err) < 0)
		return true;
	if (!change->account)
		return config->value[key] == value;
	for (size_t i = 0; i < config->nlimits; i++) {
		struct gpuarb_config_limit *l = &config->limits[i];

		if (strcmp(l->name, change->account) != 0)
			continue;
		if (key == ARB_KEY_MEMBERS)
			return gpuarb_config_members(change->value, members) &&
			       memcmp(members, l->members, sizeof(members)) == 0;
		return value == *gpuarb_config_value(l, key);
	}
	return false;
}

static void read_again(struct conf_save *s, struct gpuarb_config *config)
{
	struct gpuarb_error err = {0};

	if (gpuarb_config_load(config, s->temporary, true, &err) < 0) {
		conf_save_abandon(s);
		die("nothing was changed: what would be saved cannot be read again: %s", err.text);
	}
}

/* A name may contain characters with another meaning in this file. */
static void check(struct conf_save *s, const struct gpuarb_change *changes, size_t count)
{
	struct gpuarb_config config;

	read_again(s, &config);
	for (size_t i = 0; i < count; i++)
		if (!holds(&config, &changes[i])) {
			conf_save_abandon(s);
			die("nothing was changed: %s of '%s' cannot be written to an arbiter.conf",
				changes[i].key, changes[i].account ? changes[i].account : "the GPU");
		}
	gpuarb_config_free(&config);
}

static struct conf_save *begin(void)
{
	struct conf_save *s = calloc(1, sizeof(*s));
	char *slash;

	if (!s)
		die("out of memory");
	if (!realpath(conf_path(), s->path))
		snprintf(s->path, sizeof(s->path), "%s", conf_path());
	snprintf(s->temporary, sizeof(s->temporary), "%s.new-%ld", s->path, (long)getpid());
	/* The first save on a machine makes the directory too, but none above it. */
	slash = strrchr(s->path, '/');
	if (slash && slash != s->path) {
		*slash = '\0';
		mkdir(s->path, 0755);
		*slash = '/';
	}
	return s;
}

static void put(struct conf_save *s, char *text)
{
	int r = write_conf(s, text);

	free(text);
	if (r < 0) {
		unlink(s->temporary);
		die("nothing was changed: %s cannot be written: %s", s->path, strerror(-r));
	}
}

struct conf_save *conf_save_prepare(const struct gpuarb_change *changes, size_t count)
{
	struct conf_save *s = begin();

	put(s, edited(read_conf(s->path), changes, count));
	check(s, changes, count);
	return s;
}

/* A class's name needs no check: it can always be written as it is. */
struct conf_save *conf_save_prepare_classes(const struct gpuarb_class_change *changes, size_t count)
{
	struct conf_save *s = begin();
	struct gpuarb_config config;

	put(s, edited_classes(read_conf(s->path), changes, count));
	read_again(s, &config);
	gpuarb_config_free(&config);
	return s;
}

void conf_save_abandon(struct conf_save *s)
{
	unlink(s->temporary);
	free(s);
}

void conf_save_finish(struct conf_save *s)
{
	if (rename(s->temporary, s->path) != 0) {
		int code = errno;

		unlink(s->temporary);
		die("the change holds, but %s could not be replaced: %s", s->path, strerror(code));
	}
	free(s);
}

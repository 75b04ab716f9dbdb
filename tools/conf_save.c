#include "conf_save.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "conf_edit.h"
#include "config.h"

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

static char *edited(char *text, const struct gpuarb_change *changes, size_t count)
{
	char section[ARB_NAME_BYTES + 16], *next;

	for (size_t i = 0; i < count; i++) {
		snprintf(section, sizeof(section), changes[i].account ? "account %s" : "gpu",
			changes[i].account);
		next = conf_edit(text, section, changes[i].key, changes[i].value);
		free(text);
		if (!next)
			die("out of memory");
		text = next;
	}
	return text;
}

/* With the rights of the file that it replaces. */
static int write_conf(const struct conf_save *s, const char *text)
{
	size_t length = strlen(text);
	struct stat st;
	int fd, code;

	fd = open(s->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	if (stat(s->path, &st) == 0) {
		/* Who may not give it away keeps it: root's file does not become less protected by it. */
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

static bool holds(const struct arb_config *config, const struct gpuarb_change *change)
{
	enum arb_key key = arb_config_find(change->key);
	struct gpuarb_error err;
	int64_t value;

	if (!change->value || arb_config_parse(key, change->value, "", &value, &err) < 0)
		return true;
	if (!change->account)
		return config->value[key] == value;
	for (size_t i = 0; i < config->nlimits; i++) {
		const struct arb_config_limit *l = &config->limits[i];

		if (strcmp(l->name, change->account) == 0)
			return value == (key == ARB_KEY_CORE         ? l->core_pct
						: key == ARB_KEY_MEM ? l->mem_bytes
								     : l->priority);
	}
	return false;
}

/* A name may hold what means something else in such a file. */
static void check(struct conf_save *s, const struct gpuarb_change *changes, size_t count)
{
	struct gpuarb_error err = {0};
	struct arb_config config;

	if (arb_config_load(&config, s->temporary, true, &err) < 0) {
		conf_save_abandon(s);
		die("nothing was changed: what would be saved cannot be read again: %s", err.text);
	}
	for (size_t i = 0; i < count; i++)
		if (!holds(&config, &changes[i])) {
			conf_save_abandon(s);
			die("nothing was changed: %s of '%s' cannot be written to an arbiter.conf",
				changes[i].key, changes[i].account ? changes[i].account : "the GPU");
		}
	arb_config_free(&config);
}

struct conf_save *conf_save_prepare(const struct gpuarb_change *changes, size_t count)
{
	struct conf_save *s = calloc(1, sizeof(*s));
	char *text, *slash;
	int r;

	if (!s)
		die("out of memory");
	if (!realpath(conf_path(), s->path))
		snprintf(s->path, sizeof(s->path), "%s", conf_path());
	snprintf(s->temporary, sizeof(s->temporary), "%s.new-%ld", s->path, (long)getpid());
	/* The first save on a machine makes the directory too; what is above that is not ours to make. */
	slash = strrchr(s->path, '/');
	if (slash && slash != s->path) {
		*slash = '\0';
		mkdir(s->path, 0755);
		*slash = '/';
	}
	text = edited(read_conf(s->path), changes, count);
	r = write_conf(s, text);
	free(text);
	if (r < 0) {
		unlink(s->temporary);
		die("nothing was changed: %s cannot be written: %s", s->path, strerror(-r));
	}
	check(s, changes, count);
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

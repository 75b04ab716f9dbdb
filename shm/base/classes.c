#include "gpuarb/classes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "shm/base/error.h"

const struct gpuarb_class_rules gpuarb_class_default = {
	.name = "default", .priority = 50, .max_wait_ms = 2000, .queue_limit = 0};

/* A field of a class: a number, or one of two words for no and yes. */
struct field {
	const char *name;
	size_t at;
	long least, most;
	const char *no, *yes;
};

#define NUMBER(name, least, most)                                                                            \
	{                                                                                                    \
#name, offsetof(struct gpuarb_class_rules, name), least, most, NULL, NULL                    \
	}

static const struct field fields[] = {
	NUMBER(priority, 1, 100),
	{"mode", offsetof(struct gpuarb_class_rules, skip), 0, 1, "queue", "skip"},
	NUMBER(max_wait_ms, 0, ARB_CLASS_WAIT_MS_MAX),
	{"under_pressure", offsetof(struct gpuarb_class_rules, pass), 0, 1, "wait", "pass"},
	NUMBER(queue_limit, 0, ARB_SLOTS_MAX),
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

bool gpuarb_class_name_ok(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && n < ARB_CLASS_BYTES &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == n;
}

static const struct field *find(const char *key)
{
	for (size_t i = 0; i < FIELDS; i++)
		if (strcmp(fields[i].name, key) == 0)
			return &fields[i];
	return NULL;
}

const char *gpuarb_class_key(unsigned i)
{
	return i < FIELDS ? fields[i].name : NULL;
}

int gpuarb_class_parse(struct gpuarb_class_rules *rules, const char *key, const char *text, const char *where,
	struct gpuarb_error *err)
{
	const struct field *f = find(key);
	int saved = errno;
	char *end;
	long value;

	if (!f)
		return arb_fail(err, -EINVAL,
			"%s: '%.60s' is not a setting of a class; priority, mode, max_wait_ms, "
			"under_pressure and queue_limit are",
			where, key);
	if (f->yes) {
		bool yes = strcasecmp(text, f->yes) == 0;

		if (!yes && strcasecmp(text, f->no) != 0)
			return arb_fail(err, -EINVAL, "%s: %s cannot be '%.60s'; allowed: %s or %s", where,
				key, text, f->no, f->yes);
		*(bool *)((char *)rules + f->at) = yes;
		return 0;
	}
	errno = 0;
	value = strtol(text, &end, 10);
	if (errno != 0 || end == text || *end || value < f->least || value > f->most) {
		errno = saved;
		return arb_fail(err, -EINVAL, "%s: %s cannot be '%.60s'; allowed: %ld to %ld", where, key,
			text, f->least, f->most);
	}
	errno = saved;
	*(unsigned *)((char *)rules + f->at) = (unsigned)value;
	return 0;
}

int gpuarb_class_format(const struct gpuarb_class_rules *rules, const char *key, char *text, size_t size)
{
	const struct field *f = find(key);

	if (!f)
		return -ENOENT;
	if (f->yes)
		snprintf(text, size, "%s", *(const bool *)((const char *)rules + f->at) ? f->yes : f->no);
	else
		snprintf(text, size, "%u", *(const unsigned *)((const char *)rules + f->at));
	return 0;
}

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "gpuarb/config.h"
#include "gpuarb/places.h"
#include "gpuarb/spelling.h"

#include "shm/base/error.h"
#include "shm/base/granted.h"
#include "shm/base/groups.h"
#include "shm/base/members.h"

_Static_assert(ARB_KEY_COUNT <= ARB_KEYS_MAX, "the control segment has no room for this many settings");

const struct gpuarb_key gpuarb_keys[ARB_KEY_COUNT] = {
#define KEY(id, name, kind, scope, least, most, initial, unit, env, alias, choices, help)                    \
	[ARB_KEY_##id] = {name, ARB_KIND_##kind, ARB_SCOPE_##scope, least, most, initial, unit, env, alias,  \
		choices, help},
#include "gpuarb/keys.def"
#undef KEY
};

enum arb_key gpuarb_config_find(const char *name)
{
	int key = 0;

	while (key < ARB_KEY_COUNT && strcmp(gpuarb_keys[key].name, name) != 0)
		key++;
	return (enum arb_key)key;
}

const char *gpuarb_config_nearest(const char *name)
{
	struct gpuarb_spelling s;

	gpuarb_spelling_begin(&s, name);
	for (int key = 0; key < ARB_KEY_COUNT; key++)
		gpuarb_spelling_try(&s, gpuarb_keys[key].name);
	return gpuarb_spelling_meant(&s);
}

int gpuarb_config_unknown(const char *name, const char *where, struct gpuarb_error *err)
{
	const char *near = gpuarb_config_nearest(name);

	return arb_fail(err, -EINVAL, "%sthere is no setting '%.60s'%s%s%s", where, name,
		near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

bool gpuarb_config_name_ok(const char *name)
{
	size_t n = strlen(name);

	if (n == 0 || n >= ARB_NAME_BYTES)
		return false;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)name[i] <= ' ' || (unsigned char)name[i] == 0x7f)
			return false;
	return true;
}

int gpuarb_config_account(const char *name, const char *where, struct gpuarb_error *err)
{
	size_t n = strlen(name);

	if (gpuarb_config_name_ok(name))
		return 0;
	return arb_fail(err, -EINVAL,
		"%s: '%.40s%s' (%zu bytes) cannot be an account's name; allowed: 1 to %d bytes, no spaces or "
		"control characters",
		where, name, n > 40 ? "..." : "", n, ARB_NAME_BYTES - 1);
}

/* Returns the place of a word in "one|two|three", or -1. */
static int choice_of(const char *choices, const char *word)
{
	size_t length = strlen(word);

	for (int i = 0; choices; i++) {
		const char *end = strchr(choices, '|');
		size_t n = end ? (size_t)(end - choices) : strlen(choices);

		if (n == length && strncasecmp(choices, word, n) == 0)
			return i;
		choices = end ? end + 1 : NULL;
	}
	return -1;
}

static bool parse_number(const char *text, int base, int64_t *value, const char **rest)
{
	char *end;
	int saved = errno;

	errno = 0;
	*value = strtoll(text, &end, base);
	*rest = end;
	if (errno != 0 || end == text) {
		errno = saved;
		return false;
	}
	errno = saved;
	return true;
}

static bool parse_bytes(const char *text, int64_t *value)
{
	static const char suffixes[] = "KMGT";
	const char *rest, *at;
	int64_t unit = 1;

	if (!parse_number(text, 10, value, &rest) || *value < 0)
		return false;
	if (*rest && (at = strchr(suffixes, *rest)) != NULL) {
		int64_t step = rest[1] == 'i' ? 1024 : 1000;

		for (const char *p = suffixes; p <= at; p++)
			unit *= step;
		rest += rest[1] == 'i' ? 2 : 1;
	}
	if (*rest == 'B')
		rest++;
	return !*rest && !__builtin_mul_overflow(*value, unit, value);
}

/* Reads a ratio: a decimal point and three digits behind it are enough, and mean the same in every locale. */
static bool parse_ratio(const char *text, int64_t *value)
{
	const char *rest;
	int64_t unit = 100;

	if (!parse_number(text, 10, value, &rest) || *value < 0 || *value > INT64_MAX / 2000)
		return false;
	*value *= 1000;
	if (*rest == '.')
		for (rest++; *rest >= '0' && *rest <= '9'; rest++, unit /= 10)
			*value += (*rest - '0') * unit;
	return !*rest;
}

static bool parse_group(const char *text, int64_t *value)
{
	const char *rest;
	int saved = errno;

	*value = -1;
	if (!*text || (parse_number(text, 10, value, &rest) && !*rest))
		return true;
	*value = arb_rights_group(text);
	errno = saved;
	return *value >= 0;
}

void gpuarb_config_allowed(enum arb_key key, char *text, size_t size)
{
	const struct gpuarb_key *k = &gpuarb_keys[key];
	char least[32], most[32];

	gpuarb_config_format(key, k->least, least, sizeof(least));
	gpuarb_config_format(key, k->most, most, sizeof(most));
	switch (k->kind) {
	case ARB_KIND_BOOL:
		snprintf(text, size, "on or off");
		break;
	case ARB_KIND_CHOICE:
		snprintf(text, size, "one of %s", k->choices);
		break;
	case ARB_KIND_BYTES:
		snprintf(text, size, "a number of bytes such as 512Mi, 4Gi, 4G or 4294967296");
		break;
	case ARB_KIND_GROUP:
		snprintf(text, size, "the name or number of a group");
		break;
	case ARB_KIND_MEMBERS:
		snprintf(text, size,
			"a list of at most %u, each a user's number, @ and a group, or 12 digits of a container's id",
			ARB_MEMBERS);
		break;
	case ARB_KIND_MODE:
		snprintf(text, size, "an octal mode from %s to %s", least, most);
		break;
	default:
		snprintf(text, size, "%s%s to %s%s%s", k->kind == ARB_KIND_AUTO ? "auto or " : "", least,
			most, *k->unit ? " " : "", k->unit);
	}
}

int gpuarb_config_parse(
	enum arb_key key, const char *text, const char *where, int64_t *value, struct gpuarb_error *err)
{
	const struct gpuarb_key *k = &gpuarb_keys[key];
	const char *rest = "";
	char allowed[160];
	int64_t v = 0, members[ARB_MEMBERS];
	bool ok = false;

	switch (k->kind) {
	case ARB_KIND_AUTO:
		if (strcasecmp(text, "auto") == 0) {
			*value = -1;
			return 0;
		}
		/* fall through */
	case ARB_KIND_INT:
		ok = parse_number(text, 10, &v, &rest);
		if (ok && *rest == '%' && strcmp(k->unit, "percent") == 0)
			rest++;
		break;
	case ARB_KIND_MODE:
		ok = parse_number(text, 8, &v, &rest);
		break;
	case ARB_KIND_BOOL:
		v = choice_of("off|on|no|yes|0|1|false|true", text);
		ok = v >= 0;
		v &= 1;
		break;
	case ARB_KIND_CHOICE:
		v = choice_of(k->choices, text);
		ok = v >= 0;
		break;
	case ARB_KIND_BYTES:
		ok = parse_bytes(text, &v);
		break;
	case ARB_KIND_RATIO:
		ok = parse_ratio(text, &v);
		break;
	case ARB_KIND_GROUP:
		ok = parse_group(text, &v);
		break;
	case ARB_KIND_MEMBERS:
		ok = gpuarb_config_members(text, members);
		v = members[0];
		break;
	}
	if (ok && !*rest && (k->kind == ARB_KIND_CHOICE || (v >= k->least && v <= k->most))) {
		*value = v;
		return 0;
	}
	gpuarb_config_allowed(key, allowed, sizeof(allowed));
	return arb_fail(err, -EINVAL, "%s%s%s cannot be '%.60s'; allowed: %s", where, *where ? ": " : "",
		k->name, text, allowed);
}

void gpuarb_config_format(enum arb_key key, int64_t value, char *text, size_t size)
{
	const struct gpuarb_key *k = &gpuarb_keys[key];
	static const char *const suffix[] = {"", "Ki", "Mi", "Gi", "Ti"};
	const char *choice = k->choices;
	int unit = 0;

	switch (k->kind) {
	case ARB_KIND_AUTO:
		if (value < 0)
			snprintf(text, size, "auto");
		else
			snprintf(text, size, "%lld", (long long)value);
		return;
	case ARB_KIND_BOOL:
		snprintf(text, size, value ? "on" : "off");
		return;
	case ARB_KIND_CHOICE:
		for (int64_t i = 0; choice && i < value; i++)
			if ((choice = strchr(choice, '|')) != NULL)
				choice++;
		snprintf(text, size, "%.*s", choice ? (int)strcspn(choice, "|") : 1, choice ? choice : "?");
		return;
	case ARB_KIND_BYTES:
		while (value && unit < 4 && value % 1024 == 0) {
			value /= 1024;
			unit++;
		}
		snprintf(text, size, "%lld%s", (long long)value, suffix[unit]);
		return;
	case ARB_KIND_RATIO:
		snprintf(text, size, "%lld.%03lld", (long long)(value / 1000), (long long)(value % 1000));
		return;
	case ARB_KIND_MODE:
		snprintf(text, size, "%04llo", (unsigned long long)value);
		return;
	case ARB_KIND_MEMBERS:
		arb_members_format(value, text, size);
		return;
	case ARB_KIND_GROUP:
		if (value < 0) {
			snprintf(text, size, "%s", "");
			return;
		}
		/* fall through */
	case ARB_KIND_INT:
		snprintf(text, size, "%lld", (long long)value);
	}
}

int gpuarb_config_check(const int64_t *value, const char *where, struct gpuarb_error *err)
{
	if (value[ARB_KEY_LOW_WATER] > value[ARB_KEY_HIGH_WATER])
		return arb_fail(err, -EINVAL, "%s: low_water (%lld) must not be above high_water (%lld)",
			where, (long long)value[ARB_KEY_LOW_WATER], (long long)value[ARB_KEY_HIGH_WATER]);
	if (value[ARB_KEY_SWITCH_MIN_MS] > value[ARB_KEY_SWITCH_MAX_MS])
		return arb_fail(err, -EINVAL,
			"%s: switch_min_ms (%lld) must not be above switch_max_ms (%lld)", where,
			(long long)value[ARB_KEY_SWITCH_MIN_MS], (long long)value[ARB_KEY_SWITCH_MAX_MS]);
	return 0;
}

struct parse {
	struct gpuarb_config *config;
	const char *path;
	struct gpuarb_error *err;
	FILE *file;
	int result;
	int line;
	char section[128];
};

/* Reads a line for the library. The library does not tell its handler the number of the line, so the lines are
 * counted here; and it cuts a section's name at 49 bytes. */
static char *next_line(char *text, int size, void *stream)
{
	struct parse *p = stream;
	const char *at;

	p->line++;
	if (!fgets(text, size, p->file))
		return NULL;
	at = text + strspn(text, " \t\xef\xbb\xbf"); /* blanks, and the mark that begins a text in UTF-8 */
	if (*at == '[')
		snprintf(p->section, sizeof(p->section), "%.*s", (int)strcspn(at + 1, "]"), at + 1);
	return text;
}

uint32_t gpuarb_config_flag(enum arb_key key)
{
	switch (key) {
	case ARB_KEY_CORE:
		return ARB_LIMIT_CORE;
	case ARB_KEY_MEM:
		return ARB_LIMIT_MEM;
	case ARB_KEY_PRIORITY:
		return ARB_LIMIT_PRIORITY;
	case ARB_KEY_REQUEST:
		return ARB_LIMIT_REQUEST;
	case ARB_KEY_MEMBERS:
		return ARB_LIMIT_MEMBERS;
	default:
		return ARB_LIMIT_WEIGHT;
	}
}

int64_t *gpuarb_config_value(struct gpuarb_config_limit *limit, enum arb_key key)
{
	switch (key) {
	case ARB_KEY_CORE:
		return &limit->core_pct;
	case ARB_KEY_MEM:
		return &limit->mem_bytes;
	case ARB_KEY_PRIORITY:
		return &limit->priority;
	case ARB_KEY_REQUEST:
		return &limit->request_pct;
	case ARB_KEY_MEMBERS:
		return limit->members;
	default:
		return &limit->weight;
	}
}

static struct gpuarb_config_limit *limit_of(struct gpuarb_config *config, const char *name)
{
	struct gpuarb_config_limit *grown;

	for (size_t i = 0; i < config->nlimits; i++)
		if (strcmp(config->limits[i].name, name) == 0)
			return &config->limits[i];
	grown = realloc(config->limits, (config->nlimits + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	config->limits = grown;
	grown += config->nlimits++;
	memset(grown, 0, sizeof(*grown));
	snprintf(grown->name, sizeof(grown->name), "%s", name);
	return grown;
}

static int account_value(struct parse *p, const char *where, const char *account, enum arb_key key,
	const char *text, int64_t value)
{
	struct gpuarb_config_limit *limit;
	int r = gpuarb_config_account(account, where, p->err);

	if (r < 0)
		return r;
	limit = limit_of(p->config, account);
	if (!limit)
		return arb_fail(p->err, -ENOMEM, "%s: out of memory", where);
	if (p->config->nlimits > ARB_CONTROL_LIMITS)
		return arb_fail(p->err, -ENOSPC, "%s: more than %u accounts", where, ARB_CONTROL_LIMITS);
	*gpuarb_config_value(limit, key) = value;
	if (key == ARB_KEY_MEMBERS)
		gpuarb_config_members(text, limit->members);
	limit->set |= gpuarb_config_flag(key);
	return 0;
}

static int class_value(
	struct parse *p, const char *where, const char *class_name, const char *key, const char *text)
{
	struct gpuarb_config *c = p->config;
	uint32_t i = 0;

	if (!gpuarb_class_name_ok(class_name))
		return arb_fail(p->err, -EINVAL, ARB_CLASS_NAME_SENTENCE, where, class_name);
	while (i < c->nclasses && strcmp(c->classes[i].name, class_name) != 0)
		i++;
	/* One place belongs to the default class. */
	if (i == ARB_CLASSES - 1)
		return arb_fail(p->err, -ENOSPC, "%s: more than %u classes", where, ARB_CLASSES - 1);
	if (i == c->nclasses) {
		c->classes[i] = gpuarb_class_default;
		snprintf(c->classes[i].name, sizeof(c->classes[i].name), "%s", class_name);
		c->nclasses++;
	}
	return gpuarb_class_parse(&c->classes[i], key, text, where, p->err);
}

static int on_value(void *user, const char *cut, const char *name, const char *text)
{
	struct parse *p = user;
	const char *section = *cut ? p->section : cut;
	enum arb_key key = gpuarb_config_find(name);
	char where[512];
	int64_t value;

	if (p->result < 0) {
		/* After an error only what to do about it matters. */
		if (key == ARB_KEY_ON_ERROR)
			gpuarb_config_parse(key, text, p->path, &p->config->value[key], NULL);
		return 1;
	}
	if (strncmp(section, "class ", 6) == 0) {
		snprintf(where, sizeof(where), "%s:%d", p->path, p->line);
		p->result = class_value(p, where, section + 6, name, text);
		return 1;
	}
	if (key == ARB_KEY_COUNT) {
		snprintf(where, sizeof(where), "%s:%d: ", p->path, p->line);
		p->result = gpuarb_config_unknown(name, where, p->err);
		return 1;
	}
	snprintf(where, sizeof(where), "%s:%d", p->path, p->line);
	p->result = gpuarb_config_parse(key, text, where, &value, p->err);
	if (p->result < 0)
		return 1;
	if (strncmp(section, "account ", 8) == 0) {
		if (gpuarb_keys[key].scope != ARB_SCOPE_ACCOUNT)
			p->result = arb_fail(p->err, -EINVAL,
				"%s: %s is not a setting of an account; core, mem, priority, request, weight and members are",
				where, name);
		else
			p->result = account_value(p, where, section + 8, key, text, value);
	} else if (*section && strcmp(section, "gpu") != 0) {
		p->result = arb_fail(p->err, -EINVAL,
			"%s: there is no section [%.60s]; there are [gpu], [account NAME] and [class NAME]",
			where, section);
	} else {
		p->config->value[key] = value;
		p->config->given[key] = true;
	}
	return 1;
}

static int load_file(
	struct gpuarb_config *config, const char *path, bool must_exist, struct gpuarb_error *err)
{
	struct parse p = {.config = config, .path = path, .err = err};
	int saved = errno, line = 0, code = 0;

	p.file = fopen(path, "re");
	if (p.file) {
		line = ini_parse_stream(next_line, &p, on_value, &p);
		/* A directory can be opened, but not read. */
		code = !ferror(p.file) ? 0 : errno ? -errno : -EIO;
		fclose(p.file);
	} else if (errno != ENOENT || must_exist) {
		code = -errno;
	}
	errno = saved;
	if (code < 0)
		return arb_fail(err, code, "cannot read %s: %s", path, strerror(-code));
	if (p.result == 0 && line != 0)
		return arb_fail(err, -EINVAL, "%s:%d: this is not 'name = value', [section] or a comment",
			path, line);
	return p.result;
}

/* Reads all variables, also after a bad value; the sentence is about the first bad value. */
static int load_environment(struct gpuarb_config *config, struct gpuarb_error *err)
{
	int result = 0;

	for (int key = 0; key < ARB_KEY_COUNT; key++) {
		const char *where = gpuarb_keys[key].env, *text = arb_granted_getenv(where);
		int r;

		if (!text && gpuarb_keys[key].alias) {
			where = gpuarb_keys[key].alias;
			text = arb_granted_getenv(where);
		}
		if (!text || !*text)
			continue;
		r = gpuarb_config_parse(
			(enum arb_key)key, text, where, &config->value[key], result ? NULL : err);
		config->given[key] |= r == 0;
		if (!result)
			result = r;
	}
	return result;
}

/* Requests are promised on each GPU, whether or not the accounts are in use. */
static int check_requests(const struct gpuarb_config *config, const char *where, struct gpuarb_error *err)
{
	char names[200] = "";
	size_t at = 0;
	int64_t sum = 0;

	for (size_t i = 0; i < config->nlimits; i++) {
		const struct gpuarb_config_limit *l = &config->limits[i];

		if (!(l->set & ARB_LIMIT_REQUEST) || !l->request_pct)
			continue;
		sum += l->request_pct;
		if (at < sizeof(names))
			at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%.30s has %lld",
				at ? ", " : "", l->name, (long long)l->request_pct);
	}
	if (sum <= 100)
		return 0;
	return arb_fail(err, -EINVAL,
		"%s: the requests of accounts add up to %lld percent, and may to 100 (%s%s)", where,
		(long long)sum, names, at < sizeof(names) ? "" : "...");
}

int gpuarb_config_load(
	struct gpuarb_config *config, const char *conf, bool ignore_env, struct gpuarb_error *err)
{
	const char *path = conf;
	int r, env;

	memset(config, 0, sizeof(*config));
	for (int key = 0; key < ARB_KEY_COUNT; key++)
		config->value[key] = gpuarb_keys[key].initial;
	if (!path && !ignore_env)
		path = arb_granted_getenv("GPUARB_CONF");
	r = load_file(config, path ? path : ARB_CONF_DEFAULT, path != NULL, err);
	env = ignore_env ? 0 : load_environment(config, r < 0 ? NULL : err);
	if (r == 0)
		r = env;
	if (r == 0)
		r = gpuarb_config_check(config->value, path ? path : ARB_CONF_DEFAULT, err);
	if (r == 0)
		r = check_requests(config, path ? path : ARB_CONF_DEFAULT, err);
	if (r < 0)
		gpuarb_config_free(config);
	return r;
}

void gpuarb_config_free(struct gpuarb_config *config)
{
	free(config->limits);
	config->limits = NULL;
	config->nlimits = 0;
}

/*
 * The tools' view of the settings: parsed, checked and named in one place. A bad value gives one sentence, and
 * changes nothing.
 */
#ifndef GPUARB_CONFIG_H
#define GPUARB_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpuarb/abi.h"
#include "gpuarb/classes.h"
#include "gpuarb/client.h"

#ifdef __cplusplus
extern "C" {
#endif

enum arb_key {
#define KEY(id, ...) ARB_KEY_##id,
#include "gpuarb/keys.def"
#undef KEY
	ARB_KEY_COUNT
};

enum arb_key_kind {
	ARB_KIND_INT,
	ARB_KIND_AUTO,
	ARB_KIND_BOOL,
	ARB_KIND_CHOICE,
	ARB_KIND_BYTES,
	ARB_KIND_RATIO,
	ARB_KIND_MODE,
	ARB_KIND_GROUP,
	ARB_KIND_MEMBERS
};
enum arb_key_scope { ARB_SCOPE_GPU, ARB_SCOPE_CREATE, ARB_SCOPE_ACCOUNT };

struct gpuarb_key {
	const char *name;
	enum arb_key_kind kind;
	enum arb_key_scope scope;
	int64_t least, most, initial;
	const char *unit, *env, *alias, *choices, *help;
};

GPUARB_API extern const struct gpuarb_key gpuarb_keys[ARB_KEY_COUNT];

/* An [account NAME] section of arbiter.conf. */
struct gpuarb_config_limit {
	char name[ARB_NAME_BYTES];
	uint32_t set; /* ARB_LIMIT_* */
	int64_t core_pct, mem_bytes, priority, request_pct, weight;
	int64_t members[ARB_MEMBERS]; /* -1: nobody */
};

/* Return the ARB_LIMIT_* of an account's setting, and the place of its value; for `members` that is the first of
 * ARB_MEMBERS. */
GPUARB_API uint32_t gpuarb_config_flag(enum arb_key key);
GPUARB_API int64_t *gpuarb_config_value(struct gpuarb_config_limit *limit, enum arb_key key);

struct gpuarb_config {
	int64_t value[ARB_KEY_COUNT];
	bool given[ARB_KEY_COUNT]; /* it was set, and is not just the default */
	struct gpuarb_config_limit *limits;
	size_t nlimits;
	struct gpuarb_class_rules classes[ARB_CLASSES];
	uint32_t nclasses;
};

/* The key of that name, or ARB_KEY_COUNT. */
GPUARB_API enum arb_key gpuarb_config_find(const char *name);
/* Returns the known name that is nearest to a wrong name, or NULL if none is near. */
GPUARB_API const char *gpuarb_config_nearest(const char *name);

/* Returns -EINVAL, with a sentence that names the nearest known name and begins with `where` ("file:3: "). */
GPUARB_API int gpuarb_config_unknown(const char *name, const char *where, struct gpuarb_error *err);

/* Reads one value. If it is bad, the sentence begins with `where` ("arbiter.conf:12", "GPUARB_CORE_LIMIT"). */
GPUARB_API int gpuarb_config_parse(
	enum arb_key key, const char *text, const char *where, int64_t *value, struct gpuarb_error *err);
/* Writes a value as text that gpuarb_config_parse accepts. */
GPUARB_API void gpuarb_config_format(enum arb_key key, int64_t value, char *text, size_t size);

/* Reads the setting `members`, which is a list: gpuarb_config_parse checks it and gives its first entry, this
 * function gives all of them. Returns false if the list is bad. */
GPUARB_API bool gpuarb_config_members(const char *text, int64_t members[ARB_MEMBERS]);
/* Writes the list as text that gpuarb_config_members accepts; text: ARB_MEMBERS_BYTES. */
GPUARB_API void gpuarb_config_members_format(const int64_t members[ARB_MEMBERS], char *text);

/* Says in words what a value may be. */
GPUARB_API void gpuarb_config_allowed(enum arb_key key, char *text, size_t size);

/* Returns whether this name of an account can be stored and shown. */
GPUARB_API bool gpuarb_config_name_ok(const char *name);
/* 0, or -EINVAL with a sentence that begins with `where` ("--account", "arbiter.conf:12"). */
GPUARB_API int gpuarb_config_account(const char *name, const char *where, struct gpuarb_error *err);

/*
 * Takes the defaults, then the file (it may be missing unless it was asked for by name), then the environment.
 * Settings that contradict each other are an error as well. After an error, on_error is still as it was set.
 */
GPUARB_API int gpuarb_config_load(
	struct gpuarb_config *config, const char *conf, bool ignore_env, struct gpuarb_error *err);
GPUARB_API void gpuarb_config_free(struct gpuarb_config *config);
/* Do the settings fit together? */
GPUARB_API int gpuarb_config_check(const int64_t *value, const char *where, struct gpuarb_error *err);

#ifdef __cplusplus
}
#endif

#endif

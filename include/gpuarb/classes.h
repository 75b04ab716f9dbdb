/* The tools' view of task classes: which goes first, which waits and for how long, which goes under pressure. */
#ifndef GPUARB_CLASSES_H
#define GPUARB_CLASSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpuarb/abi.h"
#include "gpuarb/client.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ARB_CLASS_WAIT_MS_MAX 3600000u

struct gpuarb_class_rules {
	char name[ARB_CLASS_BYTES];
	unsigned priority; /* 1..100, higher goes first */
	bool skip;         /* never waits */
	bool pass;         /* goes under pressure too */
	unsigned max_wait_ms;
	unsigned queue_limit; /* processes that may wait; 0: any number */
};

/* The class of a task that names no class. What a [class] section leaves out is as in this one. */
GPUARB_API extern const struct gpuarb_class_rules gpuarb_class_default;

#define ARB_CLASS_NAME_SENTENCE                                                                              \
	"%s: '%.60s' cannot be a class's name: 1 to 31 letters, digits, '-', '_' or '.'"

/* Why the default class cannot be removed: tasks without a class have it. */
#define ARB_CLASS_STAYS_SENTENCE                                                                             \
	"the class '%s' cannot be taken away: tasks that name no class belong to it; an empty value, such "  \
	"as "                                                                                                \
	"priority=, sets it back"

GPUARB_API bool gpuarb_class_name_ok(const char *name);

/* Sets one field out of text; `where` begins the sentence if it is bad. */
GPUARB_API int gpuarb_class_parse(struct gpuarb_class_rules *rules, const char *key, const char *text,
	const char *where, struct gpuarb_error *err);
/* Writes one field as text; -ENOENT: there is no such field. Field i has the name gpuarb_class_key(i), or NULL. */
GPUARB_API int gpuarb_class_format(
	const struct gpuarb_class_rules *rules, const char *key, char *text, size_t size);
GPUARB_API const char *gpuarb_class_key(unsigned i);

#ifdef __cplusplus
}
#endif

#endif

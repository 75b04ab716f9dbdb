/* Task classes: who goes first, who waits and for how long, who goes under pressure. */
#ifndef ARB_CLASSES_H
#define ARB_CLASSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpuarb/abi.h"
#include "gpuarb/client.h"

#define ARB_CLASS_WAIT_MS_MAX 3600000u

struct arb_class_rules {
	char name[ARB_CLASS_BYTES];
	unsigned priority; /* 1..100, higher goes first */
	bool skip;         /* never waits */
	bool pass;         /* goes under pressure too */
	unsigned max_wait_ms;
	unsigned queue_limit; /* processes that may wait; 0: any number */
};

/* The class of a task that names none; what a [class] section does not say is as here. */
extern const struct arb_class_rules arb_class_default;

#define ARB_CLASS_NAME_SENTENCE                                                                              \
	"%s: '%.60s' cannot be a class's name: 1 to 31 letters, digits, '-', '_' or '.'"

/* Tasks without a class have this one. */
#define ARB_CLASS_STAYS_SENTENCE                                                                             \
	"the class '%s' cannot be taken away: tasks that name no class belong to it; an empty value, such "  \
	"as "                                                                                                \
	"priority=, sets it back"

bool arb_class_name_ok(const char *name);

/* Sets one field out of text; `where` begins the sentence if it is bad. */
int arb_class_parse(struct arb_class_rules *rules, const char *key, const char *text, const char *where,
	struct gpuarb_error *err);
/* The other way round; -ENOENT: there is no such field. Field i has the name arb_class_key(i), or NULL. */
int arb_class_format(const struct arb_class_rules *rules, const char *key, char *text, size_t size);
const char *arb_class_key(unsigned i);

#endif

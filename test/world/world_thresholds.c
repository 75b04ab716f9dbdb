/* The thresholds of the tracking core as variables, so that a test can scale each of them. */
#include "test/world/world_thresholds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/book/thresholds.h"

#define THRESHOLD(name, value, unit, reason) uint64_t name = value;
#include "preload/book/thresholds.def"
#undef THRESHOLD

static const struct {
	const char *name, *unit;
	uint64_t *word;
} all[] = {
#define THRESHOLD(name, value, unit, reason) {#name, unit, &name},
#include "preload/book/thresholds.def"
#undef THRESHOLD
};

bool world_threshold(const char *text)
{
	size_t length = strcspn(text, "=");
	double factor = text[length] ? atof(text + length + 1) : 1;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (!strcmp(text, "list"))
			printf("%s\t%llu\t%s\n", all[i].name, (unsigned long long)*all[i].word, all[i].unit);
		else if (strlen(all[i].name) == length && !strncmp(all[i].name, text, length)) {
			*all[i].word = (uint64_t)((double)*all[i].word * factor);
			return true;
		}
	}
	if (!strcmp(text, "list"))
		exit(0);
	return false;
}

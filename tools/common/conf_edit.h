/* Changing one value in the text of an arbiter.conf, and leaving everything else as its owner wrote it. */
#ifndef TOOLS_CONF_EDIT_H
#define TOOLS_CONF_EDIT_H

#include <stdbool.h>

/*
 * A new text, to be freed, in which `key` of [section] has the value; NULL takes the line out. The section
 * is added at the end where there is none. What stands before any section belongs to [gpu].
 */
char *conf_edit(const char *text, const char *section, const char *key, const char *value);
/* A new text without [section], wherever it stands. Its comments stay. */
char *conf_drop(const char *text, const char *section);

#endif

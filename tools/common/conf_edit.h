/* Changes one value in the text of an arbiter.conf and leaves the rest as its owner wrote it. */
#ifndef TOOLS_CONF_EDIT_H
#define TOOLS_CONF_EDIT_H

#include <stdbool.h>

/* Returns a new text, which the caller frees, in which `key` of [section] has the value; NULL removes the line. A
 * missing section is added at the end. Lines before any section belong to [gpu]. */
char *conf_edit(const char *text, const char *section, const char *key, const char *value);
/* Returns a new text without [section], wherever that stands. Its comments stay. */
char *conf_drop(const char *text, const char *section);

#endif

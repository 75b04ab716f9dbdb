/* The live screen: ncurses, and only input and output. */
#ifndef TOOLS_TOP_SCREEN_H
#define TOOLS_TOP_SCREEN_H

#include <stdbool.h>

#include "tools/top/top_source.h"
#include "tools/top/top_ui.h"

struct top_screen {
	long interval_ms;
	bool utf8, colour, mouse;
};

/* Returns whether there is a terminal that can only print line after line, such as TERM=dumb. */
bool top_screen_is_plain(void);
/* Runs until the user quits. Returns NULL, or a sentence that says why there is no screen. */
const char *top_screen_run(struct top_source *source, struct top_ui *ui, const struct top_screen *how);

#endif

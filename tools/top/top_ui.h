/* What the user has chosen, and what each key changes. Pure. */
#ifndef TOOLS_TOP_UI_H
#define TOOLS_TOP_UI_H

#include <stdbool.h>

#include "tools/top/top_model.h"

enum top_sort {
	TOP_BY_SHARE,
	TOP_BY_NAME,
	TOP_BY_LIMIT,
	TOP_BY_MEMORY,
	TOP_BY_THROTTLED,
	TOP_BY_DEBT,
	TOP_BY_QUEUE,
	TOP_SORTS
};

enum top_mode {
	TOP_TABLE,
	TOP_HELP,
	TOP_EXPLAIN,
	TOP_ASK_FILTER,
	TOP_ASK_CORE, /* a new limit of the selected account */
	TOP_ASK_MEM,
	TOP_ASK_PRIORITY,
};

/* Keys that are no characters. */
enum top_key {
	TOP_KEY_UP = 0x110000,
	TOP_KEY_DOWN,
	TOP_KEY_PAGE_UP,
	TOP_KEY_PAGE_DOWN,
	TOP_KEY_HOME,
	TOP_KEY_END,
	TOP_KEY_BACKSPACE,
	TOP_KEY_ESCAPE,
	TOP_KEY_RESIZE,
	TOP_KEY_CLICK, /* + the line */
};

/* What the caller has to do after a key. */
enum top_request { TOP_NOTHING, TOP_QUIT, TOP_CHANGE };

struct top_ui {
	unsigned gpu;
	char selected[ARB_NAME_BYTES]; /* the name of an account */
	int scroll;                    /* the first row that is shown */
	int text_scroll;               /* the first line of the help or the explanation that is shown */
	enum top_sort sort;
	bool reverse, paused, all_open;
	bool limits_only; /* leave out accounts that idle */
	enum top_mode mode;
	char filter[64];
	char input[64];
	char message[512]; /* shown until the next key */
	bool message_bad;
	char trouble[512];       /* what could not be read when it was last tried */
	int page;                /* rows that fit, as last drawn */
	int table_y;             /* the line of the first row, as last drawn */
	const char *explanation; /* lines of it, in TOP_EXPLAIN */
};

/* A row of the table: an account, or (client >= 0) one of its processes. */
struct top_row {
	const struct top_account *account;
	int client;
};

/* Lists the rows that are shown, in order. Returns how many; at most `most`. */
unsigned top_ui_rows(const struct top_ui *ui, const struct top_gpu *gpu, struct top_row *rows, unsigned most);
#define TOP_ROWS (3 * ARB_SLOTS_MAX)

const char *top_sort_name(enum top_sort sort);
/* Returns the setting that an input changes ("core"), or NULL. */
const char *top_ui_setting(enum top_mode mode);
enum top_request top_ui_key(struct top_ui *ui, struct top_gpu *const *gpus, unsigned ngpus, int key);

#endif

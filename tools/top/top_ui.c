#include "tools/top/top_ui.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/top/top_text.h"

const char *top_sort_name(enum top_sort sort)
{
	static const char *const names[TOP_SORTS] = {
		"share", "name", "limit", "memory", "throttled", "debt", "queue"};

	return sort < TOP_SORTS ? names[sort] : "?";
}

static double weigh(const struct top_account *a, enum top_sort sort)
{
	switch (sort) {
	case TOP_BY_LIMIT:
		return a->now.limit_ppm;
	case TOP_BY_MEMORY:
		return (double)a->now.mem_used;
	case TOP_BY_THROTTLED:
		return (double)a->throttled_ns;
	case TOP_BY_DEBT:
		return (double)a->now.debt_ns;
	case TOP_BY_QUEUE:
		return a->queue_place ? 1e6 - a->queue_place : 0;
	default:
		break;
	}
	/* The longest span that is known changes least, so rows do not jump. */
	for (int i = TOP_SPANS - 2; i >= 0; i--)
		if (a->share[i].known)
			return a->share[i].value;
	return 0;
}

/* Shares that differ by less than a point count as equal, so that the order of accounts does not flicker. */
static int compare(const void *x, const void *y, void *argument)
{
	const struct top_row *a = x, *b = y;
	const struct top_ui *ui = argument;
	double near = ui->sort == TOP_BY_SHARE ? 0.01 : 0;
	double of_a = weigh(a->account, ui->sort), of_b = weigh(b->account, ui->sort);
	int result = 0;

	if (near > 0) {
		of_a = (double)(long)(of_a / near + 0.5);
		of_b = (double)(long)(of_b / near + 0.5);
	}
	if (ui->sort != TOP_BY_NAME)
		result = of_a < of_b ? 1 : of_a > of_b ? -1 : 0;
	if (!result)
		return ui->sort == TOP_BY_NAME && ui->reverse
			       ? strcmp(b->account->now.name, a->account->now.name)
			       : strcmp(a->account->now.name, b->account->now.name);
	return ui->reverse ? -result : result;
}

static bool client_matches(const struct gpuarb_view_client *c, const char *filter)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%u", c->pid);
	return strcasestr(c->command, filter) || strcasestr(c->container, filter) || strcmp(pid, filter) == 0;
}

static bool matches(const struct top_ui *ui, const struct top_gpu *g, const struct top_account *a)
{
	if (!a->present || (ui->limits_only && a->state == TOP_IDLE))
		return false;
	if (!ui->filter[0] || strcasestr(a->now.name, ui->filter) ||
		strcasecmp(top_state_name(a->state), ui->filter) == 0)
		return true;
	for (unsigned i = 0; i < g->picture->nclients; i++)
		if (top_gpu_owner(g, &g->picture->clients[i]) == a &&
			client_matches(&g->picture->clients[i], ui->filter))
			return true;
	return false;
}

unsigned top_ui_rows(const struct top_ui *ui, const struct top_gpu *g, struct top_row *rows, unsigned most)
{
	unsigned accounts = 0, n;

	if (!g->picture)
		return 0;
	for (unsigned i = 0; i < g->naccounts && accounts < most; i++)
		if (matches(ui, g, g->accounts[i]))
			rows[accounts++] = (struct top_row){g->accounts[i], -1};
	qsort_r(rows, accounts, sizeof(*rows), compare, (void *)ui);
	n = accounts;
	/* The processes of each account go behind it. This is done from the last account on, so that no row is
	 * overwritten. */
	for (unsigned i = accounts; i-- > 0;) {
		const struct top_account *a = rows[i].account;
		unsigned more = 0;

		if (a->open == ui->all_open)
			continue;
		for (unsigned k = 0; k < g->picture->nclients && n + more < most; k++)
			more += top_gpu_owner(g, &g->picture->clients[k]) == a;
		memmove(&rows[i + 1 + more], &rows[i + 1], (n - i - 1) * sizeof(*rows));
		n += more;
		for (unsigned k = 0, at = i + 1; at < i + 1 + more && k < g->picture->nclients; k++)
			if (top_gpu_owner(g, &g->picture->clients[k]) == a)
				rows[at++] = (struct top_row){a, (int)k};
	}
	return n;
}

const char *top_ui_setting(enum top_mode mode)
{
	return mode == TOP_ASK_CORE       ? "core"
	       : mode == TOP_ASK_MEM      ? "mem"
	       : mode == TOP_ASK_PRIORITY ? "priority"
					  : NULL;
}

/* Moves the selection over the accounts; scrolling follows when the screen is drawn. */
static void move(struct top_ui *ui, const struct top_gpu *g, int by)
{
	static struct top_row rows[TOP_ROWS];
	unsigned n = top_ui_rows(ui, g, rows, TOP_ROWS), accounts = 0;
	int at = -1;

	for (unsigned i = 0; i < n; i++) {
		if (rows[i].client >= 0)
			continue;
		if (strcmp(rows[i].account->now.name, ui->selected) == 0)
			at = (int)accounts;
		rows[accounts++] = rows[i];
	}
	if (!accounts)
		return;
	at = at < 0 ? (by > 0 ? by - 1 : 0) : at + by;
	at = at < 0 ? 0 : at >= (int)accounts ? (int)accounts - 1 : at;
	memcpy(ui->selected, rows[at].account->now.name, sizeof(ui->selected));
}

static void say(struct top_ui *ui, const char *text)
{
	snprintf(ui->message, sizeof(ui->message), "%s", text);
	ui->message_bad = false;
}

static enum top_request on_input(struct top_ui *ui, int key)
{
	size_t n = strlen(ui->input);

	if (key == TOP_KEY_ESCAPE) {
		ui->mode = TOP_TABLE;
	} else if (key == '\n') {
		if (ui->mode != TOP_ASK_FILTER)
			return TOP_CHANGE;
		memcpy(ui->filter, ui->input, sizeof(ui->filter));
		ui->scroll = 0;
		ui->mode = TOP_TABLE;
	} else if (key == TOP_KEY_BACKSPACE) {
		while (n && ((unsigned char)ui->input[n - 1] & 0xc0) == 0x80)
			ui->input[--n] = '\0';
		if (n)
			ui->input[n - 1] = '\0';
	} else if (key == 21) { /* ^U */
		ui->input[0] = '\0';
	} else if (key < TOP_KEY_UP && !top_text_hides((uint32_t)key) && n + 5 < sizeof(ui->input)) {
		ui->input[n + top_text_encode((uint32_t)key, ui->input + n)] = '\0';
	}
	return TOP_NOTHING;
}

static void ask(struct top_ui *ui, const struct top_gpu *g, enum top_mode mode)
{
	if (mode != TOP_ASK_FILTER && (!g || !top_gpu_account(g, ui->selected))) {
		say(ui, "select an account first, with the arrow keys");
		return;
	}
	ui->mode = mode;
	if (mode == TOP_ASK_FILTER)
		memcpy(ui->input, ui->filter, sizeof(ui->input));
	else
		ui->input[0] = '\0';
}

static void fold(struct top_ui *ui, const struct top_gpu *g)
{
	struct top_account *a = g ? top_gpu_account(g, ui->selected) : NULL;

	if (a)
		a->open = !a->open;
}

static void fold_all(struct top_ui *ui, struct top_gpu *const *gpus, unsigned ngpus)
{
	ui->all_open = !ui->all_open;
	for (unsigned i = 0; i < ngpus; i++)
		for (unsigned k = 0; k < gpus[i]->naccounts; k++)
			gpus[i]->accounts[k]->open = false;
}

static void click(struct top_ui *ui, const struct top_gpu *g, int line)
{
	static struct top_row rows[TOP_ROWS];
	unsigned n = g ? top_ui_rows(ui, g, rows, TOP_ROWS) : 0;
	int at = line - ui->table_y + ui->scroll;

	if (line < ui->table_y || line >= ui->table_y + ui->page || at >= (int)n)
		return;
	if (strcmp(ui->selected, rows[at].account->now.name) == 0)
		fold(ui, g);
	memcpy(ui->selected, rows[at].account->now.name, sizeof(ui->selected));
}

static bool on_move(struct top_ui *ui, const struct top_gpu *g, int key)
{
	int by;

	switch (key) {
	case TOP_KEY_UP:
	case 'k':
		by = -1;
		break;
	case TOP_KEY_DOWN:
	case 'j':
		by = 1;
		break;
	case TOP_KEY_PAGE_UP:
		by = -(ui->page > 1 ? ui->page - 1 : 1);
		break;
	case TOP_KEY_PAGE_DOWN:
		by = ui->page > 1 ? ui->page - 1 : 1;
		break;
	case TOP_KEY_HOME:
	case 'g':
		by = -TOP_ROWS;
		break;
	case TOP_KEY_END:
	case 'G':
		by = TOP_ROWS;
		break;
	default:
		return false;
	}
	if (g)
		move(ui, g, by);
	return true;
}

/* Handles a key while text is shown that is longer than the screen. */
static bool on_text(struct top_ui *ui, int key)
{
	if (key == TOP_KEY_PAGE_DOWN || key == ' ')
		ui->text_scroll += ui->page > 1 ? ui->page - 1 : 1;
	else if (key == TOP_KEY_PAGE_UP)
		ui->text_scroll -= ui->page > 1 ? ui->page - 1 : 1;
	else
		return false;
	if (ui->text_scroll < 0)
		ui->text_scroll = 0;
	return true;
}

static void on_sort(struct top_ui *ui, int step)
{
	char text[64];

	ui->sort = (enum top_sort)(((int)ui->sort + step + TOP_SORTS) % TOP_SORTS);
	snprintf(text, sizeof(text), "sorted by %s", top_sort_name(ui->sort));
	say(ui, text);
}

static enum top_request on_table(
	struct top_ui *ui, struct top_gpu *const *gpus, unsigned ngpus, struct top_gpu *g, int key)
{
	switch (key) {
	case 'q':
		return TOP_QUIT;
	case '?':
	case 'h':
		ui->mode = TOP_HELP;
		ui->text_scroll = 0;
		break;
	case 's':
	case '>':
		on_sort(ui, 1);
		break;
	case '<':
		on_sort(ui, -1);
		break;
	case 'r':
		ui->reverse = !ui->reverse;
		break;
	case 'i':
		ui->limits_only = !ui->limits_only;
		say(ui, ui->limits_only ? "idle accounts are hidden" : "idle accounts are shown");
		break;
	case 'z':
		ui->paused = !ui->paused;
		break;
	case '/':
		ask(ui, g, TOP_ASK_FILTER);
		break;
	case 'l':
	case 'c':
		ask(ui, g, TOP_ASK_CORE);
		break;
	case 'm':
		ask(ui, g, TOP_ASK_MEM);
		break;
	case 'p':
		ask(ui, g, TOP_ASK_PRIORITY);
		break;
	case ' ':
	case '\n':
		fold(ui, g);
		break;
	case 'f':
		fold_all(ui, gpus, ngpus);
		break;
	case 'e':
		if (g && top_gpu_account(g, ui->selected))
			ui->mode = TOP_EXPLAIN;
		else
			say(ui, "select an account first, with the arrow keys");
		ui->text_scroll = 0;
		break;
	case '\t':
		ui->gpu = ngpus ? (ui->gpu + 1) % ngpus : 0;
		ui->scroll = 0;
		ui->selected[0] = '\0';
		break;
	case TOP_KEY_ESCAPE:
		ui->filter[0] = ui->selected[0] = '\0';
		break;
	default:
		break;
	}
	return TOP_NOTHING;
}

enum top_request top_ui_key(struct top_ui *ui, struct top_gpu *const *gpus, unsigned ngpus, int key)
{
	struct top_gpu *g = ui->gpu < ngpus ? gpus[ui->gpu] : NULL;

	if (key == TOP_KEY_RESIZE)
		return TOP_NOTHING;
	ui->message[0] = '\0';
	switch (ui->mode) {
	case TOP_HELP:
	case TOP_EXPLAIN:
		/* The explanation follows the selection. */
		if (!on_text(ui, key) && (ui->mode == TOP_HELP || !on_move(ui, g, key)))
			ui->mode = TOP_TABLE;
		return TOP_NOTHING;
	case TOP_TABLE:
		break;
	default:
		return on_input(ui, key);
	}
	if (key >= TOP_KEY_CLICK) {
		click(ui, g, key - TOP_KEY_CLICK);
		return TOP_NOTHING;
	}
	return on_move(ui, g, key) ? TOP_NOTHING : on_table(ui, gpus, ngpus, g, key);
}

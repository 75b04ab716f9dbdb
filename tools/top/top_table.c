/* The table of accounts: as many columns as there is room for, the most important first. */
#include <stdio.h>
#include <string.h>

#include "tools/top/top_draw.h"
#include "tools/top/top_text.h"

#define UNLIMITED 1000000u

struct place {
	struct top_grid *grid;
	int y, x, room;
	int blank; /* columns behind this one that are empty in a process's row */
	const struct top_gpu *gpu;
	const struct top_account *account;
	const struct gpuarb_view_client *client; /* NULL: the row of the account */
	int index;                               /* of the client in the picture */
};

static void right(const struct place *p, unsigned style, const char *text)
{
	top_grid_right(p->grid, p->y, p->x, p->room, style, text);
}

static void name_cell(const struct place *p)
{
	char command[2 * ARB_COMMAND_BYTES], text[2 * ARB_COMMAND_BYTES + 32];

	if (!p->client) {
		top_grid_text(p->grid, p->y, p->x, p->room, TOP_BOLD, p->account->now.name);
		return;
	}
	top_text_safe(p->client->command, command, sizeof(command));
	snprintf(text, sizeof(text), "%s %u %s", p->grid->utf8 ? " \u2514" : " -",
		p->gpu->slot[p->client->slot].host_pid ? p->gpu->slot[p->client->slot].host_pid
						       : p->client->pid,
		command);
	top_grid_text(p->grid, p->y, p->x, p->room + p->blank, TOP_PLAIN, text);
}

static void limit_cell(const struct place *p)
{
	char text[16];

	if (p->client)
		return;
	if (p->account->now.limit_ppm >= UNLIMITED)
		right(p, TOP_DIM, "none");
	else
		right(p, TOP_PLAIN, top_text_ppm(p->account->now.limit_ppm, text, sizeof(text)));
}

static void request_cell(const struct place *p)
{
	char text[16];

	if (p->client)
		return;
	if (!p->account->now.request_ppm)
		right(p, TOP_DIM, "-");
	else
		right(p, TOP_PLAIN, top_text_ppm(p->account->now.request_ppm, text, sizeof(text)));
}

static void weight_cell(const struct place *p)
{
	char text[16];

	if (p->client)
		return;
	snprintf(text, sizeof(text), "%u", p->account->now.weight);
	right(p, p->account->now.weight == ARB_SHARE_WEIGHT ? TOP_DIM : TOP_PLAIN, text);
}

static void quota_cell(const struct place *p)
{
	char text[16];

	if (p->client)
		return;
	if (p->account->now.quota_ppm >= UNLIMITED)
		right(p, TOP_DIM, "-");
	else
		right(p, p->account->now.quota_ppm < p->account->now.limit_ppm ? TOP_WARN : TOP_PLAIN,
			top_text_ppm(p->account->now.quota_ppm, text, sizeof(text)));
}

static void window_cell(const struct place *p)
{
	const struct gpuarb_view_account *a = &p->account->now;
	uint64_t length = p->gpu->picture->window_ns;
	double used, quota = a->quota_ppm / 1e6;

	if (p->client || !length)
		return;
	used = (double)a->window_ns / (double)length;
	top_grid_bar(p->grid, p->y, p->x, p->room,
		a->debt_ns                                        ? TOP_BAD
		: a->limit_ppm < UNLIMITED && used >= 0.9 * quota ? TOP_WARN
								  : TOP_GOOD,
		used, a->limit_ppm < UNLIMITED ? quota : -1);
}

static void share_cell(const struct place *p, int span)
{
	struct top_share s = p->account->share[span];
	char text[16];

	if (p->client && span)
		return;
	if (p->client)
		s = p->gpu->client_share[p->index];
	if (!s.known)
		right(p, TOP_DIM, "-");
	else
		right(p, s.value < 0.0005 ? TOP_DIM : TOP_PLAIN, top_text_share(s.value, text, sizeof(text)));
}

static void share_1_cell(const struct place *p)
{
	share_cell(p, 0);
}

static void share_10_cell(const struct place *p)
{
	share_cell(p, 1);
}

static void share_60_cell(const struct place *p)
{
	share_cell(p, 2);
}

static void history_cell(const struct place *p)
{
	if (!p->client)
		top_grid_spark(
			p->grid, p->y, p->x, p->room, TOP_INFO, p->account->spark, p->account->spark_count);
}

static void time_cell(const struct place *p, uint64_t ns, unsigned style)
{
	char text[32];

	right(p, ns ? style : TOP_DIM, ns ? top_text_time(ns, text, sizeof(text)) : "-");
}

static void debt_cell(const struct place *p)
{
	if (!p->client)
		time_cell(p, p->account->now.debt_ns, TOP_BAD);
}

static void borrowed_cell(const struct place *p)
{
	if (!p->client)
		time_cell(p, p->account->now.borrowed_ns, TOP_PLAIN);
}

static void throttled_cell(const struct place *p)
{
	time_cell(p, p->client ? top_client_throttled_ns(p->gpu, p->client) : p->account->throttled_ns,
		TOP_PLAIN);
}

static void queue_cell(const struct place *p)
{
	unsigned place = p->client ? p->client->queue_place : p->account->queue_place;
	char text[16];

	snprintf(text, sizeof(text), "#%u", place);
	right(p, place ? TOP_WARN : TOP_DIM, place ? text : "-");
}

static void waits_cell(const struct place *p)
{
	uint64_t since = p->client ? top_client_wait_since_ns(p->client) : p->account->wait_since_ns;
	uint64_t now = p->gpu->picture->now_ns;

	time_cell(p, since && since < now ? now - since : 0, TOP_WARN);
}

static void memory_cell(const struct place *p)
{
	char used[16], limit[16], text[40];
	const struct gpuarb_view_account *a = &p->account->now;

	top_text_bytes(p->client ? p->client->mem_bytes : a->mem_used, used, sizeof(used));
	if (p->client || !a->mem_limit) {
		right(p, TOP_PLAIN, used);
		return;
	}
	snprintf(text, sizeof(text), "%s/%s", used, top_text_bytes(a->mem_limit, limit, sizeof(limit)));
	right(p, a->mem_used >= a->mem_limit - a->mem_limit / 10 ? TOP_WARN : TOP_PLAIN, text);
}

static void peak_cell(const struct place *p)
{
	char text[16];

	if (!p->client)
		right(p, TOP_PLAIN, top_text_bytes(p->account->now.mem_peak, text, sizeof(text)));
}

static void processes_cell(const struct place *p)
{
	char text[16];

	if (p->client)
		return;
	snprintf(text, sizeof(text), "%u", p->account->processes);
	right(p, p->account->processes ? TOP_PLAIN : TOP_DIM, text);
}

static void priority_cell(const struct place *p)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", p->client ? p->client->priority : p->account->priority);
	right(p, TOP_PLAIN, text);
}

static void container_cell(const struct place *p)
{
	const char *id = p->client ? p->client->container : p->account->container;
	char text[64];

	if (!id)
		id = p->account->processes ? "several" : "";
	top_grid_text(p->grid, p->y, p->x, p->room, *id ? TOP_PLAIN : TOP_DIM,
		*id ? top_text_container(id, text, sizeof(text)) : "-");
}

static void state_cell(const struct place *p)
{
	static const unsigned styles[TOP_STATES] = {[TOP_GONE] = TOP_DIM,
		[TOP_IDLE] = TOP_DIM,
		[TOP_RUNNING] = TOP_GOOD,
		[TOP_THROTTLED] = TOP_WARN,
		[TOP_WAITING] = TOP_WARN,
		[TOP_MEMORY] = TOP_WARN,
		[TOP_PRESSURE] = TOP_WARN,
		[TOP_EVICTED] = TOP_BAD,
		[TOP_FROZEN] = TOP_DIM};
	enum top_state state = p->client ? p->gpu->client_state[p->index] : p->account->state;

	top_grid_text(p->grid, p->y, p->x, p->room, styles[state], top_state_name(state));
}

static void command_cell(const struct place *p)
{
	const char *command = p->client ? p->client->command : p->account->command;

	if (!command)
		command = p->account->processes ? "several" : "-";
	top_grid_text(p->grid, p->y, p->x, p->room, TOP_PLAIN, command);
}

static bool have_requests(const struct top_gpu *g)
{
	for (unsigned i = 0; i < g->naccounts; i++)
		if (g->accounts[i]->present && g->accounts[i]->now.request_ppm)
			return true;
	return false;
}

static bool have_weights(const struct top_gpu *g)
{
	for (unsigned i = 0; i < g->naccounts; i++)
		if (g->accounts[i]->present && g->accounts[i]->now.weight &&
			g->accounts[i]->now.weight != ARB_SHARE_WEIGHT)
			return true;
	return false;
}

static bool have_priorities(const struct top_gpu *g)
{
	const struct top_account *one = NULL;

	for (unsigned i = 0; i < g->naccounts; i++) {
		if (!g->accounts[i]->present || !g->accounts[i]->processes)
			continue;
		if (one && one->priority != g->accounts[i]->priority)
			return true;
		one = g->accounts[i];
	}
	return false;
}

/* Requests, weights and priorities have the first rank where accounts differ in them; else the rank in the list. */
#define MATTERS 4
#define HIDDEN  100

static const struct column {
	const char *title;
	int least, most; /* columns of the terminal */
	int rank;        /* columns of high rank are left out first */
	bool right;
	void (*cell)(const struct place *p);
	enum top_sort sort; /* TOP_SORTS: none */
} columns[] = {
	{"ACCOUNT", 10, 40, 0, false, name_cell, TOP_BY_NAME},
	{"LIMIT", 5, 5, 1, true, limit_cell, TOP_BY_LIMIT},
	{"REQUEST", 7, 7, HIDDEN, true, request_cell, TOP_SORTS},
	{"WEIGHT", 6, 6, HIDDEN, true, weight_cell, TOP_SORTS},
	{"QUOTA", 5, 5, 7, true, quota_cell, TOP_SORTS},
	{"WINDOW", 8, 22, 4, false, window_cell, TOP_SORTS},
	{"1s", 5, 5, 2, true, share_1_cell, TOP_SORTS},
	{"10s", 5, 5, 6, true, share_10_cell, TOP_BY_SHARE},
	{"60s", 5, 5, 9, true, share_60_cell, TOP_SORTS},
	{"HISTORY", 12, TOP_SPARK, 10, false, history_cell, TOP_SORTS},
	{"DEBT", 6, 6, 11, true, debt_cell, TOP_BY_DEBT},
	{"THROTTLED", 9, 9, 8, true, throttled_cell, TOP_BY_THROTTLED},
	{"QUEUE", 5, 5, 12, true, queue_cell, TOP_BY_QUEUE},
	{"WAITS", 6, 6, 13, true, waits_cell, TOP_SORTS},
	{"MEMORY", 9, 11, 5, true, memory_cell, TOP_BY_MEMORY},
	{"PEAK", 6, 6, 17, true, peak_cell, TOP_SORTS},
	{"BORROWED", 8, 8, 18, true, borrowed_cell, TOP_SORTS},
	{"PRIO", 4, 4, 19, true, priority_cell, TOP_SORTS},
	{"PROC", 4, 4, 14, true, processes_cell, TOP_SORTS},
	{"STATE", 9, 9, 3, false, state_cell, TOP_SORTS},
	{"CONTAINER", 12, 12, 15, false, container_cell, TOP_SORTS},
	{"COMMAND", 8, 28, 16, false, command_cell, TOP_SORTS},
};
#define COLUMNS ((int)(sizeof(columns) / sizeof(columns[0])))
/* A column of this rank or a higher one is shown only if the accounts' names are shown whole, as far as their column may
 * grow. Without their ends many names are the same: those of pods begin with the namespace. */
#define RANK_AFTER_NAMES 12

static int rank_of(const struct column *c, const struct top_gpu *g)
{
	bool matters = (c->cell == request_cell && have_requests(g)) ||
		       (c->cell == weight_cell && have_weights(g)) ||
		       (c->cell == priority_cell && have_priorities(g));

	return matters ? MATTERS : c->rank;
}

/* Decides how wide each column is, 0 for a column that is left out. `name` is the width of the longest name. */
static void plan(const struct top_gpu *g, int width, int name, int widths[COLUMNS])
{
	int used = -1, ranks[COLUMNS];
	bool grew;

	for (int i = 0; i < COLUMNS; i++)
		ranks[i] = rank_of(&columns[i], g);

	memset(widths, 0, COLUMNS * sizeof(*widths));
	for (int rank = 0; rank < COLUMNS; rank++) {
		for (; rank == RANK_AFTER_NAMES && widths[0] < name && widths[0] < columns[0].most &&
			used < width;
			used++)
			widths[0]++;
		for (int i = 0; i < COLUMNS; i++)
			if (ranks[i] == rank && used + 1 + columns[i].least <= width) {
				widths[i] = columns[i].least;
				used += 1 + widths[i];
			}
	}
	do {
		grew = false;
		for (int i = 0; i < COLUMNS && used < width; i++)
			if (widths[i] && widths[i] < columns[i].most) {
				widths[i]++;
				used++;
				grew = true;
			}
	} while (grew);
}

/* What stands before the shares belongs to an account, so the name of a process may use its room. */
static int blank_behind(const int widths[COLUMNS])
{
	int blank = 0;

	for (int i = 1; i < COLUMNS && columns[i].cell != share_1_cell; i++)
		blank += widths[i] ? widths[i] + 1 : 0;
	return blank;
}

int top_table_name(const struct top_grid *g, const struct top_row *rows, unsigned count)
{
	int longest = 0;

	for (unsigned i = 0; i < count; i++) {
		int columns_of = rows[i].client < 0 ? top_grid_columns(g, rows[i].account->now.name) : 0;

		longest = columns_of > longest ? columns_of : longest;
	}
	return longest;
}

void top_table_titles(struct top_grid *g, int y, const struct top_gpu *gpu, const struct top_ui *ui, int name)
{
	int widths[COLUMNS], x = 0;

	plan(gpu, g->width, name, widths);
	for (int i = 0; i < COLUMNS; i++) {
		if (!widths[i])
			continue;
		if (columns[i].right)
			top_grid_right(g, y, x, widths[i], TOP_PLAIN, columns[i].title);
		else
			top_grid_text(g, y, x, widths[i], TOP_PLAIN, columns[i].title);
		x += widths[i] + 1;
	}
	top_grid_paint(g, y, TOP_TITLE);
	x = 0;
	for (int i = 0; i < COLUMNS; x += widths[i] ? widths[i] + 1 : 0, i++)
		for (int k = 0; widths[i] && k < widths[i] && columns[i].sort == ui->sort; k++)
			if (top_grid_at(g, y, x + k))
				top_grid_at(g, y, x + k)->style = TOP_TITLE | TOP_SELECTED;
}

void top_table_rows(struct top_grid *g, int y, int lines, int first, const struct top_gpu *gpu,
	const struct top_ui *ui, const struct top_row *rows, unsigned count, int name)
{
	int widths[COLUMNS];

	plan(gpu, g->width, name, widths);
	for (int line = 0; line < lines && first + line < (int)count; line++) {
		const struct top_row *row = &rows[first + line];
		struct place p = {.grid = g,
			.y = y + line,
			.gpu = gpu,
			.account = row->account,
			.client = row->client >= 0 ? &gpu->picture->clients[row->client] : NULL,
			.index = row->client};

		for (int i = 0; i < COLUMNS; i++) {
			p.room = widths[i];
			p.blank = i ? 0 : blank_behind(widths);
			if (widths[i])
				columns[i].cell(&p);
			p.x += widths[i] ? widths[i] + 1 : 0;
		}
		if (!p.client && strcmp(row->account->now.name, ui->selected) == 0)
			top_grid_paint(g, p.y, TOP_SELECTED);
	}
}

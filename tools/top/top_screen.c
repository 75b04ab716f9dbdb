#include "tools/top/top_screen.h"

#define NCURSES_WIDECHAR 1
#include <errno.h>
#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/top/top_draw.h"
#include "tools/top/top_words.h"

/* This header comes last: it makes macros of words such as "lines". */
#include <term.h>

static attr_t looks[TOP_STYLES];
static short pairs[TOP_STYLES];

static long long now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ll + ts.tv_nsec / 1000000;
}

static void set_looks(bool colour)
{
	looks[TOP_DIM] = A_DIM;
	looks[TOP_BOLD] = looks[TOP_WARN] = looks[TOP_BAD] = A_BOLD;
	looks[TOP_TITLE] = A_REVERSE;
	if (!colour || !has_colors() || start_color() == ERR)
		return;
	use_default_colors();
	init_pair(1, COLOR_GREEN, -1);
	init_pair(2, COLOR_YELLOW, -1);
	init_pair(3, COLOR_RED, -1);
	init_pair(4, COLOR_CYAN, -1);
	pairs[TOP_GOOD] = 1;
	pairs[TOP_WARN] = 2;
	pairs[TOP_BAD] = 3;
	pairs[TOP_INFO] = 4;
	looks[TOP_WARN] = 0;
}

/* Shows the grid; ncurses finds out what has changed. */
static void show(const struct top_grid *g)
{
	for (int y = 0; y < g->height; y++)
		for (int x = 0; x < g->width; x++) {
			const struct top_cell *cell = top_grid_at(g, y, x);
			unsigned style = cell->style & ~(unsigned)TOP_SELECTED;
			attr_t look = looks[style];
			wchar_t text[2] = {(wchar_t)cell->code, 0};
			cchar_t c;

			if (!cell->code)
				continue;
			if (cell->style & TOP_SELECTED)
				look = style == TOP_TITLE ? look | A_BOLD | A_UNDERLINE
							  : (look & ~A_DIM) | A_REVERSE;
			setcchar(&c, text, look, pairs[style], NULL);
			mvadd_wch(y, x, &c);
		}
}

/* Returns the words about the selected account, which the caller frees. */
static char *explain(const struct top_source *s, const struct top_ui *ui)
{
	struct top_origin origin;
	char *text = NULL;
	size_t size;
	FILE *to;

	if (ui->mode != TOP_EXPLAIN || ui->gpu >= s->ngpus || !s->gpus[ui->gpu]->picture)
		return NULL;
	to = open_memstream(&text, &size);
	if (!to)
		return NULL;
	top_source_origin(s, s->uuids[ui->gpu], ui->selected, &origin);
	top_words_explain(s->gpus[ui->gpu], ui->selected, &origin, to);
	fclose(to);
	return text;
}

static void draw(const struct top_source *s, struct top_ui *ui, const struct top_screen *how)
{
	struct top_grid grid;
	char *text = explain(s, ui);

	if (!top_grid_make(&grid, COLS, LINES, how->utf8)) {
		free(text);
		return;
	}
	ui->explanation = text;
	top_draw_screen(&grid, s->gpus, s->ngpus, ui);
	ui->explanation = NULL;
	show(&grid);
	refresh();
	top_grid_free(&grid);
	free(text);
}

static void change(const struct top_source *s, struct top_ui *ui)
{
	const char *key = top_ui_setting(ui->mode), *value = *ui->input ? ui->input : NULL;
	struct gpuarb_change what = {ui->selected, key, value};
	struct gpuarb_error err = {0};
	int r = ui->gpu < s->ngpus ? gpuarb_control_change(s->dir, s->uuids[ui->gpu], &what, 1, &err)
				   : -ENOENT;

	ui->mode = TOP_TABLE;
	ui->message_bad = r < 0;
	if (r < 0)
		snprintf(ui->message, sizeof(ui->message), "%s",
			err.text[0] ? err.text : "nothing was changed");
	else
		snprintf(ui->message, sizeof(ui->message), "%s of %s: %s", key, ui->selected,
			value ? value : "no longer set");
}

static int translate(int key)
{
	MEVENT event;

	switch (key) {
	case KEY_UP:
		return TOP_KEY_UP;
	case KEY_DOWN:
		return TOP_KEY_DOWN;
	case KEY_PPAGE:
		return TOP_KEY_PAGE_UP;
	case KEY_NPAGE:
		return TOP_KEY_PAGE_DOWN;
	case KEY_HOME:
		return TOP_KEY_HOME;
	case KEY_END:
		return TOP_KEY_END;
	case KEY_BACKSPACE:
		return TOP_KEY_BACKSPACE;
	case KEY_ENTER:
		return '\n';
	case KEY_RESIZE:
		return TOP_KEY_RESIZE;
	case KEY_MOUSE:
		return getmouse(&event) == OK && event.y >= 0 ? TOP_KEY_CLICK + event.y : TOP_KEY_RESIZE;
	default:
		return TOP_KEY_RESIZE; /* a key that means nothing here */
	}
}

/* Returns a key, or -1 when the time is over. */
static int next_key(long long until_ms)
{
	long long left = until_ms - now_ms();
	wint_t c;
	int kind;

	timeout(left > 0 ? (int)left : 0);
	kind = get_wch(&c);
	if (kind == KEY_CODE_YES)
		return translate((int)c);
	if (kind != OK)
		return -1;
	if (c == '\r')
		return '\n';
	if (c == 8 || c == 0x7f)
		return TOP_KEY_BACKSPACE;
	return c == 27 ? TOP_KEY_ESCAPE : (int)c;
}

static void look(struct top_source *s, struct top_ui *ui)
{
	struct gpuarb_error err;

	if (ui->paused)
		return;
	top_source_look(s, &err);
	snprintf(ui->trouble, sizeof(ui->trouble), "%s", err.text);
}

static void run(struct top_source *s, struct top_ui *ui, const struct top_screen *how)
{
	long long next = now_ms();
	int nothing = 0;

	/* A terminal that is gone answers at once, without a key, for ever. */
	while (nothing < 100) {
		int key;

		if (now_ms() >= next) {
			look(s, ui);
			next = now_ms() + how->interval_ms;
			nothing = 0;
		}
		draw(s, ui, how);
		key = next_key(next);
		nothing = key < 0 ? nothing + 1 : 0;
		if (key < 0)
			continue;
		switch (top_ui_key(ui, s->gpus, s->ngpus, key)) {
		case TOP_QUIT:
			return;
		case TOP_CHANGE:
			change(s, ui);
			break;
		case TOP_NOTHING:
			break;
		}
	}
}

bool top_screen_is_plain(void)
{
	const char *type = getenv("TERM"), *move;
	int known = 0;

	if (!isatty(STDOUT_FILENO))
		return false;
	if (!type || !*type)
		return true;
	if (setupterm(type, STDOUT_FILENO, &known) != OK)
		return known == 0 && strcmp(type, "dumb") == 0;
	move = tigetstr("cup");
	return !move || move == (char *)-1;
}

const char *top_screen_run(struct top_source *s, struct top_ui *ui, const struct top_screen *how)
{
	static char why[160];
	const char *type = getenv("TERM");
	SCREEN *screen;

	if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
		return "there is no terminal; use --once, --batch, --json, --prom, --explain or --history";
	screen = newterm(NULL, stdout, stdin);
	if (!screen) {
		snprintf(why, sizeof(why),
			"the terminal type '%.60s' (TERM) is not known; use --once or --batch",
			type ? type : "");
		return why;
	}
	set_escdelay(25);
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	set_looks(how->colour);
	if (how->mouse)
		mousemask(BUTTON1_PRESSED | BUTTON1_CLICKED, NULL);
	run(s, ui, how);
	endwin();
	delscreen(screen);
	return NULL;
}

#include "tools/top/top_grid.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "tools/top/top_text.h"

bool top_grid_make(struct top_grid *g, int width, int height, bool utf8)
{
	*g = (struct top_grid){width, height, utf8, NULL};
	g->cells = calloc((size_t)width * (size_t)height, sizeof(*g->cells));
	if (!g->cells)
		return false;
	for (int i = 0; i < width * height; i++)
		g->cells[i].code = ' ';
	return true;
}

void top_grid_free(struct top_grid *g)
{
	free(g->cells);
	g->cells = NULL;
}

struct top_cell *top_grid_at(const struct top_grid *g, int y, int x)
{
	return y >= 0 && y < g->height && x >= 0 && x < g->width ? &g->cells[y * g->width + x] : NULL;
}

static void put(struct top_grid *g, int y, int x, unsigned style, uint32_t code)
{
	struct top_cell *cell = top_grid_at(g, y, x);

	if (cell)
		*cell = (struct top_cell){code, (uint8_t)style};
}

/* Returns the character that is shown for `code`: a terminal without UTF-8 gets ASCII. */
static uint32_t shown(const struct top_grid *g, uint32_t code)
{
	if (code == 0xfffd || top_text_hides(code))
		return '?';
	/* A character that takes no column of its own, or that this C library does not know, would move the rest of
	 * the line. */
	if (g->utf8 && code >= 0x80)
		return wcwidth((wchar_t)code) > 0 ? code : '?';
	if (code < 0x80)
		return code;
	return code == 0x2026 ? '~' : code == 0xb7 ? '|' : code == 0xd7 ? 'x' : '?';
}

int top_grid_columns(const struct top_grid *g, const char *text)
{
	uint32_t code;
	int n = 0;

	while ((code = top_text_decode(&text)) != 0)
		n += top_text_columns(shown(g, code));
	return n;
}

int top_grid_text(struct top_grid *g, int y, int x, int room, unsigned style, const char *text)
{
	bool cut = top_grid_columns(g, text) > room;
	uint32_t code;
	int n = 0;

	if (room <= 0)
		return 0;
	while ((code = top_text_decode(&text)) != 0) {
		int columns;

		code = shown(g, code);
		columns = top_text_columns(code);
		if (n + columns > room - cut)
			break;
		put(g, y, x + n, style, code);
		if (columns == 2)
			put(g, y, x + n + 1, style, 0);
		n += columns;
	}
	if (cut)
		put(g, y, x + n++, style, shown(g, 0x2026));
	return n;
}

void top_grid_right(struct top_grid *g, int y, int x, int room, unsigned style, const char *text)
{
	int columns = top_grid_columns(g, text);

	top_grid_text(g, y, x + (columns < room ? room - columns : 0), room, style, text);
}

int top_grid_print(struct top_grid *g, int y, int x, int room, unsigned style, const char *format, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	return top_grid_text(g, y, x, room, style, text);
}

void top_grid_paint(struct top_grid *g, int y, unsigned style)
{
	for (int x = 0; x < g->width; x++)
		if (top_grid_at(g, y, x))
			top_grid_at(g, y, x)->style =
				(uint8_t)(style & TOP_SELECTED ? top_grid_at(g, y, x)->style | style : style);
}

static double clamp(double value)
{
	return value > 1 ? 1 : value > 0 ? value : 0;
}

void top_grid_bar(struct top_grid *g, int y, int x, int room, unsigned style, double fill, double mark)
{
	int inner = room - 2, eighths, limit;

	if (inner < 1)
		return;
	eighths = (int)(clamp(fill) * inner * 8 + 0.5);
	limit = mark < 0 ? -1 : (int)(clamp(mark) * inner);
	put(g, y, x, TOP_DIM, '[');
	put(g, y, x + room - 1, TOP_DIM, ']');
	for (int i = 0; i < inner; i++) {
		int part = eighths - 8 * i;

		if (part >= 8)
			put(g, y, x + 1 + i, style, g->utf8 ? 0x2588 : '#');
		else if (part > 0 && g->utf8)
			put(g, y, x + 1 + i, style, 0x2590 - (uint32_t)part);
		else if (part >= 4)
			put(g, y, x + 1 + i, style, '=');
		else if (i == limit)
			put(g, y, x + 1 + i, TOP_DIM, g->utf8 ? 0x2502 : '|');
	}
}

/* Returns the character for a level of 0 to 8 in one cell. */
static uint32_t level(const struct top_grid *g, int eighths)
{
	static const char ascii[] = " .,:-=+*#";

	if (eighths <= 0)
		return ' ';
	return g->utf8 ? 0x2580 + (uint32_t)(eighths > 8 ? 8 : eighths)
		       : (uint32_t)ascii[eighths > 8 ? 8 : eighths];
}

void top_grid_spark(
	struct top_grid *g, int y, int x, int room, unsigned style, const uint16_t *values, unsigned count)
{
	for (int i = 0; i < room; i++) {
		int k = (int)count - room + i;

		/* A small value must not look like none. */
		if (k >= 0)
			put(g, y, x + i, style, level(g, values[k] ? (values[k] * 8 + 999) / 1000 : 0));
	}
}

void top_grid_plot(struct top_grid *g, int y, int x, int lines, int room, unsigned style,
	const uint16_t *values, unsigned count)
{
	for (int i = 0; i < room; i++) {
		int k = (int)count - room + i;
		int eighths = k < 0 || !values[k] ? 0 : (values[k] * 8 * lines + 999) / 1000;

		for (int line = 0; line < lines; line++) {
			int part = eighths - 8 * (lines - 1 - line);

			if (part <= 0)
				continue;
			if (g->utf8)
				put(g, y + line, x + i, style, level(g, part));
			else
				put(g, y + line, x + i, style, part > 4 ? '#' : '.');
		}
	}
}

static void write_cell(uint32_t code, FILE *to)
{
	char text[5] = "";

	text[top_text_encode(code, text)] = '\0';
	fputs(text, to);
}

void top_grid_write(const struct top_grid *g, FILE *to)
{
	int last = -1;

	for (int i = 0; i < g->width * g->height; i++)
		if (g->cells[i].code != ' ')
			last = i / g->width;
	for (int y = 0; y <= last; y++) {
		int end = g->width;

		while (end > 0 && g->cells[y * g->width + end - 1].code == ' ')
			end--;
		for (int x = 0; x < end; x++)
			if (g->cells[y * g->width + x].code)
				write_cell(g->cells[y * g->width + x].code, to);
		fputc('\n', to);
	}
}

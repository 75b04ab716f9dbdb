/* A screen as an array: what a terminal would show, without one. Pure. */
#ifndef TOOLS_TOP_GRID_H
#define TOOLS_TOP_GRID_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum top_style {
	TOP_PLAIN,
	TOP_DIM,
	TOP_BOLD,
	TOP_TITLE, /* the lines that name things */
	TOP_GOOD,
	TOP_WARN,
	TOP_BAD,
	TOP_INFO,
	TOP_STYLES,
	TOP_SELECTED = 16, /* with one of those above */
};

struct top_cell {
	uint32_t code; /* 0: the second column of the character before it */
	uint8_t style;
};

struct top_grid {
	int width, height;
	bool utf8;
	struct top_cell *cells;
};

/* False: out of memory. */
bool top_grid_make(struct top_grid *grid, int width, int height, bool utf8);
void top_grid_free(struct top_grid *grid);
/* NULL outside. */
struct top_cell *top_grid_at(const struct top_grid *grid, int y, int x);

/* Text of others, escaped, at most `room` columns, cut with an ellipsis. Returns the columns it took. */
int top_grid_text(struct top_grid *grid, int y, int x, int room, unsigned style, const char *text);
/* Text of others like top_grid_text, aligned to the right of the room. */
void top_grid_right(struct top_grid *grid, int y, int x, int room, unsigned style, const char *text);
/* Our own words, which hold no text of others unless it has been made safe. Returns the columns. */
__attribute__((format(printf, 6, 7))) int top_grid_print(
	struct top_grid *grid, int y, int x, int room, unsigned style, const char *format, ...);
/* A whole line gets this style. */
void top_grid_paint(struct top_grid *grid, int y, unsigned style);

/* A bar over `room` columns; `mark` (0..1, negative: none) is a limit that is shown in it. */
void top_grid_bar(struct top_grid *grid, int y, int x, int room, unsigned style, double fill, double mark);
/* One column a value, the newest at the right; values in thousandths. */
void top_grid_spark(struct top_grid *grid, int y, int x, int room, unsigned style, const uint16_t *values,
	unsigned count);
/* Plots values like top_grid_spark, over several lines; `y` is the upper one. */
void top_grid_plot(struct top_grid *grid, int y, int x, int lines, int room, unsigned style,
	const uint16_t *values, unsigned count);

/* As lines of text, without blanks at their ends; the empty lines at the end are left out. */
void top_grid_write(const struct top_grid *grid, FILE *to);

#endif

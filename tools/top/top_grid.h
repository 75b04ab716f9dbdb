/* A screen as an array of what a terminal would show. Pure. */
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
	TOP_SELECTED = 16, /* combined with a style above */
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

/* Returns false if memory is short. */
bool top_grid_make(struct top_grid *grid, int width, int height, bool utf8);
void top_grid_free(struct top_grid *grid);
/* Returns a cell, or NULL outside of the grid. */
struct top_cell *top_grid_at(const struct top_grid *grid, int y, int x);

/* Returns how many columns a text of others takes. */
int top_grid_columns(const struct top_grid *grid, const char *text);
/* Draws text of others, escaped, in at most `room` columns, cut with an ellipsis. Returns the columns it took. */
int top_grid_text(struct top_grid *grid, int y, int x, int room, unsigned style, const char *text);
/* Draws text of others as top_grid_text does, aligned to the right of the room. */
void top_grid_right(struct top_grid *grid, int y, int x, int room, unsigned style, const char *text);
/* Draws our own words, which contain no text of others unless that was made safe. Returns the columns. */
__attribute__((format(printf, 6, 7))) int top_grid_print(
	struct top_grid *grid, int y, int x, int room, unsigned style, const char *format, ...);
/* Gives a whole line this style. */
void top_grid_paint(struct top_grid *grid, int y, unsigned style);

/* Draws a bar over `room` columns; `mark` (0..1, negative: none) is a limit that is shown in it. */
void top_grid_bar(struct top_grid *grid, int y, int x, int room, unsigned style, double fill, double mark);
/* Draws one column for each value, the newest at the right; values are thousandths. */
void top_grid_spark(struct top_grid *grid, int y, int x, int room, unsigned style, const uint16_t *values,
	unsigned count);
/* Plots values like top_grid_spark, over several lines; `y` is the upper one. */
void top_grid_plot(struct top_grid *grid, int y, int x, int lines, int room, unsigned style,
	const uint16_t *values, unsigned count);

/* Writes the grid as lines of text, without blanks at their ends and without empty lines at the end. */
void top_grid_write(const struct top_grid *grid, FILE *to);

#endif

/* Draws the model as a screen. Pure: no terminal, no clock. */
#ifndef TOOLS_TOP_DRAW_H
#define TOOLS_TOP_DRAW_H

#include "tools/top/top_grid.h"
#include "tools/top/top_model.h"
#include "tools/top/top_ui.h"

/* Draws one screen; moves ui->scroll so that the selection is visible. */
void top_draw_screen(struct top_grid *grid, struct top_gpu *const *gpus, unsigned ngpus, struct top_ui *ui);

/* Return how many lines a GPU takes if nothing is left out, and draw those lines: for --once and --batch. */
int top_draw_lines(const struct top_gpu *gpu, const struct top_ui *ui);
void top_draw_page(struct top_grid *grid, const struct top_gpu *gpu, const struct top_ui *ui);

/* top_table.c: returns how many columns the longest name of an account takes. */
int top_table_name(const struct top_grid *grid, const struct top_row *rows, unsigned count);
/* Draw the line of titles, and rows from `first` on in `lines` lines. `name` is the width of the longest name. */
void top_table_titles(
	struct top_grid *grid, int y, const struct top_gpu *gpu, const struct top_ui *ui, int name);
void top_table_rows(struct top_grid *grid, int y, int lines, int first, const struct top_gpu *gpu,
	const struct top_ui *ui, const struct top_row *rows, unsigned count, int name);

/* top_pages.c: draws a text from line `y` on, scrolled by ui->text_scroll. */
void top_draw_text(struct top_grid *grid, int y, int bottom, struct top_ui *ui, const char *text);
extern const char top_help[];

#endif

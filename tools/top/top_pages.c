/* The help, and text that is wider or longer than the screen. */
#include <stdio.h>
#include <string.h>

#include "tools/top/top_draw.h"
#include "tools/top/top_text.h"

const char top_help[] = "Up Down j k PgUp PgDn Home End   select an account\n"
			"Enter Space   show or fold its processes; f those of all\n"
			"e   why does it not get more?\n"
			"l   change its limit, in percent of the GPU's time\n"
			"m   change its memory quota, such as 4Gi\n"
			"p   change its priority\n"
			"    (an empty value takes back what was set)\n"
			"s < >   sort by another column; r the other way round\n"
			"/   filter by account, command, container, pid or state\n"
			"Esc show all accounts, select none\n"
			"i   hide or show accounts that idle\n"
			"Tab the next GPU\n"
			"z   stand still, and go on\n"
			"q   quit\n"
			"\n"
			"Above the table: how busy the GPU was, a column a second\n"
			"LIMIT    percent of the GPU's time that it may use\n"
			"QUOTA    the same where the limits of active accounts add up to more than 100\n"
			"WINDOW   what it has used of this window; the mark is its quota\n"
			"1s 10s 60s   its share of the GPU's time, in percent\n"
			"DEBT     used beyond its quota, to be paid in the next windows\n"
			"THROTTLED   time that its processes were held back, added up\n"
			"BORROWED    used beyond its quota while nobody else wanted the GPU\n";

/* Returns how many bytes of the text fit into a line of `room` columns, up to a blank if there is one. */
static size_t fits(const char *text, size_t length, int room)
{
	size_t blank = 0;
	const char *at = text;

	for (int columns = 0; at < text + length; columns++) {
		if (columns >= room)
			return blank ? blank : (size_t)(at - text);
		if (*at == ' ' && at > text)
			blank = (size_t)(at - text);
		columns += top_text_columns(top_text_decode(&at)) - 1;
	}
	return length;
}

/* Draws text of several lines, broken between words, without the first `skip` lines. Returns how many lines it has.
 */
static int paragraph(struct top_grid *g, int y, int bottom, int skip, const char *text)
{
	int line = 0;

	while (*text) {
		size_t length = strcspn(text, "\n"), indent = strspn(text, " "), from = 0;

		do {
			/* Continued lines are indented. */
			int x = from ? (int)indent + 4 : 0;
			size_t n = fits(text + from, length - from, g->width - x);
			char part[1024];

			snprintf(part, sizeof(part), "%.*s", (int)n, text + from);
			if (line >= skip && y + line - skip < bottom)
				top_grid_text(g, y + line - skip, x, g->width - x, TOP_PLAIN, part);
			line++;
			from += n;
			while (from < length && text[from] == ' ')
				from++;
		} while (from < length);
		text += length + (text[length] == '\n');
	}
	return line;
}

void top_draw_text(struct top_grid *g, int y, int bottom, struct top_ui *ui, const char *text)
{
	int lines = paragraph(g, y, y, 0, text);

	ui->page = bottom - y;
	if (ui->text_scroll > lines - ui->page)
		ui->text_scroll = lines > ui->page ? lines - ui->page : 0;
	paragraph(g, y, bottom, ui->text_scroll, text);
	if (lines > ui->text_scroll + ui->page)
		top_grid_right(g, bottom, g->width - 13, 13, TOP_BOLD, " PgDn: more");
}

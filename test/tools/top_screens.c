/*
 * gpuarb-top's screens without a terminal, compared with those in test/top. After a change that is meant:
 *
 *   T_GOLDEN=write make check-top; git diff test/top
 */
#include <criterion/criterion.h>
#include <locale.h>
#include <stdio.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/top/top_draw.h"
#include "tools/top/top_text.h"
#include "tools/top/top_words.h"
#include "test/tools/top_world.h"

static struct top_gpu *busy;

static void begin(void)
{
	setenv("TZ", "UTC", 1);
	tzset();
	cr_assert(setlocale(LC_ALL, "C.UTF-8"));
	busy = w_busy_gpu(75);
}

static void end(void)
{
	w_free(busy);
}

TestSuite(screens, .init = begin, .fini = end);

static char *words_about(const struct top_gpu *g, const char *account)
{
	static const struct top_origin origin = {.core_set = true, .mem_set = false};
	char *text;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	top_words_explain(g, account, &origin, to);
	fclose(to);
	return text;
}

/* The screen as text; then, if `styles`, a letter for the style of each cell. */
static char *screen_text(const struct top_grid *grid, bool styles)
{
	static const char letters[] = ".dbtgwri";
	char *text;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	top_grid_write(grid, to);
	for (int y = 0; styles && y < grid->height; y++) {
		for (int x = 0; x < grid->width; x++) {
			unsigned style = top_grid_at(grid, y, x)->style;
			char letter = letters[style & ~(unsigned)TOP_SELECTED];

			fputc(style & TOP_SELECTED ? letter == '.' ? 'S' : letter - 'a' + 'A' : letter, to);
		}
		fputc('\n', to);
	}
	fclose(to);
	return text;
}

static void compare(const char *name, const char *got)
{
	char path[256], *expected = calloc(1, 1 << 20);
	FILE *file;

	snprintf(path, sizeof(path), "test/tools/screens/%s.txt", name);
	if (getenv("T_GOLDEN") && strcmp(getenv("T_GOLDEN"), "write") == 0) {
		file = fopen(path, "w");
		cr_assert(file, "cannot write %s", path);
		fputs(got, file);
		fclose(file);
	}
	file = fopen(path, "r");
	cr_assert(file, "there is no %s", path);
	cr_assert_lt(fread(expected, 1, (1 << 20) - 1, file), (1 << 20) - 1);
	fclose(file);
	cr_assert(strcmp(got, expected) == 0, "%s is now:\n%s\nand was:\n%s", name, got, expected);
	free(expected);
}

static void golden(const char *name, int width, int height, bool utf8, struct top_ui *ui, bool styles)
{
	struct top_grid grid;
	char *text, *words = ui->mode == TOP_EXPLAIN ? words_about(busy, ui->selected) : NULL;

	cr_assert(top_grid_make(&grid, width, height, utf8));
	ui->explanation = words;
	top_draw_screen(&grid, &busy, 1, ui);
	text = screen_text(&grid, styles);
	compare(name, text);
	free(text);
	free(words);
	top_grid_free(&grid);
}

Test(screens, sixty_columns_in_ascii)
{
	struct top_ui ui = {0};

	golden("60x20-ascii", 60, 20, false, &ui, false);
}

Test(screens, eighty_columns_with_a_selection_and_colours)
{
	struct top_ui ui = {.selected = "batch"};

	golden("80x24", 80, 24, true, &ui, true);
}

Test(screens, processes_of_all_accounts)
{
	struct top_ui ui = {.all_open = true, .sort = TOP_BY_NAME};

	golden("120x30-processes", 120, 30, true, &ui, false);
}

Test(screens, a_wide_one_shows_everything)
{
	struct top_ui ui = {0};

	golden("250x40", 250, 40, true, &ui, false);
}

Test(screens, a_low_one_scrolls_to_the_selection)
{
	struct top_ui ui = {.all_open = true, .selected = "free"};

	golden("80x12-scrolled", 80, 12, true, &ui, false);
	cr_assert_gt(ui.scroll, 0);
}

Test(screens, help)
{
	struct top_ui ui = {.mode = TOP_HELP};

	golden("80x24-help", 80, 24, true, &ui, false);
	golden("60x20-help", 60, 20, false, &ui, false);
}

Test(screens, words)
{
	struct top_ui ui = {.mode = TOP_EXPLAIN, .selected = "batch"};

	golden("100x30-explain", 100, 30, true, &ui, false);
}

Test(screens, requests_weights_and_priorities_where_they_matter)
{
	struct top_ui table = {.selected = "infer"};
	struct top_ui train = {.mode = TOP_EXPLAIN, .selected = "train"};
	struct top_ui infer = {.mode = TOP_EXPLAIN, .selected = "infer"};
	struct top_ui tune = {.mode = TOP_EXPLAIN, .selected = "tune"};

	w_free(busy);
	busy = w_shares_gpu(75);
	golden("80x16-shares", 80, 16, true, &table, false);
	golden("140x16-shares", 140, 16, true, &table, false);
	golden("100x24-train", 100, 24, true, &train, false);
	golden("100x24-infer", 100, 24, true, &infer, false);
	golden("100x24-tune", 100, 24, true, &tune, false);
}

Test(screens, a_priority_that_is_felt_for_a_second_at_most_is_explained)
{
	char *words;

	w_free(busy);
	busy = w_shares_gpu(75);
	top_gpu_account(busy, "train")->priority = 50;
	words = words_about(busy, "train");
	cr_assert(
		strstr(words, "Its own is not below 50, so it does that for a second at most"), "%s", words);
	free(words);
	words = words_about(busy, "infer");
	cr_assert(strstr(words, "Those that are not below 50 do that for a second at most"), "%s", words);
	free(words);
}

Test(screens, who_waits_for_a_promise_of_time_is_told_how_much_is_promised)
{
	struct gpuarb_picture *p = (struct gpuarb_picture *)busy->picture;
	char *words;

	p->requests_pct = 60;
	p->starts[0].request_pct = 50;
	words = words_about(busy, "starter");
	cr_assert(
		strstr(words, "place 1 of 1: it needs 14G, and 4.0G of 16G are promised; it needs 50 percent "
			      "of the GPU's time, and 60 of 100 are promised.\n"),
		"%s", words);
	free(words);
	p->starts[0].bytes = 0;
	words = words_about(busy, "starter");
	cr_assert(strstr(words, "place 1 of 1: it needs 50 percent of the GPU's time, and 60 of 100"), "%s",
		words);
	free(words);
}

Test(screens, questions_and_answers)
{
	struct top_ui asks = {.mode = TOP_ASK_CORE, .selected = "web", .input = "45"};
	struct top_ui told = {.message = "limits of GPU cannot be changed: only who may write it may do that",
		.message_bad = true};
	struct top_ui filters = {.filter = "nobody has this"};

	golden("60x12-limit", 60, 12, true, &asks, false);
	golden("60x12-refused", 60, 12, true, &told, false);
	golden("60x12-filter", 60, 12, true, &filters, false);
}

Test(screens, the_device_and_those_that_are_no_clients)
{
	struct top_ui ui = {0};

	w_others(busy);
	golden("100x24-others", 100, 24, true, &ui, false);
	/* By difference nobody can be named; and where there is little room, the clients come first. */
	busy->others.by = NONCLIENTS_BY_DIFFERENCE;
	busy->others.nlisted = 0;
	golden("60x16-others", 60, 16, true, &ui, false);
	golden("60x12-others", 60, 12, true, &ui, false);
}

/* Returns whether the screen says `sentence`. */
static bool says(const char *sentence)
{
	struct top_ui ui = {0};
	struct top_grid grid;
	char *text;
	bool found;

	cr_assert(top_grid_make(&grid, 120, 40, true));
	top_draw_screen(&grid, &busy, 1, &ui);
	text = screen_text(&grid, false);
	found = strstr(text, sentence);
	free(text);
	top_grid_free(&grid);
	return found;
}

Test(screens, what_nvml_saw_beyond_the_bills_is_named)
{
	w_others(busy);
	busy->unbilled.known = true;
	busy->unbilled.value = 0.2;
	cr_assert(says("not billed: 20% of the last 10 s, in which NVML saw the GPU busy"));
	cr_assert(says("by programs that are no clients, or past gpuarb"));
	busy->others.by = NONCLIENTS_BY_DIFFERENCE;
	cr_assert_not(says("by programs that are no clients, or past gpuarb"));
	/* NVML's figure and the bills are taken at other moments. */
	busy->unbilled.value = 0.05;
	cr_assert_not(says("not billed"));
}

Test(screens, pages_show_all_of_it)
{
	struct top_ui ui = {.all_open = true};
	struct top_grid grid;
	char *text;

	cr_assert(top_grid_make(&grid, 100, top_draw_lines(busy, &ui), true));
	top_draw_page(&grid, busy, &ui);
	text = screen_text(&grid, false);
	compare("page-100", text);
	for (unsigned i = 0; i < busy->picture->nclients; i++) {
		char pid[16];

		snprintf(pid, sizeof(pid), " %u ", busy->picture->clients[i].pid);
		cr_assert(strstr(text, pid), "process%sis missing", pid);
	}
	free(text);
	top_grid_free(&grid);
}

Test(screens, two_gpus_and_none)
{
	struct top_gpu *two[2] = {busy, w_busy_gpu(30)};
	struct top_gpu *unseen = calloc(1, sizeof(*unseen));
	struct top_ui ui = {.gpu = 1};
	struct top_grid grid;
	char *text;

	cr_assert(top_grid_make(&grid, 80, 24, true));
	top_draw_screen(&grid, two, 2, &ui);
	text = screen_text(&grid, false);
	cr_assert(strncmp(text, "2/2 GPU-5f2d", 12) == 0, "%s", text);
	cr_assert(strstr(text, "\n1/2 GPU-5f2d"), "%s", text);
	free(text);
	top_grid_free(&grid);
	cr_assert(top_grid_make(&grid, 80, 24, true));
	top_draw_screen(&grid, &unseen, 0, &ui);
	text = screen_text(&grid, false);
	cr_assert(strstr(text, "nobody uses a GPU through gpuarb yet"), "%s", text);
	free(text);
	top_draw_screen(&grid, &unseen, 1, &ui);
	top_grid_free(&grid);
	w_free(two[1]);
	w_free(unseen);
}

/* Whatever the size: nothing that a terminal would act upon, no half of a character, ASCII where it is asked.
 */
Test(screens, every_size_is_clean)
{
	char *words = words_about(busy, "web");

	for (int width = 1; width <= 260; width += width < 130 ? 1 : 7)
		for (int height = 1; height <= 60; height += height < 30 ? 3 : 11)
			for (int what = 0; what < 8; what++) {
				struct top_ui ui = {.mode = (enum top_mode)(what / 2),
					.selected = "web",
					.all_open = what == 1,
					.explanation = words};
				bool utf8 = what % 2;
				struct top_grid grid;

				cr_assert(top_grid_make(&grid, width, height, utf8));
				top_draw_screen(&grid, &busy, 1, &ui);
				for (int i = 0; i < width * height; i++) {
					uint32_t code = grid.cells[i].code;

					if (!code) {
						cr_assert(i % width &&
							  top_text_columns(grid.cells[i - 1].code) == 2);
						continue;
					}
					cr_assert(!top_text_hides(code) && code != 0xfffd, "%x at %dx%d",
						code, width, height);
					cr_assert(utf8 || code < 0x7f, "%x at %dx%d", code, width, height);
				}
				top_grid_free(&grid);
			}
	free(words);
}

/* Names are shown whole before columns that matter less, and never at the cost of those that matter more. */
Test(screens, long_names_are_shown_whole_where_there_is_room)
{
	static const char name[] = "nightly-report-of-the-statistics-group";

	for (int width = 60; width <= 200; width += 10) {
		struct top_ui ui = {0};
		struct top_grid grid;
		char *text;

		cr_assert(top_grid_make(&grid, width, 24, true));
		top_draw_screen(&grid, &busy, 1, &ui);
		text = screen_text(&grid, false);
		cr_assert_eq(strstr(text, name) != NULL, width >= 130, "%d: %s", width, text);
		cr_assert_eq(strstr(text, " THROTTLED ") != NULL, width >= 80, "%d: %s", width, text);
		cr_assert_eq(strstr(text, " COMMAND") != NULL, width >= 170, "%d: %s", width, text);
		free(text);
		top_grid_free(&grid);
	}
}

/* Wide characters take two columns, combining ones would take none: neither moves what stands beside them. */
Test(screens, characters_of_every_width)
{
	struct top_grid grid;
	char *text;

	cr_assert(top_grid_make(&grid, 12, 3, true));
	cr_assert_eq(top_grid_text(&grid, 0, 0, 12, TOP_PLAIN, "\xe6\x95\xb0\xe6\x8d\xae|"), 5);
	cr_assert_eq(top_grid_text(&grid, 1, 0, 12, TOP_PLAIN, "e\xcc\x81|"), 3);
	cr_assert_eq(top_grid_text(&grid, 2, 0, 4, TOP_PLAIN, "\xe6\x95\xb0\xe6\x8d\xae\xe6\x95\xb0"), 3);
	text = screen_text(&grid, false);
	cr_assert_str_eq(text, "\xe6\x95\xb0\xe6\x8d\xae|\ne?|\n\xe6\x95\xb0\xe2\x80\xa6\n");
	free(text);
	top_grid_free(&grid);
}

Test(screens, words_for_each_state)
{
	static const struct {
		const char *account, *says;
	} cases[] = {
		{"web", "it runs just now"},
		{"web", "Limit: 50 percent of the GPU's time, set by an administrator"},
		{"web", "Effective quota: 41.7 percent. The limits of the active accounts add up to 120: web "
			"50 + batch "
			"40 + nightly-report-of-the-statistics-group 30."},
		{"web", "Memory: 3.0G in use of a quota of 4.0G (as its program asked), at most 3.8G so far"},
		{"web", "Memory: 3.00s ago it was refused 2.0G of memory: its quota is 4.0G, of which 3.0G "
			"were in use"},
		{"web", "pid 4000 python3 in container 4f1e2d3c4b5a: running"},
		{"web", "seen: 1200 kernel launches"},
		{"web", "may go past gpuarb: 2 export tables handed out"},
		{"web", "calls in no table: cuNew? cuNewer"},
		{"batch", "it is throttled: it has used what it may"},
		{"batch", "This window of 100ms ends in 40ms. Of its 33ms the account has used 35ms; it owes "
			  "2.0ms"},
		{"batch", "It may go on in 40ms, at 12:01:15.040"},
		{"batch", "In the last 2.50s it was throttled 2 times, for 60ms in all"},
		{"batch", "12:01:12.500 limit changed from 30 to 40 percent"},
		{"batch", "It got 33.3 percent over 1 s, 33.3 percent over 10 s, 33.3 percent over 60 s"},
		{"nightly-report-of-the-statistics-group", "it waits for its turn, since 12ms"},
		{"nightly-report-of-the-statistics-group",
			"Queue: place 1 of 1. Policy concurrent; running now: web (pid 4000)"},
		{"free", "Limit: none"},
		{"free", "it has no work on the GPU just now"},
		{"free", "Nothing holds it back: it does not ask for more"},
		{"gone\x1b[2J", "gone?[2J on GPU-5f2d7a10-0000-4000-8000-0123456789ab: none of its processes "
				"is there now"},
		{"gone\x1b[2J", "died and was cleaned up behind; it had used 1.50s and held 1.0G"},
		{"never", "Limits set by an administrator wait for it"},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *text = words_about(busy, cases[i].account);

		cr_assert(strstr(text, cases[i].says), "'%s' is not in\n%s", cases[i].says, text);
		cr_assert_null(strpbrk(text, "\x1b\x07"), "%s", cases[i].account);
		free(text);
	}
}

/* An account may be throttled though it has used less than its quota: what it owed was taken off first. */
Test(screens, words_for_a_window_that_paid_a_debt)
{
	struct gpuarb_view_account *batch = &top_gpu_account(busy, "batch")->now;
	char *text;

	batch->window_ns = 20000000;
	text = words_about(busy, "batch");
	cr_assert(strstr(text,
			  "Of its 33ms the account has used 20ms (15ms paid an older debt); it owes 2.0ms"),
		"%s", text);
	free(text);
	batch->debt_ns = 0;
	batch->left_ns = 6000000;
	text = words_about(busy, "batch");
	cr_assert(strstr(text, "has used 20ms (7.3ms paid an older debt); 6.0ms are left."), "%s", text);
	free(text);
}

Test(screens, words_for_those_who_wait)
{
	static const struct w_account pressed[] = {{.name = "asr",
		.limit_ppm = 1000000,
		.quota_ppm = 1000000,
		.share = 0.5,
		.clients = 1,
		.command = "asr",
		.reason = ARB_REASON_PRESSURE}};
	static const char *const says[] = {
		("asr on GPU-5f2d7a10-0000-4000-8000-0123456789ab: it waits until the GPU's "
		 "utilisation falls, since 230ms."),
		"waits to be admitted, class repair, since 230ms", "tasks: 0 admitted now, 9 ever, 2 refused",
		"Admission: HIGH_PRESSURE, utilisation 88.3 percent (high water 85, low water 78)"};
	struct top_gpu *g = calloc(1, sizeof(*g));
	char *text;

	w_run(g, pressed, 1, 0, 5, 1);
	((struct gpuarb_picture *)g->picture)->admission.high_pressure = true;
	text = words_about(g, "asr");
	for (unsigned i = 0; i < sizeof(says) / sizeof(says[0]); i++)
		cr_assert(strstr(text, says[i]), "'%s' is not in\n%s", says[i], text);
	free(text);
	text = words_about(g, "starter");
	cr_assert(strstr(text, "A program of it waits to start, since 5.00s, place 1 of 1: it needs 14G, and "
			       "0B of 16G are "
			       "promised."),
		"%s", text);
	free(text);
	w_free(g);
}

Test(screens, words_for_each_event)
{
	char words[256], seen[ARB_EVENT_COUNT][256];

	for (unsigned kind = 0; kind < ARB_EVENT_COUNT + 3; kind++) {
		struct top_event e = {.e = {.kind = kind,
					      .name = "strange",
					      .a = UINT64_MAX,
					      .b = UINT64_MAX,
					      .c = UINT64_MAX,
					      .why = UINT_MAX,
					      .times = UINT_MAX}};

		top_words_event(busy, &e, words, sizeof(words));
		cr_assert(*words);
		cr_assert_null(strpbrk(words, "\n\x1b"));
		for (unsigned k = 1; k < kind && k < ARB_EVENT_COUNT; k++)
			cr_assert(kind >= ARB_EVENT_COUNT || strcmp(words, seen[k]) != 0, "%u is as %u", kind,
				k);
		if (kind < ARB_EVENT_COUNT)
			memcpy(seen[kind], words, sizeof(words));
	}
}

/* gpuarb-top's numbers: shares over time, history, states, and what a user may choose. */
#include <criterion/criterion.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/top/top_text.h"
#include "tools/top/top_ui.h"
#include "test/tools/top_world.h"

static const struct w_account steady[] = {
	{.name = "a", .limit_ppm = 300000, .quota_ppm = 300000, .share = 0.3, .clients = 1, .running = true},
	{.name = "b", .limit_ppm = 1000000, .quota_ppm = 1000000, .share = 0.45, .clients = 2},
};

static double share_of(const struct top_gpu *g, const char *name, int span)
{
	const struct top_account *a = top_gpu_account(g, name);

	cr_assert(a, "%s is not there", name);
	cr_assert(a->share[span].known, "the share of %s over %u s is not known", name, top_span_s[span]);
	return a->share[span].value;
}

static bool knows(const struct top_gpu *g, const char *name, int span)
{
	return top_gpu_account(g, name)->share[span].known;
}

#define NEAR(a, b) (fabs((a) - (b)) < 1e-6)

Test(model, a_share_is_known_when_it_was_watched_for_so_long)
{
	struct top_gpu *g = calloc(1, sizeof(*g));

	w_run(g, steady, 2, 0, 0.5, 0.5);
	cr_assert(!knows(g, "a", 0));
	w_run(g, steady, 2, 1, 1, 1);
	cr_assert(NEAR(share_of(g, "a", 0), 0.3));
	cr_assert(!knows(g, "a", 1));
	w_run(g, steady, 2, 2, 10, 1);
	cr_assert(NEAR(share_of(g, "a", 1), 0.3));
	cr_assert(!knows(g, "a", 2));
	w_run(g, steady, 2, 11, 60, 1);
	cr_assert(NEAR(share_of(g, "a", 2), 0.3));
	cr_assert(NEAR(share_of(g, "b", 2), 0.45));
	w_free(g);
}

/* The accounts get 75 percent together. */
Test(model, what_nvml_sees_beyond_the_bills_is_told)
{
	struct top_gpu *g = calloc(1, sizeof(*g));

	g->others.utilisation_known = true;
	g->others.utilisation_pct = 95;
	w_run(g, steady, 2, 0, 5, 1);
	cr_assert(!g->unbilled.known);
	w_run(g, steady, 2, 6, 20, 1);
	cr_assert(g->unbilled.known);
	cr_assert(fabs(g->unbilled.value - 0.2) < 0.01, "%f", g->unbilled.value);
	/* If NVML shows less than the bills, there is nothing to warn of. */
	g->others.utilisation_pct = 60;
	w_run(g, steady, 2, 21, 40, 1);
	cr_assert(g->unbilled.known);
	cr_assert_eq(g->unbilled.value, 0);
	/* After a gap it is not known, for as long as was not watched. */
	g->others.utilisation_known = false;
	w_run(g, steady, 2, 41, 42, 1);
	cr_assert(!g->unbilled.known);
	g->others.utilisation_known = true;
	w_run(g, steady, 2, 43, 45, 1);
	cr_assert(!g->unbilled.known);
	w_free(g);
}

Test(model, what_accounts_get_adds_up_to_what_the_gpu_gave)
{
	static const double steps[] = {0.13, 0.7, 1, 1.9};

	for (unsigned i = 0; i < 4; i++) {
		struct top_gpu *g = calloc(1, sizeof(*g));

		w_run(g, steady, 2, 0, 70, steps[i]);
		for (int span = 0; span < TOP_SPANS; span++)
			cr_assert(fabs(g->share[span].value - share_of(g, "a", span) -
					  share_of(g, "b", span)) < 1e-6,
				"step %g, span %d", steps[i], span);
		w_free(g);
	}
}

Test(model, between_two_looks_is_taken_to_be_even)
{
	/* From second 30 on there is no work: that second begins and ends between two looks. */
	static const struct w_account stops[] = {{.name = "a",
		.limit_ppm = 1000000,
		.quota_ppm = 1000000,
		.share = 0.8,
		.from_s = 0,
		.to_s = 0,
		.clients = 1}};
	struct top_gpu *g = calloc(1, sizeof(*g));

	w_run(g, stops, 1, 0.37, 40, 0.73);
	cr_assert(NEAR(share_of(g, "a", 0), 0.8));
	cr_assert(NEAR(share_of(g, "a", 1), 0.8));
	w_free(g);
}

Test(model, an_account_that_comes_later_had_nothing_before)
{
	static const struct w_account late[] = {
		{.name = "a", .limit_ppm = 1000000, .quota_ppm = 1000000, .share = 0.3, .clients = 1},
		{.name = "late",
			.limit_ppm = 1000000,
			.quota_ppm = 1000000,
			.share = 0.5,
			.from_s = 25,
			.clients = 1}};
	struct top_gpu *g = calloc(1, sizeof(*g));

	w_run(g, late, 2, 0, 30, 1);
	cr_assert(NEAR(share_of(g, "late", 0), 0.5));
	cr_assert(NEAR(share_of(g, "late", 1), 0.25), "half of the GPU for half of the time");
	cr_assert(!knows(g, "late", 2));
	w_free(g);
}

Test(model, an_account_that_goes_and_comes_back_goes_on)
{
	static const struct w_account comes[] = {{.name = "a",
		.limit_ppm = 1000000,
		.quota_ppm = 1000000,
		.share = 0.3,
		.to_s = 20,
		.clients = 1}};
	static const struct w_account other[] = {
		{.name = "b", .limit_ppm = 1000000, .quota_ppm = 1000000, .share = 0.1, .clients = 1}};
	struct top_gpu *g = calloc(1, sizeof(*g));

	w_run(g, comes, 1, 0, 25, 1);
	cr_assert(!top_gpu_account(g, "a")->present);
	cr_assert(NEAR(share_of(g, "a", 1), 0.15), "five of ten seconds");
	cr_assert_eq(top_gpu_account(g, "a")->state, TOP_GONE);
	/* It is forgotten after a while. */
	w_run(g, other, 1, 26, 200, 1);
	cr_assert_null(top_gpu_account(g, "a"));
	cr_assert_eq(g->naccounts, 1);
	w_free(g);
}

Test(model, less_than_before_is_another_account_of_that_name)
{
	static struct gpuarb_picture p[2];
	struct top_gpu *g = calloc(1, sizeof(*g));

	w_run(g, steady, 2, 0, 20, 1);
	w_picture(&p[0], steady, 2, 21);
	p[0].accounts[0].used_now_ns = p[0].accounts[0].used_ns = 0;
	cr_assert(top_gpu_update(g, &p[0]));
	w_picture(&p[1], steady, 2, 22);
	p[1].accounts[0].used_now_ns = p[1].accounts[0].used_ns = W_SECOND / 2;
	cr_assert(top_gpu_update(g, &p[1]));
	cr_assert(NEAR(share_of(g, "a", 0), 0.5));
	cr_assert(share_of(g, "a", 1) <= 0.05 + 1e-6, "what the other one had is not its own");
	/* A bill that shrinks a little when a client leaves must not give a negative share. */
	w_picture(&p[0], steady, 2, 23);
	p[0].accounts[0].used_now_ns = W_SECOND / 2 - 1000;
	cr_assert(top_gpu_update(g, &p[0]));
	cr_assert(share_of(g, "a", 0) >= 0 && share_of(g, "a", 0) < 1e-6);
	w_free(g);
}

Test(model, many_looks_a_second_still_cover_a_minute)
{
	struct top_gpu *g = calloc(1, sizeof(*g));

	w_run(g, steady, 2, 0, 70, 0.01);
	cr_assert(NEAR(share_of(g, "a", 0), 0.3));
	cr_assert(fabs(share_of(g, "a", 2) - 0.3) < 1e-4);
	cr_assert_leq(g->samples, 720);
	w_free(g);
}

Test(model, history_has_a_value_a_second)
{
	static const struct w_account stops[] = {{.name = "a",
		.limit_ppm = 1000000,
		.quota_ppm = 1000000,
		.share = 0.8,
		.to_s = 100,
		.clients = 1}};
	struct top_gpu *g = calloc(1, sizeof(*g));

	w_run(g, stops, 1, 0, 110, 0.25);
	cr_assert_eq(g->history.count, 110);
	cr_assert_eq(g->history.permille[50], 800);
	cr_assert_eq(g->history.permille[109], 0);
	cr_assert_eq(top_gpu_account(g, "a")->spark_count, TOP_SPARK);
	cr_assert_eq(top_gpu_account(g, "a")->spark[TOP_SPARK - 20], 800);
	cr_assert_eq(top_gpu_account(g, "a")->spark[TOP_SPARK - 1], 0);
	w_run(g, stops, 1, 111, 800, 1);
	cr_assert_eq(g->history.count, TOP_BUCKETS);
	w_free(g);
}

Test(model, a_wait_that_goes_on_counts_already)
{
	struct top_gpu *g = w_busy_gpu(20);
	const struct top_account *batch = top_gpu_account(g, "batch");

	cr_assert_eq(
		batch->throttled_ns, 1500000000 + 20000000, "%llu", (unsigned long long)batch->throttled_ns);
	/* Waits of the earlier client in that slot do not count. */
	g->slot[2].generation = 6;
	cr_assert_eq(top_client_throttled_ns(g, &g->picture->clients[2]), 1500000000);
	w_free(g);
}

Test(model, what_was_estimated_is_not_measured)
{
	struct top_gpu *g = w_busy_gpu(20);
	const struct top_account *batch = top_gpu_account(g, "batch");

	cr_assert_eq(batch->estimated_ns, batch->in_set_ns / 50);
	cr_assert_float_eq(top_measured_percent(batch->in_set_ns, batch->estimated_ns), 98, 1e-6);
	cr_assert_eq(top_measured_percent(0, 0), -1);
	cr_assert_eq(top_measured_percent(1000, 0), 100);
	/* The two values were read while both grew. */
	cr_assert_eq(top_measured_percent(1000, 1001), 0);
	w_free(g);
}

Test(model, an_account_is_as_lively_as_its_liveliest_process)
{
	struct top_gpu *g = w_busy_gpu(20);

	cr_assert_eq(top_gpu_account(g, "web")->state, TOP_RUNNING);
	cr_assert_eq(top_gpu_account(g, "web")->processes, 2);
	cr_assert_eq(top_gpu_account(g, "web")->running, 1);
	cr_assert_eq(top_gpu_account(g, "batch")->state, TOP_THROTTLED);
	cr_assert_eq(top_gpu_account(g, "nightly-report-of-the-statistics-group")->state, TOP_WAITING);
	cr_assert_eq(top_gpu_account(g, "nightly-report-of-the-statistics-group")->queue_place, 1);
	cr_assert_eq(top_gpu_account(g, "free")->state, TOP_IDLE);
	cr_assert_eq(top_gpu_limits_ppm(g), 1200000);
	w_free(g);
}

Test(model, a_frozen_client_is_neither_idle_nor_running)
{
	static struct gpuarb_picture p;

	for (unsigned frozen = ARB_FROZEN_NOT; frozen <= ARB_FROZEN_CHECKPOINTED; frozen++) {
		struct top_gpu *g = calloc(1, sizeof(*g));

		w_picture(&p, steady, 1, 5);
		p.clients[0].running = false;
		p.clients[0].frozen = frozen;
		cr_assert(top_gpu_update(g, &p));
		cr_assert_str_eq(
			top_state_name(g->client_state[0]), frozen == ARB_FROZEN_NOT ? "idle" : "frozen");
		w_free(g);
	}
}

Test(model, a_reason_counts_while_somebody_waits)
{
	static const struct {
		unsigned reason;
		bool running, waiting, admission, spent;
		enum top_state state;
	} cases[] = {
		{ARB_REASON_NONE, false, false, false, false, TOP_IDLE},
		{ARB_REASON_NONE, true, false, false, true, TOP_RUNNING},
		{ARB_REASON_QUOTA, false, false, false, true, TOP_THROTTLED},
		{ARB_REASON_QUOTA, false, false, false, false, TOP_IDLE}, /* it gave up long ago */
		{ARB_REASON_QUOTA, false, false, true, false, TOP_THROTTLED},
		{ARB_REASON_MEMORY, false, true, false, false, TOP_MEMORY},
		{ARB_REASON_MEMORY, false, false, false, false, TOP_IDLE},
		{ARB_REASON_PRESSURE, false, false, true, false, TOP_PRESSURE},
		{ARB_REASON_PRESSURE, false, false, false, false, TOP_IDLE},
		{ARB_REASON_QUEUE, false, true, false, false, TOP_WAITING},
		{ARB_REASON_QUEUE, false, false, true, false, TOP_WAITING},
		{ARB_REASON_QUEUE, false, false, false, false, TOP_IDLE},
		{77, false, false, false, false, TOP_IDLE},
	};
	static struct gpuarb_picture p;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct top_gpu *g = calloc(1, sizeof(*g));

		w_picture(&p, steady, 1, 5);
		p.clients[0].reason = cases[i].reason;
		p.clients[0].running = cases[i].running;
		p.clients[0].waiting = cases[i].waiting;
		p.clients[0].adm_waiting = cases[i].admission;
		p.accounts[0].left_ns = cases[i].spent ? 0 : 1000;
		cr_assert(top_gpu_update(g, &p));
		cr_assert_eq(g->client_state[0], cases[i].state, "case %u: %s", i,
			top_state_name(g->client_state[0]));
		w_free(g);
	}
}

/* Returns the first letters of the accounts' names in the order in which they are shown. */
static const char *order(const struct top_ui *ui, const struct top_gpu *g)
{
	static struct top_row rows[TOP_ROWS];
	static char text[64];
	unsigned n = top_ui_rows(ui, g, rows, TOP_ROWS), k = 0;

	for (unsigned i = 0; i < n; i++)
		text[k++] = rows[i].client < 0 ? rows[i].account->now.name[0] : '.';
	text[k] = '\0';
	return text;
}

Test(ui, every_order)
{
	static const char *const expected[TOP_SORTS] = {[TOP_BY_SHARE] = "wbnfe",
		[TOP_BY_NAME] = "befnw",
		[TOP_BY_LIMIT] = "efwbn",
		[TOP_BY_MEMORY] = "wbfen",
		[TOP_BY_THROTTLED] = "befnw",
		[TOP_BY_DEBT] = "befnw",
		[TOP_BY_QUEUE] = "nbefw"};
	struct top_gpu *g = w_busy_gpu(20);
	struct top_ui ui = {0};

	for (int sort = 0; sort < TOP_SORTS; sort++) {
		ui.sort = (enum top_sort)sort;
		cr_assert_str_eq(
			order(&ui, g), expected[sort], "%s: %s", top_sort_name(ui.sort), order(&ui, g));
	}
	ui.sort = TOP_BY_NAME;
	ui.reverse = true;
	cr_assert_str_eq(order(&ui, g), "wnfeb");
	ui.sort = TOP_BY_SHARE;
	cr_assert_str_eq(order(&ui, g), "efnbw");
	w_free(g);
}

Test(ui, every_filter)
{
	static const struct {
		const char *filter, *shown;
	} cases[] = {{"WEB", "w"}, {"ffmpeg", "b"}, {"4f1e2d", "w"}, {"4003", "n"}, {"400", ""},
		{"throttled", "b"}, {"Waiting", "n"}, {"e", "wbnfe"}, {"no such", ""}, {"\xe6\x95\xb0", "e"}};
	struct top_gpu *g = w_busy_gpu(20);

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct top_ui ui = {0};

		snprintf(ui.filter, sizeof(ui.filter), "%s", cases[i].filter);
		cr_assert_str_eq(
			order(&ui, g), cases[i].shown, "'%s' shows %s", cases[i].filter, order(&ui, g));
	}
	w_free(g);
}

static void press(struct top_ui *ui, struct top_gpu *g, const char *keys)
{
	for (; *keys; keys++)
		cr_assert_eq(top_ui_key(ui, &g, 1, *keys), TOP_NOTHING, "%s", keys);
}

Test(ui, processes_are_shown_and_folded)
{
	struct top_gpu *g = w_busy_gpu(20);
	struct top_ui ui = {0};

	press(&ui, g, "j ");
	cr_assert_str_eq(ui.selected, "web");
	cr_assert_str_eq(order(&ui, g), "w..bnfe");
	press(&ui, g, "j\n");
	cr_assert_str_eq(order(&ui, g), "w..b.nfe");
	press(&ui, g, "k ");
	cr_assert_str_eq(order(&ui, g), "wb.nfe");
	press(&ui, g, "f");
	cr_assert_str_eq(order(&ui, g), "w..b.n.f.e.");
	press(&ui, g, " ");
	cr_assert_str_eq(order(&ui, g), "wb.n.f.e.", "of all, but not of this one");
	press(&ui, g, "ff");
	cr_assert_str_eq(order(&ui, g), "w..b.n.f.e.");
	w_free(g);
}

Test(ui, the_selection_stays_on_its_account)
{
	struct top_gpu *g = w_busy_gpu(20);
	struct top_ui ui = {.page = 3};

	press(&ui, g, "G");
	cr_assert_eq(ui.selected[0], 'e');
	press(&ui, g, "g");
	cr_assert_str_eq(ui.selected, "web");
	press(&ui, g, "kkk");
	cr_assert_str_eq(ui.selected, "web");
	top_ui_key(&ui, &g, 1, TOP_KEY_PAGE_DOWN);
	cr_assert_eq(ui.selected[0], 'n');
	press(&ui, g, "s");
	cr_assert_eq(ui.sort, TOP_BY_NAME);
	cr_assert_eq(ui.selected[0], 'n');
	top_ui_key(&ui, &g, 1, TOP_KEY_UP);
	cr_assert_str_eq(ui.selected, "free");
	top_ui_key(&ui, &g, 1, TOP_KEY_ESCAPE);
	cr_assert_str_eq(ui.selected, "");
	w_free(g);
}

Test(ui, a_limit_is_typed_and_asked_for)
{
	struct top_gpu *g = w_busy_gpu(20);
	struct top_ui ui = {0};

	press(&ui, g, "l");
	cr_assert_eq(ui.mode, TOP_TABLE);
	cr_assert_str_eq(ui.message, "select an account first, with the arrow keys");
	press(&ui, g, "jl45");
	top_ui_key(&ui, &g, 1, TOP_KEY_BACKSPACE);
	press(&ui, g, "0");
	cr_assert_str_eq(ui.input, "40");
	cr_assert_str_eq(top_ui_setting(ui.mode), "core");
	cr_assert_eq(top_ui_key(&ui, &g, 1, '\n'), TOP_CHANGE);
	ui.mode = TOP_TABLE;
	press(&ui, g, "m");
	cr_assert_str_eq(top_ui_setting(ui.mode), "mem");
	top_ui_key(&ui, &g, 1, TOP_KEY_ESCAPE);
	cr_assert_eq(ui.mode, TOP_TABLE);
	press(&ui, g, "p");
	cr_assert_str_eq(top_ui_setting(ui.mode), "priority");
	w_free(g);
}

Test(ui, a_filter_may_be_in_any_script)
{
	struct top_gpu *g = w_busy_gpu(20);
	struct top_ui ui = {0};

	press(&ui, g, "/");
	top_ui_key(&ui, &g, 1, 0x6570);
	top_ui_key(&ui, &g, 1, 0x636e);
	cr_assert_str_eq(ui.input, "\xe6\x95\xb0\xe6\x8d\xae");
	top_ui_key(&ui, &g, 1, TOP_KEY_BACKSPACE);
	cr_assert_str_eq(ui.input, "\xe6\x95\xb0");
	top_ui_key(&ui, &g, 1, 0x1b5b); /* any character */
	top_ui_key(&ui, &g, 1, 7);      /* none */
	top_ui_key(&ui, &g, 1, TOP_KEY_BACKSPACE);
	press(&ui, g, "\n");
	cr_assert_str_eq(order(&ui, g), "e");
	for (int i = 0; i < 200; i++)
		top_ui_key(&ui, &g, 1, '/');
	cr_assert_lt(strlen(ui.input), sizeof(ui.input));
	w_free(g);
}

Test(ui, other_keys)
{
	struct top_gpu *two[2] = {w_busy_gpu(20), w_busy_gpu(20)};
	struct top_ui ui = {0};

	cr_assert_eq(top_ui_key(&ui, two, 2, 'q'), TOP_QUIT);
	top_ui_key(&ui, two, 2, '\t');
	cr_assert_eq(ui.gpu, 1);
	top_ui_key(&ui, two, 2, '\t');
	cr_assert_eq(ui.gpu, 0);
	top_ui_key(&ui, two, 2, '?');
	cr_assert_eq(ui.mode, TOP_HELP);
	cr_assert_eq(top_ui_key(&ui, two, 2, 'q'), TOP_NOTHING, "only back to the table");
	cr_assert_eq(ui.mode, TOP_TABLE);
	top_ui_key(&ui, two, 2, 'e');
	cr_assert_eq(ui.mode, TOP_TABLE, "nothing is selected");
	top_ui_key(&ui, two, 2, 'j');
	top_ui_key(&ui, two, 2, 'e');
	cr_assert_eq(ui.mode, TOP_EXPLAIN);
	top_ui_key(&ui, two, 2, 'j');
	cr_assert_eq(ui.mode, TOP_EXPLAIN);
	cr_assert_str_eq(ui.selected, "batch");
	top_ui_key(&ui, two, 2, 'x');
	cr_assert_eq(ui.mode, TOP_TABLE);
	top_ui_key(&ui, two, 2, 'i');
	cr_assert_str_eq(order(&ui, two[0]), "wbn");
	top_ui_key(&ui, two, 2, 'z');
	cr_assert(ui.paused);
	/* There is no account at all. */
	for (int key = 0; key < 256; key++)
		top_ui_key(&ui, two, 0, key);
	w_free(two[0]);
	w_free(two[1]);
}

Test(ui, a_click_selects_and_folds)
{
	struct top_gpu *g = w_busy_gpu(20);
	struct top_ui ui = {.table_y = 10, .page = 5};

	top_ui_key(&ui, &g, 1, TOP_KEY_CLICK + 11);
	cr_assert_str_eq(ui.selected, "batch");
	top_ui_key(&ui, &g, 1, TOP_KEY_CLICK + 11);
	cr_assert_str_eq(order(&ui, g), "wb.nfe");
	top_ui_key(&ui, &g, 1, TOP_KEY_CLICK + 3);
	top_ui_key(&ui, &g, 1, TOP_KEY_CLICK + 900);
	cr_assert_str_eq(ui.selected, "batch");
	w_free(g);
}

Test(text, whatever_bytes_come_in_valid_text_goes_out)
{
	static const struct {
		const char *from, *safe;
	} cases[] = {{"plain", "plain"}, {"a\x1b[2Jb", "a?[2Jb"}, {"\x7f\x01", "??"}, {"\xff\xfe", "??"},
		{"\xc3\xa9", "\xc3\xa9"}, {"\xc0\xaf", "??"}, {"\xe2\x82", "??"}, {"\xed\xa0\x80", "???"},
		{"\xc2\x9b", "?"}, {"\xe2\x80\xae", "?"}, {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
		{"\xf5\x80\x80\x80", "????"}, {"", ""}};
	char out[64], tiny[8];

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_assert_str_eq(top_text_safe(cases[i].from, out, sizeof(out)), cases[i].safe, "case %u", i);
	cr_assert_str_eq(top_text_utf8("a\x1b\xff", out, sizeof(out)), "a\x1b\xef\xbf\xbd");
	cr_assert_leq(strlen(top_text_safe("much too long for it", tiny, sizeof(tiny))), 7);
}

Test(text, numbers_are_short)
{
	static const struct {
		uint64_t value;
		const char *bytes, *time;
	} cases[] = {{0, "0B", "0"}, {999, "999B", "1us"}, {1000, "1.0K", "1us"}, {999499, "976K", "999us"},
		{1 << 20, "1.0M", "1.0ms"}, {9950000, "9.5M", "10ms"}, {47000000, "45M", "47ms"},
		{999600000, "953M", "1.00s"}, {1ull << 32, "4.0G", "4.29s"}, {59990000000ull, "56G", "60.0s"},
		{725000000000ull, "675G", "12m05s"}, {3725000000000ull * 3, "10T", "3h06m"},
		{UINT64_MAX, "16E", "213503d23h"}};
	char out[32];

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cr_assert_str_eq(
			top_text_bytes(cases[i].value, out, sizeof(out)), cases[i].bytes, "%u: %s", i, out);
		cr_assert_str_eq(
			top_text_time(cases[i].value, out, sizeof(out)), cases[i].time, "%u: %s", i, out);
	}
	cr_assert_str_eq(top_text_share(0.4983, out, sizeof(out)), "49.8");
	cr_assert_str_eq(top_text_share(0.9996, out, sizeof(out)), "100");
	cr_assert_str_eq(top_text_share(0, out, sizeof(out)), "0.0");
	cr_assert_str_eq(top_text_ppm(333333, out, sizeof(out)), "33.3");
	cr_assert_str_eq(top_text_ppm(300000, out, sizeof(out)), "30");
	cr_assert_str_eq(
		top_text_container(
			"4f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0", out, sizeof(out)),
		"4f1e2d3c4b5a");
	cr_assert_str_eq(top_text_container("pod/x", out, sizeof(out)), "pod/x");
}

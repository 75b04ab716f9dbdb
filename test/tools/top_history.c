/* gpuarb-top --history: which events it prints, how it puts repeats together, and since when. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/top/top_past.h"
#include "test/tools/top_world.h"

static struct top_gpu *g;
static char *text;

static void begin(void)
{
	setenv("TZ", "UTC", 1);
	tzset();
	g = calloc(1, sizeof(*g));
	/* The clock shows 12:00:00 at the beginning. */
	g->real_minus_mono_ns = 1794830400 * W_SECOND - W_START;
}

static void end(void)
{
	free(text);
	w_free(g);
}

TestSuite(past, .init = begin, .fini = end);

static int print(const struct top_past *past, bool each)
{
	size_t size;
	FILE *to;
	int n;

	free(text);
	to = open_memstream(&text, &size);
	n = top_past_print(g, past, each, to);
	fclose(to);
	return n;
}

static void expect(const char *lines)
{
	static const struct top_past all;

	print(&all, false);
	cr_assert_str_eq(text, lines, "it was\n%s", text);
}

/* In each window of 100 ms the account is throttled, and resumes 30 ms later. */
static void throttle(const char *account, double from, int times)
{
	for (int i = 0; i < times; i++) {
		w_event(g, ARB_EVENT_THROTTLED, account, 1, from + i * 0.1, 0, W_START);
		w_event(g, ARB_EVENT_RESUMED, account, 1, from + i * 0.1 + 0.03, 30000000, 0);
	}
}

Test(past, repeats_are_one_line_with_their_number_and_time)
{
	w_event(g, ARB_EVENT_JOINED, "web", 1, 0.25, 4000, 1000);
	throttle("web", 1, 214);
	w_event(g, ARB_EVENT_LEFT, "web", 1, 23, 16 * 1500000000ull, 0);
	expect("2026-11-16 12:00:00.250 web joined: pid 4000, uid 1000\n"
	       "2026-11-16 12:00:01.000 web throttled 214 times in 21.3s, for 6.42s in all\n"
	       "2026-11-16 12:00:23.000 web left; it had used 1.50s and freed 0B\n");
	cr_assert_eq(print(&(struct top_past){0}, true), 430, "each on a line of its own");
	cr_assert(strstr(text, "\n2026-11-16 12:00:01.030 web resumed after 30ms\n"), "%s", text);
}

Test(past, accounts_that_take_turns_are_a_line_each)
{
	for (int i = 0; i < 50; i++) {
		throttle(i % 2 ? "web" : "batch", 1 + i * 0.1, 1);
		if (i % 7 == 0)
			w_event(g, ARB_EVENT_PRESSURE, "", 1, 1.01 + i * 0.1, 9100, 8500);
	}
	cr_assert_eq(print(&(struct top_past){0}, false), 3, "%s", text);
	cr_assert(strstr(text, " batch throttled 25 times in 4.83s, for 750ms in all\n"), "%s", text);
	cr_assert(strstr(text, " web throttled 25 times in "), "%s", text);
	cr_assert(strstr(text, " the GPU is "), "%s", text);
	cr_assert(strstr(text, "; it changed 8 times in 4.90s\n"), "%s", text);
}

Test(past, what_happens_in_between_divides_a_line_and_a_pause_does)
{
	throttle("web", 1, 10);
	w_event(g, ARB_EVENT_LIMIT_CHANGED, "other", 2, 2, 300000, 400000);
	throttle("web", 2.1, 10);
	w_event(g, ARB_EVENT_LIMIT_CHANGED, "web", 1, 3.2, 300000, 400000);
	throttle("web", 3.3, 10);
	throttle("web", 15, 1);
	throttle("web", 25.2, 2);
	expect("2026-11-16 12:00:01.000 web throttled 20 times in 2.03s, for 600ms in all\n"
	       "2026-11-16 12:00:02.000 other limit changed from 30 to 40 percent\n"
	       "2026-11-16 12:00:03.200 web limit changed from 30 to 40 percent\n"
	       "2026-11-16 12:00:03.300 web throttled 10 times in 930ms, for 300ms in all\n"
	       "2026-11-16 12:00:15.000 web throttled: its quota is used up until 12:00:00.000, resumed "
	       "after "
	       "30ms\n"
	       "2026-11-16 12:00:25.200 web throttled 2 times in 130ms, for 60ms in all\n");
}

Test(past, what_was_refused_for_different_reasons_is_not_one_line)
{
	struct gpuarb_event e = {.kind = ARB_EVENT_MEM_REFUSED,
		.time_ns = W_START,
		.a = 2ull << 30,
		.b = 4ull << 30,
		.c = 3ull << 30,
		.why = ARB_REFUSAL_QUOTA,
		.times = 1};

	top_gpu_event(g, &e, "web");
	e.time_ns += W_SECOND;
	e.times = 99;
	top_gpu_event(g, &e, "web");
	e.why = ARB_REFUSAL_SINGLE;
	e.times = 3;
	e.b = 15ull << 30;
	top_gpu_event(g, &e, "web");
	e.kind = ARB_EVENT_MEM_DRIVER;
	e.why = 0;
	e.b = 0;
	e.times = 1;
	top_gpu_event(g, &e, "web");
	expect("2026-11-16 12:00:00.000 web was refused 2.0G of memory: its quota is 4.0G, of which 3.0G "
	       "were in "
	       "use (100 times in 1.00s)\n"
	       "2026-11-16 12:00:01.000 web was refused 2.0G of memory: one process may have 15G of this GPU "
	       "(single_oversub), and it had 3.0G (3 times)\n"
	       "2026-11-16 12:00:01.000 web was refused 2.0G of memory by the driver; it has no quota and "
	       "3.0G "
	       "in use\n");
}

Test(past, turns_at_the_memory_are_counted_and_added_up)
{
	for (int i = 0; i < 4; i++) {
		w_event(g, ARB_EVENT_TURN_BEGAN, "web", 1, 1 + 2 * i, 8ull << 30, 1000000000);
		w_event(g, ARB_EVENT_TURN_ENDED, "web", 1, 2 + 2 * i, 8ull << 30, 950000000);
	}
	expect("2026-11-16 12:00:01.000 web had 4 turns at the GPU's memory in 7.00s, for 3.80s in all, and "
	       "waited "
	       "for 4.00s\n");
}

Test(past, only_those_that_are_wanted)
{
	struct top_past past = {.account = "web"};

	throttle("web", 1, 3);
	throttle("web-2", 1, 3);
	throttle("WEB", 20, 1);
	w_event(g, ARB_EVENT_PRESSURE, "", 1, 21, 9100, 8500);
	cr_assert_eq(print(&past, false), 1);
	cr_assert(strstr(text, " web throttled 3 times"), "%s", text);
	past = (struct top_past){.filter = "web"};
	cr_assert_eq(print(&past, false), 3, "%s", text);
	past = (struct top_past){.since_ns = 1794830400 * W_SECOND + 1150000000};
	cr_assert_eq(print(&past, false), 4, "%s", text);
	cr_assert(strstr(text, "12:00:01.200 web throttled"), "what was before is not counted: %s", text);
	past.since_ns = 1794830400 * W_SECOND + 22 * W_SECOND;
	cr_assert_eq(print(&past, false), 0);
	cr_assert_str_eq(text, "");
}

Test(past, a_full_ring_of_many_accounts_is_read)
{
	char name[32];

	for (int i = 0; i < 3 * TOP_EVENTS; i++) {
		snprintf(name, sizeof(name), "account%d", i * 7919 % 1000);
		w_event(g, ARB_EVENT_THROTTLED, name, 1, i * 0.001, 0, W_START);
	}
	cr_assert_gt(print(&(struct top_past){0}, false), 900);
	cr_assert_eq(print(&(struct top_past){0}, true), TOP_EVENTS);
}

Test(past, it_is_known_when_what_was_asked_for_is_overwritten)
{
	struct top_past past = {.since_ns = 1794830400 * W_SECOND};
	struct gpuarb_event e = {.kind = ARB_EVENT_JOINED, .time_ns = W_START + W_SECOND, .position = 5};

	cr_assert_not(top_past_is_cut(g, &past), "there is nothing");
	top_gpu_event(g, &e, "web");
	cr_assert(top_past_is_cut(g, &past));
	past.since_ns += 2 * W_SECOND;
	cr_assert_not(top_past_is_cut(g, &past));
	past.since_ns = 0;
	cr_assert_not(top_past_is_cut(g, &past), "nobody asked how far back");
	end();
	text = NULL;
	begin();
	e.position = 0;
	past.since_ns = 1794830400 * W_SECOND;
	top_gpu_event(g, &e, "web");
	cr_assert_not(top_past_is_cut(g, &past), "it is the first that there ever was");
}

Test(past, since_when)
{
	static const uint64_t now = 1794830400 * W_SECOND + 500000000; /* 2026-11-16 12:00:00.5 */
	static const struct {
		const char *text;
		int64_t ago_ms; /* -1: it is refused */
	} cases[] = {
		{"500ms", 500},
		{"10s", 10000},
		{"5m", 300000},
		{"5min", 300000},
		{"2h", 7200000},
		{"3d", 3 * 86400000ll},
		{"0s", 0},
		{"11:59", 60500},
		{"11:59:58", 2500},
		{"12:00", 500},
		{"12:00:01", 86399500}, /* still to come today: it was yesterday */
		{"2026-11-16", 12 * 3600000ll + 500},
		{"2026-11-15 12:00", 86400500},
		{"2026-11-15 12:00:30", 86370500},
		{"2026-11-15T12:00:30", 86370500},
		{"", -1},
		{"10", -1},
		{"-10s", -1},
		{" 10s", -1},
		{"10 s", -1},
		{"10sec", -1},
		{"1.5h", -1},
		{"99999999999999999999s", -1},
		{"25:00", -1},
		{"12:61", -1},
		{"12:00pm", -1},
		{"2026-11-17", -1}, /* still to come */
		{"2026-06-31", -1},
		{"2026-13-01", -1},
		{"16.11.2026", -1},
		{"yesterday", -1},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t since = 0;
		bool good = top_past_since(cases[i].text, now, &since);

		cr_assert_eq(good, cases[i].ago_ms >= 0, "'%s'", cases[i].text);
		if (good)
			cr_assert_eq(now - since, (uint64_t)cases[i].ago_ms * 1000000, "'%s': %lld ms",
				cases[i].text, (long long)(now - since) / 1000000);
	}
	/* The moment is longer ago than the clock can show. */
	uint64_t since;
	cr_assert(top_past_since("9999999999d", now, &since) && since > 0 && since < W_SECOND);
}

#include "tools/top/top_past.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "units.h"

#include "tools/top/top_text.h"
#include "tools/top/top_words.h"

/* Repeats that are further apart than this are on separate lines. --explain calls this time "lately". */
#define APART_NS (10 * SECOND)
/* Lines that can still grow at the same time; nobody reads the history of more accounts at once. */
#define GROWING 256

/* Kinds of events that belong on one line. */
enum family {
	ALONE, /* never combined, and ends the other lines of its account */
	THROTTLED,
	TURNS,
	SAME /* combined with events of the same kind and reason */
};

struct line {
	const struct top_event *first, *last;
	uint64_t times; /* how often it began: throttled, a turn */
	uint64_t ns;    /* how long it lasted in all, if it ended */
	uint64_t waited_ns;
	unsigned ended; /* how many ended */
};

struct lines {
	struct line *list;
	size_t n;
	struct line *growing[GROWING];
	unsigned ngrowing;
};

static enum family family_of(const struct gpuarb_event *e)
{
	switch (e->kind) {
	case ARB_EVENT_THROTTLED:
	case ARB_EVENT_RESUMED:
		return THROTTLED;
	case ARB_EVENT_TURN_BEGAN:
	case ARB_EVENT_TURN_ENDED:
		return TURNS;
	case ARB_EVENT_EVICTED:
	case ARB_EVENT_RETURNED:
	case ARB_EVENT_WAIT_TIMEOUT:
	case ARB_EVENT_MEM_REFUSED:
	case ARB_EVENT_MEM_DRIVER:
	case ARB_EVENT_PRESSURE:
	case ARB_EVENT_LEASE_SKIPPED:
	case ARB_EVENT_LEASE_TIMEOUT:
	case ARB_EVENT_AUTO:
	case ARB_EVENT_ALTERNATES:
	case ARB_EVENT_CORRUPT:
	case ARB_EVENT_CROWDED:
	case ARB_EVENT_RESTORED:
		return SAME;
	default:
		return ALONE;
	}
}

/* A change there and back counts as one reason too. */
static bool same_reason(const struct gpuarb_event *a, const struct gpuarb_event *b)
{
	if (a->kind == ARB_EVENT_PRESSURE || a->kind == ARB_EVENT_AUTO)
		return true;
	if (a->kind == ARB_EVENT_LEASE_SKIPPED || a->kind == ARB_EVENT_LEASE_TIMEOUT)
		return a->why == b->why && a->a == b->a;
	return a->kind == ARB_EVENT_WAIT_TIMEOUT ? a->b == b->b : a->why == b->why;
}

static bool same_account(const struct top_event *a, const struct top_event *b)
{
	return strcmp(a->account, b->account) == 0;
}

static bool goes_on(const struct line *line, const struct top_event *e)
{
	enum family family = family_of(&e->e);

	return same_account(line->first, e) && family == family_of(&line->first->e) &&
	       (family != SAME || (e->e.kind == line->first->e.kind && same_reason(&e->e, &line->first->e)));
}

static void add_to(struct line *line, const struct top_event *e)
{
	line->last = e;
	switch (e->e.kind) {
	case ARB_EVENT_RESUMED:
		line->ns += e->e.a;
		line->ended++;
		break;
	case ARB_EVENT_TURN_ENDED:
		line->ns += e->e.b;
		line->ended++;
		break;
	case ARB_EVENT_TURN_BEGAN:
		line->waited_ns += e->e.b;
		line->times++;
		break;
	default:
		line->times += e->e.times ? e->e.times : 1;
	}
}

static void stop_growing(struct lines *all, unsigned i)
{
	all->growing[i] = all->growing[--all->ngrowing];
}

static void take_in(struct lines *all, const struct top_event *e)
{
	bool alone = family_of(&e->e) == ALONE;
	struct line *line;

	for (unsigned i = 0; i < all->ngrowing;) {
		line = all->growing[i];
		if (e->e.time_ns > line->last->e.time_ns + APART_NS ||
			(alone && same_account(line->first, e))) {
			stop_growing(all, i);
			continue;
		}
		if (goes_on(line, e)) {
			add_to(line, e);
			return;
		}
		i++;
	}
	line = &all->list[all->n++];
	*line = (struct line){.first = e};
	add_to(line, e);
	if (alone)
		return;
	if (all->ngrowing == GROWING)
		stop_growing(all, 0);
	all->growing[all->ngrowing++] = line;
}

/* Writes in what time the events came; "at once" if the clock did not move. */
static const char *span(const struct line *line, char *to, size_t size)
{
	uint64_t from = line->first->e.time_ns, until = line->last->e.time_ns;

	return top_text_time(until > from ? until - from : 1000, to, size);
}

static void throttled_words(const struct top_gpu *g, const struct line *line, char *to, size_t size)
{
	char time[32], held[32], words[256];

	top_text_time(line->ns, held, sizeof(held));
	if (line->times > 1)
		snprintf(to, size, "throttled %" PRIu64 " times in %s, for %s in all", line->times,
			span(line, time, sizeof(time)), held);
	else if (line->times && line->ended)
		snprintf(to, size, "%s, resumed after %s",
			top_words_event(g, line->first, words, sizeof(words)), held);
	else
		top_words_event(g, line->first, to, size);
}

static void turn_words(const struct top_gpu *g, const struct line *line, char *to, size_t size)
{
	char time[32], had[32], waited[32];
	uint64_t times = line->times > line->ended ? line->times : line->ended;

	if (line->first == line->last)
		top_words_event(g, line->first, to, size);
	else
		snprintf(to, size,
			"had %" PRIu64 " turn%s at the GPU's memory in %s, for %s in all, and waited for %s",
			times, times == 1 ? "" : "s", span(line, time, sizeof(time)),
			top_text_time(line->ns, had, sizeof(had)),
			top_text_time(line->waited_ns, waited, sizeof(waited)));
}

static void line_words(const struct top_gpu *g, const struct line *line, char *to, size_t size)
{
	struct top_event last = *line->last;
	char time[32];
	size_t length;

	switch (family_of(&line->first->e)) {
	case THROTTLED:
		throttled_words(g, line, to, size);
		return;
	case TURNS:
		turn_words(g, line, to, size);
		return;
	default:
		break;
	}
	if (line->first == line->last) {
		top_words_event(g, line->last, to, size);
		return;
	}
	last.e.times = 1;
	top_words_event(g, &last, to, size);
	length = strlen(to);
	if (last.e.kind == ARB_EVENT_PRESSURE || last.e.kind == ARB_EVENT_AUTO)
		snprintf(to + length, size - length, "; it changed %" PRIu64 " times in %s", line->times,
			span(line, time, sizeof(time)));
	else
		snprintf(to + length, size - length, " (%" PRIu64 " times in %s)", line->times,
			span(line, time, sizeof(time)));
}

static void print_line(const struct top_gpu *g, const struct line *line, FILE *to)
{
	uint64_t real_ns = line->first->e.time_ns + g->real_minus_mono_ns;
	time_t when = (time_t)(real_ns / SECOND);
	char date[32] = "", clock[32], words[512], name[2 * ARB_NAME_BYTES];
	struct tm tm;

	if (localtime_r(&when, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d", &tm);
	line_words(g, line, words, sizeof(words));
	fprintf(to, "%s %s %s %s\n", date, top_text_clock(real_ns, clock, sizeof(clock)),
		top_words_subject(line->first, name, sizeof(name)), words);
}

static uint64_t oldest(const struct top_gpu *g)
{
	return g->nevents > TOP_EVENTS ? g->nevents - TOP_EVENTS : 0;
}

bool top_past_wants(const struct top_gpu *g, const struct top_past *past, const struct top_event *e)
{
	return e->e.time_ns + g->real_minus_mono_ns >= past->since_ns &&
	       (!past->account || strcmp(e->account, past->account) == 0) &&
	       (!past->filter || strcasestr(e->account, past->filter));
}

/* Collects the lines into all->list, which the caller frees. Returns false if memory is short. */
static bool gather(const struct top_gpu *g, const struct top_past *past, bool each, struct lines *all)
{
	*all = (struct lines){.list = calloc(TOP_EVENTS, sizeof(*all->list))};
	for (uint64_t k = oldest(g); all->list && k < g->nevents; k++) {
		const struct top_event *e = &g->events[k % TOP_EVENTS];

		if (!top_past_wants(g, past, e))
			continue;
		if (each)
			all->ngrowing = 0;
		take_in(all, e);
	}
	return all->list;
}

int top_past_print(const struct top_gpu *g, const struct top_past *past, bool each, FILE *to)
{
	struct lines all;

	if (!gather(g, past, each, &all))
		return -1;
	for (size_t i = 0; i < all.n; i++)
		print_line(g, &all.list[i], to);
	free(all.list);
	return (int)all.n;
}

void top_past_last(const struct top_gpu *g, const char *account, const char *title, int most, FILE *to)
{
	const struct top_past past = {.account = account};
	char clock[32], words[512];
	struct lines all;

	if (!gather(g, &past, false, &all))
		return;
	if (all.n)
		fprintf(to, "  %s\n", title);
	for (size_t i = all.n > (size_t)most ? all.n - (size_t)most : 0; i < all.n; i++) {
		line_words(g, &all.list[i], words, sizeof(words));
		fprintf(to, "    %s %s\n",
			top_text_clock(
				all.list[i].first->e.time_ns + g->real_minus_mono_ns, clock, sizeof(clock)),
			words);
	}
	free(all.list);
}

bool top_past_is_cut(const struct top_gpu *g, const struct top_past *past)
{
	const struct top_event *first = &g->events[oldest(g) % TOP_EVENTS];

	return g->nevents && first->e.position && past->since_ns &&
	       first->e.time_ns + g->real_minus_mono_ns > past->since_ns;
}

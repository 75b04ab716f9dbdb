/* What has happened, for people: which of it, and repeats put together. Pure: the model in, lines out. */
#ifndef TOOLS_TOP_PAST_H
#define TOOLS_TOP_PAST_H

#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include "tools/top/top_model.h"

/* Which events. Zeros: all of them. */
struct top_past {
	uint64_t since_ns;   /* from 1970 on; 0: as far back as there are any */
	const char *account; /* of this one alone */
	const char *filter;  /* of those with this in their name */
};

bool top_past_wants(const struct top_gpu *gpu, const struct top_past *past, const struct top_event *event);

/*
 * A line for each, or for repeats of an account that follow each other within ten seconds; another event of
 * the account in between, such as a changed limit, begins a new line. `each`: they are not put together.
 * Returns the number of lines; -1: out of memory.
 */
int top_past_print(const struct top_gpu *gpu, const struct top_past *past, bool each, FILE *to);

/* The last lines of an account, for under its name: without it, and without a date. */
void top_past_last(const struct top_gpu *gpu, const char *account, const char *title, int most, FILE *to);

/* Have events been overwritten that would have been wanted? */
bool top_past_is_cut(const struct top_gpu *gpu, const struct top_past *past);

/*
 * --since: how long ago (500ms, 10s, 5m, 2h, 3d), a time of day (14:30, 14:30:05: the last time that it was),
 * or a day with or without a time (2026-11-18, 2026-11-18 14:30). False: none of these, or still to come.
 */
bool top_past_since(const char *text, uint64_t now_ns, uint64_t *since_ns);

#endif

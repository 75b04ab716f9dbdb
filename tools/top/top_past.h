/* Prints what has happened, for people: selected events, with repeats combined. Pure: the model in, lines out. */
#ifndef TOOLS_TOP_PAST_H
#define TOOLS_TOP_PAST_H

#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include "tools/top/top_model.h"

/* Which events are wanted. Zeros: all of them. */
struct top_past {
	uint64_t since_ns;   /* since 1970; 0: as far back as there are events */
	const char *account; /* only events of this account */
	const char *filter;  /* only events of accounts with this in their name */
};

bool top_past_wants(const struct top_gpu *gpu, const struct top_past *past, const struct top_event *event);

/*
 * Prints a line for each event, or for repeats of an account that follow each other within ten seconds. Another event
 * of the account in between, such as a changed limit, begins a new line. `each`: repeats are not combined. Returns
 * the number of lines; -1: memory is short.
 */
int top_past_print(const struct top_gpu *gpu, const struct top_past *past, bool each, FILE *to);

/* Prints the last lines of an account below its name: without the name and without a date. */
void top_past_last(const struct top_gpu *gpu, const char *account, const char *title, int most, FILE *to);

/* Returns whether wanted events have been overwritten. */
bool top_past_is_cut(const struct top_gpu *gpu, const struct top_past *past);

/*
 * Reads --since: how long ago (500ms, 10s, 5m, 2h, 3d); a time of day (14:30, 14:30:05), which means the last time
 * that it was; or a day with or without a time (2026-11-18, 2026-11-18 14:30). Returns false if it is none of these,
 * or in the future.
 */
bool top_past_since(const char *text, uint64_t now_ns, uint64_t *since_ns);

#endif

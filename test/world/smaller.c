#include "test/world/smaller.h"

#include <stdio.h>
#include <string.h>

#include "test/world/faults.h"

struct smaller smaller;

static const char *const names[] = {"kills", "stops", "changes", "replaces", "garbles", "fails", "forks",
	"swaps", "abandons", "holds", "massacres", "interruptions", "lateness", "streams", "threads", "graph",
	"copy", "memory", "variant", "every"};
/* The first of the names below that is an option of programs; the ones before it are faults and weather. */
#define FIRST_OPTION 13
#define NAMES        (sizeof(names) / sizeof(names[0]))

static bool without(const char *name)
{
	for (unsigned i = 0; i < NAMES; i++)
		if (!strcmp(names[i], name))
			return smaller.without >> i & 1;
	return false;
}

void smaller_faults(void)
{
	uint64_t *const of[] = {&faults.kills, &faults.stops, &faults.changes, &faults.replaces,
		&faults.garbles, &faults.fails, &faults.forks, &faults.swaps, &faults.abandons, &faults.holds,
		&faults.massacres};

	for (unsigned i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		if (smaller.without >> i & 1)
			*of[i] = 0;
}

void smaller_weather(void)
{
	if (without("interruptions"))
		world.weather.point_mean = 0;
	if (without("lateness"))
		world.weather.late_ns = world.weather.very_late_in = 0;
}

unsigned smaller_clients(unsigned drawn)
{
	return smaller.keep && smaller.keep < drawn ? smaller.keep : drawn;
}

uint64_t smaller_ns(uint64_t drawn)
{
	return smaller.percent ? drawn / 100 * smaller.percent : drawn;
}

void smaller_line(char *line)
{
	for (unsigned i = FIRST_OPTION; i < NAMES; i++) {
		char option[32], *at, *end;

		snprintf(option, sizeof(option), " --%s", names[i]);
		while (smaller.without >> i & 1 && (at = strstr(line, option))) {
			end = strchr(at + 1, ' ');
			memmove(at, end ? end : "", (end ? strlen(end) : 0) + 1);
		}
	}
}

bool smaller_parse(const char *list)
{
	char copy[256], *rest;

	snprintf(copy, sizeof(copy), "%s", list);
	for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
		unsigned i = 0;

		while (i < NAMES && strcmp(names[i], word))
			i++;
		if (i == NAMES)
			return false;
		smaller.without |= 1u << i;
	}
	return true;
}

void smaller_say(char *text, size_t size)
{
	int n = 0;

	*text = '\0';
	if (smaller.keep)
		n += snprintf(text + n, size - (size_t)n, " --keep %u", smaller.keep);
	if (smaller.percent)
		n += snprintf(text + n, size - (size_t)n, " --percent %u", smaller.percent);
	for (unsigned i = 0, first = 1; i < NAMES; i++)
		if (smaller.without >> i & 1) {
			n += snprintf(
				text + n, size - (size_t)n, "%s%s", first ? " --without " : ",", names[i]);
			first = 0;
		}
}

/* Tries a smaller world. Keeps it if it fails, too, and no later. Returns whether it did. */
static bool still_fails(uint64_t seed, void (*run)(uint64_t seed), struct smaller tried, uint64_t *steps)
{
	struct smaller before = smaller;
	bool fails;

	smaller = tried;
	run(seed);
	fails = world.failed && (!*steps || world.step <= *steps);
	if (fails)
		*steps = world.step;
	else
		smaller = before;
	world_end();
	return fails;
}

uint64_t smaller_search(uint64_t seed, void (*run)(uint64_t seed), uint64_t steps)
{
	uint64_t least = steps;
	bool again = true;

	/* Leaves out one thing after the other, until no more can be left out. */
	for (unsigned round = 0; again && round < 4; round++) {
		again = false;
		for (unsigned keep = 1; keep < 8 && (!smaller.keep || keep < smaller.keep); keep++) {
			struct smaller tried = smaller;

			tried.keep = keep;
			if (still_fails(seed, run, tried, &least)) {
				again = true;
				break;
			}
		}
		for (unsigned i = 0; i < NAMES; i++) {
			struct smaller tried = smaller;

			tried.without |= 1u << i;
			if (!(smaller.without >> i & 1))
				again |= still_fails(seed, run, tried, &least);
		}
		for (unsigned percent = 10; percent < (smaller.percent ? smaller.percent : 100);
			percent += 15) {
			struct smaller tried = smaller;

			tried.percent = percent;
			if (still_fails(seed, run, tried, &least)) {
				again = true;
				break;
			}
		}
	}
	return least < steps ? least : 0;
}

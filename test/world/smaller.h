/*
 * A world made smaller, with otherwise the same draws of its seed: without some of its faults, with only the first of
 * its clients, for a shorter time, without options of its programs. And the search for the smallest world that still
 * fails.
 */
#ifndef WORLD_SMALLER_H
#define WORLD_SMALLER_H

#include "test/world/world.h"

struct smaller {
	unsigned without; /* bits of what is left out, faults, weather, and options of programs */
	unsigned keep;    /* clients or programs; 0: all */
	unsigned percent; /* of its time; 0: all of it */
};
extern struct smaller smaller;

/* Takes what is left out from what was drawn. */
void smaller_faults(void);
void smaller_weather(void);
unsigned smaller_clients(unsigned drawn);
uint64_t smaller_ns(uint64_t drawn);
/* Removes options from a line of simload's. */
void smaller_line(char *line);

/* Names separated by commas; false: one of them is none. */
bool smaller_parse(const char *list);
/* The options of build/world that say it. */
void smaller_say(char *text, size_t size);

/* Finds a smaller world of this seed that fails as well. Returns how many steps it has, 0 if none was found. */
uint64_t smaller_search(uint64_t seed, void (*run)(uint64_t seed), uint64_t steps);

#endif

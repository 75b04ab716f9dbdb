/*
 * Makes a world smaller: leaves out some of its faults, all but its first clients, the end of its time, or options of
 * its programs. The other draws of its seed stay. Also searches for a small world that still fails.
 */
#ifndef WORLD_SMALLER_H
#define WORLD_SMALLER_H

#include "test/world/world.h"

struct smaller {
	unsigned without; /* a bit for each fault, kind of weather and option of programs that is left out */
	unsigned keep;    /* how many clients or programs are kept; 0: all */
	unsigned percent; /* how much of its time is kept; 0: all */
};
extern struct smaller smaller;

/* Clears the drawn faults, or the drawn weather, that are left out. */
void smaller_faults(void);
void smaller_weather(void);
unsigned smaller_clients(unsigned drawn);
uint64_t smaller_ns(uint64_t drawn);
/* Removes the options that are left out from a line of simload's options. */
void smaller_line(char *line);

/* Reads what is left out: names, separated by commas. Returns false if a name is unknown. */
bool smaller_parse(const char *list);
/* Writes the options of build/world that make this smaller world. */
void smaller_say(char *text, size_t size);

/* Searches for a smaller world of this seed that fails as well. Returns how many steps it has; 0: none was found. */
uint64_t smaller_search(uint64_t seed, void (*run)(uint64_t seed), uint64_t steps);

#endif

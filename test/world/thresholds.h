/* The thresholds of the tracking core, which are variables in the world. */
#ifndef WORLD_THRESHOLDS_H
#define WORLD_THRESHOLDS_H

#include <stdbool.h>

/* "NAME=4", "NAME=0.25": multiplies it; "list": prints them all and ends the program. False: there is none of that name. */
bool world_threshold(const char *text);

#endif

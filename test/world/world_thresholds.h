/* The thresholds of the tracking core, which are variables in the world. */
#ifndef WORLD_THRESHOLDS_H
#define WORLD_THRESHOLDS_H

#include <stdbool.h>

/* "NAME=4", "NAME=0.25": multiplies the threshold; "list": prints all thresholds and ends the program. Returns false if
 * no threshold has that name. */
bool world_threshold(const char *text);

#endif

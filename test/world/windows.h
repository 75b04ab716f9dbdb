/* Checks limits over every window and over any number of windows in a row. */
#ifndef WORLD_WINDOWS_H
#define WORLD_WINDOWS_H

#include "shm/segment/segment.h"
#include "shm/segment/snapshot.h"

void windows_begin(void);
void windows_step(const struct arb_segment *seg, const struct arb_snap *run);

#endif

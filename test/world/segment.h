/* Worlds of bare clients of the segment: what they do is drawn from the seed. */
#ifndef WORLD_SEGMENT_H
#define WORLD_SEGMENT_H

#include <stdint.h>

/* Runs one; what was found is in `world`. clients 0: as the seed says. */
void segment_world(uint64_t seed, unsigned clients);

#endif

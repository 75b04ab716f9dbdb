/* Worlds of clients of the segment without programs or GPUs: what the clients do is drawn from the seed. */
#ifndef WORLD_SEGMENT_H
#define WORLD_SEGMENT_H

#include <stdint.h>

/* Runs one such world; a fault that it finds is in `world`. `clients` 0: the seed decides how many. */
void segment_world(uint64_t seed, unsigned clients);

#endif

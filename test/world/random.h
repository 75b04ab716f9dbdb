/* Worlds of programs on a GPU, drawn from the seed. */
#ifndef WORLD_RANDOM_H
#define WORLD_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* Runs one; what was found is in `world`. programs 0: as the seed says; say: what it is made of. */
void random_world(uint64_t seed, unsigned programs, bool say);

#endif

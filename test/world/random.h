/* Worlds of programs on a GPU, drawn from the seed. */
#ifndef WORLD_RANDOM_H
#define WORLD_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* Runs one such world; a fault that it finds is in `world`. `programs` 0: the seed decides how many; `say`: prints what
 * the world is made of. */
void random_world(uint64_t seed, unsigned programs, bool say);

#endif

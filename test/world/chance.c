/* Random numbers from a seed: xoshiro256**, the same on every machine. */
#include "test/world/world.h"

static uint64_t splitmix(uint64_t *x)
{
	uint64_t z = *x += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

void world_chance_seed(struct world_chance *c, uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		c->s[i] = splitmix(&seed);
}

static uint64_t rotate(uint64_t x, int by)
{
	return x << by | x >> (64 - by);
}

uint64_t world_chance_next(struct world_chance *c)
{
	uint64_t *s = c->s, result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate(s[3], 45);
	return result;
}

uint64_t world_chance_below(struct world_chance *c, uint64_t n)
{
	return (uint64_t)((unsigned __int128)world_chance_next(c) * n >> 64);
}

bool world_chance_once_in(struct world_chance *c, uint64_t n)
{
	return n && world_chance_below(c, n) == 0;
}

uint64_t world_chance_pick(struct world_chance *c, const uint64_t *list, unsigned n)
{
	return list[world_chance_below(c, n)];
}

/*
 * -ln(u), in 1/65536. The leading zeros of u are the whole part of -log2(u); the rest comes from a table of
 * log2(1 + i/16). Floating point is not used: its last bit would depend on the compiler.
 */
uint64_t world_chance_exp(struct world_chance *c, uint64_t mean)
{
	static const uint32_t log2_16[17] = {0, 5732, 11136, 16248, 21098, 25711, 30109, 34312, 38336, 42196,
		45904, 49472, 52911, 56229, 59434, 62534, 65536};
	uint64_t u = world_chance_next(c) | 1;
	unsigned zeros = (unsigned)__builtin_clzll(u);
	uint64_t mantissa = zeros == 63 ? 0 : u << (zeros + 1);
	unsigned i = (unsigned)(mantissa >> 60);
	uint64_t part = log2_16[i] + ((log2_16[i + 1] - log2_16[i]) * (mantissa >> 44 & 0xffff) >> 16);
	uint64_t log2 = ((uint64_t)zeros << 16) + (65536 - part); /* -log2(u / 2^64) */

	return (uint64_t)((unsigned __int128)mean * log2 * 45426 >> 32); /* ln 2 in 1/65536 */
}

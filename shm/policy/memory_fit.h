/* The arithmetic of turns at the GPU's memory: what fits together, how long a turn lasts. Numbers go in and a
 * decision comes out; residency.c reads the numbers. */
#ifndef ARB_MEMORY_H
#define ARB_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* The settings, in the units that the code uses. */
struct arb_memory_rules {
	uint64_t physical;        /* bytes of the GPU; 0: not known */
	int64_t oversub_permille; /* how much of `physical` may be promised */
	uint64_t foreign;         /* bytes of `physical` that processes have which are no clients */
	uint64_t fixed;           /* left free beside the clients */
	unsigned percent;         /* percent of the GPU that is left free in addition */
	uint64_t per_client;      /* set aside for each client that has joined */
	uint64_t context;         /* what a context counts */
	bool context_measured;    /* a context counts what it was measured to take */
	uint64_t turn_ns;         /* fixed; 0: automatic */
	uint64_t bytes_per_s;
	unsigned multiplier;
	uint64_t least_ns, most_ns; /* of an automatic turn */
	uint64_t idle_ns;
	bool oversubscribe;
	bool alone_may_exceed;
	bool prefetch;
};

/* Returns the bytes that this many clients may have together; 0: nothing is known of the GPU, and everything fits. */
uint64_t arb_memory_room(const struct arb_memory_rules *rules, unsigned clients);

/* Returns whether `bytes` of this many clients fit together. */
bool arb_memory_fits(const struct arb_memory_rules *rules, uint64_t bytes, unsigned clients);

/* Returns the length of a turn for which `bytes` have to be moved. */
uint64_t arb_memory_turn_ns(const struct arb_memory_rules *rules, uint64_t bytes);

/* Returns the most that one client may allocate; 0: no such bound. */
uint64_t arb_memory_most(const struct arb_memory_rules *rules);

#endif

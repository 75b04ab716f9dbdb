/* The faults of a world: what goes wrong, how often, drawn from the seed. */
#ifndef WORLD_FAULTS_H
#define WORLD_FAULTS_H

#include "test/world/world.h"

#define FAULTS_LIMITS WORLD_LIMITS "account%u" /* an account's limits file */
#define WORLD_LIMITS  "/world/limits/"

struct faults {
	uint64_t kills, stops, changes; /* ms between two faults of this kind, on average; 0: none */
	uint64_t massacres; /* not 0: several processes are killed at a time, some milliseconds apart */
	uint64_t replaces, garbles;
	uint64_t forks; /* ms between two forks whose children live on for a while */
	uint64_t swaps; /* ms between two changes of a limits file: it is replaced, removed or made invalid */
	uint64_t abandons; /* one of this many programs destroys its context while work is in it; 0: none */
	uint64_t fails;    /* one of this many calls of the driver fails; 0: none */
	uint64_t holds;    /* one of this many calls takes up to 4 ms; 0: none */
};
extern struct faults faults;

void faults_draw(bool polite);
/* Causes faults until `end_ns`. Calls `followed` for each process that was killed or has ended. */
void faults_start(uint64_t end_ns, void (*followed)(struct world_process *dead));
/* Returns whether limits change during the run, by settings or by limits files. */
bool faults_limits_move(void);
/* Returns how long a client may have to wait for others in this world. */
uint64_t faults_patience_ns(void);

#endif

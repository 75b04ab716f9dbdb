/* What goes wrong, by rate and by seed. */
#ifndef WORLD_FAULTS_H
#define WORLD_FAULTS_H

#include "test/world/world.h"

#define FAULTS_LIMITS WORLD_LIMITS "account%u" /* an account's limits file */
#define WORLD_LIMITS  "/world/limits/"

struct faults {
	uint64_t kills, stops, changes; /* ms between two of them, on average; 0: none */
	uint64_t
		massacres; /* of the killed; not 0: several at a time, one some milliseconds after the other */
	uint64_t replaces, garbles;
	uint64_t forks; /* ms between two children that live on for a while */
	uint64_t swaps; /* ms between two limits files that are replaced, or go, or make no sense */
	uint64_t
		abandons; /* one of this many programs ends by destroying its context with work in it; 0: none */
	uint64_t fails; /* one of this many calls of the driver fails; 0: none */
	uint64_t holds; /* one of this many calls takes up to 4 ms; 0: none */
};
extern struct faults faults;

void faults_draw(bool polite);
/* Until then. `followed`: is told of each process that was killed or has gone. */
void faults_start(uint64_t end_ns, void (*followed)(struct world_process *dead));
/* Limits are other than they were at the start, by settings or by files. */
bool faults_limits_move(void);
/* For how long a client may have to wait for others in this world. */
uint64_t faults_patience_ns(void);

#endif

/* What goes wrong, by rate and by seed. */
#ifndef WORLD_FAULTS_H
#define WORLD_FAULTS_H

#include "world.h"

struct faults {
	uint64_t kills, stops, changes; /* ms between two of them, on average; 0: none */
	uint64_t replaces, garbles;
	uint64_t fails; /* one in so many of the driver's calls fails; 0: none */
};
extern struct faults faults;

void faults_draw(bool polite);
/* Until then. `followed`: is told of each process that was killed or has gone. */
void faults_start(uint64_t end_ns, void (*followed)(struct world_process *dead));
/* For how long somebody may have to wait for others in this world. */
uint64_t faults_patience_ns(void);

#endif

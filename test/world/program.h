/* Programs of the world: the load generator's own code with the preload. A line of options says what one does. */
#ifndef WORLD_PROGRAM_H
#define WORLD_PROGRAM_H

#include "test/load/simload.h"
#include "test/world/world.h"

#define PROGRAM_PROCESSES 8

struct program {
	char line[256], account[32], limit[16], lease[32];
	struct load load;
	unsigned core_pct;
	const char *environment[64];
	unsigned n;
	char words[4][32], values[4][32];
	struct world_process *process[PROGRAM_PROCESSES];
	struct result result[PROGRAM_PROCESSES];
	uint64_t started_ns, pace;
};

/* `line`: options of simload, separated by blanks. Returns false if they are invalid. */
void program_prepare(struct program *p, const char *account, unsigned core_pct, const char *line);
void program_set(struct program *p, const char *name, const char *value);
/* Starts all processes of the program at that time. */
void program_start(struct program *p, uint64_t at_ns);

/* What the program's processes got, by the GPU's own books: the time on the first GPU, and kernels ended on all of them. */
uint64_t program_device_ns(const struct program *p);
uint64_t program_kernels(const struct program *p);

/* Keeps time in a world whose programs have no tracker: no other thread would be due, and a program would run past the
 * time at which the world is to stop. The process of the thread has the program's environment. */
void program_metronome(const struct program *p);

#endif

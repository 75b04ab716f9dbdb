/* The workers of stress_random, and the board that they share. */
#ifndef TEST_WORKERS_H
#define TEST_WORKERS_H

#include "test/harness.h"

#define WORKERS_MAX 256
#define SERIALS     65536

/* Seen by all processes of the test. */
struct board {
	arb_u32 stop;
	arb_u32 failures;
	arb_u32 stops[WORKERS_MAX]; /* how often this worker was stopped: its times prove nothing then */
	arb_u64 operations, waits, checks, busy_checks, holds, refused;
	arb_u64 owner;           /* exclusive phase: serial + 1 of the worker that runs */
	arb_u32 doomed[SERIALS]; /* a SIGKILL is on its way: it may have left the owner word behind */
};

struct stress {
	struct board *board;
	struct t_dir dir;
	uint64_t seed;
	unsigned seconds, processes;
};

extern struct stress stress;

struct worker {
	unsigned index, serial;
	struct t_random random;
	struct gpuarb_client *client;
	uint64_t memory;
};

/* Reports what was found and ends the run. */
__attribute__((format(printf, 1, 2))) void stress_fail(const char *format, ...);

/* Each ends when board->stop is set. random_worker and exclusive_worker take a struct worker *. */
int random_worker(void *argument);
int exclusive_worker(void *argument);
int observer(void *argument);
int administrator(void *argument);

#endif

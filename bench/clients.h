/* Starts programs on a simulated GPU, with the preload, each in an account of its own, and reads gpuarb's books and
 * the GPU's. */
#ifndef BENCH_CLIENTS_H
#define BENCH_CLIENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "gpuarb/control.h"
#include "bench/limits_cases.h"

#define CLIENT_PROCESSES 64

/* A case that is running: a simulated GPU and a directory of gpuarb's that no other case uses. */
struct clients {
	char sim[128], arb[128], uuid[64];
	unsigned n;
	pid_t pid[CLIENTS];
	pid_t process[CLIENTS][CLIENT_PROCESSES]; /* of each client, by clients_find(); 0 ends them */
	struct gpuarb_picture before, after;
};

/* Finds the build directory, and sets the environment that all programs share. `name` is the benchmark's name. */
void clients_begin(const char *name);
void clients_end(void);
const char *clients_build(void);

/* Makes new directories with this name; the settings of the GPU come from the environment. */
void clients_prepare(struct clients *c, const char *name);
/* Starts the next client of the case; `seconds` is how long it runs if nothing ends it. */
void clients_start(struct clients *c, const struct client *what, double seconds, bool arbitrated);
/* Finds the processes of each client that lives. */
void clients_find(struct clients *c);
/* Waits until all clients have ended; with `kill_them` they are killed. */
void clients_stop(struct clients *c, bool kill_them);
/* Returns what a client printed at its end; NULL if it did not end by itself. */
json_t *clients_output(unsigned index);

/* Runs gpusim-report --json with one more option and returns its output. */
json_t *clients_report(const char *option);
/* Sums a figure of a client's processes over the first `devices` devices of such a report. */
double clients_sum(
	const struct clients *c, unsigned index, const json_t *report, const char *key, unsigned devices);
/* Takes the first device's UUID as that of c. */
void clients_device(struct clients *c, const json_t *report);
void clients_look(struct clients *c, struct gpuarb_picture *picture);
double clients_account_ns(const struct gpuarb_picture *p, unsigned index);
/* Returns a client's bill between `before` and `after`, in percent of that time. */
double clients_billed(const struct clients *c, unsigned index);

double clients_number(const json_t *object, const char *key);
void clients_die(const char *what);

#endif

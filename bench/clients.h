/* Programs on a simulated GPU, with the preload, each in an account of its own: starting them, reading both books. */
#ifndef BENCH_CLIENTS_H
#define BENCH_CLIENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "gpuarb/control.h"
#include "bench/limits_cases.h"

#define CLIENT_PROCESSES 64

/* One case under way: a simulated GPU and a directory of gpuarb's that nobody else uses. */
struct clients {
	char sim[128], arb[128], uuid[64];
	unsigned n;
	pid_t pid[CLIENTS];
	pid_t process[CLIENTS][CLIENT_PROCESSES]; /* of each client, by clients_find(); 0 ends them */
	struct gpuarb_picture before, after;
};

/* The build's directory, and the environment that all programs share. `name` is the benchmark's. */
void clients_begin(const char *name);
void clients_end(void);
const char *clients_build(void);

/* Fresh directories under this name; the settings of the GPU are those of the environment. */
void clients_prepare(struct clients *c, const char *name);
/* The next client of the case; `seconds` is how long it runs if nobody ends it. */
void clients_start(struct clients *c, const struct client *what, double seconds, bool arbitrated);
/* Which processes each client has; of a live one. */
void clients_find(struct clients *c);
/* All of them have ended when this returns. `kill_them`: at once. */
void clients_stop(struct clients *c, bool kill_them);
/* What a client printed at its end; NULL if it did not end by itself. */
json_t *clients_output(unsigned index);

/* gpusim-report --json, with one more option. */
json_t *clients_report(const char *option);
/* A figure of a client's processes, summed over the first `devices` devices of such a report. */
double clients_sum(
	const struct clients *c, unsigned index, const json_t *report, const char *key, unsigned devices);
/* The first device's UUID becomes that of c. */
void clients_device(struct clients *c, const json_t *report);
void clients_look(struct clients *c, struct gpuarb_picture *picture);
double clients_account_ns(const struct gpuarb_picture *p, unsigned index);
/* Between `before` and `after`, in percent of that time. */
double clients_billed(const struct clients *c, unsigned index);

double clients_number(const json_t *object, const char *key);
void clients_die(const char *what);

#endif

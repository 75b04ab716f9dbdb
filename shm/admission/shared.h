/* One client for each process and GPU, whether the preload or the program itself asks for it first. If there is a
 * preload, it keeps the clients, and libgpuarb.so works through its table, because the two may be different builds.
 */
#ifndef ARB_SHARED_H
#define ARB_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "gpuarb.h"
#include "gpuarb/client.h"

#define ARB_SHARED_VERSION 1u
#define ARB_SHARED_GPUS    16

struct arb_shared_table {
	uint32_t version;
	uint32_t size; /* of this struct: what is added later is behind what an older one has */

	/* The process's client of that GPU, joined if it is the first to ask. */
	int (*client)(const char *gpu, struct gpuarb_client **client, struct gpuarb_error *err);
	int (*acquire)(struct gpuarb_client *client, const struct gpuarb_request *request,
		struct gpuarb_lease *lease);
	int (*release)(struct gpuarb_client *client, struct gpuarb_lease *lease);
	int (*hint)(struct gpuarb_client *client, const struct gpuarb_hint *hint);
	void (*cancel)(struct gpuarb_client *client);
	uint32_t (*leases)(struct gpuarb_client *client);

	/* For the thread that looks after them: is a sample due, take this one, what a holder of leases owes
	 * the others. *next_ns: when to come again. */
	bool (*due)(struct gpuarb_client *client, uint64_t *next_ns);
	bool (*put)(struct gpuarb_client *client, int hundredths);
	void (*tend)(struct gpuarb_client *client, uint64_t *next_ns);
	/* Sleeps until then, or until a client misses a sample. */
	void (*sleep)(struct gpuarb_client *client, uint64_t ns);
	/* The process's own part of the status. */
	int (*status)(struct gpuarb_client *client, struct gpuarb_status *status);
};

uint32_t arb_shared_leases(struct gpuarb_client *client);
bool arb_shared_due(struct gpuarb_client *client, uint64_t *next_ns);
bool arb_shared_put(struct gpuarb_client *client, int hundredths);
void arb_shared_tend(struct gpuarb_client *client, uint64_t *next_ns);
void arb_shared_sleep(struct gpuarb_client *client, uint64_t ns);
int arb_shared_status(struct gpuarb_client *client, struct gpuarb_status *status);

#define ARB_SHARED_TABLE(client_function)                                                                    \
	{                                                                                                    \
		ARB_SHARED_VERSION, sizeof(struct arb_shared_table), client_function, arb_admission_acquire, \
			arb_admission_release, arb_admission_hint, arb_admission_cancel, arb_shared_leases,  \
			arb_shared_due, arb_shared_put, arb_shared_tend, arb_shared_sleep, arb_shared_status \
	}

/* The preload exports it under this name. */
#define ARB_SHARED_SYMBOL "gpuarb_preload_table"
extern const struct arb_shared_table gpuarb_preload_table;

/* What this library itself can do. */
extern const struct arb_shared_table arb_shared_own;

/* At the end of the process: its clients leave. */
void arb_shared_part(void);
/* A child has none of its parent's clients: from now on it knows. */
void arb_shared_watch(void);

#endif

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

	/* Gives the process's client of that GPU; the first call joins. */
	int (*client)(const char *gpu, struct gpuarb_client **client, struct gpuarb_error *err);
	int (*acquire)(struct gpuarb_client *client, const struct gpuarb_request *request,
		struct gpuarb_lease *lease);
	int (*release)(struct gpuarb_client *client, struct gpuarb_lease *lease);
	int (*hint)(struct gpuarb_client *client, const struct gpuarb_hint *hint);
	void (*cancel)(struct gpuarb_client *client);
	uint32_t (*leases)(struct gpuarb_client *client);

	/* For the thread that looks after the clients: asks whether a sample is due, hands over a sample, and does
	 * what a holder of leases owes the others. *next_ns: when to come again. */
	bool (*due)(struct gpuarb_client *client, uint64_t *next_ns);
	bool (*put)(struct gpuarb_client *client, int hundredths);
	void (*tend)(struct gpuarb_client *client, uint64_t *next_ns);
	/* Sleeps for `ns`, or until a client misses a sample. */
	void (*sleep)(struct gpuarb_client *client, uint64_t ns);
	/* Fills in the process's own part of the status. */
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

/* The preload exports its table under this name. */
#define ARB_SHARED_SYMBOL "gpuarb_preload_table"
extern const struct arb_shared_table gpuarb_preload_table;

/* The table of this library itself. */
extern const struct arb_shared_table arb_shared_own;

/* Lets the clients of this process leave, at its end. */
void arb_shared_part(void);
/* From now on a forked child knows that it has none of its parent's clients. */
void arb_shared_watch(void);

#endif

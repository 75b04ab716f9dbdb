/* What is on a GPU besides gpuarb's clients: programs that were started without it. NVML knows all processes by the
 * host's pids; the segment knows each client by the pid in its own namespace. */
#ifndef TOOLS_NONCLIENTS_H
#define TOOLS_NONCLIENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "gpuarb/control.h"

#include "tools/common/nvml.h"

#define NONCLIENTS_LISTED 16

enum nonclients_by {
	NONCLIENTS_UNKNOWN,
	NONCLIENTS_BY_PROCESS,
	/* Pids cannot be compared here. What is given is the device's memory in use without the clients' memory and
	 * contexts. Where memory moves to the host (oversubscribe), the programs have at least this much. */
	NONCLIENTS_BY_DIFFERENCE,
};

struct nonclients {
	bool memory_known, utilisation_known;
	uint64_t total, used; /* of the device, by everybody */
	unsigned utilisation_pct;

	enum nonclients_by by;
	uint64_t bytes;
	unsigned count; /* of processes, if they are told apart */
	/* The largest of them. */
	unsigned nlisted;
	struct {
		unsigned pid;
		uint64_t bytes; /* NVML_BYTES_UNKNOWN: NVML does not say */
		char command[16];
	} list[NONCLIENTS_LISTED];
};

/* Finds the programs that are no clients. `use` NULL: NVML says nothing about this GPU. `picture` NULL: it has no
 * clients. */
void nonclients_find(
	const struct gpuarb_picture *picture, const struct nvml_use *use, struct nonclients *found);

/* Writes their memory into the segment of this GPU, for clients that take turns at its memory. */
void nonclients_tell(const char *dir, const char *gpu, const struct nonclients *found);

#endif

/* gpuarb-set: which GPUs are meant, and whose limits on each of them. */
#ifndef TOOLS_SET_WHERE_H
#define TOOLS_SET_WHERE_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/common/cli_gpu.h"

/* Whose limits: at most one of the three. */
struct set_who {
	const char *account;
	long pid;
	bool all;
};

struct set_gpus {
	char names[CLI_GPUS_MOST][ARB_UUID_BYTES];
	int count;
};

/*
 * Finds the GPUs. `gpu` is what the command line says: one of them; "all" that have a segment; or NULL: the only one
 * that has a segment, otherwise the one that the account or process is on. `looks`: nothing is to be changed, so
 * several may be meant. Ends with a sentence if it is not clear which GPU is meant.
 */
void set_where(
	const char *dir, const char *gpu, const struct set_who *who, bool looks, struct set_gpus *gpus);

/* Lists the names of the accounts that are meant on this GPU; returns how many, 0: none is there. */
#define SET_TARGETS_MOST ARB_SLOTS_MAX
size_t set_where_accounts(const char *dir, const char *gpu, const struct set_who *who,
	char names[SET_TARGETS_MOST][ARB_NAME_BYTES]);

#endif

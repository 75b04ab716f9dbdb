/*
 * Who holds bytes of a segment's locks that no client of it holds. The kernel names nobody for the kind of lock that
 * gpuarb takes (l_pid is -1): /proc/locks has file and bytes, /proc/PID/fdinfo the process, if it keeps the file open
 * and is the caller's own or the caller is root; /proc/PID/maps has those that keep it mapped.
 */
#ifndef TOOLS_HOLDERS_H
#define TOOLS_HOLDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "gpuarb/abi.h"

#define HOLDERS_MOST 16

struct holder {
	uint64_t first, last; /* bytes; last UINT64_MAX: to the end */
	bool known;
	unsigned pid, uid;
	char command[ARB_COMMAND_BYTES];
};

struct holders {
	unsigned n;
	bool hidden; /* of some process the caller may not know */
	struct holder list[HOLDERS_MOST];
};

/* The locks on the file, as /proc/locks has them, that no client holds: `taken[i]` says that slot i has a client. */
void holders_read(const char *path, unsigned nslots, const bool *taken, struct holders *to);
/* Those that are in both looks, with the process's name where that can be known. */
void holders_name(const char *path, const struct holders *before, struct holders *now);

#endif

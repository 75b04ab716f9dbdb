/* A file with the limits of one client, which the tool that started the client may replace while it runs: the kubelet
 * does, for a pod's annotations. Nothing stays open: the path is looked at from time to time. */
#ifndef ARB_LIMITS_FILE_H
#define ARB_LIMITS_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "gpuarb/client.h"

/* More than Kubernetes lets an object's annotations be, written with every byte escaped. */
#define ARB_LIMITS_BYTES_MAX (1u << 20)

/* What such a file says. */
struct arb_limits {
	unsigned core_pct; /* 0: nothing */
	bool has_mem;
	uint64_t mem_bytes; /* 0: no quota */
	bool has_request;
	unsigned request_pct;
	unsigned weight; /* 0: nothing */
};

/*
 * Reads the text of one: lines key="value" with Go's quoting, as the downward API writes annotations, of
 * which others than ours are skipped; or one bare number, the share of the GPU. Nothing at all is no limit.
 * -EINVAL, and `limits` as it was, with a sentence that `where` begins.
 */
int arb_limits_parse(const char *text, size_t length, const char *where, struct arb_limits *limits,
	struct gpuarb_error *err);

struct arb_limits_file {
	char path[PATH_MAX];
	struct arb_limits limits; /* the last good ones */
	bool read;                /* what follows belongs to a file that was read */
	bool recent;              /* written so shortly before that a second change need not show */
	uint64_t device, inode, size;
	struct timespec modified, changed;
	struct gpuarb_error said; /* code 0: all is well */
};

/*
 * Looks whether the path leads to something new. 1: there are new limits; 0: nothing new; -errno: the file
 * is gone or cannot be understood, the last limits stay; each trouble comes once, until it is another.
 */
int arb_limits_look(struct arb_limits_file *file, struct gpuarb_error *err);

#endif

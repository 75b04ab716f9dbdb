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

/* Kubernetes bounds the annotations of an object; this is more than they take with every byte escaped. */
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
 * Reads the text of such a file: lines key="value" with Go's quoting, as the downward API writes annotations, where
 * keys of others are skipped; or one bare number, the share of the GPU. An empty text means no limit. -EINVAL:
 * `limits` stays as it was, and the sentence begins with `where`.
 */
int arb_limits_parse(const char *text, size_t length, const char *where, struct arb_limits *limits,
	struct gpuarb_error *err);

struct arb_limits_file {
	char path[PATH_MAX];
	struct arb_limits limits; /* the limits that were last read without an error */
	bool read;                /* the fields below describe a file that was read */
	bool recent;              /* it was written just before it was read: a second change need not show */
	uint64_t device, inode, size;
	struct timespec modified, changed;
	struct gpuarb_error said; /* code 0: all is well */
};

/*
 * Looks whether the path leads to something new. 1: there are new limits; 0: nothing new; -errno: the file is gone or
 * cannot be parsed, and the last limits stay. The same error is returned once, until another takes its place.
 */
int arb_limits_look(struct arb_limits_file *file, struct gpuarb_error *err);

#endif

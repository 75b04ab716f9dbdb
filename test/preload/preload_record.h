/* What the recording driver notes about the last call. */
#ifndef TEST_PRELOAD_RECORD_H
#define TEST_PRELOAD_RECORD_H

#include <stddef.h>
#include <stdint.h>

struct record_arg {
	const void *at;
	size_t size;
};

struct record {
	const char *name;
	unsigned args;
	uint64_t hash; /* over all bytes of all arguments */
	unsigned calls;
	int result; /* what every call returns; set by the test */
};

static inline uint64_t record_hash(unsigned n, const struct record_arg *args)
{
	uint64_t hash = 14695981039346656037u;

	for (unsigned i = 0; i < n; i++)
		for (size_t b = 0; b < args[i].size; b++)
			hash = (hash ^ ((const unsigned char *)args[i].at)[b]) * 1099511628211u;
	return hash;
}

/* The function of the driver that returns the notes, found by dlsym. */
typedef struct record *record_get_fn(void);

#endif

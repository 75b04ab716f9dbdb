/* The product's own traces (GPUARB_TRACE), out of the world and into a real file: of the first process that records. */
#ifndef WORLD_TRACES_H
#define WORLD_TRACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the trace into this file, at most this many bytes of each world. Returns false if its folder does not exist. */
bool world_traces_to(const char *path, uint64_t most);
/* What GPUARB_TRACE is in the world's processes; NULL: nothing is recorded. */
char *world_traces_path(void);
/* Another world: it begins anew. */
void world_traces_begin(void);
/* For the table of shm/base/os.h. */
int world_traces_append(const char *path, bool create, const void *data, size_t size);

#endif

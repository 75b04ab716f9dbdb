/* The product's own traces (GPUARB_TRACE), written from the world into a real file. Only the first process that
 * records is written. */
#ifndef WORLD_TRACES_H
#define WORLD_TRACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the traces into this file, at most `most` bytes of each world. Returns false if its folder does not exist. */
bool world_traces_to(const char *path, uint64_t most);
/* Returns the value of GPUARB_TRACE in the world's processes; NULL: nothing is recorded. */
char *world_traces_path(void);
/* Begins a trace anew, for another world. */
void world_traces_begin(void);
/* The world's way to append to a trace, for the table of shm/base/os.h. */
int world_traces_append(const char *path, bool create, const void *data, size_t size);

#endif

/* One shared file: created complete or not at all, mapped only after its header was checked. */
#ifndef ARB_FILE_H
#define ARB_FILE_H

#include "shm/segment/segment.h"

struct arb_file_plan {
	const char *directory;
	const char *path;
	size_t size; /* 0: empty, and nothing to initialise */
	mode_t mode;
	gid_t gid;
	void (*initialise)(void *base, const void *argument);
	const void *argument;
};

/* Makes `dir` and `dir/sub` where they are missing. */
int arb_file_directories(
	const char *dir, const char *sub, mode_t file_mode, gid_t gid, struct gpuarb_error *err);

/* -EEXIST: it exists already (another process may have been faster). */
int arb_file_create(const struct arb_file_plan *plan, struct gpuarb_error *err);

/* Maps the file at file->path, which the caller has set, and fills in the rest of `file`. */
int arb_file_map(struct arb_file *file, bool writable, size_t header_size,
	int (*check)(const void *header, size_t size, const char *path, struct gpuarb_error *err),
	struct gpuarb_error *err);
/* Opens a file for its locks only. If it is missing, `plan` makes it, unless that is NULL. */
int arb_file_find(struct arb_file *file, struct arb_file_plan *plan, struct gpuarb_error *err);
/* Takes memory of this process in place of a file. */
int arb_file_alone(struct arb_file *file, const struct arb_file_plan *plan, struct gpuarb_error *err);
void arb_file_unmap(struct arb_file *file);

#endif

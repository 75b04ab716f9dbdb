/* Shared by the tools' functions. */
#ifndef ARB_CONTROL_H
#define ARB_CONTROL_H

#include <stdbool.h>

#include "shm/segment/segment.h"
#include "shm/segment/settings.h"

/* The directory that was asked for, or GPUARB_DIR's, or the default. */
const char *arb_control_dir(const char *dir);
/* The rules in force for a GPU; the defaults where it has no control segment. */
void arb_control_rules(const char *dir, const char *gpu, struct arb_rules *rules);
/* The state segment, for those who compare times with the clients', or write some: they may have another
 * clock. */
int arb_control_segment(
	struct arb_segment *seg, const char *dir, const char *gpu, bool writable, struct gpuarb_error *err);

#endif

/* Shared by the tools' functions. */
#ifndef ARB_CONTROL_H
#define ARB_CONTROL_H

#include <stdbool.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"

#include "shm/segment/segment.h"
#include "shm/segment/settings.h"

/* Maps the control segment; if there is none, makes it with what `config` says. */
int arb_control_make(struct arb_control_map *map, const char *dir, const char *gpu, bool writable,
	const struct gpuarb_config *config, struct gpuarb_error *err);
/* Reads the rules in force for a GPU; the defaults where it has no control segment. */
void arb_control_rules(const char *dir, const char *gpu, struct arb_rules *rules);
/* Opens the state segment, for callers that compare times with the clients' or write some: they may have another
 * clock. */
int arb_control_segment(
	struct arb_segment *seg, const char *dir, const char *gpu, bool writable, struct gpuarb_error *err);

#endif

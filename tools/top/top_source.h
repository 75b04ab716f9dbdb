/* Where gpuarb-top looks: the views of all GPUs, opened, read into the model, and opened again. */
#ifndef TOOLS_TOP_SOURCE_H
#define TOOLS_TOP_SOURCE_H

#include "tools/common/nvml_child.h"
#include "tools/top/top_model.h"

struct top_source {
	const char *dir; /* NULL: GPUARB_DIR, else the default */
	const char *gpu; /* NULL: all that have a segment */
	unsigned ngpus;
	struct top_gpu *gpus[TOP_GPUS];
	struct gpuarb_view *views[TOP_GPUS];
	struct gpuarb_picture *pictures[TOP_GPUS]; /* two each: the model keeps the last one */
	char uuids[TOP_GPUS][ARB_UUID_BYTES];
	uint64_t positions[TOP_GPUS]; /* in the ring of events */
	uint64_t listed_ns;
	int nvml_ms; /* how long NVML may take to answer for the first time; 0: it is not asked */
	struct nvml_child *nvml;
	const struct nvml_answer *said; /* its last answer */
	uint64_t said_ns;
};

/*
 * Looks at everything once. Returns how many GPUs could be read. The sentence is about one that could not, or
 * about there being none; empty if all is well.
 */
unsigned top_source_look(struct top_source *source, struct gpuarb_error *err);
void top_source_close(struct top_source *source);

/* Where the account's limits come from, for the words. */
struct top_origin;
void top_source_origin(
	const struct top_source *source, const char *uuid, const char *account, struct top_origin *origin);

#endif

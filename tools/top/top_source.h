/* Where gpuarb-top gets its data: opens the views of all GPUs, reads them into the model, and opens them again when
 * they are gone. */
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
	uint64_t positions[TOP_GPUS]; /* how far the event ring was read */
	uint64_t listed_ns;
	int nvml_ms; /* how long NVML may take to answer for the first time; 0: it is not asked */
	struct nvml_child *nvml;
	const struct nvml_answer *said; /* its last answer */
	uint64_t said_ns;
};

/* Looks at all GPUs once. Returns how many could be read. The sentence is about a GPU that could not be read, or says
 * that there is none; it is empty if all is well. */
unsigned top_source_look(struct top_source *source, struct gpuarb_error *err);
void top_source_close(struct top_source *source);

/* Says where the account's limits come from, for the explanation. */
struct top_origin;
void top_source_origin(
	const struct top_source *source, const char *uuid, const char *account, struct top_origin *origin);

#endif

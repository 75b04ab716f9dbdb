/* NVML, asked in a process of its own: it may hang, print, and leave threads and descriptors behind. */
#ifndef TOOLS_NVML_CHILD_H
#define TOOLS_NVML_CHILD_H

#include "tools/common/nvml.h"

struct nvml_answer {
	int count; /* 0: there is no NVML, or no GPU */
	struct nvml_gpu gpus[NVML_GPUS_MOST];
	struct nvml_use uses[NVML_GPUS_MOST];
};

struct nvml_child;

/* NULL: no process can be started. It ends with us, or with nvml_child_end. */
struct nvml_child *nvml_child_begin(void);
void nvml_child_end(struct nvml_child *child);

/*
 * Asks and waits for the answer, at most so long. NULL: there is none yet; the question stays asked, and the
 * next call gets its answer, however late that comes. The answer is good until the next call.
 */
const struct nvml_answer *nvml_child_ask(struct nvml_child *child, int most_ms);

/* For one question: the GPUs. How many; 0: none, or no answer in time. */
int nvml_child_list(struct nvml_gpu gpus[NVML_GPUS_MOST], int most_ms);

#endif

/* Asks NVML in a process of its own, because it may hang, print, and leave threads and descriptors behind. */
#ifndef TOOLS_NVML_CHILD_H
#define TOOLS_NVML_CHILD_H

#include "tools/common/nvml.h"

struct nvml_answer {
	int count; /* 0: there is no NVML, or no GPU */
	struct nvml_gpu gpus[NVML_GPUS_MOST];
	struct nvml_use uses[NVML_GPUS_MOST];
};

struct nvml_child;

/* Starts the process; NULL if that fails. The process ends with the tool, or by nvml_child_end. */
struct nvml_child *nvml_child_begin(void);
void nvml_child_end(struct nvml_child *child);

/* Asks and waits for the answer, at most `most_ms`. Returns NULL if there is none yet; the question stays asked, and
 * the next call returns its answer, however late that comes. The answer is valid until the next call. */
const struct nvml_answer *nvml_child_ask(struct nvml_child *child, int most_ms);

/* Asks one question: which GPUs there are. Returns how many; 0: none, or no answer in time. */
int nvml_child_list(struct nvml_gpu gpus[NVML_GPUS_MOST], int most_ms);

#endif

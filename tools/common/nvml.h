/* The GPUs of this machine, as NVML names and sees them. Only here a tool calls NVML. */
#ifndef TOOLS_NVML_H
#define TOOLS_NVML_H

#include <stdbool.h>
#include <stdint.h>

#define NVML_GPUS_MOST      64
#define NVML_PROCESSES_MOST 128

struct nvml_gpu {
	char index[24]; /* "0", or "0:1" for the second instance of a divided GPU */
	char uuid[96];
	char name[96];
	uint64_t memory_bytes; /* 0: not known */
};

#define NVML_BYTES_UNKNOWN UINT64_MAX

struct nvml_process {
	uint32_t pid; /* of the host, whatever namespace we are in */
	uint64_t bytes;
};

/* What is on a GPU, by clients and by others. */
struct nvml_use {
	bool memory_known, utilisation_known, processes_known;
	uint64_t total, used; /* bytes; without what the driver keeps for itself, where it tells that apart */
	unsigned utilisation_pct;
	unsigned nprocesses; /* with a context of any kind; there may be more than are listed */
	struct nvml_process processes[NVML_PROCESSES_MOST];
};

/* Loads and starts NVML. Returns NULL, or a sentence about what is missing. */
const char *nvml_start(void);
void nvml_stop(void);

/* Fills `gpus`, and `uses` if it is not NULL, with up to NVML_GPUS_MOST entries, and returns how many there are. An
 * instance of a divided GPU counts, the divided GPU itself does not. Negative: NVML does not say. */
int nvml_read(struct nvml_gpu *gpus, struct nvml_use *uses);

/* Starts NVML, reads the GPUs and ends it. Negative: *why says what is missing. */
int nvml_list(struct nvml_gpu *gpus, const char **why);

#endif

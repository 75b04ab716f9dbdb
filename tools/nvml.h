/* The GPUs of this machine, as NVML names them. The only place where a tool meets NVML. */
#ifndef TOOLS_NVML_H
#define TOOLS_NVML_H

#include <stdint.h>

#define NVML_GPUS_MOST 64

struct nvml_gpu {
	char index[24]; /* "0", or "0:1" for the second instance of a divided GPU */
	char uuid[96];
	char name[96];
	uint64_t memory_bytes; /* 0: not known */
};

/*
 * Fills `gpus` up to NVML_GPUS_MOST and returns how many there are: an instance of a divided GPU counts, the
 * GPU that it is a part of does not. Negative: *why says what is missing.
 */
int nvml_list(struct nvml_gpu *gpus, const char **why);

#endif

/* The part of NVML's binary interface that is used: its types and values, as NVIDIA's nvml.h declares them. */
#ifndef NVML_ABI_H
#define NVML_ABI_H

#define NVML_LIBRARY "libnvidia-ml.so.1"

typedef struct nvmlDevice_st *nvmlDevice_t;

#define NVML_SUCCESS                  0
#define NVML_ERROR_NOT_FOUND          6
#define NVML_ERROR_INSUFFICIENT_SIZE  7
#define NVML_ERROR_LIBRARY_NOT_FOUND  12
#define NVML_ERROR_FUNCTION_NOT_FOUND 13

/* Stands for a number of bytes that NVML does not have, as under WSL and in some virtual machines. */
#define NVML_VALUE_NOT_AVAILABLE (~0ull)

struct nvml_memory {
	unsigned long long total;
	unsigned long long free;
	unsigned long long used;
};

/* The second version tells what the driver keeps for itself apart from what programs use. */
struct nvml_memory_v2 {
	unsigned int version;
	unsigned long long total;
	unsigned long long reserved;
	unsigned long long free;
	unsigned long long used;
};
#define NVML_MEMORY_V2 ((unsigned int)(sizeof(struct nvml_memory_v2) | 2u << 24))

/* In percent of the time. */
struct nvml_utilization {
	unsigned int gpu;
	unsigned int memory;
};

/* Of the functions for running processes whose names end in _v2 and _v3. */
struct nvml_process_info {
	unsigned int pid; /* on the host */
	unsigned long long bytes;
	unsigned int gpu_instance;
	unsigned int compute_instance;
};

#endif

/* The little of NVML's binary interface that the hooks need. */
#ifndef PRELOAD_NVML_ABI_H
#define PRELOAD_NVML_ABI_H

typedef struct nvmlDevice_st *nvmlDevice_t;

#define NVML_SUCCESS                  0
#define NVML_ERROR_LIBRARY_NOT_FOUND  12
#define NVML_ERROR_FUNCTION_NOT_FOUND 13

struct nvml_memory {
	unsigned long long total;
	unsigned long long free;
	unsigned long long used;
};

struct nvml_memory_v2 {
	unsigned int version;
	unsigned long long total;
	unsigned long long reserved;
	unsigned long long free;
	unsigned long long used;
};

#define NVML_EXPORT __attribute__((visibility("default")))

#define NVML_HOOK(symbol, params, args) NVML_EXPORT int symbol params;
#include "preload/hooks/nvml.def"
#undef NVML_HOOK

#endif

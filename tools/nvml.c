#include "nvml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* NVML's own interface, as far as it is used here. It is found at run time: most machines have none. */
typedef void *handle;

struct memory {
	unsigned long long total, free, used;
};

static struct {
	int (*init)(void);
	int (*shutdown)(void);
	int (*count)(unsigned *);
	int (*by_index)(unsigned, handle *);
	int (*uuid)(handle, char *, unsigned);
	int (*name)(handle, char *, unsigned);
	int (*memory)(handle, struct memory *);
	/* Not in every version. */
	int (*mig_most)(handle, unsigned *);
	int (*mig_by_index)(handle, unsigned, handle *);
} nvml;

static const struct {
	const char *name;
	void *place;
	bool optional;
} symbols[] = {
	{"nvmlInit_v2", &nvml.init, false},
	{"nvmlShutdown", &nvml.shutdown, false},
	{"nvmlDeviceGetCount_v2", &nvml.count, false},
	{"nvmlDeviceGetHandleByIndex_v2", &nvml.by_index, false},
	{"nvmlDeviceGetUUID", &nvml.uuid, false},
	{"nvmlDeviceGetName", &nvml.name, false},
	{"nvmlDeviceGetMemoryInfo", &nvml.memory, false},
	{"nvmlDeviceGetMaxMigDeviceCount", &nvml.mig_most, true},
	{"nvmlDeviceGetMigDeviceHandleByIndex", &nvml.mig_by_index, true},
};

static const char *load(void)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return "there is no libnvidia-ml.so.1: NVIDIA's driver is not installed here";
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *found = dlsym(library, symbols[i].name);

		if (!found && !symbols[i].optional)
			return "libnvidia-ml.so.1 is too old: it cannot list GPUs";
		memcpy(symbols[i].place, &found, sizeof(found));
	}
	return nvml.init() == 0 ? NULL : "libnvidia-ml.so.1 finds no working driver";
}

/* False: it is not there any more, or has no UUID by which a segment could be named. */
static bool describe(handle device, struct nvml_gpu *gpu)
{
	struct memory memory = {0};

	if (nvml.uuid(device, gpu->uuid, sizeof(gpu->uuid)) != 0 || !gpu->uuid[0])
		return false;
	if (nvml.name(device, gpu->name, sizeof(gpu->name)) != 0)
		gpu->name[0] = '\0';
	gpu->memory_bytes = nvml.memory(device, &memory) == 0 ? memory.total : 0;
	return true;
}

static int instances(handle device, unsigned index, struct nvml_gpu *gpus, int room)
{
	unsigned most = 0;
	handle instance;
	int found = 0;

	if (!nvml.mig_most || !nvml.mig_by_index || nvml.mig_most(device, &most) != 0)
		return 0;
	for (unsigned i = 0; i < most && found < room; i++) {
		if (nvml.mig_by_index(device, i, &instance) != 0)
			continue;
		memset(&gpus[found], 0, sizeof(gpus[found]));
		snprintf(gpus[found].index, sizeof(gpus[found].index), "%u:%u", index, i);
		found += describe(instance, &gpus[found]);
	}
	return found;
}

int nvml_list(struct nvml_gpu *gpus, const char **why)
{
	unsigned count = 0;
	handle device;
	int n = 0;

	*why = load();
	if (*why)
		return -1;
	if (nvml.count(&count) != 0) {
		*why = "libnvidia-ml.so.1 cannot count the GPUs";
		nvml.shutdown();
		return -1;
	}
	for (unsigned i = 0; i < count && n < NVML_GPUS_MOST; i++) {
		int parts;

		if (nvml.by_index(i, &device) != 0)
			continue;
		parts = instances(device, i, &gpus[n], NVML_GPUS_MOST - n);
		if (parts == 0) {
			memset(&gpus[n], 0, sizeof(gpus[n]));
			snprintf(gpus[n].index, sizeof(gpus[n].index), "%u", i);
			parts = describe(device, &gpus[n]);
		}
		n += parts;
	}
	nvml.shutdown();
	return n;
}

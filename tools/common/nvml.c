#include "tools/common/nvml.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "gpuarb/nvml_load.h"

#define KINDS 3 /* of processes: compute, graphics, and those behind an MPS server */

static struct {
	int (*shutdown)(void);
	int (*count)(unsigned *);
	int (*by_index)(unsigned, nvmlDevice_t *);
	int (*uuid)(nvmlDevice_t, char *, unsigned);
	int (*name)(nvmlDevice_t, char *, unsigned);
	int (*memory)(nvmlDevice_t, struct nvml_memory *);
	/* These functions are missing in some versions. */
	int (*memory_v2)(nvmlDevice_t, struct nvml_memory_v2 *);
	int (*utilisation)(nvmlDevice_t, struct nvml_utilization *);
	int (*processes[KINDS])(nvmlDevice_t, unsigned *, struct nvml_process_info *);
	int (*processes_old[KINDS])(nvmlDevice_t, unsigned *, struct nvml_process_info *);
	int (*mig_most)(nvmlDevice_t, unsigned *);
	int (*mig_by_index)(nvmlDevice_t, unsigned, nvmlDevice_t *);
} nvml;

static const struct gpuarb_nvml_call calls[] = {
	{"nvmlShutdown", &nvml.shutdown, false},
	{"nvmlDeviceGetCount_v2", &nvml.count, false},
	{"nvmlDeviceGetHandleByIndex_v2", &nvml.by_index, false},
	{"nvmlDeviceGetUUID", &nvml.uuid, false},
	{"nvmlDeviceGetName", &nvml.name, false},
	{"nvmlDeviceGetMemoryInfo", &nvml.memory, false},
	{"nvmlDeviceGetMemoryInfo_v2", &nvml.memory_v2, true},
	{"nvmlDeviceGetUtilizationRates", &nvml.utilisation, true},
	{"nvmlDeviceGetComputeRunningProcesses_v3", &nvml.processes[0], true},
	{"nvmlDeviceGetGraphicsRunningProcesses_v3", &nvml.processes[1], true},
	{"nvmlDeviceGetMPSComputeRunningProcesses_v3", &nvml.processes[2], true},
	{"nvmlDeviceGetComputeRunningProcesses_v2", &nvml.processes_old[0], true},
	{"nvmlDeviceGetGraphicsRunningProcesses_v2", &nvml.processes_old[1], true},
	{"nvmlDeviceGetMPSComputeRunningProcesses_v2", &nvml.processes_old[2], true},
	{"nvmlDeviceGetMaxMigDeviceCount", &nvml.mig_most, true},
	{"nvmlDeviceGetMigDeviceHandleByIndex", &nvml.mig_by_index, true},
};

const char *nvml_start(void)
{
	return gpuarb_nvml_load(calls, sizeof(calls) / sizeof(calls[0]));
}

void nvml_stop(void)
{
	nvml.shutdown();
}

static void read_memory(nvmlDevice_t device, struct nvml_use *use)
{
	struct nvml_memory_v2 second = {.version = NVML_MEMORY_V2};
	struct nvml_memory first = {0};

	if (nvml.memory_v2 && nvml.memory_v2(device, &second) == 0) {
		use->total = second.total;
		use->used = second.used;
	} else if (nvml.memory(device, &first) == 0) {
		use->total = first.total;
		use->used = first.used;
	} else {
		return;
	}
	use->memory_known = true;
}

/* A process that computes and draws is in two lists, each time with all of its memory. */
static void add_process(struct nvml_use *use, const struct nvml_process_info *p)
{
	unsigned listed = use->nprocesses < NVML_PROCESSES_MOST ? use->nprocesses : NVML_PROCESSES_MOST;

	for (unsigned i = 0; i < listed; i++)
		if (use->processes[i].pid == p->pid)
			return;
	if (listed < NVML_PROCESSES_MOST)
		use->processes[listed] = (struct nvml_process){p->pid, p->bytes};
	use->nprocesses++;
}

/* If a driver cannot list graphics or MPS processes, it has none; if it cannot list compute processes, nothing is
 * known. */
static void read_processes(nvmlDevice_t device, struct nvml_use *use)
{
	static struct nvml_process_info list[4 * NVML_PROCESSES_MOST];
	const unsigned room = sizeof(list) / sizeof(list[0]);

	for (int kind = 0; kind < KINDS; kind++) {
		int (*ask)(nvmlDevice_t, unsigned *, struct nvml_process_info *) =
			nvml.processes[kind] ? nvml.processes[kind] : nvml.processes_old[kind];
		unsigned count = room;
		int r = ask ? ask(device, &count, list) : -1;

		if (r == NVML_ERROR_INSUFFICIENT_SIZE)
			use->nprocesses = room; /* more than can be listed: nobody can tell them apart */
		if (r != 0)
			continue;
		use->processes_known |= kind == 0;
		for (unsigned i = 0; i < count && i < room; i++)
			add_process(use, &list[i]);
	}
}

static void read_use(nvmlDevice_t device, struct nvml_use *use)
{
	struct nvml_utilization rates = {0};

	memset(use, 0, sizeof(*use));
	read_memory(device, use);
	read_processes(device, use);
	use->utilisation_known =
		nvml.utilisation && nvml.utilisation(device, &rates) == 0 && rates.gpu <= 100;
	use->utilisation_pct = rates.gpu;
}

/* Describes a device. Returns false if it is not there any more, or has no UUID by which a segment could be named. */
static bool describe(nvmlDevice_t device, struct nvml_gpu *gpu)
{
	struct nvml_memory memory = {0};

	if (nvml.uuid(device, gpu->uuid, sizeof(gpu->uuid)) != 0 || !gpu->uuid[0])
		return false;
	if (nvml.name(device, gpu->name, sizeof(gpu->name)) != 0)
		gpu->name[0] = '\0';
	gpu->memory_bytes = nvml.memory(device, &memory) == 0 ? memory.total : 0;
	return true;
}

static int instances(
	nvmlDevice_t device, unsigned index, struct nvml_gpu *gpus, struct nvml_use *uses, int room)
{
	unsigned most = 0;
	nvmlDevice_t instance;
	int found = 0;

	if (!nvml.mig_most || !nvml.mig_by_index || nvml.mig_most(device, &most) != 0)
		return 0;
	for (unsigned i = 0; i < most && found < room; i++) {
		if (nvml.mig_by_index(device, i, &instance) != 0)
			continue;
		memset(&gpus[found], 0, sizeof(gpus[found]));
		snprintf(gpus[found].index, sizeof(gpus[found].index), "%u:%u", index, i);
		if (!describe(instance, &gpus[found]))
			continue;
		if (uses)
			read_use(instance, &uses[found]);
		found++;
	}
	return found;
}

int nvml_read(struct nvml_gpu *gpus, struct nvml_use *uses)
{
	unsigned count = 0;
	nvmlDevice_t device;
	int n = 0;

	if (nvml.count(&count) != 0)
		return -1;
	for (unsigned i = 0; i < count && n < NVML_GPUS_MOST; i++) {
		int parts;

		if (nvml.by_index(i, &device) != 0)
			continue;
		parts = instances(device, i, &gpus[n], uses ? &uses[n] : NULL, NVML_GPUS_MOST - n);
		if (parts == 0) {
			memset(&gpus[n], 0, sizeof(gpus[n]));
			snprintf(gpus[n].index, sizeof(gpus[n].index), "%u", i);
			parts = describe(device, &gpus[n]);
			if (parts && uses)
				read_use(device, &uses[n]);
		}
		n += parts;
	}
	return n;
}

int nvml_list(struct nvml_gpu *gpus, const char **why)
{
	int n;

	*why = nvml_start();
	if (*why)
		return -1;
	n = nvml_read(gpus, NULL);
	if (n < 0)
		*why = NVML_LIBRARY " cannot count the GPUs";
	nvml_stop();
	return n;
}

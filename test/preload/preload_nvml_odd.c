/* An NVML that gives the figure in ODD_NVML for a process's memory, for the tests of context_mb = auto. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB    (1ull << 20)
#define EXPORT __attribute__((visibility("default")))

struct process {
	unsigned pid;
	unsigned long long bytes;
	unsigned gpu_instance, compute_instance;
};

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *list);

static int is(const char *what)
{
	const char *odd = getenv("ODD_NVML");

	return odd && !strcmp(odd, what);
}

int nvmlInit_v2(void)
{
	while (is("hangs"))
		pause();
	return is("fails") ? 999 : 0;
}

int nvmlShutdown(void)
{
	return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
	*device = (void *)(size_t)uuid;
	return is("strange") ? 6 : 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *list)
{
	(void)device;
	if (is("crowded")) {
		*count = 100000;
		return 7;
	}
	*count = 2;
	list[0] = (struct process){.pid = 1, .bytes = 7 * MIB};
	list[1] = (struct process){.pid = (unsigned)getpid(), .bytes = 100 * MIB};
	/* It names another process, as from another PID namespace. */
	if (is("elsewhere"))
		list[1].pid = 4000000;
	if (is("unavailable"))
		list[1].bytes = ~0ull;
	if (is("huge"))
		list[1].bytes = 5000 * MIB;
	return 0;
}

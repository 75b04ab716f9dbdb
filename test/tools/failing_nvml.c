/* A libnvidia-ml.so.1 with two GPUs; the calls fail that FAILING_NVML names. "reversed": the second UUID is that of GPU 0. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAILS_WITH 999 /* NVML_ERROR_UNKNOWN */

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size);
int nvmlDeviceGetName(void *device, char *name, unsigned size);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3]);

static bool at(const char *where)
{
	const char *wanted = getenv("FAILING_NVML");

	return wanted && strcmp(wanted, where) == 0;
}

int nvmlInit_v2(void)
{
	while (at("hangs"))
		pause();
	return at("init") ? FAILS_WITH : 0;
}

int nvmlShutdown(void)
{
	return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
	*count = at("none") ? 0 : 2;
	return at("count") ? FAILS_WITH : 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	*device = (char *)NULL + (at("reversed") ? 2 - index : index + 1);
	return at("first") && index == 0 ? FAILS_WITH : 0;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size)
{
	unsigned long number = (unsigned long)device;

	snprintf(uuid, size, "GPU-0000000%lu-0000-0000-0000-000000000000", number);
	return at("uuid") && number == 1 ? FAILS_WITH : 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
	(void)device;
	snprintf(name, size, "Failing GPU");
	return at("name") ? FAILS_WITH : 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3])
{
	(void)device;
	memory[0] = 1 << 20;
	return at("memory") ? FAILS_WITH : 0;
}

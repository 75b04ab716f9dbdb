/*
 * NVML: the library itself. Initialisations are counted, because a program and the libraries that it loads
 * may each initialise NVML. CUDA_VISIBLE_DEVICES has no effect: NVML shows every device.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "test/sim/nvml/sim_nvml.h"
#include "test/sim/device/shm.h"

#define DRIVER_VERSION "580.00"
#define CUDA_VERSION   13040

struct nvmlDevice_st {
	char unused;
};

static struct nvmlDevice_st
	handles[SIM_MAX_DEVICES + 1]; /* the last is the GPU that is divided into instances */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int users;
static int devices;
static int64_t wall_offset_ns;
static bool forked; /* in a child that has not opened the simulation for itself yet */

static int64_t wall_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* The parent's descriptor has the parent's lock, so a child must not use it. */
static void in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	forked = users > 0;
	if (forked)
		sim_shm_forget();
}

static void reopen(void)
{
	pthread_mutex_lock(&lock);
	if (forked && sim_open())
		devices = 0;
	__atomic_store_n(&forked, false, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
}

nvmlReturn_t nvml_ready(void)
{
	if (__atomic_load_n(&forked, __ATOMIC_ACQUIRE))
		reopen();
	return __atomic_load_n(&users, __ATOMIC_ACQUIRE) ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

int nvml_device(nvmlDevice_t handle)
{
	if (nvml_ready())
		return -NVML_ERROR_UNINITIALIZED;
	if (nvml_instances() && handle == &handles[SIM_MAX_DEVICES])
		return 0;
	if (handle < handles || handle >= handles + devices)
		return -NVML_ERROR_INVALID_ARGUMENT;
	return handle - handles;
}

nvmlReturn_t nvml_text(const char *text, char *out, unsigned int length)
{
	size_t need = strlen(text) + 1;

	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (need > length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(out, text, need);
	return NVML_SUCCESS;
}

uint64_t nvml_wall_us(uint64_t monotonic_ns)
{
	return (monotonic_ns + wall_offset_ns) / 1000;
}

uint64_t nvml_monotonic_ns(uint64_t wall_us)
{
	int64_t ns = (int64_t)(wall_us * 1000) - wall_offset_ns;

	return ns > 0 ? ns : 0;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	nvmlReturn_t r = NVML_SUCCESS;

	(void)flags;
	nvml_ready();
	pthread_mutex_lock(&lock);
	if (!users) {
		static bool watched;

		devices = sim_open() ? -1 : sim_device_count();
		wall_offset_ns = wall_ns() - (int64_t)sim_clock_ns();
		if (!watched)
			watched = !pthread_atfork(NULL, NULL, in_child);
		if (devices < 0) {
			devices = 0;
			r = NVML_ERROR_DRIVER_NOT_LOADED;
		}
	}
	if (!r)
		__atomic_store_n(&users, users + 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
	return r;
}

nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

/* The first form fails if any device cannot be initialised; here all devices can. */
nvmlReturn_t nvmlInit(void)
{
	return nvmlInitWithFlags(0);
}

/* The simulation stays mapped, because another thread may be inside a call. */
nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t r = NVML_ERROR_UNINITIALIZED;

	pthread_mutex_lock(&lock);
	if (users) {
		__atomic_store_n(&users, users - 1, __ATOMIC_RELEASE);
		r = NVML_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	switch (result) {
	case NVML_SUCCESS:
		return "Success";
	case NVML_ERROR_UNINITIALIZED:
		return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT:
		return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED:
		return "Not Supported";
	case NVML_ERROR_NO_PERMISSION:
		return "Insufficient Permissions";
	case NVML_ERROR_NOT_FOUND:
		return "Not Found";
	case NVML_ERROR_INSUFFICIENT_SIZE:
		return "Insufficient Size";
	case NVML_ERROR_DRIVER_NOT_LOADED:
		return "Driver Not Loaded";
	case NVML_ERROR_FUNCTION_NOT_FOUND:
		return "Function Not Found";
	case NVML_ERROR_NO_DATA:
		return "No data";
	case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
		return "Argument Version Mismatch";
	}
	return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	return nvml_ready() ? NVML_ERROR_UNINITIALIZED : nvml_text(DRIVER_VERSION, version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	return nvml_text("13." DRIVER_VERSION, version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	if (!version)
		return NVML_ERROR_INVALID_ARGUMENT;
	*version = CUDA_VERSION;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
	return nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	char path[32], text[1024];
	size_t n = 0;
	FILE *f;

	if (nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!name || !length)
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	f = fopen(path, "re");
	if (f) {
		n = fread(text, 1, sizeof(text) - 1, f);
		fclose(f);
	}
	if (!n)
		return NVML_ERROR_NOT_FOUND;
	text[n] = '\0'; /* the first argument ends at its own terminator */
	snprintf(name, length, "%s", text);
	return NVML_SUCCESS;
}

int nvml_instances(void)
{
	const char *mig = getenv("GPUSIM_MIG");

	return mig && (!strcmp(mig, "1") || !strcmp(mig, "13")) ? devices : 0;
}

nvmlDevice_t nvml_instance(int index)
{
	return &handles[index < 0 ? SIM_MAX_DEVICES : index];
}

bool nvml_is_instance(nvmlDevice_t handle)
{
	return nvml_instances() && handle != &handles[SIM_MAX_DEVICES];
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	if (nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = nvml_instances() ? 1 : devices;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
	return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	if (nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!device || index >= (nvml_instances() ? 1 : (unsigned int)devices))
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = nvml_instances() ? nvml_instance(-1) : &handles[index];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	struct sim_device_info info;

	if (nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!uuid || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < devices; i++)
		if (!sim_device_info(i, &info) && !strcasecmp(info.uuid + 4, uuid + 4) &&
			!strncmp(uuid, nvml_instances() ? "MIG-" : "GPU-", 4)) {
			*device = &handles[i];
			return NVML_SUCCESS;
		}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
	unsigned int domain = 0, bus, slot, function = 0;
	struct sim_device_info info;

	if (nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!bus_id || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
		domain = function = 0;
		if (sscanf(bus_id, "%x:%x.%x", &bus, &slot, &function) < 2)
			return NVML_ERROR_INVALID_ARGUMENT;
	}
	for (int i = 0; i < devices; i++)
		if (!sim_device_info(i, &info) && !function && info.pci_domain == domain &&
			info.pci_bus == bus && info.pci_device == slot) {
			*device = &handles[i];
			return NVML_SUCCESS;
		}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

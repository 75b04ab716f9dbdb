/*
 * The part of NVML's binary interface that the simulated library models: results, layouts and names.
 */
#ifndef SIM_NVML_ABI_H
#define SIM_NVML_ABI_H

typedef int nvmlReturn_t;

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_ALREADY_INITIALIZED = 5,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_INSUFFICIENT_POWER = 8,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_TIMEOUT = 10,
	NVML_ERROR_IRQ_ISSUE = 11,
	NVML_ERROR_LIBRARY_NOT_FOUND = 12,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_CORRUPTED_INFOROM = 14,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_RESET_REQUIRED = 16,
	NVML_ERROR_OPERATING_SYSTEM = 17,
	NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
	NVML_ERROR_IN_USE = 19,
	NVML_ERROR_MEMORY = 20,
	NVML_ERROR_NO_DATA = 21,
	NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_DEPRECATED = 26,
	NVML_ERROR_NOT_READY = 27,
	NVML_ERROR_GPU_NOT_FOUND = 28,
	NVML_ERROR_INVALID_STATE = 29,
	NVML_ERROR_UNKNOWN = 999,
};

enum { NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_CLOCK_VIDEO, NVML_CLOCK_COUNT };
enum { NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES, NVML_PCIE_UTIL_COUNT };
enum { NVML_GPU_UTILIZATION_SAMPLES = 1, NVML_MEMORY_UTILIZATION_SAMPLES = 2 };
enum { NVML_VALUE_TYPE_UNSIGNED_INT = 1 };
enum { NVML_PSTATE_0 = 0, NVML_PSTATE_8 = 8 };

typedef struct nvmlDevice_st *nvmlDevice_t;

/* The first two forms of the call fill only the fields before busId. */
typedef struct {
	char busIdLegacy[16];
	unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo_t;

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
	unsigned int version;
	unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

#define NVML_MEMORY_V2_VERSION ((unsigned int)(sizeof(nvmlMemory_v2_t) | 2 << 24))

typedef struct {
	unsigned long long bar1Total, bar1Free, bar1Used;
} nvmlBAR1Memory_t;

typedef struct {
	unsigned int gpu, memory;
} nvmlUtilization_t;

typedef struct {
	unsigned int pid;
	unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

/* The second and the third form of the calls use this structure. */
typedef struct {
	unsigned int pid;
	unsigned long long usedGpuMemory;
	unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
	unsigned int pid;
	unsigned long long timeStamp;
	unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

typedef union {
	double dVal;
	unsigned int uiVal;
	unsigned long long ullVal;
} nvmlValue_t;

typedef struct {
	unsigned long long timeStamp;
	nvmlValue_t sampleValue;
} nvmlSample_t;

#define NVML_API __attribute__((visibility("default"))) nvmlReturn_t

NVML_API nvmlInit(void);
NVML_API nvmlInit_v2(void);
NVML_API nvmlInitWithFlags(unsigned int flags);
NVML_API nvmlShutdown(void);
__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn_t result);
NVML_API nvmlSystemGetDriverVersion(char *version, unsigned int length);
NVML_API nvmlSystemGetNVMLVersion(char *version, unsigned int length);
NVML_API nvmlSystemGetCudaDriverVersion(int *version);
NVML_API nvmlSystemGetCudaDriverVersion_v2(int *version);
NVML_API nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length);

NVML_API nvmlDeviceGetCount(unsigned int *count);
NVML_API nvmlDeviceGetCount_v2(unsigned int *count);
NVML_API nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device);
NVML_API nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);
NVML_API nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
NVML_API nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device);
NVML_API nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device);
NVML_API nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length);
NVML_API nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length);
NVML_API nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index);
NVML_API nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor);
NVML_API nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci);
NVML_API nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci);
NVML_API nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci);
NVML_API nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *id);
NVML_API nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length);
NVML_API nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int *brand);
NVML_API nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture);
NVML_API nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor);
NVML_API nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores);
NVML_API nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode);
NVML_API nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode);
NVML_API nvmlDeviceGetDisplayMode(nvmlDevice_t device, unsigned int *mode);
NVML_API nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned int *active);
NVML_API nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned int *mode);
NVML_API nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *multi);
NVML_API nvmlDeviceOnSameBoard(nvmlDevice_t a, nvmlDevice_t b, int *same);
NVML_API nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, unsigned int *level);

NVML_API nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending);
NVML_API nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig);
NVML_API nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count);
NVML_API nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig);
NVML_API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device);
NVML_API nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id);
NVML_API nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id);
NVML_API nvmlDeviceGetAttributes(nvmlDevice_t device, void *attributes);
NVML_API nvmlDeviceGetAttributes_v2(nvmlDevice_t device, void *attributes);

NVML_API nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
NVML_API nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
NVML_API nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory);
NVML_API nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates);
NVML_API nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *pct, unsigned int *period_us);
NVML_API nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *pct, unsigned int *period_us);
NVML_API nvmlDeviceGetSamples(nvmlDevice_t device, unsigned int type, unsigned long long last_seen_us,
	unsigned int *value_type, unsigned int *count, nvmlSample_t *samples);
NVML_API nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz);
NVML_API nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz);
NVML_API nvmlDeviceGetClock(nvmlDevice_t device, unsigned int type, unsigned int id, unsigned int *mhz);
NVML_API nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned int type, unsigned int *mhz);
NVML_API nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned int *state);
NVML_API nvmlDeviceGetPowerState(nvmlDevice_t device, unsigned int *state);
NVML_API nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons);
NVML_API nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons);
NVML_API nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *celsius);
NVML_API nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned int type, unsigned int *celsius);
NVML_API nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatt);
NVML_API nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, unsigned int *mode);
NVML_API nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatt);
NVML_API nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *milliwatt);
NVML_API nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatt);
NVML_API nvmlDeviceGetPowerManagementLimitConstraints(
	nvmlDevice_t device, unsigned int *min, unsigned int *max);
NVML_API nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoule);
NVML_API nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *pct);
NVML_API nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *pct);
NVML_API nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int *count);
NVML_API nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned int counter, unsigned int *kb_per_s);
NVML_API nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *gen);
NVML_API nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *gen);
NVML_API nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width);
NVML_API nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *width);
NVML_API nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *count);

#define NVML_PROCESS_CALL(kind)                                                                              \
	NVML_API nvmlDeviceGet##kind##RunningProcesses(                                                      \
		nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos);                      \
	NVML_API nvmlDeviceGet##kind##RunningProcesses_v2(                                                   \
		nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos);                         \
	NVML_API nvmlDeviceGet##kind##RunningProcesses_v3(                                                   \
		nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos);
NVML_PROCESS_CALL(Compute)
NVML_PROCESS_CALL(Graphics)
NVML_PROCESS_CALL(MPSCompute)
#undef NVML_PROCESS_CALL

NVML_API nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
	unsigned int *count, unsigned long long last_seen_us);

#endif

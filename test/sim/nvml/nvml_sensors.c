/*
 * NVML: clocks, power, temperature, fan and link. The model has no physics. These values depend only on
 * whether the device is in use and how busy its last sample period was, so that a viewer shows them
 * rise and fall together.
 */
#include <time.h>

#include "test/sim/nvml/sim_nvml.h"

#define IDLE_MHZ         210
#define MEMORY_MHZ       1593
#define MEMORY_IDLE_MHZ  405
#define IDLE_MILLIWATT   25000
#define LIMIT_MILLIWATT  300000
#define LOWEST_MILLIWATT 100000
#define PCIE_GENERATION  4
#define PCIE_WIDTH       16
#define PCIE_SAMPLE_NS   20000000
#define THROTTLE_IDLE    1

static unsigned int busy_pct(int dev)
{
	struct sim_sample s;

	return sim_last_sample(dev, &s) ? 0 : s.util_pct;
}

/* Returns whether a process has a context: that keeps the clocks up even while nothing runs. */
static int in_use(int dev)
{
	struct sim_process_state list[SIM_MAX_PROCS];
	int n = sim_processes(dev, false, list, SIM_MAX_PROCS);

	for (int i = 0; i < n && i < SIM_MAX_PROCS; i++)
		if (list[i].has_context)
			return 1;
	return 0;
}

static nvmlReturn_t put(nvmlDevice_t device, unsigned int *out, unsigned int value)
{
	NVML_ENTER(device, out);
	*out = value;
	return NVML_SUCCESS;
}

static unsigned int clock_of(int dev, unsigned int type, int high)
{
	struct sim_device_info info;

	if (type == NVML_CLOCK_MEM)
		return high ? MEMORY_MHZ : MEMORY_IDLE_MHZ;
	if (!high || sim_device_info(dev, &info))
		return IDLE_MHZ;
	return type == NVML_CLOCK_VIDEO ? info.clock_mhz * 9 / 10 : info.clock_mhz;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz)
{
	NVML_ENTER(device, mhz && type < NVML_CLOCK_COUNT);
	*mhz = clock_of(dev, type, in_use(dev));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz)
{
	NVML_ENTER(device, mhz && type < NVML_CLOCK_COUNT);
	*mhz = clock_of(dev, type, 1);
	return NVML_SUCCESS;
}

/* `id` 0 is the current clock. The others are targets and defaults, which all are the maximum. */
nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned int type, unsigned int id, unsigned int *mhz)
{
	NVML_ENTER(device, mhz && type < NVML_CLOCK_COUNT && id < 4);
	*mhz = clock_of(dev, type, id ? 1 : in_use(dev));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned int type, unsigned int *mhz)
{
	return nvmlDeviceGetMaxClockInfo(device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned int *state)
{
	NVML_ENTER(device, state);
	*state = in_use(dev) ? NVML_PSTATE_0 : NVML_PSTATE_8;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, unsigned int *state)
{
	return nvmlDeviceGetPerformanceState(device, state);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
	NVML_ENTER(device, reasons);
	*reasons = in_use(dev) ? 0 : THROTTLE_IDLE;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons)
{
	return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *celsius)
{
	NVML_ENTER(device, celsius && !sensor);
	*celsius = 35 + busy_pct(dev) * 40 / 100;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned int type, unsigned int *celsius)
{
	static const unsigned int limits[] = {98, 95, 95, 90};

	NVML_ENTER(device, celsius && type < 7);
	if (type >= sizeof(limits) / sizeof(*limits))
		return NVML_ERROR_NOT_SUPPORTED;
	*celsius = limits[type];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatt)
{
	NVML_ENTER(device, milliwatt);
	*milliwatt = IDLE_MILLIWATT + (LIMIT_MILLIWATT - IDLE_MILLIWATT) / 100 * busy_pct(dev);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, unsigned int *mode)
{
	return put(device, mode, 1);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatt)
{
	return put(device, milliwatt, LIMIT_MILLIWATT);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *milliwatt)
{
	return put(device, milliwatt, LIMIT_MILLIWATT);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatt)
{
	return put(device, milliwatt, LIMIT_MILLIWATT);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(
	nvmlDevice_t device, unsigned int *min, unsigned int *max)
{
	NVML_ENTER(device, min && max);
	*min = LOWEST_MILLIWATT;
	*max = LIMIT_MILLIWATT;
	return NVML_SUCCESS;
}

/* The power of the device, idle or busy as above, integrated since the simulation began. */
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoule)
{
	struct sim_device_state s;

	NVML_ENTER(device, millijoule);
	if (sim_device_state(dev, &s))
		return NVML_ERROR_UNKNOWN;
	*millijoule = (s.now_ns - s.since_ns) / 1000000 * IDLE_MILLIWATT / 1000 +
		      s.busy_ns / 1000000 * (LIMIT_MILLIWATT - IDLE_MILLIWATT) / 1000;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *pct)
{
	NVML_ENTER(device, pct && !fan);
	*pct = 30 + busy_pct(dev) * 50 / 100;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *pct)
{
	return nvmlDeviceGetFanSpeed_v2(device, 0, pct);
}

nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int *count)
{
	return put(device, count, 1);
}

/*
 * The device receives what is copied to it. Like the real call this one watches the link for 20 ms. Bytes
 * are not counted for each direction, so they are split like the times of the two copy engines.
 */
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned int counter, unsigned int *kb_per_s)
{
	const struct timespec pause = {.tv_nsec = PCIE_SAMPLE_NS};
	int dir = counter == NVML_PCIE_UTIL_TX_BYTES;
	struct sim_device_state a, b;
	uint64_t ns[2], bytes;

	NVML_ENTER(device, kb_per_s && counter < NVML_PCIE_UTIL_COUNT);
	if (sim_device_state(dev, &a))
		return NVML_ERROR_UNKNOWN;
	nanosleep(&pause, NULL);
	if (sim_device_state(dev, &b) || b.copied_bytes < a.copied_bytes || b.now_ns <= a.now_ns)
		return NVML_ERROR_UNKNOWN;
	bytes = b.copied_bytes - a.copied_bytes;
	for (int i = 0; i < 2; i++)
		ns[i] = b.copy_ns[i] - a.copy_ns[i];
	*kb_per_s = 0;
	if (ns[0] + ns[1])
		*kb_per_s = (double)bytes * ns[dir] / (ns[0] + ns[1]) * 1e6 / (b.now_ns - a.now_ns);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *gen)
{
	return put(device, gen, PCIE_GENERATION);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *gen)
{
	return put(device, gen, PCIE_GENERATION);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
	return put(device, width, PCIE_WIDTH);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
	return put(device, width, PCIE_WIDTH);
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *count)
{
	return put(device, count, 0);
}

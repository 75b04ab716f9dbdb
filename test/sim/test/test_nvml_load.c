/*
 * NVML beside a driver at work: a viewer must read what the processes really do. The load does not depend
 * on the speed of this machine: kernels and copies of known length take turns in a stream.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/alarm.h"
#include "cuda_abi.h"
#include "units.h"
#include "test/sim/nvml/sim_nvml_abi.h"

#define HELD_MIB  64
#define STEP_US   10000
#define COPY_GBPS "0.1048576" /* one MiB in 10 ms */

static char dir[] = "/tmp/gpusim-test-XXXXXX";
static void *lib;
static pid_t load_pid;
static int load_pipe = -1;

#define NVML(name) ((__typeof__(&nvml##name))dlsym(lib, "nvml" #name))
#define CU(name)   ((__typeof__(&name))dlsym(driver, #name))
#define MUST(call)                                                                                           \
	do {                                                                                                 \
		if (call)                                                                                    \
			_exit(2);                                                                            \
	} while (0)

static void setup(void)
{
	cr_assert(mkdtemp(dir));
	setenv("GPUSIM_DIR", dir, 1);
	setenv("GPUSIM_SAMPLE_MS", "100", 1);
	setenv("GPUSIM_PCIE_GBPS", COPY_GBPS, 1);
	setenv("GPUSIM_COPY_LATENCY_US", "0", 1);
	lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	cr_assert(lib, "%s", dlerror());
	cr_assert_eq(NVML(Init_v2)(), NVML_SUCCESS);
}

static void end_load(int signal_number)
{
	if (load_pid > 0) {
		kill(load_pid, signal_number);
		waitpid(load_pid, NULL, 0);
		close(load_pipe);
	}
	load_pid = 0;
}

static void teardown(void)
{
	char command[64];

	end_load(SIGKILL);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	cr_expect_eq(system(command), 0);
}

TestSuite(nvml_load, .init = setup, .fini = teardown);

/* The child: allocates memory, and runs a kernel and (if wanted) a copy in turn until it is killed or 20 s are over. */
static void work(int ready, int with_copies)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *host, *params[1];
	unsigned int us = STEP_US;
	CUdeviceptr held, target;
	CUfunction spin;
	CUcontext ctx;
	CUmodule module;
	CUstream stream;
	char c = 'r';

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	MUST(!driver || CU(cuInit)(0) || CU(cuCtxCreate_v2)(&ctx, 0, 0));
	MUST(CU(cuMemAlloc_v2)(&held, HELD_MIB * MIB) || CU(cuMemAlloc_v2)(&target, MIB));
	MUST(CU(cuMemHostAlloc)(&host, MIB, 0) || CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	MUST(CU(cuModuleLoadData)(&module, "image") || CU(cuModuleGetFunction)(&spin, module, "spin_us"));
	params[0] = &us;
	MUST(write(ready, &c, 1) != 1);
	for (int i = 0; i < 20 * 1000000 / STEP_US; i++) {
		/* The queue is always full, so that the device never waits for this process. */
		MUST(CU(cuLaunchKernel)(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
		if (with_copies)
			MUST(CU(cuMemcpyHtoDAsync_v2)(target, host, MIB, stream));
	}
	_exit(0);
}

static void start_load(int with_copies)
{
	int fd[2];
	char c;

	cr_assert_eq(pipe(fd), 0);
	load_pid = fork();
	if (!load_pid)
		work(fd[1], with_copies);
	close(fd[1]);
	load_pipe = fd[0];
	cr_assert_eq(read(fd[0], &c, 1), 1, "the load did not start");
}

static nvmlDevice_t device(void)
{
	nvmlDevice_t d = NULL;

	cr_assert_eq(NVML(DeviceGetHandleByIndex_v2)(0, &d), NVML_SUCCESS);
	return d;
}

static void pause_ms(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

/* Reads the busy and elapsed time of the device from gpusim-report. */
static void truth(double *busy_ns, double *elapsed_ns)
{
	char line[65536] = "";
	FILE *f = popen("$LD_LIBRARY_PATH/gpusim-report --json", "r");

	cr_assert(f && fgets(line, sizeof(line), f));
	pclose(f);
	cr_assert(strstr(line, "\"busy_ns\":") && strstr(line, "\"elapsed_ns\":"));
	*busy_ns = strtod(strstr(line, "\"busy_ns\":") + 10, NULL);
	*elapsed_ns = strtod(strstr(line, "\"elapsed_ns\":") + 13, NULL);
}

/* Returns the mean over the sample periods of about a second from now on. */
static double watch(nvmlDevice_t d, unsigned int type, double *truth_pct)
{
	nvmlSample_t samples[200];
	unsigned int value_type, n = 200;
	struct timespec now;
	double busy[2], elapsed[2], sum = 0;

	pause_ms(250);
	clock_gettime(CLOCK_REALTIME, &now);
	truth(&busy[0], &elapsed[0]);
	pause_ms(1500);
	truth(&busy[1], &elapsed[1]);
	cr_assert_eq(NVML(DeviceGetSamples)(
			     d, type, now.tv_sec * 1000000ull + now.tv_nsec / 1000, &value_type, &n, samples),
		NVML_SUCCESS);
	cr_assert_geq(n, 5);
	for (unsigned int i = 1; i < n; i++) {
		cr_expect_gt(samples[i].timeStamp, samples[i - 1].timeStamp);
		sum += samples[i].sampleValue.uiVal;
	}
	*truth_pct = 100 * (busy[1] - busy[0]) / (elapsed[1] - elapsed[0]);
	return sum / (n - 1);
}

Test(nvml_load, a_device_that_always_runs_is_a_hundred_percent_busy)
{
	nvmlDevice_t d = device();
	nvmlUtilization_t u;
	unsigned int state = 99;
	double said, real;

	start_load(0);
	said = watch(d, NVML_GPU_UTILIZATION_SAMPLES, &real);
	cr_expect_float_eq(said, real, 3.0, "NVML says %.1f %%, the truth is %.1f %%", said, real);
	cr_expect_gt(said, 97);
	cr_expect_eq(NVML(DeviceGetUtilizationRates)(d, &u), NVML_SUCCESS);
	cr_expect_gt(u.gpu, 97);
	cr_expect_eq(NVML(DeviceGetPerformanceState)(d, &state), NVML_SUCCESS);
	cr_expect_eq(state, NVML_PSTATE_0);
}

/*
 * Kernels and copies of 10 ms take turns: the compute engine and one copy engine are each busy half of
 * the time. "Memory" is the mean of both copy engines, and the other copy engine is idle.
 */
Test(nvml_load, half_busy_is_fifty_percent_as_in_the_ground_truth)
{
	nvmlDevice_t d = device();
	double said, real;

	start_load(1);
	said = watch(d, NVML_GPU_UTILIZATION_SAMPLES, &real);
	cr_expect_float_eq(said, real, 3.0, "NVML says %.1f %%, the truth is %.1f %%", said, real);
	cr_expect_float_eq(said, 50, 4, "%.1f %%", said);
	said = watch(d, NVML_MEMORY_UTILIZATION_SAMPLES, &real);
	cr_expect_float_eq(said, 25, 3, "%.1f %% of copying", said);
}

Test(nvml_load, a_process_is_listed_with_its_memory_in_every_form)
{
	nvmlDevice_t d = device();
	nvmlProcessInfo_v1_t one[4];
	nvmlProcessInfo_t two[4];
	nvmlMemory_t memory;
	unsigned int n = 0;

	start_load(0);
	cr_expect_eq(NVML(DeviceGetComputeRunningProcesses)(d, &n, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
	cr_expect_eq(n, 1);
	n = 4;
	cr_expect_eq(NVML(DeviceGetComputeRunningProcesses)(d, &n, one), NVML_SUCCESS);
	cr_assert_eq(n, 1);
	cr_expect_eq(one[0].pid, (unsigned int)load_pid);
	cr_expect_geq(one[0].usedGpuMemory, (HELD_MIB + 1) * MIB);
	cr_expect_eq(NVML(DeviceGetMemoryInfo)(d, &memory), NVML_SUCCESS);
	cr_expect_eq(memory.used, one[0].usedGpuMemory);
	for (int form = 2; form <= 3; form++) {
		n = 4;
		memset(two, 0, sizeof(two));
		cr_expect_eq(form == 2 ? NVML(DeviceGetComputeRunningProcesses_v2)(d, &n, two)
				       : NVML(DeviceGetComputeRunningProcesses_v3)(d, &n, two),
			NVML_SUCCESS);
		cr_assert_eq(n, 1);
		cr_expect_eq(two[0].pid, (unsigned int)load_pid);
		cr_expect_eq(two[0].usedGpuMemory, one[0].usedGpuMemory);
		cr_expect_eq(two[0].gpuInstanceId, 0xffffffff);
	}
	n = 4;
	cr_expect_eq(NVML(DeviceGetGraphicsRunningProcesses_v3)(d, &n, two), NVML_SUCCESS);
	cr_expect_eq(n, 0);
}

Test(nvml_load, process_utilisation_is_given_once_for_each_stamp)
{
	nvmlDevice_t d = device();
	nvmlProcessUtilizationSample_t s[4];
	unsigned long long stamp;
	unsigned int n = 0;

	start_load(1);
	pause_ms(600);
	cr_expect_eq(NVML(DeviceGetProcessUtilization)(d, NULL, &n, 0), NVML_ERROR_INSUFFICIENT_SIZE);
	cr_expect_eq(n, 1);
	n = 4;
	cr_assert_eq(NVML(DeviceGetProcessUtilization)(d, s, &n, 0), NVML_SUCCESS);
	cr_assert_eq(n, 1);
	cr_expect_eq(s[0].pid, (unsigned int)load_pid);
	cr_expect(s[0].smUtil >= 38 && s[0].smUtil <= 62, "%u %%", s[0].smUtil);
	stamp = s[0].timeStamp;
	n = 4;
	/* No sample is newer than a time in the future. */
	cr_expect_eq(
		NVML(DeviceGetProcessUtilization)(d, s, &n, stamp + 3600000000ull), NVML_ERROR_NOT_FOUND);
	pause_ms(250);
	n = 4;
	cr_assert_eq(NVML(DeviceGetProcessUtilization)(d, s, &n, stamp), NVML_SUCCESS);
	cr_expect_gt(s[0].timeStamp, stamp);
}

Test(nvml_load, a_killed_process_is_gone_with_its_memory)
{
	nvmlDevice_t d = device();
	nvmlMemory_t memory;
	unsigned int n = 0;

	start_load(0);
	cr_expect_eq(NVML(DeviceGetComputeRunningProcesses_v3)(d, &n, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
	end_load(SIGKILL);
	for (int i = 0; i < 50; i++) {
		n = 0;
		if (NVML(DeviceGetComputeRunningProcesses_v3)(d, &n, NULL) == NVML_SUCCESS)
			break;
		pause_ms(20);
	}
	cr_expect_eq(n, 0);
	cr_expect_eq(NVML(DeviceGetMemoryInfo)(d, &memory), NVML_SUCCESS);
	cr_expect_eq(memory.used, 0);
}

Test(nvml_load, both_libraries_describe_the_same_device)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	nvmlDevice_t d = device();
	int major, minor, cu_major = 0, cu_minor = 0, version, cu_version = 0;
	char name[96], cu_name[96], uuid[96], text[96];
	nvmlMemory_t memory;
	nvmlPciInfo_t pci;
	size_t bytes = 0;
	CUuuid u;

	cr_assert(driver);
	cr_assert_eq(CU(cuInit)(0), CUDA_SUCCESS);
	CU(cuDeviceGetAttribute)(&cu_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
	CU(cuDeviceGetAttribute)(&cu_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
	NVML(DeviceGetCudaComputeCapability)(d, &major, &minor);
	cr_expect_eq(major, cu_major);
	cr_expect_eq(minor, cu_minor);
	CU(cuDriverGetVersion)(&cu_version);
	NVML(SystemGetCudaDriverVersion_v2)(&version);
	cr_expect_eq(version, cu_version);
	CU(cuDeviceGetName)(cu_name, sizeof(cu_name), 0);
	NVML(DeviceGetName)(d, name, sizeof(name));
	cr_expect_str_eq(name, cu_name);
	CU(cuDeviceTotalMem_v2)(&bytes, 0);
	NVML(DeviceGetMemoryInfo)(d, &memory);
	cr_expect_eq(memory.total, bytes);
	CU(cuDeviceGetUuid_v2)(&u, 0);
	NVML(DeviceGetUUID)(d, uuid, sizeof(uuid));
	snprintf(text, sizeof(text), "GPU-%02x%02x%02x%02x", (unsigned char)u.bytes[0],
		(unsigned char)u.bytes[1], (unsigned char)u.bytes[2], (unsigned char)u.bytes[3]);
	cr_expect_eq(strncmp(uuid, text, 12), 0, "%s %s", uuid, text);
	NVML(DeviceGetPciInfo_v3)(d, &pci);
	CU(cuDeviceGetPCIBusId)(text, sizeof(text), 0);
	cr_expect(strstr(pci.busId, text), "%s is not in %s", text, pci.busId);
}

/*
 * NVML as a viewer uses it: loaded by name, errors before initialisation, every way to a handle, and the
 * rules of the calls that fill lists. Each test has a simulation of its own.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/alarm.h"
#include "test/sim/nvml/sim_nvml_abi.h"

static char dir[] = "/tmp/gpusim-test-XXXXXX";
static void *lib;

/* Finds calls by name: the test is not linked with the simulator. */
#define NVML(name) ((__typeof__(&nvml##name))need("nvml" #name))

static void *need(const char *name)
{
	void *p = dlsym(lib, name);

	cr_assert(p, "%s is missing", name);
	return p;
}

static void load(void)
{
	cr_assert(mkdtemp(dir));
	setenv("GPUSIM_DIR", dir, 1);
	setenv("GPUSIM_DEVICES", "3", 1);
	setenv("GPUSIM_MEMORY_MB", "1024,2048,4096", 1);
	setenv("GPUSIM_NAME", "First,Second,Third", 1);
	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	cr_assert(lib, "%s", dlerror());
}

static void clean(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	cr_expect_eq(system(command), 0);
}

static nvmlDevice_t open_device(unsigned int index)
{
	nvmlDevice_t d = NULL;

	cr_assert_eq(NVML(Init_v2)(), NVML_SUCCESS);
	cr_assert_eq(NVML(DeviceGetHandleByIndex_v2)(index, &d), NVML_SUCCESS);
	return d;
}

TestSuite(nvml, .init = load, .fini = clean);

Test(nvml, nothing_works_before_init_and_after_the_last_shutdown)
{
	unsigned int n = 77;
	nvmlDevice_t d;
	char text[96];

	for (int round = 0; round < 2; round++) {
		cr_expect_eq(NVML(DeviceGetCount_v2)(&n), NVML_ERROR_UNINITIALIZED);
		cr_expect_eq(NVML(DeviceGetHandleByIndex_v2)(0, &d), NVML_ERROR_UNINITIALIZED);
		cr_expect_eq(NVML(SystemGetDriverVersion)(text, sizeof(text)), NVML_ERROR_UNINITIALIZED);
		cr_expect_eq(NVML(DeviceGetUtilizationRates)(NULL, NULL), NVML_ERROR_UNINITIALIZED);
		cr_expect_eq(
			((nvmlReturn_t(*)(void))need("nvmlDeviceGetEccMode"))(), NVML_ERROR_UNINITIALIZED);
		cr_expect_eq(NVML(Shutdown)(), NVML_ERROR_UNINITIALIZED);
		cr_expect_eq(n, 77);
		if (round)
			break;
		cr_expect_eq(NVML(Init)(), NVML_SUCCESS);
		cr_expect_eq(NVML(InitWithFlags)(1), NVML_SUCCESS);
		cr_expect_eq(NVML(Shutdown)(), NVML_SUCCESS);
		cr_expect_eq(NVML(DeviceGetHandleByIndex_v2)(0, &d), NVML_SUCCESS);
		cr_expect_eq(
			((nvmlReturn_t(*)(void))need("nvmlDeviceGetEccMode"))(), NVML_ERROR_NOT_SUPPORTED);
		cr_expect_eq(NVML(Shutdown)(), NVML_SUCCESS);
	}
}

Test(nvml, every_way_to_a_handle_finds_the_same_device)
{
	unsigned int count = 0;

	cr_assert_eq(NVML(Init_v2)(), NVML_SUCCESS);
	cr_assert_eq(NVML(DeviceGetCount_v2)(&count), NVML_SUCCESS);
	cr_assert_eq(count, 3, "CUDA_VISIBLE_DEVICES hides nothing from NVML");
	for (unsigned int i = 0; i < count; i++) {
		nvmlDevice_t d, same;
		nvmlPciInfo_t pci;
		unsigned int index;
		char uuid[96];

		cr_assert_eq(NVML(DeviceGetHandleByIndex)(i, &d), NVML_SUCCESS);
		cr_assert_eq(NVML(DeviceGetUUID)(d, uuid, sizeof(uuid)), NVML_SUCCESS);
		cr_assert_eq(NVML(DeviceGetPciInfo_v3)(d, &pci), NVML_SUCCESS);
		cr_expect_eq(NVML(DeviceGetHandleByUUID)(uuid, &same), NVML_SUCCESS);
		cr_expect_eq(same, d);
		cr_expect_eq(NVML(DeviceGetHandleByPciBusId_v2)(pci.busId, &same), NVML_SUCCESS);
		cr_expect_eq(same, d);
		cr_expect_eq(NVML(DeviceGetHandleByPciBusId_v2)(pci.busIdLegacy, &same), NVML_SUCCESS);
		cr_expect_eq(same, d);
		cr_expect_eq(
			NVML(DeviceGetHandleByPciBusId)(strchr(pci.busId, ':') + 1, &same), NVML_SUCCESS);
		cr_expect_eq(same, d);
		cr_expect_eq(NVML(DeviceGetIndex)(d, &index), NVML_SUCCESS);
		cr_expect_eq(index, i);
	}
}

Test(nvml, wrong_handles_and_names_are_told_apart)
{
	nvmlDevice_t d = open_device(0), other;
	char name[96];

	cr_expect_eq(NVML(DeviceGetHandleByIndex_v2)(3, &other), NVML_ERROR_INVALID_ARGUMENT);
	cr_expect_eq(NVML(DeviceGetHandleByIndex_v2)(0, NULL), NVML_ERROR_INVALID_ARGUMENT);
	cr_expect_eq(NVML(DeviceGetHandleByUUID)("GPU-0", &other), NVML_ERROR_NOT_FOUND);
	cr_expect_eq(NVML(DeviceGetHandleByUUID)(NULL, &other), NVML_ERROR_INVALID_ARGUMENT);
	cr_expect_eq(NVML(DeviceGetHandleByPciBusId_v2)("00000000:7F:00.0", &other), NVML_ERROR_NOT_FOUND);
	cr_expect_eq(NVML(DeviceGetHandleByPciBusId_v2)("nonsense", &other), NVML_ERROR_INVALID_ARGUMENT);
	cr_expect_eq(NVML(DeviceGetName)(NULL, name, sizeof(name)), NVML_ERROR_INVALID_ARGUMENT);
	cr_expect_eq(
		NVML(DeviceGetName)((nvmlDevice_t)name, name, sizeof(name)), NVML_ERROR_INVALID_ARGUMENT);
	cr_expect_eq(NVML(DeviceGetName)(d, NULL, sizeof(name)), NVML_ERROR_INVALID_ARGUMENT);
	cr_expect_eq(NVML(DeviceGetName)(d, name, 5), NVML_ERROR_INSUFFICIENT_SIZE);
	cr_expect_eq(NVML(DeviceGetName)(d, name, 6), NVML_SUCCESS);
	cr_expect_str_eq(name, "First");
}

Test(nvml, memory_is_that_of_each_device_in_both_forms)
{
	for (unsigned int i = 0; i < 3; i++) {
		nvmlDevice_t d = open_device(i);
		nvmlMemory_v2_t m2 = {.version = NVML_MEMORY_V2_VERSION};
		nvmlMemory_t m;

		cr_assert_eq(NVML(DeviceGetMemoryInfo)(d, &m), NVML_SUCCESS);
		cr_expect_eq(m.total, 1024ull << (20 + i));
		cr_expect_eq(m.used, 0);
		cr_expect_eq(m.free, m.total);
		cr_assert_eq(NVML(DeviceGetMemoryInfo_v2)(d, &m2), NVML_SUCCESS);
		cr_expect_eq(m2.total, m.total);
		cr_expect_eq(m2.used + m2.free + m2.reserved, m.total);
		m2.version = 0;
		cr_expect_eq(NVML(DeviceGetMemoryInfo_v2)(d, &m2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
		cr_expect_eq(NVML(DeviceGetMemoryInfo)(d, NULL), NVML_ERROR_INVALID_ARGUMENT);
	}
}

Test(nvml, older_pci_structures_are_not_overrun)
{
	nvmlDevice_t d = open_device(1);
	nvmlPciInfo_t pci;

	memset(&pci, 0x5a, sizeof(pci));
	cr_assert_eq(NVML(DeviceGetPciInfo)(d, &pci), NVML_SUCCESS);
	cr_expect_eq(pci.bus, 2);
	cr_expect_eq(pci.pciSubSystemId, 0x5a5a5a5a);
	cr_expect_eq(pci.busId[0], 0x5a);
	cr_assert_eq(NVML(DeviceGetPciInfo_v2)(d, &pci), NVML_SUCCESS);
	cr_expect_neq(pci.pciSubSystemId, 0x5a5a5a5a);
	cr_expect_eq(pci.busId[0], 0x5a);
	cr_assert_eq(NVML(DeviceGetPciInfo_v3)(d, &pci), NVML_SUCCESS);
	cr_expect_str_eq(pci.busId, "00000000:02:00.0");
}

Test(nvml, an_idle_device_reports_idle)
{
	nvmlDevice_t d = open_device(0);
	nvmlProcessUtilizationSample_t sample;
	nvmlUtilization_t u = {9, 9};
	unsigned int n = 0, state = 0;

	cr_expect_eq(NVML(DeviceGetUtilizationRates)(d, &u), NVML_SUCCESS);
	cr_expect_eq(u.gpu, 0);
	cr_expect_eq(u.memory, 0);
	cr_expect_eq(NVML(DeviceGetComputeRunningProcesses_v3)(d, &n, NULL), NVML_SUCCESS);
	cr_expect_eq(n, 0);
	n = 1;
	cr_expect_eq(NVML(DeviceGetProcessUtilization)(d, &sample, &n, 0), NVML_ERROR_NOT_FOUND);
	cr_expect_eq(NVML(DeviceGetPerformanceState)(d, &state), NVML_SUCCESS);
	cr_expect_eq(state, NVML_PSTATE_8);
}

/* After a fork parent and child go on, and do not disturb each other. */
Test(nvml, a_forked_child_reads_for_itself)
{
	nvmlDevice_t d = open_device(2);
	nvmlMemory_t m;
	int status = -1;
	pid_t pid;

	for (int round = 0; round < 20; round++) {
		pid = fork();
		if (!pid) {
			int bad = 0;

			for (int i = 0; i < 200; i++)
				bad |= NVML(DeviceGetMemoryInfo)(d, &m) != NVML_SUCCESS ||
				       m.total != 4096ull << 20;
			_exit(bad);
		}
		for (int i = 0; i < 200; i++)
			cr_assert_eq(NVML(DeviceGetMemoryInfo)(d, &m), NVML_SUCCESS);
		cr_assert_eq(waitpid(pid, &status, 0), pid);
		cr_assert_eq(status, 0);
	}
}

Test(nvml, there_is_no_mig)
{
	nvmlDevice_t d = open_device(0), other;
	unsigned int a = 9, b = 9;

	cr_expect_eq(NVML(DeviceGetMigMode)(d, &a, &b), NVML_SUCCESS);
	cr_expect_eq(a + b, 0);
	cr_expect_eq(NVML(DeviceIsMigDeviceHandle)(d, &a), NVML_SUCCESS);
	cr_expect_eq(a, 0);
	cr_expect_eq(NVML(DeviceGetMigDeviceHandleByIndex)(d, 0, &other), NVML_ERROR_NOT_FOUND);
	cr_expect_eq(NVML(DeviceGetDeviceHandleFromMigDeviceHandle)(d, &other), NVML_ERROR_INVALID_ARGUMENT);
	cr_expect_eq(NVML(DeviceGetGpuInstanceId)(d, &a), NVML_ERROR_INVALID_ARGUMENT);
}

Test(nvml, a_process_has_a_name_and_a_missing_one_has_none)
{
	char name[256] = "", own[256] = "";
	FILE *f = fopen("/proc/self/cmdline", "r");

	cr_assert(f && fread(own, 1, sizeof(own) - 1, f) > 0);
	fclose(f);
	open_device(0);
	cr_expect_eq(NVML(SystemGetProcessName)(getpid(), name, sizeof(name)), NVML_SUCCESS);
	cr_expect_str_eq(name, own);
	cr_expect_eq(NVML(SystemGetProcessName)(0x7ffffffe, name, sizeof(name)), NVML_ERROR_NOT_FOUND);
}

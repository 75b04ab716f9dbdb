/*
 * NVML: what a device is and how it is set up. None of this changes while the simulation exists.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "test/sim/nvml/sim_nvml.h"

#define BRAND_NVIDIA          14
#define ARCHITECTURE_AMPERE   7
#define CAPABILITY_MAJOR      8
#define CAPABILITY_MINOR      0
#define CORES_PER_MP          64
#define PCI_DEVICE_ID         0x20b010de /* device, then vendor */
#define PCI_SUBSYSTEM_ID      0x134f10de
#define TOPOLOGY_SINGLE_BOARD 0
#define TOPOLOGY_NODE         40

static nvmlReturn_t put(nvmlDevice_t device, unsigned int *out, unsigned int value)
{
	NVML_ENTER(device, out);
	*out = value;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	struct sim_device_info info;

	NVML_ENTER(device, name);
	if (sim_device_info(dev, &info))
		return NVML_ERROR_UNKNOWN;
	if (nvml_is_instance(device))
		snprintf(
			info.name + strlen(info.name), sizeof(info.name) - strlen(info.name), " MIG 1g.16gb");
	return nvml_text(info.name, name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	struct sim_device_info info;

	NVML_ENTER(device, uuid);
	if (sim_device_info(dev, &info))
		return NVML_ERROR_UNKNOWN;
	if (nvml_is_instance(device))
		memcpy(info.uuid, "MIG-", 4);
	else if (nvml_instances())
		snprintf(info.uuid, sizeof(info.uuid), "GPU-4d4d4d4d-4d4d-4d4d-4d4d-4d4d4d4d4d4d");
	return nvml_text(info.uuid, uuid, length);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	return put(device, index, nvml_device(device));
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
	return put(device, minor, nvml_device(device));
}

/* Programs that were built for the older forms pass a smaller structure, so nothing behind its end is written. */
static nvmlReturn_t pci_info(nvmlDevice_t device, nvmlPciInfo_t *pci, size_t size)
{
	struct sim_device_info info;
	nvmlPciInfo_t full;

	NVML_ENTER(device, pci);
	if (sim_device_info(dev, &info))
		return NVML_ERROR_UNKNOWN;
	memset(&full, 0, sizeof(full));
	snprintf(full.busId, sizeof(full.busId), "%s", info.pci_bus_id);
	snprintf(full.busIdLegacy, sizeof(full.busIdLegacy), "%04X:%02X:%02X.0", info.pci_domain & 0xffff,
		info.pci_bus & 0xff, info.pci_device & 0xff);
	full.domain = info.pci_domain;
	full.bus = info.pci_bus;
	full.device = info.pci_device;
	full.pciDeviceId = PCI_DEVICE_ID;
	full.pciSubSystemId = PCI_SUBSYSTEM_ID;
	memcpy(pci, &full, size);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return pci_info(device, pci, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return pci_info(device, pci, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return pci_info(device, pci, sizeof(*pci));
}

nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *id)
{
	struct sim_device_info info;

	NVML_ENTER(device, id);
	if (sim_device_info(dev, &info))
		return NVML_ERROR_UNKNOWN;
	*id = info.pci_bus << 8 | info.pci_device << 3;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
	NVML_ENTER(device, version);
	return nvml_text("00.00.00.00.01", version, length);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int *brand)
{
	return put(device, brand, BRAND_NVIDIA);
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture)
{
	return put(device, architecture, ARCHITECTURE_AMPERE);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	NVML_ENTER(device, major && minor);
	*major = CAPABILITY_MAJOR;
	*minor = CAPABILITY_MINOR;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores)
{
	struct sim_device_info info;

	NVML_ENTER(device, cores);
	if (sim_device_info(dev, &info))
		return NVML_ERROR_UNKNOWN;
	*cores = info.multiprocessors * CORES_PER_MP;
	return NVML_SUCCESS;
}

/* Any number of processes may use the device at once. */
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode)
{
	return put(device, mode, 0);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode)
{
	return put(device, mode, 1);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, unsigned int *mode)
{
	return put(device, mode, 0);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned int *active)
{
	return put(device, active, 0);
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned int *mode)
{
	return put(device, mode, 0);
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *multi)
{
	return put(device, multi, 0);
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t a, nvmlDevice_t b, int *same)
{
	int other = nvml_device(b);

	NVML_ENTER(a, same);
	if (other < 0)
		return -other;
	*same = dev == other;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, unsigned int *level)
{
	int other = nvml_device(b);

	NVML_ENTER(a, level);
	if (other < 0)
		return -other;
	*level = dev == other ? TOPOLOGY_SINGLE_BOARD : TOPOLOGY_NODE;
	return NVML_SUCCESS;
}

/* With GPUSIM_MIG the devices are instances of one GPU. Otherwise a GPU could be partitioned, but is not. */
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	NVML_ENTER(device, current && pending);
	*current = *pending = nvml_instances() > 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
	return put(device, is_mig, nvml_is_instance(device));
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	return put(device, count, nvml_is_instance(device) ? 0 : (unsigned)nvml_instances());
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
	NVML_ENTER(device, mig);
	if (nvml_is_instance(device) || index >= (unsigned)nvml_instances())
		return NVML_ERROR_NOT_FOUND;
	*mig = nvml_instance((int)index);
	return NVML_SUCCESS;
}

static nvmlReturn_t only_for_mig(nvmlDevice_t device, const void *out)
{
	NVML_ENTER(device, out);
	return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
	NVML_ENTER(mig, device);
	if (!nvml_is_instance(mig))
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = nvml_instance(-1);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
	return nvml_is_instance(device) ? put(device, id, (unsigned)nvml_device(device))
					: only_for_mig(device, id);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
	return nvml_is_instance(device) ? put(device, id, 0) : only_for_mig(device, id);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, void *attributes)
{
	return only_for_mig(device, attributes);
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, void *attributes)
{
	return only_for_mig(device, attributes);
}

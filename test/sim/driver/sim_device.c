/* Device queries. The figures are those of a plausible recent data-centre GPU. */
#include "test/sim/driver/driver.h"

#include <stdio.h>

CUresult drv_device(CUdevice dev, uint32_t *physical)
{
	if (!drv.ready)
		return drv_why();
	if (dev < 0 || (unsigned)dev >= drv.nvisible)
		return CUDA_ERROR_INVALID_DEVICE;
	*physical = drv.visible[dev];
	return CUDA_SUCCESS;
}

int drv_device_index(uint32_t physical)
{
	for (unsigned i = 0; i < drv.nvisible; i++)
		if (drv.visible[i] == physical)
			return (int)i;
	return -1;
}

static const struct sim_device_info *info_of(uint32_t physical)
{
	return &sim_shm.file->device[physical].info;
}

CUresult cuDeviceGetCount(int *count)
{
	if (!drv.ready)
		return drv_why();
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = (int)drv.nvisible;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	uint32_t physical;

	TRY(drv_device(ordinal, &physical));
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	uint32_t physical;

	TRY(drv_device(dev, &physical));
	if (!name || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)len, "%s%s", info_of(physical)->name, drv.instances ? " MIG 1g.16gb" : "");
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	uint32_t physical;

	TRY(drv_device(dev, &physical));
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(uuid->bytes, info_of(physical)->uuid_bytes, sizeof(uuid->bytes));
	return CUDA_SUCCESS;
}

/* Whether this call knows instances depends on the driver's version. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	TRY(cuDeviceGetUuid_v2(uuid, dev));
	if (drv.instances && !drv.knows_instances)
		memset(uuid->bytes, 0x4d, sizeof(uuid->bytes));
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	uint32_t physical;

	TRY(drv_device(dev, &physical));
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = info_of(physical)->memory_bytes;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
	uint32_t physical;

	TRY(drv_device(dev, &physical));
	if (!pciBusId || len < 13)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(pciBusId, (size_t)len, "%04x:%02x:%02x.0", info_of(physical)->pci_domain,
		info_of(physical)->pci_bus, info_of(physical)->pci_device);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
	unsigned domain = 0, bus, device, function;

	if (!drv.ready)
		return drv_why();
	if (!dev || !pciBusId)
		return CUDA_ERROR_INVALID_VALUE;
	if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4 &&
		sscanf(pciBusId, "%x:%x.%x", &bus, &device, &function) != 3)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < drv.nvisible; i++) {
		if (info_of(drv.visible[i])->pci_bus == bus) {
			*dev = (CUdevice)i;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	uint32_t physical;

	TRY(drv_device(dev, &physical));
	if (!major || !minor)
		return CUDA_ERROR_INVALID_VALUE;
	*major = drv_attribute(physical, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
	*minor = drv_attribute(physical, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	return CUDA_SUCCESS;
}

int drv_attribute(uint32_t physical, CUdevice_attribute a)
{
	const struct sim_device_info *info = info_of(physical);

	switch ((int)a) {
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
		return 1024;
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
		return 64;
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
	case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
		return 2147483647;
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
		return 65535;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
		return 49152;
	case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
	case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
	case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
		return 65536;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
	case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
	case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
		return 32;
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
		return (int)info->clock_mhz * 1000;
	case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
	case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
		return 512;
	case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
	case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
	case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
	case CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS:
	case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
		return 1;
	case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
		return sim_shm.file->set.mode == SIM_SPATIAL;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		return (int)info->multiprocessors;
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH:
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH:
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH:
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH:
		return 131072;
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT:
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT:
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT:
		return 65536;
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH:
		return 2097120;
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH:
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT:
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH:
		return 16384;
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH:
		return 268435456;
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH:
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT:
		return 32768;
	case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS:
		return 2048;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		return (int)info->pci_bus;
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
		return (int)info->pci_device;
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
		return (int)info->pci_domain;
	case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
		return 1512000;
	case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
		return 5120;
	case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
		return 40 << 20;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
		return 2048;
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
		return SIM_ENGINES;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return 8;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
		return 167936;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		return 166912;
	case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
		return 1024;
	case CU_DEVICE_ATTRIBUTE_NUMA_ID:
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		return -1;
	default:
		return 0;
	}
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
	uint32_t physical;

	TRY(drv_device(dev, &physical));
	if (!pi || attrib < 1 || attrib >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*pi = drv_attribute(physical, attrib);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
	uint32_t physical;

	TRY(drv_device(dev, &physical));
	if (!prop)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = (CUdevprop){
		.maxThreadsPerBlock = 1024,
		.maxThreadsDim = {1024, 1024, 64},
		.maxGridSize = {2147483647, 65535, 65535},
		.sharedMemPerBlock = 49152,
		.totalConstantMemory = 65536,
		.SIMDWidth = 32,
		.memPitch = 2147483647,
		.regsPerBlock = 65536,
		.clockRate = drv_attribute(physical, CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
		.textureAlign = 512,
	};
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetLuid(char *luid, unsigned int *deviceNodeMask, CUdevice dev)
{
	(void)luid;
	(void)deviceNodeMask;
	(void)dev;
	return CUDA_ERROR_NOT_SUPPORTED; /* Windows only */
}

CUresult cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev)
{
	uint32_t physical;

	TRY(drv_device(dev, &physical));
	if (!pi || type >= CU_EXEC_AFFINITY_TYPE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*pi = 0;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(
	size_t *maxWidthInElements, CUarray_format format, unsigned numChannels, CUdevice dev)
{
	uint32_t physical;

	(void)format;
	(void)numChannels;
	TRY(drv_device(dev, &physical));
	if (!maxWidthInElements)
		return CUDA_ERROR_INVALID_VALUE;
	*maxWidthInElements = 268435456;
	return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
	uint32_t a, b;

	TRY(drv_device(dev, &a));
	TRY(drv_device(peerDev, &b));
	if (!canAccessPeer)
		return CUDA_ERROR_INVALID_VALUE;
	*canAccessPeer = a != b;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(
	int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice)
{
	uint32_t a, b;

	TRY(drv_device(srcDevice, &a));
	TRY(drv_device(dstDevice, &b));
	if (!value || a == b)
		return CUDA_ERROR_INVALID_VALUE;
	*value = attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
	return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (Flags)
		return CUDA_ERROR_INVALID_VALUE;
	return drv_ctx_valid(peerContext) && peerContext != ctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	return drv_ctx_valid(peerContext) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/*
 * Runtime: how the driver is found, contexts, errors. As in the real runtime, all names but one come from
 * cuGetProcAddress_v2, and the first call that needs a context makes it.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "test/sim/runtime/cudart.h"

struct rt_driver rt_drv;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaError_t load_error;
static __thread cudaError_t last_error;
static __thread int current_device;

static void *find(const char *name, int version, int flags)
{
	void *p = NULL;

	if (rt_drv.get(name, &p, version, flags, NULL) || !p)
		load_error = cudaErrorInsufficientDriver;
	return p;
}

static void load(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (lib)
		rt_drv.get = (__typeof__(rt_drv.get))dlsym(lib, "cuGetProcAddress_v2");
	if (!rt_drv.get) {
		load_error = cudaErrorInsufficientDriver;
		return;
	}
#define DRV(name, function, version) rt_drv.name = (__typeof__(rt_drv.name))find(#name, version, 0);
#define DRV_STREAM(name, function, version, pt_version)                                                      \
	rt_drv.name[0] = (__typeof__(rt_drv.name[0]))find(#name, version, 0);                                \
	rt_drv.name[1] = (__typeof__(rt_drv.name[0]))find(                                                   \
		#name, pt_version, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
#include "test/sim/runtime/cudart_driver.def"
#undef DRV
#undef DRV_STREAM
	if (!load_error)
		load_error = (cudaError_t)rt_drv.cuInit(0);
}

cudaError_t rt_result(int error)
{
	if (error)
		last_error = (cudaError_t)error;
	return (cudaError_t)error;
}

cudaError_t rt_load(void)
{
	pthread_once(&once, load);
	return rt_result(load_error);
}

static CUresult use_primary(int device)
{
	CUcontext ctx;
	CUresult r = rt_drv.cuDevicePrimaryCtxRetain(&ctx, device);

	if (!r)
		r = rt_drv.cuCtxSetCurrent(ctx);
	return r;
}

cudaError_t rt_enter(void)
{
	CUcontext ctx = NULL;
	CUresult r;

	if (rt_load())
		return load_error;
	r = rt_drv.cuCtxGetCurrent(&ctx);
	if (!r && !ctx)
		r = use_primary(current_device);
	return rt_result(r);
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t e = last_error;

	last_error = cudaSuccess;
	return e;
}

cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}

const char *cudaGetErrorName(cudaError_t error)
{
	switch ((int)error) {
#define CUDART_ERROR(name, value)                                                                            \
	case value:                                                                                          \
		return #name;
#include "test/sim/runtime/cudart_errors.def"
#undef CUDART_ERROR
	}
	return "unrecognized error code";
}

/* Returns the driver's text; without a driver, the error's name. */
const char *cudaGetErrorString(cudaError_t error)
{
	const char *text = NULL;

	pthread_once(&once, load);
	if (rt_drv.cuGetErrorString && !rt_drv.cuGetErrorString((CUresult)error, &text) && text)
		return text;
	return cudaGetErrorName(error);
}

cudaError_t cudaGetDeviceCount(int *count)
{
	if (!count)
		return rt_result(cudaErrorInvalidValue);
	*count = 0;
	if (rt_load())
		return load_error;
	rt_drv.cuDeviceGetCount(count);
	return rt_result(*count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device)
{
	CUcontext ctx = NULL;
	CUdevice dev;

	if (!device)
		return rt_result(cudaErrorInvalidValue);
	if (rt_load())
		return load_error;
	*device = current_device;
	if (!rt_drv.cuCtxGetCurrent(&ctx) && ctx && !rt_drv.cuCtxGetDevice(&dev))
		*device = dev;
	return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags)
{
	int count;
	CUcontext ctx;

	if (rt_load())
		return load_error;
	if (rt_drv.cuDeviceGetCount(&count) || device < 0 || device >= count)
		return rt_result(cudaErrorInvalidDevice);
	if (flags)
		rt_drv.cuDevicePrimaryCtxSetFlags(device, deviceFlags);
	return rt_result(rt_drv.cuDevicePrimaryCtxRetain(&ctx, device));
}

cudaError_t cudaSetDevice(int device)
{
	int count;

	if (rt_load())
		return load_error;
	if (rt_drv.cuDeviceGetCount(&count) || device < 0 || device >= count)
		return rt_result(cudaErrorInvalidDevice);
	current_device = device;
	return rt_result(use_primary(device));
}

cudaError_t cudaDeviceSynchronize(void)
{
	RT_CALL(rt_drv.cuCtxSynchronize());
}

cudaError_t cudaDeviceReset(void)
{
	CUcontext ctx = NULL;
	int device;

	if (cudaGetDevice(&device))
		return load_error;
	if (!rt_drv.cuDevicePrimaryCtxRetain(&ctx, device))
		rt_forget_context(ctx);
	rt_drv.cuCtxSetCurrent(NULL);
	last_error = cudaSuccess;
	return rt_result(rt_drv.cuDevicePrimaryCtxReset(device));
}

cudaError_t cudaDriverGetVersion(int *driverVersion)
{
	if (!driverVersion)
		return rt_result(cudaErrorInvalidValue);
	*driverVersion = 0;
	if (!rt_load())
		rt_drv.cuDriverGetVersion(driverVersion);
	return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *runtimeVersion)
{
	if (!runtimeVersion)
		return rt_result(cudaErrorInvalidValue);
	*runtimeVersion = CUDART_VERSION;
	return cudaSuccess;
}

static cudaError_t entry_point(int pt, const char *symbol, void **funcPtr, unsigned int version,
	unsigned long long flags, enum cudaDriverEntryPointQueryResult *status)
{
	CUdriverProcAddressQueryResult s = CU_GET_PROC_ADDRESS_SUCCESS;
	CUresult r;

	if (rt_load())
		return load_error;
	if (!flags && pt)
		flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	r = rt_drv.get(symbol, funcPtr, version, flags, &s);
	if (!r && status)
		*status = (enum cudaDriverEntryPointQueryResult)s;
	return rt_result(r);
}

RT_BOTH(cudaGetDriverEntryPointByVersion, _ptsz, entry_point,
	(const char *symbol, void **funcPtr, unsigned int cudaVersion, unsigned long long flags,
		enum cudaDriverEntryPointQueryResult *driverStatus),
	symbol, funcPtr, cudaVersion, flags, driverStatus)

RT_BOTH(cudaGetDriverEntryPoint, _ptsz, entry_point,
	(const char *symbol, void **funcPtr, unsigned long long flags,
		enum cudaDriverEntryPointQueryResult *driverStatus),
	symbol, funcPtr, CUDART_VERSION, flags, driverStatus)

/* Succeeds, although no profiler is attached. */
cudaError_t cudaProfilerStart(void)
{
	return rt_enter();
}

cudaError_t cudaProfilerStop(void)
{
	return rt_enter();
}

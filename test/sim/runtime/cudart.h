/*
 * What the files of the small runtime library share. It uses the driver through libcuda.so.1, like any program.
 */
#ifndef SIM_CUDART_H
#define SIM_CUDART_H

#include "test/sim/runtime/cudart_abi.h"

/* The driver's functions. With index 0 stream 0 means the legacy default stream, with index 1 the thread's own. */
struct rt_driver {
#define DRV(name, function, version)                    __typeof__(&function) name;
#define DRV_STREAM(name, function, version, pt_version) __typeof__(&function) name[2];
#include "test/sim/runtime/cudart_driver.def"
#undef DRV
#undef DRV_STREAM
	__typeof__(&cuGetProcAddress_v2) get;
};
extern struct rt_driver rt_drv;

/* Loads and initialises the driver once; later calls return the same error. */
cudaError_t rt_load(void);

/* Loads the driver, and gives the calling thread a context: its own choice, or the primary context of its device. */
cudaError_t rt_enter(void);

/* Keeps the error for cudaGetLastError. The driver's numbers have the same meaning in the runtime. */
cudaError_t rt_result(int error);

/* Finds the driver's function for a kernel of the program, in the current context. */
cudaError_t rt_function(const void *host, CUfunction *fn);
cudaError_t rt_kernel_function(cudaKernel_t kernel, CUfunction *fn);

/* Forgets what was loaded into a context, which is gone. */
void rt_forget_context(CUcontext ctx);

#define RT_ENTER()                                                                                           \
	do {                                                                                                 \
		cudaError_t entered = rt_enter();                                                            \
		if (entered)                                                                                 \
			return entered;                                                                      \
	} while (0)

/* Gets a context, calls the driver and keeps the result. */
#define RT_CALL(expression)                                                                                  \
	do {                                                                                                 \
		RT_ENTER();                                                                                  \
		return rt_result(expression);                                                                \
	} while (0)

/* Defines a call and its per-thread variant from one body that takes pt as its first argument. */
#define RT_BOTH(name, suffix, body, params, ...)                                                             \
	cudaError_t name params                                                                              \
	{                                                                                                    \
		return body(0, __VA_ARGS__);                                                                 \
	}                                                                                                    \
	cudaError_t name##suffix params                                                                      \
	{                                                                                                    \
		return body(1, __VA_ARGS__);                                                                 \
	}

#endif

/*
 * Inside the small runtime library. It knows the driver only through libcuda.so.1, like any program.
 */
#ifndef SIM_CUDART_H
#define SIM_CUDART_H

#include "test/sim/runtime/cudart_abi.h"

/* Index 0 takes the legacy default stream for stream 0, index 1 the calling thread's own. */
struct rt_driver {
#define DRV(name, function, version)                    __typeof__(&function) name;
#define DRV_STREAM(name, function, version, pt_version) __typeof__(&function) name[2];
#include "test/sim/runtime/cudart_driver.def"
#undef DRV
#undef DRV_STREAM
	__typeof__(&cuGetProcAddress_v2) get;
};
extern struct rt_driver rt_drv;

/* Loads and initialises the driver once; the error is remembered. */
cudaError_t rt_load(void);

/* Loads the driver, and gives the calling thread a context: the one that it chose, or its device's primary one. */
cudaError_t rt_enter(void);

/* Keeps the error for cudaGetLastError. Numbers of the driver mean the same here. */
cudaError_t rt_result(int error);

/* The driver's function of a kernel of the program in the current context. */
cudaError_t rt_function(const void *host, CUfunction *fn);
cudaError_t rt_kernel_function(cudaKernel_t kernel, CUfunction *fn);

/* Everything that was loaded into the context is gone. */
void rt_forget_context(CUcontext ctx);

#define RT_ENTER()                                                                                           \
	do {                                                                                                 \
		cudaError_t entered = rt_enter();                                                            \
		if (entered)                                                                                 \
			return entered;                                                                      \
	} while (0)

/* Enters, calls the driver, keeps the result. */
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

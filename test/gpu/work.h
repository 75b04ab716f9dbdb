/* What the parts of gpu_work share: functions of the driver, found by name; fixed work; JSON on standard output. */
#ifndef TEST_GPU_WORK_H
#define TEST_GPU_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"

/* Returns a function of the driver; ends the program if it is missing. */
void *work_symbol(const char *name);
#define CU(name)                                                                                             \
	({                                                                                                   \
		static __typeof__(name) *fn_;                                                                \
                                                                                                             \
		if (!fn_)                                                                                    \
			fn_ = (__typeof__(fn_))work_symbol(#name);                                           \
		fn_;                                                                                         \
	})

/* Ends the program with a sentence unless the call succeeds. */
#define OK(call) work_ok((call), #call)
void work_ok(CUresult result, const char *what);
__attribute__((noreturn, format(printf, 1, 2))) void work_fail(const char *format, ...);

uint64_t work_now_ns(void);

/* Returns the number of name=value on the command line, or `other` if it is not there. */
double work_option(const char *name, double other);
const char *work_text(const char *name, const char *other);

/* The device, its primary context made current, and the module. */
extern CUdevice work_device;
extern CUcontext work_context;
extern CUmodule work_module;
void work_begin(void);

/* Launches one unit of work: a kernel that fills the GPU and does a number of operations that depends on `count`
 * alone. `calibrate` finds how long that takes by the machine's clock; no clock of the GPU is asked. */
void work_launch(CUstream stream, uint64_t count);
/* Returns a kernel's function, and how many blocks fill the GPU. */
CUfunction work_function(const char *name);
unsigned work_blocks(void);

/* The modes. */
void work_calibrate(void);
void work_run(void);
void work_rate(void);
void work_facts(void);
void work_memory(void);
void work_safety(void);
void work_switches(void);

#endif

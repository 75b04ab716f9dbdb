/* What the tests of the preload as a guest share: a GPU, a segment, a little work. */
#ifndef TEST_PRELOAD_HOST_H
#define TEST_PRELOAD_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "gpuarb/control.h"
#include "test/harness.h"

#define HOST_ACCOUNT "guest"
#define OK(call)     GIVES(call, CUDA_SUCCESS)
#define GIVES(call, code)                                                                                    \
	do {                                                                                                 \
		CUresult got_ = (call);                                                                      \
		T_CHECK(got_ == (CUresult)(code), "gives %d", (int)got_);                                    \
	} while (0)

/* Calls cuInit and makes a context on that device. */
CUcontext host_context(int device);
/* Launches kernels of `us` microseconds into a stream of the current context. */
void host_launch(CUstream stream, unsigned count, unsigned us);
/* Launches a few kernels and waits for them. */
void host_work(void);
/* Launches kernels that run for longer than any test. */
void host_flood(CUstream stream);

/* Returns how many clients with a living owner that GPU's segment has; 0 also if there is no segment. */
unsigned host_clients(int device);
/* Returns the picture of that GPU's segment; fails if there is none. */
const struct gpuarb_picture *host_picture(int device);
const char *host_uuid(int device);
/* Waits for a short time until no client is in that GPU's running set, and fails otherwise. */
void host_must_leave(int device);
/* Returns how many lines with these words the preload has written to standard error since the case began. */
unsigned host_lines(const char *with);

/* A case: its name, what is done, what it is given. */
struct host_case {
	const char *name;
	void (*run)(void);
	const char *limit; /* GPUARB_CORE_LIMIT; NULL: none */
	int status;        /* the exit status that the process must have */
};
extern const struct host_case host_process_cases[], host_driver_cases[], host_sandbox_cases[],
	host_gate_cases[], host_callback_cases[], host_queue_cases[], host_newer_cases[], host_peers_cases[],
	host_slow_cases[];

#endif

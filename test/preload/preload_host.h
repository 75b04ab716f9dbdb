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

/* cuInit and a context on that device. */
CUcontext host_context(int device);
/* Kernels of so many microseconds into a stream of the current context. */
void host_launch(CUstream stream, unsigned count, unsigned us);
/* A few of them, waited for. */
void host_work(void);
/* Kernels that run for longer than any test. */
void host_flood(CUstream stream);

/* Clients in that GPU's segment whose owner lives; 0 also if there is no segment. */
unsigned host_clients(int device);
/* The picture of it; fails if there is no segment. */
const struct gpuarb_picture *host_picture(int device);
const char *host_uuid(int device);
/* Nobody is in that GPU's running set, at the latest soon. */
void host_must_leave(int device);
/* How many lines of ours were written to standard error since the case began. */
unsigned host_lines(const char *with);

/* Every entry: a name, what is done, what it is given. */
struct host_case {
	const char *name;
	void (*run)(void);
	const char *limit; /* GPUARB_CORE_LIMIT; NULL: none */
	int status;        /* how the process is to end */
};
extern const struct host_case host_process_cases[], host_driver_cases[], host_sandbox_cases[],
	host_gate_cases[], host_callback_cases[], host_queue_cases[], host_newer_cases[], host_peers_cases[],
	host_slow_cases[];

#endif

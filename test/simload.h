/* simload: one load generator for everything that is measured on the simulated GPU. */
#ifndef SIMLOAD_H
#define SIMLOAD_H

#include "cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

enum pattern { PATTERN_BACK, PATTERN_SYNC, PATTERN_BURST, PATTERN_RANDOM };
enum variant { CALL_PLAIN, CALL_EX, CALL_COOP, CALL_PTSZ };
enum wait { WAIT_SYNC, WAIT_EVENT, WAIT_POLL, WAIT_CALLBACK, WAIT_NONE };

struct load {
	double kernel_us;
	const char *kernel;
	enum pattern pattern;
	enum variant variant;
	enum wait wait;
	unsigned every;           /* launches between two waits */
	double work_ms, pause_ms; /* burst */
	double max_pause_us;      /* random */
	unsigned streams, threads, processes;
	unsigned graph;     /* kernels per graph, 0 for plain launches */
	unsigned functions; /* that are launched in turn, 0 for one */
	double host_us;     /* CPU time of the program before each launch */
	uint64_t copy_bytes;
	unsigned copy_every;
	uint64_t memory_bytes;
	bool managed, default_stream;
	double seconds;
	uint64_t launches; /* stop after so many per thread, 0 for no limit */
	int device;
	const char *library;
	uint64_t seed;
};

/* What one process did. Lives in memory shared with the parent. */
struct result {
	int pid;
	int error; /* a CUresult */
	char where[48];
	uint64_t launched, completed, waits, copies, copied_bytes;
	double start_s, end_s; /* CLOCK_MONOTONIC; the end is after the last wait */
	double launch_s;       /* spent in launch calls, over all threads */
};

/* The driver's calls that are used, looked up by dlsym. */
#define SIMLOAD_CALLS(X)                                                                                     \
	X(cuInit)                                                                                            \
	X(cuDeviceGet)                                                                                       \
	X(cuCtxCreate_v2) X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuModuleLoadData) X(cuModuleGetFunction)  \
		X(cuStreamCreate) X(cuStreamSynchronize) X(cuStreamQuery) X(cuEventCreate) X(cuEventRecord)  \
			X(cuEventQuery) X(cuEventSynchronize) X(cuLaunchKernel) X(cuLaunchKernel_ptsz)       \
				X(cuLaunchKernelEx) X(cuLaunchCooperativeKernel) X(cuLaunchHostFunc)         \
					X(cuMemAlloc_v2) X(cuMemAllocManaged) X(cuMemHostAlloc)              \
						X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2)              \
							X(cuStreamBeginCapture_v2) X(cuStreamEndCapture)     \
								X(cuGraphInstantiateWithFlags)               \
									X(cuGraphLaunch)

struct api {
#define X(name) __typeof__(&name) name;
	SIMLOAD_CALLS(X)
#undef X
};

/* Defaults, then what the options say; ends the program if they make no sense. */
void simload_parse(struct load *load, int argc, char **argv);
/* Runs the load in this process. */
void simload_run(const struct load *load, unsigned index, struct result *result);

double simload_now(void);

#endif

/* simload: the load generator for all that is measured on the simulated GPU. */
#ifndef SIMLOAD_H
#define SIMLOAD_H

#include "cuda_abi.h"
#include "gpuarb.h"

#include <stdbool.h>
#include <stdint.h>

enum pattern {
	PATTERN_BACK,
	PATTERN_SYNC,
	PATTERN_BURST,
	PATTERN_RANDOM,
	PATTERN_OPEN,
	PATTERN_TIMED,
	PATTERN_REQUEST
};
enum variant { CALL_PLAIN, CALL_EX, CALL_COOP, CALL_PTSZ, CALL_DEPENDENT };
enum held { HELD_NOT, HELD_HOST, HELD_VALUE };
enum wait { WAIT_SYNC, WAIT_EVENT, WAIT_POLL, WAIT_CALLBACK, WAIT_NONE };

#define SIMLOAD_LAST (1ull << 63)

struct load {
	double kernel_us;
	const char *kernel;
	enum pattern pattern;
	enum variant variant;
	enum wait wait;
	unsigned every;           /* launches between two waits */
	double work_ms, pause_ms; /* burst */
	double max_pause_us;      /* random; of requests, the mean time from one to the next */
	double rate;              /* open: launches a second */
	bool closed; /* the time to the next request counts from the answer to the last, not from its arrival */
	unsigned streams, threads, processes;
	unsigned graph;     /* kernels per graph, 0 for plain launches */
	unsigned functions; /* functions that are launched in turn, 0 for one */
	double host_us;     /* CPU time of the program before each launch */
	bool priorities;    /* every other stream has a higher priority */
	unsigned width;     /* of each kernel, in 1/1000 of the device; 0: it does not say */
	unsigned ranks; /* processes whose kernels wait for each other, one on each device in turn; 0: none */
	uint64_t group; /* the number that these ranks share, and no others */
	uint64_t
		*pace; /* shared by them: how many launches each makes, and SIMLOAD_LAST once that is fixed */
	enum held held; /* what each kernel waits for, once it has the device */
	double held_us; /* how long after the launch that value comes */
	uint64_t copy_bytes;
	unsigned copy_every;
	uint64_t memory_bytes;
	bool managed, default_stream;
	bool abandon; /* ends by destroying its context with its work in it */
	double seconds;
	uint64_t launches; /* stop after so many per thread, 0 for no limit */
	int device;
	const char *library;
	const char *lease;         /* class of the lease that each request takes first; NULL: none */
	const char *lease_library; /* the library with the functions for leases */
	uint64_t seed;
};

/* A request: when it arrived and how long it took. */
struct simload_sample {
	double came_s, took_s;
};

/* The result of one process, in memory shared with the parent. */
struct result {
	int pid;
	int error; /* a CUresult */
	char where[48];
	uint64_t launched, completed, waits, copies, copied_bytes;
	double start_s, end_s; /* CLOCK_MONOTONIC; the end is after the last wait */
	double launch_s;       /* spent in launch calls, over all threads */
	double starved_s; /* time that all its threads, also the preload's and the driver's, waited for a CPU */
	/* A histogram of how long requests took, by simload_bucket(), of a load in this process. NULL: no requests.
	 */
	uint32_t *latency;
	/* Each request, as far as there is room. NULL: they are only counted. */
	struct simload_sample *samples;
	uint32_t nsamples, room;
};

/* Each bucket is a quarter of a percent wider than the one before, from 10 us on. */
#define SIMLOAD_BUCKETS 6144
unsigned simload_bucket(double seconds);
/* Returns the time in microseconds that the given part (0.99) of all requests did not exceed; 0 if there were none.
 */
double simload_latency_us(const uint32_t *latency, double part);
uint64_t simload_requests(const uint32_t *latency);

/* Leases of requests (--lease). */
bool simload_lease_open(const char *library);
bool simload_lease_take(const struct load *load, struct gpuarb_lease *lease);
void simload_lease_give(struct gpuarb_lease *lease);

/* The driver's functions that each load uses, looked up by dlsym. */
/* clang-format off */
#define SIMLOAD_CALLS(X)                                                                                     \
	X(cuInit)                                                                                            \
	X(cuDeviceGet)                                                                                       \
	X(cuCtxCreate_v2) X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuCtxDestroy_v2) X(cuModuleLoadData) X(cuModuleGetFunction)  \
		X(cuStreamCreate) X(cuStreamSynchronize) X(cuStreamQuery) X(cuEventCreate) X(cuEventRecord)  \
			X(cuEventQuery) X(cuEventSynchronize) X(cuLaunchKernel) X(cuLaunchKernel_ptsz)       \
				X(cuLaunchKernelEx) X(cuLaunchCooperativeKernel) X(cuLaunchHostFunc)         \
					X(cuMemAlloc_v2) X(cuMemAllocManaged) X(cuMemHostAlloc)              \
						X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2)              \
							X(cuStreamBeginCapture_v2) X(cuStreamEndCapture)     \
								X(cuGraphInstantiateWithFlags)               \
									X(cuGraphLaunch)
/* clang-format on */

/* Functions that only some loads use. */
#define SIMLOAD_MORE(X) X(cuStreamCreateWithPriority) X(cuDeviceGetCount) X(cuStreamWriteValue32_v2)

struct api {
#define X(name) __typeof__(&name) name;
	SIMLOAD_CALLS(X)
	SIMLOAD_MORE(X)
#undef X
};

/* Sets the defaults, then what the options say; ends the program if they contradict each other. */
void simload_parse(struct load *load, int argc, char **argv);
/* Runs the load in this process. */
void simload_run(const struct load *load, unsigned index, struct result *result);

double simload_now(void);

#endif

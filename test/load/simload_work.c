/* The load of one process. */
#include "test/load/simload.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct api cu;

struct worker {
	const struct load *load;
	struct result *result;
	CUcontext ctx;
	CUfunction fn;   /* the function of the next launch */
	CUfunction *all; /* with --functions: all from which fn is taken */
	CUstream stream[64];
	CUgraphExec graph[64];
	CUevent event;
	sem_t called;
	CUstream writer;         /* --held=value: the stream that writes it */
	CUdeviceptr held_at;     /* --held: the address that a kernel reads */
	volatile uint32_t *flag; /* --held=host: this address as the host sees it */
	uint32_t held_value, rank;
	CUdeviceptr device_buffer;
	void *host_buffer;
	uint64_t random;
	double until_s;
	double arrived_s; /* when the current request arrived */
	struct gpuarb_lease lease;
	uint64_t kernel_ns;
	uint64_t launched, waits, copies;
	double launch_s;
	CUresult error;
	const char *where;
};

double simload_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static bool ok(struct worker *w, CUresult rc, const char *where)
{
	if (rc == CUDA_SUCCESS)
		return true;
	if (w->error == CUDA_SUCCESS) {
		w->error = rc;
		w->where = where;
	}
	return false;
}
#define OK(call, ...) ok(w, cu.call(__VA_ARGS__), #call)

static bool load_api(const struct load *l, struct result *r)
{
	const char *library = l->library;
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);

	if (l->lease && !simload_lease_open(l->lease_library ? l->lease_library : "libgpuarb.so.1")) {
		snprintf(r->where, sizeof(r->where), "gpuarb_acquire");
		return false;
	}

	if (!lib) {
		fprintf(stderr, "simload: %s\n", dlerror());
		snprintf(r->where, sizeof(r->where), "dlopen");
		return false;
	}
#define X(name)                                                                                              \
	*(void **)&cu.name = dlsym(lib, #name);                                                              \
	if (!cu.name) {                                                                                      \
		fprintf(stderr, "simload: %s has no " #name "\n", library);                                  \
		snprintf(r->where, sizeof(r->where), #name);                                                 \
		return false;                                                                                \
	}
	SIMLOAD_CALLS(X)
#undef X
#define X(name) *(void **)&cu.name = dlsym(lib, #name);
	SIMLOAD_MORE(X)
#undef X
	return true;
}

static CUresult launch_ex(struct worker *w, CUstream s, void **params)
{
	CUlaunchAttribute dependent = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		.value = {.programmaticStreamSerializationAllowed = 1}};
	CUlaunchConfig config = {.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 32,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = s};

	if (w->load->variant == CALL_DEPENDENT) {
		config.attrs = &dependent;
		config.numAttrs = 1;
	}
	return cu.cuLaunchKernelEx(&config, w->fn, params, NULL);
}

static CUresult launch_one(struct worker *w, CUstream s)
{
	uint64_t group = w->load->group;
	uint32_t ranks = w->load->ranks;
	uint32_t width = w->load->width;
	void *timed[] = {&w->kernel_ns, &width};
	void *collective[] = {&w->kernel_ns, &group, &w->rank, &ranks};
	void *held[] = {&w->kernel_ns, &w->held_at, &w->held_value};
	void **params = ranks ? collective : w->load->held ? held : timed;

	switch (w->load->variant) {
	case CALL_DEPENDENT:
	case CALL_EX:
		return launch_ex(w, s, params);
	case CALL_COOP:
		return cu.cuLaunchCooperativeKernel(w->fn, 1, 1, 1, 32, 1, 1, 0, s, params);
	case CALL_PTSZ:
		return cu.cuLaunchKernel_ptsz(w->fn, 1, 1, 1, 32, 1, 1, 0, s, params, NULL);
	default:
		return cu.cuLaunchKernel(w->fn, 1, 1, 1, 32, 1, 1, 0, s, params, NULL);
	}
}

static bool make_graph(struct worker *w, unsigned i)
{
	CUstream s;
	CUgraph g;

	/* The default stream cannot be captured, so the graph is captured in another stream. */
	if (!OK(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING) ||
		!OK(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
		return false;
	for (unsigned k = 0; k < w->load->graph; k++)
		if (!ok(w, launch_one(w, s), "launch in capture"))
			return false;
	return OK(cuStreamEndCapture, s, &g) && OK(cuGraphInstantiateWithFlags, &w->graph[i], g, 0);
}

/* Makes the word that kernels wait for: in the host's memory, or in the device's, where another stream writes it. */
static bool prepare_held(struct worker *w)
{
	if (w->load->held == HELD_HOST) {
		void *p;

		if (!OK(cuMemHostAlloc, &p, 4096, 0))
			return false;
		w->flag = p;
		*w->flag = 0;
		w->held_at = (CUdeviceptr)(uintptr_t)p;
		return true;
	}
	return OK(cuMemAlloc_v2, &w->held_at, 4096) &&
	       OK(cuStreamCreate, &w->writer, CU_STREAM_NON_BLOCKING) &&
	       OK(cuStreamWriteValue32_v2, w->writer, w->held_at, 0, 0) && OK(cuStreamSynchronize, w->writer);
}

static bool release(struct worker *w)
{
	double until = simload_now() + w->load->held_us * 1e-6;

	while (simload_now() < until)
		;
	if (w->load->held == HELD_VALUE)
		return OK(cuStreamWriteValue32_v2, w->writer, w->held_at, w->held_value, 0);
	__atomic_store_n(w->flag, w->held_value, __ATOMIC_RELEASE);
	return true;
}

static bool make_stream(struct worker *w, unsigned i)
{
	if (!w->load->priorities)
		return OK(cuStreamCreate, &w->stream[i], CU_STREAM_NON_BLOCKING);
	if (!cu.cuStreamCreateWithPriority)
		return ok(w, CUDA_ERROR_NOT_SUPPORTED, "look-up");
	return OK(cuStreamCreateWithPriority, &w->stream[i], CU_STREAM_NON_BLOCKING, i % 2 ? -1 : 0);
}

static bool prepare(struct worker *w)
{
	const struct load *l = w->load;

	if (!OK(cuCtxSetCurrent, w->ctx) || !OK(cuEventCreate, &w->event, CU_EVENT_DISABLE_TIMING))
		return false;
	for (unsigned i = 0; i < l->streams; i++) {
		if (!l->default_stream && !make_stream(w, i))
			return false;
		if (l->graph && !make_graph(w, i))
			return false;
	}
	if (l->copy_bytes && (!OK(cuMemAlloc_v2, &w->device_buffer, l->copy_bytes) ||
				     !OK(cuMemHostAlloc, &w->host_buffer, l->copy_bytes, 0)))
		return false;
	sem_init(&w->called, 0, 0);
	return !l->held || prepare_held(w);
}

static void on_call(void *arg)
{
	sem_post(arg);
}

static bool wait_for(struct worker *w, CUstream s)
{
	CUresult rc;

	w->waits++;
	switch (w->load->wait) {
	case WAIT_SYNC:
		return OK(cuStreamSynchronize, s);
	case WAIT_EVENT:
		return OK(cuEventRecord, w->event, s) && OK(cuEventSynchronize, w->event);
	case WAIT_POLL:
		if (!OK(cuEventRecord, w->event, s))
			return false;
		while ((rc = cu.cuEventQuery(w->event)) == CUDA_ERROR_NOT_READY)
			;
		return ok(w, rc, "cuEventQuery");
	case WAIT_CALLBACK:
		if (!OK(cuLaunchHostFunc, s, on_call, &w->called))
			return false;
		while (sem_wait(&w->called))
			;
		return true;
	default:
		return true;
	}
}

static void pause_s(double s)
{
	struct timespec ts = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};

	if (s > 0)
		nanosleep(&ts, NULL);
}

static double uniform(struct worker *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return (double)(w->random >> 11) / 9007199254740992.0;
}

static bool begin_request(struct worker *w)
{
	if (!w->load->lease || simload_lease_take(w->load, &w->lease))
		return true;
	return ok(w, CUDA_ERROR_NOT_PERMITTED, "gpuarb_acquire");
}

static bool step(struct worker *w, uint64_t n)
{
	const struct load *l = w->load;
	unsigned i = (unsigned)(n % l->streams);
	CUstream s = w->stream[i];
	double t = simload_now(), begin = t + l->host_us * 1e-6;
	bool fine;

	while (t < begin)
		t = simload_now();
	if (w->all)
		w->fn = w->all[n % l->functions];
	w->held_value = (uint32_t)n + 1;
	fine = l->graph ? OK(cuGraphLaunch, w->graph[i], s) : ok(w, launch_one(w, s), "launch");

	w->launch_s += simload_now() - t;
	if (!fine)
		return false;
	w->launched += l->graph ? l->graph : 1;
	if (l->held && !release(w))
		return false;
	if (l->copy_bytes && (n + 1) % l->copy_every == 0) {
		if (!OK(cuMemcpyHtoDAsync_v2, w->device_buffer, w->host_buffer, l->copy_bytes, s) ||
			!OK(cuMemcpyDtoHAsync_v2, w->host_buffer, w->device_buffer, l->copy_bytes, s))
			return false;
		w->copies += 2;
	}
	if (l->pattern == PATTERN_BACK || l->pattern == PATTERN_BURST || l->pattern == PATTERN_OPEN)
		return true;
	/* The other patterns wait after every K launches. */
	if ((n + 1) % l->every == 0 && !wait_for(w, s))
		return false;
	if (l->pattern == PATTERN_RANDOM)
		pause_s(uniform(w) * l->max_pause_us * 1e-6);
	return true;
}

/*
 * Ranks wait for each other's kernels, so all must make the same number of launches. The first rank whose time is
 * over fixes this number at the most launches that any of them has begun. Returns false when this rank has made them
 * all.
 */
static bool in_pace(const struct load *l, uint64_t n, bool over)
{
	uint64_t pace = __atomic_load_n(l->pace, __ATOMIC_SEQ_CST), next;

	do {
		if (pace & SIMLOAD_LAST)
			return n < (pace & ~SIMLOAD_LAST);
		next = over ? pace | SIMLOAD_LAST : n + 1 > pace ? n + 1 : pace;
	} while (!__atomic_compare_exchange_n(
		l->pace, &pace, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	return n < (next & ~SIMLOAD_LAST);
}

/* Pauses by the clock, so that the demand does not depend on how long waking up takes. A phase that is late by more
 * than `slack_s` begins anew. */
static double pause_until(double *phase, double slack_s)
{
	double now;

	pause_s(*phase - simload_now());
	now = simload_now();
	if (*phase < now - slack_s)
		*phase = now;
	return now;
}

/* Gives when the next request arrives: its time does not depend on how long this request took. */
static double request_done(struct worker *w, double now)
{
	uint32_t *latency = w->result->latency;

	if (latency && w->arrived_s)
		__atomic_add_fetch(&latency[simload_bucket(now - w->arrived_s)], 1, __ATOMIC_RELAXED);
	if (w->result->nsamples < w->result->room && w->arrived_s)
		w->result->samples[w->result->nsamples++] =
			(struct simload_sample){w->arrived_s, now - w->arrived_s};
	if (w->load->lease)
		simload_lease_give(&w->lease);
	if (!w->arrived_s || w->load->closed)
		w->arrived_s = now;
	/* Uniform from zero to twice the mean. */
	w->arrived_s += uniform(w) * 2 * w->load->max_pause_us * 1e-6;
	if (w->arrived_s > now)
		pause_s(w->arrived_s - now);
	return simload_now();
}

static void *work(void *arg)
{
	struct worker *w = arg;
	const struct load *l = w->load;
	double now = simload_now(), phase = now, burst = 0;

	OK(cuCtxSetCurrent, w->ctx);
	for (uint64_t n = 0;; n++) {
		bool over = (l->launches && w->launched >= l->launches) || now >= w->until_s;

		if ((l->ranks ? !in_pace(l, n, over) : over))
			break;
		if (l->pattern == PATTERN_REQUEST && n % l->every == 0 && !begin_request(w))
			break;
		if (!step(w, n))
			break;
		now = simload_now();
		if (l->pattern == PATTERN_REQUEST && (n + 1) % l->every == 0)
			now = request_done(w, now);
		/* The phase lasts for this time, whatever was done in it. */
		if (l->pattern == PATTERN_TIMED && now >= phase + l->work_ms * 1e-3) {
			phase += (l->work_ms + l->pause_ms) * 1e-3;
			pause_s(phase - now);
			phase = now = simload_now();
		}
		if (l->pattern == PATTERN_BURST && ++burst >= l->work_ms * 1e3 / l->kernel_us) {
			burst = 0;
			for (unsigned i = 0; i < l->streams && l->wait != WAIT_NONE; i++)
				OK(cuStreamSynchronize, w->stream[i]);
			phase += (l->work_ms + l->pause_ms) * 1e-3;
			now = pause_until(&phase, (l->work_ms + l->pause_ms) * 1e-3);
		} else if (l->pattern == PATTERN_OPEN) {
			/* A launch that comes late does not delay later ones, except that at most one second is made
			 * up for. */
			phase -= log(1 - uniform(w)) / l->rate;
			now = pause_until(&phase, 1);
		}
	}
	for (unsigned i = 0; i < l->streams && !l->abandon; i++)
		OK(cuStreamSynchronize, w->stream[i]);
	return NULL;
}

/* A kernel for a real GPU that does what the simulated GPU does by its name: it reads the clock until its time is
 * over. */
static const char spin_ptx[] = ".version 6.0\n"
			       ".target sm_50\n"
			       ".address_size 64\n"
			       ".visible .entry spin_ns(.param .u64 ns)\n"
			       "{\n"
			       "	.reg .pred %again;\n"
			       "	.reg .b64 %ns, %begin, %now, %gone;\n"
			       "	ld.param.u64 %ns, [ns];\n"
			       "	mov.u64 %begin, %globaltimer;\n"
			       "look:\n"
			       "	mov.u64 %now, %globaltimer;\n"
			       "	sub.u64 %gone, %now, %begin;\n"
			       "	setp.lt.u64 %again, %gone, %ns;\n"
			       "	@%again bra look;\n"
			       "	ret;\n"
			       "}\n";

/* Each function has its own module, so that the driver takes them for different functions, also on a real GPU. */
static bool load_functions(struct worker *w)
{
	const struct load *l = w->load;

	w->all = calloc(l->functions, sizeof(CUfunction));
	if (!w->all)
		return ok(w, CUDA_ERROR_OUT_OF_MEMORY, "calloc");
	for (unsigned i = 0; i < l->functions; i++) {
		CUmodule module;

		if (!OK(cuModuleLoadData, &module, l->kernel ? "simload" : spin_ptx) ||
			!OK(cuModuleGetFunction, &w->all[i], module, l->kernel ? l->kernel : "spin_ns"))
			return false;
	}
	return true;
}

/* Only the simulated GPU has the kernels that wait, and any other kernel that is named. */
static const char *kernel_name(const struct load *l)
{
	return l->ranks ? "collective_ns" : l->held ? "spin_until_ns" : l->width ? "spin_part_ns" : l->kernel;
}

static bool open_device(struct worker *w, unsigned index)
{
	const struct load *l = w->load;
	const char *name = kernel_name(l);
	CUdeviceptr memory;
	CUmodule module;
	CUdevice dev;
	int number = l->device, count;

	if (!OK(cuInit, 0))
		return false;
	if ((l->ranks && !cu.cuDeviceGetCount) || (l->held == HELD_VALUE && !cu.cuStreamWriteValue32_v2))
		return ok(w, CUDA_ERROR_NOT_SUPPORTED, "look-up");
	if (l->ranks) {
		if (!OK(cuDeviceGetCount, &count))
			return false;
		number = (number + (int)index) % count;
	}
	if (!OK(cuDeviceGet, &dev, number) || !OK(cuCtxCreate_v2, &w->ctx, 0, dev) ||
		!OK(cuModuleLoadData, &module, name ? "simload" : spin_ptx) ||
		!OK(cuModuleGetFunction, &w->fn, module, name ? name : "spin_ns"))
		return false;
	if (l->functions && !load_functions(w))
		return false;
	if (!l->memory_bytes)
		return true;
	return l->managed ? OK(cuMemAllocManaged, &memory, l->memory_bytes, CU_MEM_ATTACH_GLOBAL)
			  : OK(cuMemAlloc_v2, &memory, l->memory_bytes);
}

void simload_run(const struct load *load, unsigned index, struct result *r)
{
	struct worker *workers = calloc(load->threads, sizeof(*workers)), *first = workers;
	pthread_t thread[64];

	r->pid = getpid();
	r->error = CUDA_ERROR_UNKNOWN;
	r->latency = load->pattern == PATTERN_REQUEST ? calloc(SIMLOAD_BUCKETS, sizeof(*r->latency)) : NULL;
	if (!workers || !load_api(load, r))
		return;
	first->load = load;
	open_device(first, index);
	for (unsigned i = 0; i < load->threads && first->error == CUDA_SUCCESS; i++) {
		struct worker *w = &workers[i];

		w->load = load;
		w->result = r;
		w->ctx = first->ctx;
		w->fn = first->fn;
		w->rank = index;
		w->all = first->all;
		w->kernel_ns = (uint64_t)(load->kernel_us * 1000);
		w->random = (load->seed + index * 64 + i + 1) * 0x9e3779b97f4a7c15u;
		if (!prepare(w)) {
			first->error = w->error;
			first->where = w->where;
		}
	}
	r->start_s = simload_now();
	for (unsigned i = 0; i < load->threads && first->error == CUDA_SUCCESS; i++) {
		workers[i].until_s = r->start_s + load->seconds;
		if (i)
			pthread_create(&thread[i], NULL, work, &workers[i]);
	}
	if (first->error == CUDA_SUCCESS) {
		work(first);
		for (unsigned i = 1; i < load->threads; i++)
			pthread_join(thread[i], NULL);
		if (load->abandon)
			ok(first, cu.cuCtxDestroy_v2(first->ctx), "cuCtxDestroy");
		else
			ok(first, cu.cuCtxSynchronize(), "cuCtxSynchronize");
	}
	r->end_s = simload_now();
	r->error = CUDA_SUCCESS;
	for (unsigned i = 0; i < load->threads; i++) {
		struct worker *w = &workers[i];

		if (w->error != CUDA_SUCCESS && r->error == CUDA_SUCCESS) {
			r->error = w->error;
			snprintf(r->where, sizeof(r->where), "%s", w->where);
		}
		r->launched += w->launched;
		r->waits += w->waits;
		r->copies += w->copies;
		r->launch_s += w->launch_s;
	}
	r->copied_bytes = r->copies * load->copy_bytes;
	/* All launches have been waited for. After an error none is counted as completed. */
	r->completed = r->error || load->abandon ? 0 : r->launched;
	free(first->all);
	free(workers);
}

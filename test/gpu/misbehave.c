/* A driver that misbehaves, in the way that MISBEHAVE names, in front of another driver (MISBEHAVE_DRIVER). For each
 * part of check-gpu there is a way that this part has to notice. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_abi.h"

#include "test/gpu/misbehave.h"

#define NEXT(name) ((__typeof__(name) *)misbehave_next(#name))

static int does(const char *what)
{
	const char *how = getenv("MISBEHAVE");

	return how && !strcmp(how, what);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* drift: the same work takes ten percent longer with every second since MISBEHAVE_SINCE (CLOCK_MONOTONIC, ns). */
static uint64_t drifted(uint64_t count)
{
	const char *since = getenv("MISBEHAVE_SINCE");
	uint64_t tenths = since ? (now_ns() - strtoull(since, NULL, 10)) / 100000000u : 0;
	double more = (double)count;

	while (tenths--)
		more *= 1.01;
	return (uint64_t)more;
}

/* hidden: the GPU is busy with work that no program has launched, for as long as any program launches. Two kernels of
 * 0.2 s are always queued, so a program that waits for its context waits at most a second longer. */
static void hidden(CUfunction f, unsigned blocks, unsigned threads)
{
	static CUevent ended[2];
	static CUstream own;
	static unsigned turn;
	uint64_t count = 200000000;
	void *params[] = {&count};

	if (!own) {
		NEXT(cuStreamCreate)(&own, CU_STREAM_NON_BLOCKING);
		for (int i = 0; i < 2; i++)
			NEXT(cuEventCreate)(&ended[i], CU_EVENT_DISABLE_TIMING);
	}
	while (NEXT(cuEventQuery)(ended[turn % 2]) == CUDA_SUCCESS) {
		NEXT(cuLaunchKernel)(f, blocks, 1, 1, threads, 1, 1, 0, own, params, NULL);
		NEXT(cuEventRecord)(ended[turn++ % 2], own);
	}
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
	unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
	static __typeof__(cuLaunchKernel) *next;
	uint64_t count;
	void *longer[] = {&count};

	if (!next)
		next = NEXT(cuLaunchKernel);
	if (params && does("drift")) {
		count = drifted(*(uint64_t *)params[0]);
		return next(f, gx, gy, gz, bx, by, bz, shared, stream, longer, extra);
	}
	if (params && does("hidden"))
		hidden(f, gx, bx);
	return next(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

/* early: an event passes before the work in front of it has ended. */
CUresult cuEventQuery(CUevent event)
{
	return does("early") ? CUDA_SUCCESS : NEXT(cuEventQuery)(event);
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	if (does("early")) {
		*ms = 0;
		return CUDA_SUCCESS;
	}
	return NEXT(cuEventElapsedTime)(ms, start, end);
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	if (does("early")) {
		*ms = 0;
		return CUDA_SUCCESS;
	}
	return NEXT(cuEventElapsedTime_v2)(ms, start, end);
}

/* slow: an event costs a millisecond of the caller's time. */
CUresult cuEventRecord(CUevent event, CUstream stream)
{
	uint64_t until = now_ns() + 1000000;

	while (does("slow") && now_ns() < until)
		;
	return NEXT(cuEventRecord)(event, stream);
}

/* double: an allocation takes twice what was asked for. */
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes)
{
	CUdeviceptr more;

	if (does("double"))
		NEXT(cuMemAlloc_v2)(&more, bytes);
	return NEXT(cuMemAlloc_v2)(p, bytes);
}

/* hang: a call that waits for a stream never returns. */
CUresult cuStreamSynchronize(CUstream stream)
{
	while (does("hang"))
		nanosleep(&(struct timespec){1, 0}, NULL);
	return NEXT(cuStreamSynchronize)(stream);
}

/* Returns our function in place of the one that the other driver gave. */
static void *ours(void *theirs)
{
	Dl_info of, self;
	void *own;

	if (!dladdr(theirs, &of) || !of.dli_sname || !dladdr((void *)misbehave_next, &self))
		return theirs;
	own = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	return own && dlsym(own, of.dli_sname) ? dlsym(own, of.dli_sname) : theirs;
}

static CUresult thunk(void)
{
	return CUDA_SUCCESS;
}

/* thunks: a function that is looked up has another address than the exported one. */
CUresult cuGetProcAddress_v2(
	const char *symbol, void **pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	CUresult result = NEXT(cuGetProcAddress_v2)(symbol, pfn, version, flags, status);

	if (result == CUDA_SUCCESS && pfn && *pfn)
		*pfn = does("thunks") ? (void *)thunk : ours(*pfn);
	return result;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	CUresult result = NEXT(cuGetProcAddress)(symbol, pfn, version, flags);

	if (result == CUDA_SUCCESS && pfn && *pfn)
		*pfn = ours(*pfn);
	return result;
}

/* It is in no table, and its name looks like work. Only the check of names sees it; it is never called. */
__attribute__((visibility("default"))) CUresult cuLaunchUnheardOf(void);
CUresult cuLaunchUnheardOf(void)
{
	return CUDA_SUCCESS;
}

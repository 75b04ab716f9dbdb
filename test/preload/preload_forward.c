/*
 * A driver that writes down each call and its result, and lets another driver ($FORWARD_DRIVER) do it. Host functions
 * can fail, or never be called ($FORWARD_HOST_FUNC); a query can take its time. If REENTERS is set, each call makes
 * another call by its exported name, as in drivers whose functions use each other.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "test/preload/preload_forward.h"

static CUresult fails(CUstream stream, CUhostFn fn, void *argument)
{
	return stream || fn || argument ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

static CUresult never(CUstream stream, CUhostFn fn, void *argument)
{
	return stream || fn || argument ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void *forward_find(const char *name)
{
	const char *how = getenv("FORWARD_HOST_FUNC");
	static void *driver;

	if (how && !strcmp(name, "cuLaunchHostFunc") && !strcmp(how, "fails"))
		return (void *)fails;
	if (how && !strcmp(name, "cuLaunchHostFunc") && !strcmp(how, "never"))
		return (void *)never;
	if (!driver)
		driver = dlopen(getenv("FORWARD_DRIVER"), RTLD_NOW | RTLD_LOCAL);
	return driver ? dlsym(driver, name) : NULL;
}

static __thread unsigned callbacks;

/* Returns how often the calling thread has asked for a host function. */
__attribute__((visibility("default"))) unsigned forward_callbacks(void);
unsigned forward_callbacks(void)
{
	return callbacks;
}

static void reenter(void)
{
#ifdef REENTERS
	static __thread bool within;

	if (within)
		return;
	within = true;
	cuStreamQuery(NULL);
	within = false;
#endif
}

static struct forward_control control;

__attribute__((visibility("default"))) struct forward_control *forward_control(void)
{
	return &control;
}

/* Keeps the call in the driver for a while. */
static void take_time(const char *name)
{
	if (!strcmp(name, "cuStreamDestroy_v2") || !strcmp(name, "cuCtxDestroy_v2"))
		__atomic_add_fetch(&control.destroyed, 1, __ATOMIC_RELEASE);
	if (strcmp(name, "cuEventQuery") || !__atomic_load_n(&control.armed, __ATOMIC_ACQUIRE) ||
		pthread_equal(control.mine, pthread_self()) ||
		__atomic_exchange_n(&control.held, 1, __ATOMIC_ACQ_REL))
		return;
	for (int i = 0; i < 3000 && __atomic_load_n(&control.armed, __ATOMIC_ACQUIRE); i++)
		usleep(1000);
	__atomic_store_n(&control.held, 0, __ATOMIC_RELEASE);
}

static CUresult forward_said(const char *name, CUresult result)
{
	static int log = -1;
	char line[160];
	int n;

	reenter();
	take_time(name);
	callbacks += !strcmp(name, "cuLaunchHostFunc");
	if (log < 0)
		log = open(getenv("FORWARD_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	n = snprintf(line, sizeof(line), "%s %d\n", name, (int)result);
	if (write(log, line, (size_t)n) != n)
		abort();
	return result;
}

#include "preload_forward.inc"

static const struct {
	const char *name;
	void *fn;
} own[] = {
#define CU_CALL(name, params, args) {#name, (void *)name},
#include "cuda_abi/calls.def"
#include "cuda_abi/newer.def"
#undef CU_CALL
};

/* A function of a driver that is newer than all tables. */
__attribute__((visibility("default"))) CUresult cuUnheardOf(void);
CUresult cuUnheardOf(void)
{
	return CUDA_SUCCESS;
}

/* Returns our function for what the other driver gave for a base name. */
static void *ours(const char *base, void *theirs)
{
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		if (!strncmp(own[i].name, base, strlen(base)) && forward_find(own[i].name) == theirs)
			return own[i].fn;
	return theirs;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	__typeof__(cuGetProcAddress) *real = forward_find("cuGetProcAddress");
	CUresult result = real(symbol, pfn, version, flags);

	if (result == CUDA_SUCCESS && pfn && *pfn)
		*pfn = ours(symbol, *pfn);
	else if (symbol && pfn && !strcmp(symbol, "cuUnheardOfToo"))
		*pfn = (void *)cuUnheardOf, result = CUDA_SUCCESS;
	return forward_said(symbol ? symbol : "(no name)", result);
}

CUresult cuGetProcAddress_v2(
	const char *symbol, void **pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	__typeof__(cuGetProcAddress_v2) *real = forward_find("cuGetProcAddress_v2");
	CUresult result = real(symbol, pfn, version, flags, status);

	if (result == CUDA_SUCCESS && pfn && *pfn)
		*pfn = ours(symbol, *pfn);
	else if (symbol && pfn && !strcmp(symbol, "cuUnheardOfToo"))
		*pfn = (void *)cuUnheardOf, result = CUDA_SUCCESS;
	return forward_said(symbol ? symbol : "(no name)", result);
}

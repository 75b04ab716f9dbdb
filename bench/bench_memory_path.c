/* What allocating and freeing device memory costs in addition to the driver's own calls, with a quota in force. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "preload/hooks/elf.h"
#include "bench/report.h"

#define LIVE    1000  /* allocations that exist all the time */
#define ALLOWED 200.0 /* ns */

struct driver {
	__typeof__(cuMemAlloc_v2) *alloc;
	__typeof__(cuMemFree_v2) *free;
};

static char directory[] = "/dev/shm/gpuarb-bench-XXXXXX";

static void fail(const char *what)
{
	fprintf(stderr, "bench_memory_path: %s\n", what);
	exit(1);
}

static void pairs(void *argument, unsigned iterations)
{
	struct driver *d = argument;
	CUdeviceptr p;

	for (unsigned i = 0; i < iterations; i++)
		if (d->alloc(&p, 4096) != CUDA_SUCCESS || d->free(p) != CUDA_SUCCESS)
			fail("refused");
}

/* Starts the program again with the library, which must be loaded before the program. */
static void with_preload(char **argv)
{
	char self[512], text[640], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (getenv("LD_PRELOAD"))
		return;
	if (n < 0)
		fail("no /proc");
	self[n] = 0;
	slash = strrchr(self, '/');
	snprintf(text, sizeof(text), "%.*s/libgpuarb-preload.so", (int)(slash - self), self);
	setenv("LD_PRELOAD", text, 1);
	snprintf(text, sizeof(text), "%.*s/stub/libcuda.so.1", (int)(slash - self), self);
	setenv("BENCH_DRIVER", text, 1);
	if (!mkdtemp(directory))
		fail("no directory");
	setenv("GPUARB_DIR", directory, 1);
	setenv("GPUARB_CONF", "/dev/null", 1);
	setenv("GPUARB_MEM_LIMIT", "1Gi", 1);
	setenv("GPUARB_ACCOUNT", "bench", 1);
	execv(self, argv);
	fail("cannot start again");
}

static void tidy(void)
{
	char command[600];

	snprintf(command, sizeof(command), "rm -rf '%s'", getenv("GPUARB_DIR"));
	unsetenv("LD_PRELOAD");
	if (strncmp(getenv("GPUARB_DIR"), "/dev/shm/gpuarb-bench-", 22) || system(command))
		fprintf(stderr, "bench_memory_path: %s is left\n", getenv("GPUARB_DIR"));
}

int main(int argc, char **argv)
{
	struct driver bare, ours;
	double with, without;
	struct elf_object object;
	struct bench b;
	CUdevice device;
	CUcontext context;
	CUdeviceptr p;
	void *library;

	with_preload(argv);
	bench_begin(&b, "memory_path", "cuMemAlloc and cuMemFree beyond the driver's own", argc, argv);
	library = dlopen(getenv("BENCH_DRIVER"), RTLD_NOW);
	if (!library || !arb_elf_named("libcuda.so", &object))
		fail("no driver");
	bare.alloc = (__typeof__(bare.alloc))arb_elf_symbol(&object, "cuMemAlloc_v2");
	bare.free = (__typeof__(bare.free))arb_elf_symbol(&object, "cuMemFree_v2");
	ours.alloc = (__typeof__(ours.alloc))dlsym(library, "cuMemAlloc_v2");
	ours.free = (__typeof__(ours.free))dlsym(library, "cuMemFree_v2");
	if (!bare.alloc || !ours.alloc || bare.alloc == ours.alloc)
		fail("not preloaded");
	((__typeof__(cuInit) *)dlsym(library, "cuInit"))(0);
	((__typeof__(cuDeviceGet) *)dlsym(library, "cuDeviceGet"))(&device, 0);
	((__typeof__(cuCtxCreate_v2) *)dlsym(library, "cuCtxCreate_v2"))(&context, 0, device);
	for (unsigned i = 0; i < LIVE; i++)
		if (ours.alloc(&p, 512) != CUDA_SUCCESS)
			fail("refused");
	if (ours.alloc(&p, 2ull << 30) != CUDA_ERROR_OUT_OF_MEMORY)
		fail("there is no quota");
	if (bench_wants(&b, "pair")) {
		bench_duel(pairs, &ours, pairs, &bare, 2000, 1000, &with, &without);
		bench_ratio(&b, "cuMemAlloc+cuMemFree adds", with - without, "ns", ALLOWED, 1);
	}
	tidy();
	return bench_end(&b);
}

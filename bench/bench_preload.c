/*
 * What the preload costs a program that has joined a GPU and is in its running set. One process calls the same
 * function in turns in two ways: the driver's own function, and what the program gets with the preload. The program
 * starts itself again with LD_PRELOAD. There it finds the driver's own function past the preload's wrapper, by
 * reading the driver's symbols.
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "bench/report.h"

#define SAMPLES 20000

struct driver {
	__typeof__(cuLaunchKernel) *launch;
	__typeof__(cuMemAlloc_v2) *alloc;
	__typeof__(cuMemFree_v2) *release;
};

static struct driver bare, hooked;
static CUfunction function;
static CUstream stream;

/* Takes the address from the driver's symbol table, because dlsym would return the wrapper. */
static void *bare_symbol(void *driver, const char *name)
{
	struct link_map *map = driver;
	const ElfW(Sym) *symbols = NULL;
	const char *strings = NULL;
	const uint32_t *hash = NULL;
	uint32_t last = 0;

	for (const ElfW(Dyn) *d = map->l_ld; d->d_tag; d++) {
		if (d->d_tag == DT_SYMTAB)
			symbols = (const ElfW(Sym) *)d->d_un.d_ptr;
		else if (d->d_tag == DT_STRTAB)
			strings = (const char *)d->d_un.d_ptr;
		else if (d->d_tag == DT_GNU_HASH)
			hash = (const uint32_t *)d->d_un.d_ptr;
	}
	if (!symbols || !strings || !hash)
		return NULL;
	for (uint32_t b = 0; b < hash[0]; b++) {
		const uint32_t *buckets = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / 4);

		for (uint32_t i = buckets[b]; i >= hash[1]; i++) {
			if (!strcmp(strings + symbols[i].st_name, name))
				return (void *)(map->l_addr + symbols[i].st_value);
			last = buckets[hash[0] + i - hash[1]];
			if (last & 1)
				break;
		}
	}
	return NULL;
}

static CUresult launch(const struct driver *d)
{
	return d->launch(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

/* It is a function of its own, so that callgrind counts only inside it, and not what other threads do meanwhile. */
__attribute__((noinline)) static void launches(void *argument, unsigned iterations)
{
	for (unsigned i = 0; i < iterations; i++)
		launch(argument);
}

static void pairs(void *argument, unsigned iterations)
{
	const struct driver *d = argument;
	CUdeviceptr p = 0;

	for (unsigned i = 0; i < iterations; i++)
		d->alloc(&p, 1 << 20), d->release(p);
}

static int by_value(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Times each call alone, alternating between the two; the clock's own cost is in both. */
static void percentiles(uint32_t *p50, uint32_t *p99, const struct driver *first, const struct driver *second)
{
	static uint32_t sample[2][SAMPLES];
	const struct driver *which[2] = {first, second};

	for (unsigned i = 0; i < SAMPLES; i++)
		for (unsigned k = 0; k < 2; k++) {
			uint64_t began = bench_now_ns();

			for (unsigned n = 0; n < 8; n++)
				launch(which[k]);
			sample[k][i] = (uint32_t)(bench_now_ns() - began);
		}
	for (unsigned k = 0; k < 2; k++) {
		qsort(sample[k], SAMPLES, sizeof(sample[k][0]), by_value);
		p50[k] = sample[k][SAMPLES / 2];
		p99[k] = sample[k][SAMPLES * 99 / 100];
	}
}

static void launch_cases(struct bench *b)
{
	double ns, base;
	uint32_t p50[2], p99[2];

	launch(&hooked);
	if (bench_wants(b, "launch")) {
		bench_duel(launches, &hooked, launches, &bare, 10000, 200, &ns, &base);
		bench_show(b, "launch", ns, "ns", base);
		/* What is limited is the additional time, whatever the driver's own call costs here. */
		bench_ratio(b, "launch_added", ns - base > 0 ? ns - base : 0, "ns", 10, 1);
	}
	if (bench_wants(b, "launch_tail")) {
		percentiles(p50, p99, &hooked, &bare);
		bench_show(b, "launch_p50_of_8", p50[0], "ns", p50[1]);
		bench_ratio(b, "launch_p99_of_8", p99[0], "ns", p99[1], 1.5);
	}
}

struct crowd {
	const struct driver *driver;
	unsigned iterations;
};

static void *one_of_the_crowd(void *argument)
{
	const struct crowd *c = argument;

	launches((void *)c->driver, c->iterations);
	return NULL;
}

static void eight(void *argument, unsigned iterations)
{
	struct crowd c = {argument, iterations};
	pthread_t thread[8];

	for (unsigned i = 0; i < 8; i++)
		pthread_create(&thread[i], NULL, one_of_the_crowd, &c);
	for (unsigned i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
}

static void other_cases(struct bench *b)
{
	double ns, base;

	if (bench_wants(b, "threads_8")) {
		bench_duel(eight, &hooked, eight, &bare, 50000, 15, &ns, &base);
		bench_ratio(b, "threads_8_added", ns - base > 0 ? (ns - base) / 8 : 0, "ns", 10, 1);
	}
	if (bench_wants(b, "alloc_free")) {
		pairs(&hooked, 1);
		bench_duel(pairs, &hooked, pairs, &bare, 200, 300, &ns, &base);
		bench_show(b, "alloc_free", ns, "ns", base);
		bench_ratio(b, "alloc_free_added", ns - base > 0 ? ns - base : 0, "ns", 200, 1);
	}
}

/* Counts the instructions of BENCH_COUNT launches with callgrind, with and without the preload. They run in a segment
 * of their own: beside another client the preload would look more closely at launches. */
static double instructions(const char *way, unsigned count)
{
	char command[1024], self[512], line[256];
	double total = 0;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	FILE *pipe;

	if (n <= 0)
		return 0;
	self[n] = 0;
	snprintf(command, sizeof(command),
		"GPUARB_DIR='%s/counted' BENCH_COUNT=%u BENCH_WAY=%s valgrind --tool=callgrind "
		"--toggle-collect=launches "
		"--callgrind-out-file=/dev/null '%s' "
		"2>&1",
		getenv("GPUARB_DIR"), count, way, self);
	pipe = popen(command, "re");
	while (pipe && fgets(line, sizeof(line), pipe)) {
		char *at = strstr(line, "Collected : ");

		if (at)
			total = atof(at + strlen("Collected : "));
	}
	if (pipe)
		pclose(pipe);
	return total;
}

static void instruction_case(struct bench *b)
{
	double hook, driver;

	if (!bench_wants(b, "launch_instructions") || system("command -v valgrind >/dev/null 2>&1"))
		return;
	hook = (instructions("hooked", 60000) - instructions("hooked", 10000)) / 50000;
	driver = (instructions("bare", 60000) - instructions("bare", 10000)) / 50000;
	bench_show(b, "launch_instructions", hook, "instr", driver);
	bench_ratio(b, "instructions_added", hook - driver, "instr", 40, 1);
}

/* Measures how long the program's 5 us kernels take, one behind the other, if calls cost as much as on a real driver.
 */
static double kernels_seconds(const char *build, bool with)
{
	char command[2048], line[1024];
	double seconds = 0;
	FILE *pipe;

	snprintf(command, sizeof(command),
		"unset LD_PRELOAD; GPUSIM_DIR='%s/gpu' LD_LIBRARY_PATH='%s/sim' LD_PRELOAD=%s%s "
		"'%s/simload' -k 5 -n 60000 -d 20",
		getenv("GPUARB_DIR"), build, with ? build : "", with ? "/libgpuarb-preload.so" : "", build);
	pipe = popen(command, "re");
	while (pipe && fgets(line, sizeof(line), pipe)) {
		char *at = strstr(line, "\"kernel_us\":5,");

		if (at && (at = strstr(at, "\"seconds\":")) && strstr(line, "\"completed\":60000"))
			seconds = atof(at + strlen("\"seconds\":"));
	}
	if (pipe)
		pclose(pipe);
	return seconds;
}

static void kernels_case(struct bench *b, const char *build)
{
	double with = 0, without = 0;

	if (!bench_wants(b, "kernels_5us"))
		return;
	for (unsigned i = 0; i < 8; i++) {
		double s = kernels_seconds(build, true), base = kernels_seconds(build, false);

		if (!s || !base) {
			fprintf(stderr, "bench_preload: simload did not run\n");
			b->failed = 1;
			return;
		}
		with = !with || s < with ? s : with;
		without = !without || base < without ? base : without;
	}
	bench_ratio(b, "kernels_5us", with * 1e3, "ms", without * 1e3, 1.005);
}

static int start(char **argv, const char *build)
{
	char path[1024], directory[] = "/dev/shm/gpuarb-bench-XXXXXX";

	if (!mkdtemp(directory)) {
		perror(directory);
		return 1;
	}
	setenv("GPUARB_DIR", directory, 1);
	setenv("GPUARB_CONF", "/dev/null", 1);
	setenv("GPUARB_ACCOUNT", "bench", 1);
	setenv("GPUARB_MEM_LIMIT", "1Gi", 1);
	unsetenv("GPUARB_CORE_LIMIT");
	unsetenv("GPUARB_DISABLE");
	snprintf(path, sizeof(path), "%s/libgpuarb-preload.so", build);
	setenv("LD_PRELOAD", path, 1);
	snprintf(path, sizeof(path), "%s/stub", build);
	setenv("LD_LIBRARY_PATH", path, 1);
	execv("/proc/self/exe", argv);
	perror("bench_preload");
	return 1;
}

static int join(void *driver)
{
	__typeof__(cuInit) *init = (__typeof__(cuInit) *)dlsym(driver, "cuInit");
	__typeof__(cuCtxCreate_v2) *create = (__typeof__(cuCtxCreate_v2) *)dlsym(driver, "cuCtxCreate_v2");
	char path[512];
	CUcontext context;

	if (!init || !create || init(0) || create(&context, 0, 0))
		return 1;
	launch(&hooked);
	snprintf(path, sizeof(path), "%s/state", getenv("GPUARB_DIR"));
	if (access(path, F_OK) == 0)
		return 0;
	fprintf(stderr, "bench_preload: it has not joined\n");
	return 1;
}

static void tidy(void)
{
	char command[600];

	snprintf(command, sizeof(command), "rm -rf '%s'", getenv("GPUARB_DIR"));
	unsetenv("LD_PRELOAD");
	if (strncmp(getenv("GPUARB_DIR"), "/dev/shm/gpuarb-bench-", 22) || system(command))
		fprintf(stderr, "bench_preload: %s is left\n", getenv("GPUARB_DIR"));
}

int main(int argc, char **argv)
{
	char build[512];
	ssize_t n = readlink("/proc/self/exe", build, sizeof(build) - 1);
	const char *count = getenv("BENCH_COUNT");
	struct bench b;
	void *driver;

	if (n <= 0)
		return 1;
	build[n] = 0;
	*strrchr(build, '/') = 0;
	if (!getenv("LD_PRELOAD") || !getenv("GPUARB_DIR"))
		return start(argv, build);
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver) {
		fprintf(stderr, "bench_preload: %s\n", dlerror());
		return 1;
	}
	hooked.launch = (__typeof__(cuLaunchKernel) *)dlsym(driver, "cuLaunchKernel");
	hooked.alloc = (__typeof__(cuMemAlloc_v2) *)dlsym(driver, "cuMemAlloc_v2");
	hooked.release = (__typeof__(cuMemFree_v2) *)dlsym(driver, "cuMemFree_v2");
	bare.launch = (__typeof__(cuLaunchKernel) *)bare_symbol(driver, "cuLaunchKernel");
	bare.alloc = (__typeof__(cuMemAlloc_v2) *)bare_symbol(driver, "cuMemAlloc_v2");
	bare.release = (__typeof__(cuMemFree_v2) *)bare_symbol(driver, "cuMemFree_v2");
	if (!bare.launch || !hooked.launch || bare.launch == hooked.launch) {
		fprintf(stderr, "bench_preload: the preload is not in the way\n");
		return 1;
	}
	if (join(driver))
		return 1;
	if (count) {
		launches(strcmp(getenv("BENCH_WAY"), "bare") ? &hooked : &bare, (unsigned)atoi(count));
		return 0;
	}
	bench_begin(&b, "preload",
		"Cases: launch, launch_tail, threads_8, alloc_free, launch_instructions, kernels_5us. On a "
		"driver "
		"whose\n"
		"functions do nothing, so that what is added is not lost in what the driver does; "
		"kernels_5us on "
		"the\n"
		"simulated GPU. x_added: against its limit.",
		argc, argv);
	launch_cases(&b);
	other_cases(&b);
	instruction_case(&b);
	kernels_case(&b, build);
	tidy();
	return bench_end(&b);
}

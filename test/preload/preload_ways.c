/*
 * The odd ways into the driver, each in a process of its own that has not loaded the driver yet, with the tracing
 * preload or the real one: constructors, RTLD_DEEPBIND, closing and opening again, many threads at once, fork,
 * libraries that define the same names. The dynamic linker must still know which object asks.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_abi.h"

#include "preload/process/act.h"
#include "test/preload/preload_record.h"

static char here[512];
static unsigned (*trace_take)(const char **symbol);
static unsigned (*preload_seen)(uint64_t *counts, unsigned n);

/* They are linked with the program, the first one before the second. */
int lib_marker(void);
void *lib_next(const char *name);
void *lib_open(const char *file);

#define CHECK(what)                                                                                          \
	do {                                                                                                 \
		if (!(what)) {                                                                               \
			fprintf(stderr, "%s:%d: not true: %s\n", __func__, __LINE__, #what);                 \
			_exit(1);                                                                            \
		}                                                                                            \
	} while (0)

static uint64_t seen(unsigned what)
{
	uint64_t counts[CAT_COUNT + NOTE_COUNT] = {0};

	preload_seen(counts, CAT_COUNT + NOTE_COUNT);
	return counts[what];
}

/* Returns how many calls of this name (or of its category) there were since the last time. */
static unsigned taken(const char *symbol, unsigned category)
{
	static uint64_t before;
	const char *last = NULL;
	unsigned n;

	if (!trace_take) {
		n = (unsigned)(seen(category) - before);
		before += n;
		return n;
	}
	n = trace_take(&last);
	return n && last && !strcmp(last, symbol) ? n : 0;
}

static void *library(const char *name, int mode)
{
	char path[1024];
	void *handle;

	snprintf(path, sizeof(path), "%s/%s", here, name);
	handle = dlopen(path, mode);
	if (!handle)
		fprintf(stderr, "%s\n", dlerror());
	return handle;
}

static int call(void *handle, const char *name)
{
	int (*fn)(void) = (int (*)(void))dlsym(handle, name);

	CHECK(fn);
	return fn();
}

static void a_library_linked_with_the_driver(void)
{
	CHECK(call(library("liblinked.so", RTLD_NOW | RTLD_LOCAL), "lib_launch") == 0);
	CHECK(taken("cuInit", CAT_INIT) == 1);
}

static void a_library_that_prefers_its_own(void)
{
	CHECK(call(library("liblinked.so", RTLD_NOW | RTLD_DEEPBIND), "lib_launch") == 0);
	CHECK(taken("cuInit", CAT_INIT) == 1);
	CHECK(trace_take || seen(CAT_COUNT + NOTE_DEEPBIND) == 1);
}

static void a_constructor(void)
{
	CHECK(call(library("libconstructor.so", RTLD_NOW), "lib_constructed") == 0);
	CHECK(taken("cuInit", CAT_INIT) == 1);
}

static void names_of_others_stay_theirs(void)
{
	void *own = library("libown.so", RTLD_NOW | RTLD_LOCAL);
	__typeof__(cuInit) *init = (__typeof__(cuInit) *)dlsym(own, "cuInit");

	CHECK(init && init(0) == 4242);
	CHECK(call(own, "lib_launch") == 4243);
	CHECK(taken("cuInit", CAT_INIT) == 0);
	/* The driver is hooked as well. */
	a_library_linked_with_the_driver();
	CHECK(call(own, "lib_launch") == 4243);
	CHECK(taken("cuInit", CAT_INIT) == 0);
}

static void a_layer_in_the_global_scope(void)
{
	void *own = library("libown.so", RTLD_NOW | RTLD_GLOBAL);

	/* Without the preload, the program's own call would go to it. */
	CHECK(call(own, "lib_launch") == 4243);
	CHECK(((__typeof__(cuInit) *)dlsym(RTLD_DEFAULT, "cuInit"))(0) == 4242);
	CHECK(taken("cuInit", CAT_INIT) == 0);
}

static void closed_and_opened_again(void)
{
	void *first = dlopen("libcuda.so.1", RTLD_NOW), *second;
	__typeof__(cuInit) *init = (__typeof__(cuInit) *)dlsym(first, "cuInit");

	CHECK(init && init(0) == 0 && dlclose(first) == 0);
	CHECK(init(0) == 0);
	second = dlopen("libcuda.so.1", RTLD_NOW);
	CHECK(second && (void *)init == dlsym(second, "cuInit"));
	CHECK(init(0) == 0);
	CHECK(taken("cuInit", CAT_INIT) == 3);
}

static void no_driver_no_names(void)
{
	CHECK(!dlsym(RTLD_DEFAULT, "cuInit"));
	CHECK(dlerror());
	CHECK(!dlvsym(RTLD_DEFAULT, "cuInit", "DRIVER_1"));
	dlerror();
	CHECK(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), "cuInit"));
	CHECK(dlsym(RTLD_DEFAULT, "cuInit"));
}

static void names_that_are_not_hooked(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	__typeof__(cuDriverGetVersion) *version =
		(__typeof__(cuDriverGetVersion) *)dlsym(driver, "cuDriverGetVersion");

	CHECK(version && version(NULL) == 0);
	CHECK(!dlsym(driver, "cuNothing") && dlerror());
	CHECK(!dlsym(driver, "cuInit_v9") && dlerror());
}

static void a_second_driver_is_left_alone(void)
{
	void *first = dlopen("libcuda.so.1", RTLD_NOW), *second = library("other/libcuda.so.1", RTLD_NOW);
	void *init = dlsym(first, "cuInit"), *other = dlsym(second, "cuInit");

	CHECK(first && second && first != second && init && other && init != other);
	CHECK(((__typeof__(cuInit) *)other)(0) == 0 && taken("cuInit", CAT_INIT) == 0);
	CHECK(((__typeof__(cuInit) *)init)(0) == 0 && taken("cuInit", CAT_INIT) == 1);
	CHECK(trace_take || seen(CAT_COUNT + NOTE_OTHER_DRIVER) == 1);
}

static void who_asks_is_still_known(void)
{
	int (*next)(void) = (int (*)(void))lib_next("lib_marker");
	void *hidden;

	CHECK(lib_marker() == 1);
	CHECK(next && next() == 2);
	/* Only the library's own run path leads to it. */
	CHECK(!dlopen("libhidden.so", RTLD_NOW));
	hidden = lib_open("libhidden.so");
	CHECK(hidden && call(hidden, "lib_marker") == 3);
}

static unsigned descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (dir && readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void errno_and_descriptors_are_kept(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	unsigned open_before = descriptors();
	__typeof__(cuInit) *init;

	errno = 123;
	init = (__typeof__(cuInit) *)dlsym(driver, "cuInit");
	CHECK(errno == 123 && init && init(0) == 0 && errno == 123);
	CHECK(((__typeof__(cuLaunchKernel) *)dlsym(driver, "cuLaunchKernel"))(
		      NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0);
	CHECK(errno == 123 && descriptors() == open_before);
}

#define THREADS  16
#define LAUNCHES 2000

static pthread_barrier_t together;

static void *one_thread(void *argument)
{
	__typeof__(cuLaunchKernel) *launch;
	void *driver;

	pthread_barrier_wait(&together);
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	launch = (__typeof__(cuLaunchKernel) *)dlsym(driver, "cuLaunchKernel");
	for (unsigned i = 0; launch && i < LAUNCHES; i++)
		launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	return launch ? argument : NULL;
}

static void many_threads_at_once(void)
{
	pthread_t thread[THREADS];
	void *result;

	pthread_barrier_init(&together, NULL, THREADS);
	for (unsigned round = 1; round <= 4; round++) {
		for (unsigned i = 0; i < THREADS; i++)
			CHECK(!pthread_create(&thread[i], NULL, one_thread, &together));
		for (unsigned i = 0; i < THREADS; i++)
			CHECK(!pthread_join(thread[i], &result) && result);
		/* Calls of threads that ended are still counted, and their places are used again. */
		CHECK(trace_take || seen(CAT_LAUNCH) == (uint64_t)round * THREADS * LAUNCHES);
	}
}

static void a_child(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	__typeof__(cuInit) *init = (__typeof__(cuInit) *)dlsym(driver, "cuInit");
	int status;
	pid_t pid;

	CHECK(init && init(0) == 0 && taken("cuInit", CAT_INIT) == 1);
	pid = fork();
	if (!pid) {
		CHECK(trace_take || seen(CAT_INIT) == 0);
		CHECK(init(0) == 0 && dlsym(driver, "cuInit") == (void *)init);
		CHECK(trace_take || seen(CAT_INIT) == 1);
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(trace_take || seen(CAT_INIT) == 1);
}

static void a_namespace_of_its_own(void)
{
	char path[1024];

	snprintf(path, sizeof(path), "%s/liblinked.so", here);
	/* It cannot be hooked there, but it can be noticed. */
	CHECK(dlmopen(LM_ID_NEWLM, path, RTLD_NOW));
	CHECK(trace_take || seen(CAT_COUNT + NOTE_NAMESPACE) == 1);
}

/* The simulated NVML: what the device has, and what the tracing preload shows of it. */
static void nvml_shows_what_the_account_may_see(void)
{
	void *nvml = library("../../sim/libnvidia-ml.so.1", RTLD_NOW);
	char directory[] = "/tmp/preload-ways-XXXXXX", command[64];
	struct nvml_memory memory = {0};
	struct nvml_memory_v2 newer = {.version = sizeof(newer) | 2 << 24};
	const uint64_t mib = 1 << 20;
	nvmlDevice_t device;

	CHECK(nvml && mkdtemp(directory) && !setenv("GPUSIM_DIR", directory, 1));
	CHECK(((int (*)(void))dlsym(nvml, "nvmlInit_v2"))() == 0);
	CHECK(((int (*)(unsigned, nvmlDevice_t *))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2"))(0, &device) ==
		0);
	CHECK(((__typeof__(nvmlDeviceGetMemoryInfo) *)dlsym(nvml, "nvmlDeviceGetMemoryInfo"))(
		      device, &memory) == 0);
	CHECK(((__typeof__(nvmlDeviceGetMemoryInfo_v2) *)dlsym(nvml, "nvmlDeviceGetMemoryInfo_v2"))(
		      device, &newer) == 0);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	CHECK(system(command) == 0);
	CHECK(memory.total == 16384 * mib / (trace_take ? 2 : 1) && newer.total == memory.total);
	CHECK(trace_take || seen(CAT_NVML) == 2);
}

static unsigned run(void (*test)(void), const char *name)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		alarm(30);
		test();
		exit(0);
	}
	if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0)
		return 0;
	fprintf(stderr, "preload: failed: %s\n", name);
	return 1;
}

static bool simulated(void)
{
	char path[1024];

	snprintf(path, sizeof(path), "%s/../../sim/libnvidia-ml.so.1", here);
	return access(path, R_OK) == 0;
}

#define RUN(test) (tests++, failed += run(test, #test))

int main(void)
{
	unsigned tests = 0, failed = 0;
	ssize_t n = readlink("/proc/self/exe", here, sizeof(here) - 1);

	if (n <= 0)
		return 1;
	*strrchr(here, '/') = 0;
	trace_take = (unsigned (*)(const char **))dlsym(RTLD_DEFAULT, "trace_take");
	preload_seen = (unsigned (*)(uint64_t *, unsigned))dlsym(RTLD_DEFAULT, "gpuarb_preload_seen");
	if (!preload_seen) {
		fprintf(stderr, "this test wants a preload\n");
		return 1;
	}
	RUN(a_library_linked_with_the_driver);
	RUN(a_library_that_prefers_its_own);
	RUN(a_constructor);
	RUN(names_of_others_stay_theirs);
	RUN(a_layer_in_the_global_scope);
	RUN(closed_and_opened_again);
	RUN(no_driver_no_names);
	RUN(names_that_are_not_hooked);
	RUN(a_second_driver_is_left_alone);
	RUN(who_asks_is_still_known);
	RUN(errno_and_descriptors_are_kept);
	RUN(many_threads_at_once);
	RUN(a_child);
	RUN(a_namespace_of_its_own);
	if (simulated())
		RUN(nvml_shows_what_the_account_may_see);
	printf("preload: %u odd ways into the driver: %u failed\n", tests, failed);
	return failed != 0;
}

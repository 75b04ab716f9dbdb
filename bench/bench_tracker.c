/*
 * How long after the end of a process's work its tracker has taken it out of the running set, if the program does not
 * wait for the end. The end is known from the program's clock, because its kernels take a known time on the simulated
 * GPU; an observer of the segment sees when it leaves the set.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "gpuarb/control.h"

#include "bench/report.h"
#include "bench/tracker_cases.h"

#define ROUNDS  200
#define WARM    20
#define STREAMS 64
/* A fraction of a millisecond. */
#define ALLOWED_US 500
/* If the machine itself is later than this one time in ten, it is measured again, at most this many times. */
#define QUIET_US 120
#define ATTEMPTS 5

static char directory[] = "/dev/shm/gpuarb-tracker-XXXXXX", build[4000];
static struct gpuarb_picture picture;
/* The simulated GPU knows this kernel by its name. */
static const char spin_ptx[] = ".version 7.0\n.target sm_50\n.visible .entry spin_ns(.param .u64 ns) {}\n";

/* What the program and its observer share. */
struct diary {
	uint32_t rounds;        /* whose end is written */
	uint64_t end[ROUNDS];   /* when the work ended */
	uint64_t floor[ROUNDS]; /* how late the program itself wakes from a sleep of the same length */
};

static void die(const char *what)
{
	fprintf(stderr, "bench_tracker: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void sleep_until(uint64_t ns)
{
	struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

static struct diary *open_diary(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *map;

	if (fd < 0 || ftruncate(fd, sizeof(struct diary)))
		die(path);
	map = mmap(NULL, sizeof(struct diary), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		die(path);
	close(fd);
	return map;
}

static void *symbol(const char *name)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found = driver ? dlsym(driver, name) : NULL;

	if (!found) {
		fprintf(stderr, "bench_tracker: no %s: %s\n", name, dlerror());
		exit(1);
	}
	return found;
}

/* Functions of the driver, found at run time as every program does. */
#define CU(name) ((__typeof__(name) *)symbol(#name))

/* A stream, and the events that measure work in it. */
struct lane {
	CUcontext ctx;
	CUstream stream;
	CUmodule module;
	CUfunction function;
	CUevent begin, end;
	uint64_t begun_ns;
};

static bool new_function(struct lane *l)
{
	return !CU(cuModuleLoadData)(&l->module, spin_ptx) &&
	       !CU(cuModuleGetFunction)(&l->function, l->module, "spin_ns");
}

static bool set_up(const struct way *w, struct lane *lanes, unsigned n)
{
	if (CU(cuInit)(0))
		return false;
	for (unsigned i = 0; i < n; i++) {
		struct lane *l = &lanes[i];

		if (i && !w->contexts)
			*l = lanes[0];
		else if (CU(cuCtxCreate_v2)(&l->ctx, 0, 0) || !new_function(l))
			return false;
		if ((w->streams && CU(cuStreamCreate)(&l->stream, CU_STREAM_NON_BLOCKING)) ||
			CU(cuEventCreate)(&l->begin, CU_EVENT_DEFAULT) ||
			CU(cuEventCreate)(&l->end, CU_EVENT_DEFAULT))
			return false;
	}
	return true;
}

static bool launch(const struct way *w, struct lane *l, unsigned n, unsigned *all_us)
{
	__typeof__(cuLaunchKernel) *run = CU(cuLaunchKernel);
	__typeof__(cuEventRecord) *record = CU(cuEventRecord);
	unsigned kernels = w->irregular ? 1 + (unsigned)random() % w->kernels : w->kernels;
	uint64_t ns;
	void *params[] = {&ns};

	*all_us = 0;
	for (unsigned k = 0; k < n * kernels; k++, l = k % n ? l + 1 : l + 1 - n) {
		ns = w->least_ns + (uint64_t)random() % (w->most_ns - w->least_ns + 1);
		*all_us += (unsigned)(ns / US);
		if (w->contexts && CU(cuCtxSetCurrent)(l->ctx))
			return false;
		if (w->anew && !new_function(l))
			return false;
		if (k < n) {
			if (record(l->begin, l->stream))
				return false;
			l->begun_ns = bench_now_ns();
		}
		if (run(l->function, 1, 1, 1, 32, 1, 1, 0, l->stream, params, NULL) ||
			record(l->end, l->stream))
			return false;
	}
	return true;
}

static void is_called(void *argument)
{
	__atomic_store_n((uint32_t *)argument, 1, __ATOMIC_RELEASE);
}

static bool waits(const struct way *w, const struct lane *l)
{
	static uint32_t called;

	called = 0;
	switch (w->waits) {
	case SYNCS:
		return !CU(cuCtxSynchronize)();
	case POLLS:
		while (CU(cuEventQuery)(l->end) == CUDA_ERROR_NOT_READY)
			sleep_until(bench_now_ns() + 100 * US);
		return true;
	case IS_CALLED:
		if (CU(cuLaunchHostFunc)(l->stream, is_called, &called))
			return false;
		while (!__atomic_load_n(&called, __ATOMIC_ACQUIRE))
			sleep_until(bench_now_ns() + 100 * US);
		return true;
	default:
		return true;
	}
}

/* By events on both sides, the first of which is in an idle stream. */
static uint64_t ended(const struct lane *lanes, unsigned n)
{
	uint64_t last = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t end;
		float ms;

		if (CU(cuEventElapsedTime)(&ms, lanes[i].begin, lanes[i].end))
			return 0;
		end = lanes[i].begun_ns + (uint64_t)((double)ms * 1e6);
		last = end > last ? end : last;
	}
	return last;
}

/* The program: one kernel, or one in each stream, then a pause in which it ends, and so on. It does not ask whether
 * its work has ended, or it waits in one of several ways. */
static int program(const char *path, const struct way *w)
{
	struct diary *d = open_diary(path);
	struct lane lanes[STREAMS] = {0};
	unsigned n = w->streams ? w->streams : 1, all_us;

	if (!set_up(w, lanes, n))
		return 1;
	srandom(1);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t expected;

		if (!launch(w, lanes, n, &all_us))
			return 1;
		expected = bench_now_ns() + all_us * US;
		if (!waits(w, &lanes[0]))
			return 1;
		sleep_until(expected);
		d->floor[i] = bench_now_ns() - expected;
		/* The pause is long enough beside another program, and not in step with anything. */
		sleep_until(expected + all_us * US + 6 * MS + (uint64_t)random() % (8 * MS));
		d->end[i] = ended(lanes, n);
		if (!d->end[i])
			return 1;
		__atomic_store_n(&d->rounds, i + 1, __ATOMIC_RELEASE);
	}
	return 0;
}

static const struct way *way_of(const char *name)
{
	for (unsigned i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		if (!strcmp(ways[i].name, name))
			return &ways[i];
	return NULL;
}

static pid_t start(const struct way *w, const char *account, unsigned limit, char **argv)
{
	char text[4100];
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(text, sizeof(text), "%u", limit);
	setenv("GPUARB_CORE_LIMIT", text, 1);
	setenv("GPUARB_ACCOUNT", account, 1);
	snprintf(text, sizeof(text), "%s/libgpuarb-preload.so", build);
	setenv("LD_PRELOAD", text, 1);
	execv(argv[0], argv);
	die(w->name);
	return 0;
}

static struct gpuarb_view *open_view(void)
{
	char uuids[1][ARB_UUID_BYTES];
	struct gpuarb_view *view;
	struct gpuarb_error err;

	for (unsigned i = 0; i < 5000; i++) {
		if (gpuarb_control_list(directory, uuids, 1, &err) > 0 &&
			!gpuarb_view_open(directory, uuids[0], &view, &err))
			return view;
		sleep_until(bench_now_ns() + MS);
	}
	die("nobody has joined");
	return NULL;
}

/* Returns whether the program is in the running set. */
static bool runs(struct gpuarb_view *view, pid_t pid)
{
	if (gpuarb_view_read(view, &picture))
		die("the segment cannot be read");
	for (unsigned i = 0; i < picture.nclients; i++)
		if (picture.clients[i].pid == (unsigned)pid)
			return picture.clients[i].running;
	return false;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

struct sight {
	uint64_t ns;
	bool runs;
};

/* Computes how late each end was noticed: the first look after it that did not see the program running. */
static void judge(const struct sight *seen, unsigned n, const struct diary *d, int64_t late[ROUNDS])
{
	unsigned k = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		while (k < n && (seen[k].ns < d->end[i] || seen[k].runs))
			k++;
		late[i] = k < n ? (int64_t)(seen[k].ns - d->end[i]) : INT64_MAX;
	}
}

/* CPU time of the tracker, and of the thread in which the driver calls it back. */
struct cost {
	double tracker_s, driver_s;
};

/* Watches the program to its end, and records how late each end was noticed. Returns false if the program failed. */
static bool watch(
	struct gpuarb_view *view, pid_t pid, struct diary *d, int64_t late[ROUNDS], struct cost *cost)
{
	static struct sight seen[1 << 18];
	unsigned n = 0, rounds = 0;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (n < sizeof(seen) / sizeof(*seen)) {
			seen[n].runs = runs(view, pid);
			seen[n++].ns = picture.now_ns;
		}
		if (d->rounds != rounds && d->rounds < ROUNDS) {
			cost->tracker_s = bench_tracker_s(pid);
			cost->driver_s = bench_thread_s(pid, "cuda-EvtHandlr");
			rounds = d->rounds;
		}
		sleep_until(bench_now_ns() + 40 * US);
	}
	judge(seen, n, d, late);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Returns a percentile in us; the first values are not counted. */
static double part_of(int64_t values[ROUNDS], unsigned tenths)
{
	qsort(values + WARM, ROUNDS - WARM, sizeof(*values), by_value);
	return (double)values[WARM + (ROUNDS - WARM) * tenths / 10] / 1e3;
}

/* The result of one run of the program. */
struct result {
	int64_t late[ROUNDS], floor[ROUNDS];
	struct cost cost;
	double seconds;
	bool failed;
};

static void run(const struct way *w, struct result *r)
{
	char path[200], self[4100], load[4100];
	char *argv[] = {self, (char *)"--program", path, (char *)w->name, NULL};
	char *other[] = {load, (char *)"--kernel-us=500", (char *)"--duration=600", NULL};
	struct gpuarb_view *view;
	pid_t pid, beside = 0;
	struct diary *d;
	uint64_t begun;

	snprintf(path, sizeof(path), "%s/diary-%s", directory, w->name);
	snprintf(self, sizeof(self), "%s/bench_tracker", build);
	snprintf(load, sizeof(load), "%s/simload", build);
	unlink(path);
	d = open_diary(path);
	if (w->contended)
		beside = start(w, "other", 50, other);
	pid = start(w, w->name, w->limit, argv);
	view = open_view();
	r->cost = (struct cost){0, 0};
	begun = bench_now_ns();
	r->failed = !watch(view, pid, d, r->late, &r->cost);
	r->seconds = (double)(bench_now_ns() - begun) / 1e9;
	for (unsigned i = 0; i < ROUNDS; i++)
		r->floor[i] = (int64_t)d->floor[i];
	if (beside) {
		kill(beside, SIGKILL);
		waitpid(beside, NULL, 0);
	}
	gpuarb_view_close(view);
	munmap(d, sizeof(*d));
}

static void show(struct bench *b, const struct way *w, struct result *r)
{
	char name[64];

	snprintf(name, sizeof(name), "%s/median", w->name);
	bench_show(b, name, part_of(r->late, 5), "us", part_of(r->floor, 5));
	snprintf(name, sizeof(name), "%s/p90", w->name);
	bench_ratio(b, name, part_of(r->late, 9), "us", ALLOWED_US + part_of(r->floor, 9), 1);
	snprintf(name, sizeof(name), "%s/cpu", w->name);
	bench_ratio(b, name, 100 * r->cost.tracker_s / r->seconds, "% CPU", 1, 1);
	snprintf(name, sizeof(name), "%s/driver", w->name);
	bench_show(b, name, 100 * r->cost.driver_s / r->seconds, "% CPU", 1);
}

/* Keeps the run in which the program itself woke with the least delay, which says nothing about the tracker. */
static void measure(struct bench *b, const struct way *w)
{
	static struct result best, last;

	for (unsigned i = 0; i < ATTEMPTS && (!i || part_of(best.floor, 9) > QUIET_US); i++) {
		run(w, &last);
		if (last.failed) {
			fprintf(stderr, "bench_tracker: the program of %s has failed\n", w->name);
			b->failed = 1;
		}
		if (!i || part_of(last.floor, 9) < part_of(best.floor, 9))
			best = last;
	}
	show(b, w, &best);
}

int main(int argc, char **argv)
{
	ssize_t n = readlink("/proc/self/exe", build, sizeof(build) - 1);
	char text[4200];
	struct bench b;

	if (argc == 4 && !strcmp(argv[1], "--program") && way_of(argv[3]))
		return program(argv[2], way_of(argv[3]));
	bench_begin(&b, "tracker",
		"How late the end of work is noticed, where nobody waits for it but in the cases synced, "
		"polled\n"
		"and callback, in which the program does: its median beside\n"
		"how late the program's own sleep ends, and nine of ten against half a millisecond and "
		"that;\n"
		"and what the tracker costs meanwhile, and the thread in which the driver calls it back "
		"(the\n"
		"simulated one wakes several times for each call, a real one once). Cases by kernel length;\n"
		"new: of kernels that were never launched before; contended: beside one that always runs.",
		argc, argv);
	if (n <= 0 || !mkdtemp(directory))
		die(directory);
	build[n] = 0;
	*strrchr(build, '/') = 0;
	snprintf(text, sizeof(text), "%s/sim", build);
	setenv("LD_LIBRARY_PATH", text, 1);
	snprintf(text, sizeof(text), "%s/gpu", directory);
	setenv("GPUSIM_DIR", text, 1);
	setenv("GPUSIM_MODE", "share", 1);
	setenv("GPUARB_DIR", directory, 1);
	setenv("GPUARB_CONF", "/dev/null", 1);
	prctl(PR_SET_TIMERSLACK, 1);
	for (unsigned i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		if (bench_wants(&b, ways[i].name))
			measure(&b, &ways[i]);
	snprintf(text, sizeof(text), "rm -rf '%s'", directory);
	if (system(text))
		fprintf(stderr, "bench_tracker: %s is left\n", directory);
	return bench_end(&b);
}

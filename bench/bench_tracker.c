/*
 * How long after the end of a process's work its tracker has taken it out of the running set, where the
 * program does not wait for it: by the clock of the program, whose kernels take a known time on the simulated
 * GPU, and by an observer of the segment.
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

#include "report.h"

#define ROUNDS  200
#define WARM    20
#define STREAMS 16
#define US      1000ull
#define MS      1000000ull
/* A fraction of a millisecond. */
#define ALLOWED_US 500
/* If the machine itself is later than this, one time in ten, it is measured again, so often at most. */
#define QUIET_US 120
#define ATTEMPTS 5

static char directory[] = "/dev/shm/gpuarb-tracker-XXXXXX", build[4000];
static struct gpuarb_picture picture;
/* Known to the simulated GPU by name. */
static const char spin_ptx[] = ".version 7.0\n.target sm_50\n.visible .entry spin_ns(.param .u64 ns) {}\n";

/* Shared by the program and its observer. */
struct diary {
	uint32_t rounds;        /* whose end is written */
	uint64_t end[ROUNDS];   /* when the work ended */
	uint64_t floor[ROUNDS]; /* how late the program itself wakes, which sleeps so long */
};

struct way {
	const char *name;
	uint64_t least_ns, most_ns; /* of a kernel */
	unsigned limit;
	bool anew;        /* each time another one, which was never launched before */
	bool company;     /* somebody else runs all the time */
	unsigned streams; /* one in each at once; 0: the default stream alone */
	unsigned kernels; /* one behind the other */
};

static const struct way ways[] = {
	{"300us", 300 * US, 300 * US, 90, false, false, 0, 1},
	{"1ms", 1 * MS, 1 * MS, 90, false, false, 0, 1},
	{"10ms", 10 * MS, 10 * MS, 90, false, false, 0, 1},
	{"unlimited", 1 * MS, 1 * MS, 100, false, false, 0, 1},
	{"varied", 300 * US, 20 * MS, 90, false, false, 0, 1},
	{"new", 300 * US, 20 * MS, 90, true, false, 0, 1},
	{"streams", 300 * US, 2 * MS, 90, false, false, 10, 1},
	{"burst", 300 * US, 2 * MS, 90, false, false, 0, 10},
	{"company-1ms", 1 * MS, 1 * MS, 45, false, true, 0, 1},
	{"company-10ms", 10 * MS, 10 * MS, 45, false, true, 0, 1},
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

/*
 * The program: one kernel, or one in each stream, a pause in which it ends, and so on. It asks nobody whether
 * it has. When it did is known afterwards, by events on both sides, the first of them in an idle stream.
 */
static int program(char **argv)
{
	__typeof__(cuLaunchKernel) *launch = (__typeof__(cuLaunchKernel) *)symbol("cuLaunchKernel");
	__typeof__(cuEventCreate) *create = (__typeof__(cuEventCreate) *)symbol("cuEventCreate");
	__typeof__(cuEventRecord) *record = (__typeof__(cuEventRecord) *)symbol("cuEventRecord");
	__typeof__(cuStreamCreate) *new_stream = (__typeof__(cuStreamCreate) *)symbol("cuStreamCreate");
	__typeof__(cuEventElapsedTime) *elapsed =
		(__typeof__(cuEventElapsedTime) *)symbol("cuEventElapsedTime");
	__typeof__(cuModuleLoadData) *load = (__typeof__(cuModuleLoadData) *)symbol("cuModuleLoadData");
	__typeof__(cuModuleGetFunction) *get =
		(__typeof__(cuModuleGetFunction) *)symbol("cuModuleGetFunction");
	uint64_t least = strtoull(argv[3], NULL, 10), most = strtoull(argv[4], NULL, 10), ns, begun;
	bool anew = !strcmp(argv[5], "new");
	unsigned n = (unsigned)atoi(argv[6]), behind = (unsigned)atoi(argv[7]), last = n ? n : 1;
	struct diary *d = open_diary(argv[2]);
	void *params[] = {&ns};
	CUstream streams[STREAMS] = {NULL};
	CUevent begin, end[STREAMS];
	CUcontext ctx;
	CUmodule module;
	CUfunction function;

	if (((__typeof__(cuInit) *)symbol("cuInit"))(0) ||
		((__typeof__(cuCtxCreate_v2) *)symbol("cuCtxCreate_v2"))(&ctx, 0, 0) ||
		load(&module, spin_ptx) || get(&function, module, "spin_ns") ||
		create(&begin, CU_EVENT_DEFAULT))
		return 1;
	for (unsigned i = 0; i < last; i++)
		if ((n && new_stream(&streams[i], CU_STREAM_NON_BLOCKING)) ||
			create(&end[i], CU_EVENT_DEFAULT))
			return 1;
	srandom(1);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t all = 0, expected;
		float ms, latest = 0;

		if (anew && (load(&module, spin_ptx) || get(&function, module, "spin_ns")))
			return 1;
		if (record(begin, streams[0]))
			return 1;
		begun = bench_now_ns();
		for (unsigned k = 0; k < last * behind; k++) {
			CUstream stream = streams[k % last];

			ns = least + (uint64_t)random() % (most - least + 1);
			all += ns;
			if (launch(function, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL) ||
				record(end[k % last], stream))
				return 1;
		}
		expected = bench_now_ns() + all;
		sleep_until(expected);
		d->floor[i] = bench_now_ns() - expected;
		/* Long enough beside another, and not in step with anything. */
		sleep_until(expected + all + 6 * MS + (uint64_t)random() % (8 * MS));
		for (unsigned k = 0; k < last; k++) {
			if (elapsed(&ms, begin, end[k]))
				return 1;
			latest = ms > latest ? ms : latest;
		}
		d->end[i] = begun + (uint64_t)((double)latest * 1e6);
		__atomic_store_n(&d->rounds, i + 1, __ATOMIC_RELEASE);
	}
	return 0;
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

/* Is the program in the running set? */
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

/* From the first sight after its end at which it did not run. */
static void judge(const struct sight *seen, unsigned n, const struct diary *d, int64_t late[ROUNDS])
{
	unsigned k = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		while (k < n && (seen[k].ns < d->end[i] || seen[k].runs))
			k++;
		late[i] = k < n ? (int64_t)(seen[k].ns - d->end[i]) : INT64_MAX;
	}
}

/* CPU time of the tracker, and of the thread that the driver has to call it back. */
struct cost {
	double tracker_s, driver_s;
};

/* Watches the program to its end. How late each end was noticed; false: the program failed. */
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

/* In us; the first ones are not counted. */
static double part_of(int64_t values[ROUNDS], unsigned tenths)
{
	qsort(values + WARM, ROUNDS - WARM, sizeof(*values), by_value);
	return (double)values[WARM + (ROUNDS - WARM) * tenths / 10] / 1e3;
}

/* What came of one run of the program. */
struct result {
	int64_t late[ROUNDS], floor[ROUNDS];
	struct cost cost;
	double seconds;
	bool failed;
};

static void run(const struct way *w, struct result *r)
{
	char path[200], least[32], most[32], streams[32], kernels[32], self[4100], load[4100];
	char *argv[] = {self, (char *)"--program", path, least, most, (char *)(w->anew ? "new" : "same"),
		streams, kernels, NULL};
	char *other[] = {load, (char *)"--kernel-us=500", (char *)"--duration=600", NULL};
	struct gpuarb_view *view;
	pid_t pid, beside = 0;
	struct diary *d;
	uint64_t begun;

	snprintf(path, sizeof(path), "%s/diary-%s", directory, w->name);
	snprintf(least, sizeof(least), "%llu", (unsigned long long)w->least_ns);
	snprintf(most, sizeof(most), "%llu", (unsigned long long)w->most_ns);
	snprintf(streams, sizeof(streams), "%u", w->streams);
	snprintf(kernels, sizeof(kernels), "%u", w->kernels);
	snprintf(self, sizeof(self), "%s/bench_tracker", build);
	snprintf(load, sizeof(load), "%s/simload", build);
	unlink(path);
	d = open_diary(path);
	if (w->company)
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

/* The run in which the program itself woke with the least delay; that says nothing about the tracker. */
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

	if (argc == 8 && !strcmp(argv[1], "--program"))
		return program(argv);
	bench_begin(&b, "tracker",
		"How late the end of work that the program does not wait for is noticed: its median beside\n"
		"how late the program's own sleep ends, and nine of ten against half a millisecond and "
		"that;\n"
		"and what the tracker costs meanwhile, and the thread in which the driver calls it back "
		"(the\n"
		"simulated one wakes several times for each call, a real one once). Cases by kernel length;\n"
		"new: of kernels that were never launched before; company: beside one that always runs.",
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

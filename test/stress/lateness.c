#include "test/stress/lateness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "test/harness.h"

#include "shm/base/os.h"

static __thread struct {
	bool on;
	bool fresh; /* the library has not looked at the clock yet */
	uint64_t length_ns, until_ns, own_ns, ran_ns;
	/* Since the last sleep, or since the beginning. */
	uint64_t from_ns, cpu_ns, delay_ns, others_ns;
	long switches, preempted, faults;
} me;

#define OTHERS 8
/* If a stretch is longer than its time in the books by more than this, which no reading of the books takes, something
 * else had the processor. */
#define STOLEN_NS 1000000u

static __thread struct {
	unsigned uses;
	int own; /* schedstat of this thread, and of the others */
	int others[OTHERS];
	unsigned nothers;
} thread;

static uint64_t read_clock(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

static uint64_t cpu_ns(void)
{
	return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* Gives how long a thread was ready to run but did not run, since it exists; 0 if it is gone. */
static uint64_t delay_of(int fd)
{
	unsigned long long ran, waited;
	char text[96] = "";

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0 || sscanf(text, "%llu %llu", &ran, &waited) != 2)
		return 0;
	return waited;
}

static int open_schedstat(const char *number)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/schedstat", number);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Finds the other threads of this process; they come and go rarely. */
static void find_others(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *e;

	for (unsigned i = 0; i < thread.nothers; i++)
		close(thread.others[i]);
	thread.nothers = 0;
	T_CHECK(tasks, "/proc/self/task: %s", strerror(errno));
	while ((e = readdir(tasks)) && thread.nothers < OTHERS)
		if (e->d_name[0] != '.' && atoi(e->d_name) != gettid()) {
			int fd = open_schedstat(e->d_name);

			if (fd >= 0)
				thread.others[thread.nothers++] = fd;
		}
	closedir(tasks);
}

static uint64_t others_delay_ns(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < thread.nothers; i++)
		sum += delay_of(thread.others[i]);
	return sum;
}

static struct rusage usage_now(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage;
}

/* Gives how often this thread went to sleep by itself. */
static long switches(void)
{
	return usage_now().ru_nvcsw;
}

static __thread char story[240];
static __thread uint64_t story_ns;

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void section_begin(void)
{
	struct rusage usage = usage_now();

	me.switches = usage.ru_nvcsw;
	me.preempted = usage.ru_nivcsw;
	me.faults = usage.ru_minflt;
	me.others_ns = others_delay_ns();
	me.cpu_ns = cpu_ns();
	me.delay_ns = delay_of(thread.own);
	me.from_ns = now_ns();
}

/* Gives the part of the time since the last sleep that the library itself used. */
static uint64_t own_part(uint64_t now)
{
	uint64_t own = now - me.from_ns, others = others_delay_ns(), ran = cpu_ns() - me.cpu_ns;

	own -= less(delay_of(thread.own) - me.delay_ns, own);
	if (switches() != me.switches)
		own -= others > me.others_ns ? less(others - me.others_ns, own) : 0;
	else
		/* Without a sleep it ran all the time, except while a hypervisor had the processor. The kernel sees
		 * only a part of that and counts the rest as running. */
		own = own > ran + STOLEN_NS ? 0 : less(own, ran);
	if (own > story_ns) {
		struct rusage usage = usage_now();

		story_ns = own;
		snprintf(story, sizeof(story),
			"of %.2f ms: ran %.2f, ready %.2f, slept %ld times, other threads ready %.2f, lost "
			"the processor %ld times, %ld page faults",
			(double)(now - me.from_ns) / 1e6, (double)(cpu_ns() - me.cpu_ns) / 1e6,
			(double)(delay_of(thread.own) - me.delay_ns) / 1e6, switches() - me.switches,
			(double)(int64_t)(others - me.others_ns) / 1e6, usage.ru_nivcsw - me.preempted,
			usage.ru_minflt - me.faults);
	}
	return own;
}

static void section_end(void)
{
	uint64_t now = now_ns(), own;

	if (now <= me.until_ns)
		return;
	own = less(own_part(now), now - later(me.from_ns, me.until_ns));
	me.own_ns += own;
	if (switches() == me.switches)
		me.ran_ns += own;
}

/* Its time begins when it first reads the clock, unless it held itself up before that. */
static uint64_t watched_clock(void)
{
	uint64_t now = now_ns();

	if (me.on && me.fresh) {
		me.fresh = false;
		me.until_ns = now - own_part(now) + me.length_ns;
		section_begin();
	}
	return now;
}

static int timed_wait(arb_u32 *word, uint32_t value, uint64_t until_ns)
{
	struct timespec ts = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
	uint64_t began, ended;
	int r;

	if (me.on)
		section_end();
	began = now_ns();
	r = (int)syscall(SYS_futex, &word->v, FUTEX_WAIT_BITSET, value, &ts, NULL, FUTEX_BITSET_MATCH_ANY);
	r = r == 0 || errno == EAGAIN ? 0 : -errno;
	ended = now_ns();
	if (me.on) {
		/* It asked to sleep beyond its time, so its time is over only then. */
		began = later(began, me.until_ns);
		ended = less(ended, until_ns);
		if (ended > began)
			me.own_ns += ended - began;
		section_begin();
	}
	return r;
}

void lateness_watch(void)
{
	static const struct arb_os_hooks hooks = {.now_ns = watched_clock, .futex_wait_until = timed_wait};

	arb_os_hooks = &hooks;
}

void lateness_begin(uint64_t length_ns)
{
	if (thread.uses == 0) {
		char number[16];

		snprintf(number, sizeof(number), "%d", gettid());
		thread.own = open_schedstat(number);
		T_CHECK(thread.own >= 0, "schedstat: %s", strerror(errno));
	}
	/* The first call makes the library start its thread. */
	if (thread.uses < 4 || thread.uses % 16 == 0)
		find_others();
	thread.uses++;
	me.on = me.fresh = true;
	me.length_ns = length_ns;
	me.until_ns = now_ns() + length_ns;
	me.own_ns = me.ran_ns = story_ns = 0;
	story[0] = '\0';
	section_begin();
}

uint64_t lateness_stolen_ns(void)
{
	unsigned long long ticks = 0;
	FILE *file = fopen("/proc/stat", "re");

	if (file && fscanf(file, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &ticks) != 1)
		ticks = 0;
	if (file)
		fclose(file);
	return ticks * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
}

const char *lateness_story(void)
{
	return story;
}

uint64_t lateness_end(void)
{
	section_end();
	me.on = false;
	return me.own_ns;
}

uint64_t lateness_ran_ns(void)
{
	return me.ran_ns;
}

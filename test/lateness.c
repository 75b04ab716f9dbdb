#include "lateness.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

#include "../shm/os.h"

static __thread struct {
	bool on;
	uint64_t until_ns, own_ns;
	/* Since the last sleep, or the beginning. */
	uint64_t from_ns, cpu_ns, delay_ns;
	long switches;
} me;

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* How long this thread was ready to run and did not, since it exists. */
static uint64_t delay_ns(void)
{
	static __thread int fd = -1;
	static __thread pid_t whose;
	unsigned long long ran, waited;
	char text[96] = "";

	if (whose != gettid()) {
		fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
		whose = gettid();
	}
	T_CHECK(fd >= 0 && pread(fd, text, sizeof(text) - 1, 0) > 0 &&
			sscanf(text, "%llu %llu", &ran, &waited) == 2,
		"schedstat: %s", strerror(errno));
	return waited;
}

/* How often it went to sleep by itself. */
static long switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

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
	me.switches = switches();
	me.cpu_ns = cpu_ns();
	me.delay_ns = delay_ns();
	me.from_ns = arb_os_now_ns();
}

static void section_end(void)
{
	uint64_t now = arb_os_now_ns(), own, delay;

	if (now <= me.until_ns)
		return;
	delay = delay_ns() - me.delay_ns;
	own = now - me.from_ns;
	own -= less(delay, own);
	/* Without a sleep of its own it ran all the time, but for what a hypervisor took away. */
	if (switches() == me.switches)
		own = less(own, cpu_ns() - me.cpu_ns);
	me.own_ns += less(own, now - later(me.from_ns, me.until_ns));
}

static int timed_wait(arb_u32 *word, uint32_t value, uint64_t until_ns)
{
	struct timespec ts = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
	uint64_t began, ended;
	int r;

	if (me.on)
		section_end();
	began = arb_os_now_ns();
	r = (int)syscall(SYS_futex, &word->v, FUTEX_WAIT_BITSET, value, &ts, NULL, FUTEX_BITSET_MATCH_ANY);
	r = r == 0 || errno == EAGAIN ? 0 : -errno;
	ended = arb_os_now_ns();
	if (me.on) {
		/* It asked to sleep beyond its time. */
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
	static const struct arb_os_hooks hooks = {.futex_wait_until = timed_wait};

	arb_os_hooks = &hooks;
}

void lateness_begin(uint64_t until_ns)
{
	me.on = true;
	me.until_ns = until_ns;
	me.own_ns = 0;
	section_begin();
}

uint64_t lateness_end(void)
{
	section_end();
	me.on = false;
	return me.own_ns;
}

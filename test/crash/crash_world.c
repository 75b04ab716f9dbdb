#include "test/crash/crash.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/base/atomic.h"
#include "shm/base/os.h"
#include "test/crash/stepper.h"

static uint64_t *shared_clock;
static enum crash_sleep child_sleep;
static bool in_child;
bool crash_pausing;
static struct world *sleeper;
static void (*sleeper_meanwhile)(struct world *w);

static uint64_t clock_now(void)
{
	return __atomic_add_fetch(shared_clock, 1000, __ATOMIC_SEQ_CST);
}

static int clock_sleep(arb_u32 *word, uint32_t value, uint64_t timeout_ns)
{
	void (*meanwhile)(struct world *) = sleeper_meanwhile;

	if (in_child)
		switch (child_sleep) {
		case SLEEP_BEGINS:
			child_sleep = SLEEP_TIMES_OUT;
			stepper_begin();
			return 0;
		case SLEEP_ENDS:
			stepper_end();
			_exit(0);
		case SLEEP_STOPS:
			raise(SIGSTOP);
			break;
		case SLEEP_TIMES_OUT:
			break;
		}
	if (meanwhile) {
		sleeper_meanwhile = NULL;
		meanwhile(sleeper);
	}
	if (arb_load32(word) != value)
		return 0;
	world_clock_skip(timeout_ns);
	return -ETIMEDOUT;
}

void world_clock_start(void)
{
	static const struct arb_os_hooks hooks = {.now_ns = clock_now, .futex_wait = clock_sleep};

	shared_clock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared_clock == MAP_FAILED)
		exit(1);
	*shared_clock = arb_os_now_ns();
	arb_os_hooks = &hooks;
}

void world_clock_skip(uint64_t ns)
{
	__atomic_add_fetch(shared_clock, ns, __ATOMIC_SEQ_CST);
}

uint64_t world_clock_now(void)
{
	return *shared_clock;
}

void world_clock_set(uint64_t ns)
{
	*shared_clock = ns;
}

void world_wrong(struct world *w, const char *format, ...)
{
	char where[128], text[512];
	va_list ap;

	w->broken = true;
	w->tally->violations++;
	if (w->said++ >= 8)
		return;
	stepper_name(w->address, where, sizeof(where));
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	fprintf(stderr, "crash: %s: after %zu instructions, at %s: %s\n", w->op->name, w->step, where, text);
}

void world_must(int r, const char *what)
{
	if (r >= 0)
		return;
	if (in_child && crash_pausing)
		_exit(0);
	fprintf(stderr, "crash: cannot %s: %s\n", what, strerror(-r));
	_exit(99);
}

struct gpuarb_client *world_client(
	struct world *w, const char *account, unsigned core_pct, uint64_t mem_bytes)
{
	struct gpuarb_options o = {.gpu = w->gpu,
		.dir = w->dir,
		.conf = "/dev/null",
		.account = account,
		.core_pct = core_pct,
		.mem_bytes = mem_bytes,
		.ignore_env = !w->op->creates};
	struct gpuarb_error err = {0, ""};
	struct gpuarb_client *c = NULL;
	int r = gpuarb_client_open(&o, &c, &err);

	if (r < 0)
		fprintf(stderr, "crash: %s: %s\n", w->op->name, err.text);
	world_must(r, "open a client");
	return c;
}

void world_open(struct world *w)
{
	struct gpuarb_options o = {.gpu = w->gpu, .dir = w->dir, .conf = "/dev/null", .account = "alpha"};
	char slots[16];

	snprintf(w->gpu, sizeof(w->gpu), "gpu-%u", w->serial++);
	snprintf(slots, sizeof(slots), "%u", w->op->slots ? w->op->slots : 6);
	setenv("GPUARB_SLOTS", slots, 1);
	setenv("GPUARB_BORROW", w->op->borrows ? "idle" : "off", 1);
	setenv("GPUARB_POLICY", w->op->policy ? w->op->policy : "concurrent", 1);
	/* With the policy `memory` there is room for 1 MiB: see crash_memory.c. */
	setenv("GPUARB_PHYSICAL_MEMORY_MB", "501", 1);
	setenv("GPUARB_RESERVE_FIXED_MB", "500", 1);
	setenv("GPUARB_RESERVE_PER_CLIENT_MB", "0", 1);
	setenv("GPUARB_SWITCH_TIME", "fixed", 1);
	setenv("GPUARB_SWITCH_FIXED_MS", "20", 1);
	setenv("GPUARB_SWITCH_IDLE_MS", "10", 1);
	w->broken = false;
	w->a_bytes = w->b_bytes = 0;
	if (w->op->creates)
		return;
	/* The first client makes the segments; how large they are comes from the environment. */
	world_must(gpuarb_client_open(&o, &w->a, NULL), "open a survivor");
	w->b = w->op->b_account ? world_client(w, w->op->b_account, 0, 4096) : NULL;
}

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(name);
}

void world_remove(const char *dir)
{
	nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void world_close(struct world *w)
{
	gpuarb_client_close(w->b);
	gpuarb_client_close(w->a);
	w->a = w->b = NULL;
	if (w->copy.header)
		arb_segment_close(&w->copy);
	arb_control_map_close(&w->admin);
	world_remove(w->dir);
}

void world_align(struct world *w)
{
	struct arb_snap snap;
	uint64_t to;

	if (w->op->creates || w->op->real)
		return;
	world_must(gpuarb_client_tick(w->a), "tick");
	world_must(arb_running_read(&w->a->seg, &snap), "read the running set");
	/* This is late enough for the debts of the previous run to have lapsed. */
	to = (snap.win_start + 50 * snap.win_ticks) / ARB_TICKS_PER_NS + 10 * MS;
	if (to > *shared_clock)
		*shared_clock = to;
	world_must(gpuarb_client_tick(w->a), "tick");
	if (w->b)
		world_must(gpuarb_client_tick(w->b), "tick");
	w->events_before = arb_load64(&w->a->seg.header->event_next);
}

static void corpse(void *world)
{
	struct world *w = world;

	in_child = true;
	child_sleep = w->op->corpse_sleep;
	w->op->corpse(w);
}

/* Runs a process that stops where it chooses, lives through what happens around it, and dies. */
static pid_t stopped_corpse(struct world *w)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		corpse(w);
		raise(SIGSTOP);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status))
		return -1;
	if (w->op->between)
		w->op->between(w);
	return child;
}

void world_bury(struct world *w)
{
	pid_t child;

	if (!w->op->corpse)
		return;
	child = w->op->corpse_steps ? stepper_spawn(corpse, w) : stopped_corpse(w);
	if (child < 0) {
		world_wrong(w, "the process that was to die first did not get there");
		return;
	}
	if (w->op->corpse_steps)
		stepper_walk(child, (size_t)rand() % w->op->corpse_steps);
	stepper_kill(child);
}

void world_child(void *world)
{
	struct world *w = world;

	in_child = true;
	child_sleep = w->op->sleep;
	if (w->op->prepare)
		w->op->prepare(w);
	if (w->op->sleep != SLEEP_BEGINS)
		stepper_begin();
	w->op->operate(w);
	stepper_end();
}

void world_wait(struct world *w, void (*meanwhile)(struct world *w))
{
	int r;

	sleeper = w;
	sleeper_meanwhile = meanwhile;
	r = gpuarb_client_wait(w->b, NULL, LEASE_BOUND_NS);
	if (sleeper_meanwhile) {
		sleeper_meanwhile = NULL;
		world_wrong(w, "the one who was to wait did not have to");
		meanwhile(w);
	}
	if (r < 0)
		world_wrong(w, "the one who waited did not get the lease: %s", strerror(-r));
	gpuarb_client_leave(w->b, 0);
}

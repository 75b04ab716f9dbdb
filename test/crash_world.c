#include "crash.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../shm/atomic.h"
#include "../shm/check.h"
#include "../shm/events.h"
#include "../shm/os.h"
#include "../shm/reclaim.h"
#include "../shm/slot.h"
#include "stepper.h"

/* A reservation and a few looks: long before a survivor would have to evict somebody. */
#define LEASE_BOUND_NS (100 * MS)

static uint64_t *shared_clock;
static enum crash_sleep child_sleep;
static bool in_child;
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
	static const struct arb_os_hooks hooks = { .now_ns = clock_now, .futex_wait = clock_sleep };

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
	fprintf(stderr, "crash: cannot %s: %s\n", what, strerror(-r));
	_exit(99);
}

struct gpuarb_client *world_client(struct world *w, const char *account, unsigned core_pct, uint64_t mem_bytes)
{
	struct gpuarb_options o = { .gpu = w->gpu, .dir = w->dir, .conf = "/dev/null", .account = account,
		.core_pct = core_pct, .mem_bytes = mem_bytes, .ignore_env = !w->op->creates };
	struct gpuarb_error err = { 0, "" };
	struct gpuarb_client *c = NULL;
	int r = gpuarb_client_open(&o, &c, &err);

	if (r < 0)
		fprintf(stderr, "crash: %s: %s\n", w->op->name, err.text);
	world_must(r, "open a client");
	return c;
}

void world_open(struct world *w)
{
	struct gpuarb_options o = { .gpu = w->gpu, .dir = w->dir, .conf = "/dev/null", .account = "alpha" };
	char slots[16];

	snprintf(w->gpu, sizeof(w->gpu), "gpu-%u", w->serial++);
	snprintf(slots, sizeof(slots), "%u", w->op->slots ? w->op->slots : 6);
	setenv("GPUARB_SLOTS", slots, 1);
	setenv("GPUARB_POLICY", w->op->policy ? w->op->policy : "concurrent", 1);
	w->broken = false;
	w->a_bytes = w->b_bytes = 0;
	if (w->op->creates)
		return;
	/* The first one makes the segments, by the environment. */
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
	/* Far enough for debts of the run before to have lapsed. */
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

/* Stops where it likes to, lives to see what happens around it, and dies. */
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

static void say(void *argument, const char *sentence)
{
	world_wrong(argument, "%s", sentence);
}

/* The invariants, and one more that a segment at rest must keep: accounts have been billed all of busy. */
static void check(struct world *w, struct arb_segment *seg)
{
	struct arb_account_snap acct;
	struct arb_snap run;
	uint64_t sum = 0;
	int r = arb_check(seg, say, w);

	if (r < 0)
		world_wrong(w, "the segment cannot be checked: %s", strerror(-r));
	if (arb_running_read(seg, &run) < 0)
		return;
	for (uint32_t i = 0; i < arb_load32(&seg->header->accounts_high); i++)
		if (arb_account_read(seg, i, &acct) == 0)
			sum += arb_account_usage(seg, &run, &acct, false, false);
	if (sum != run.busy && !w->op->forgets)
		world_wrong(w, "accounts have been billed %lld ticks more than the GPU was busy",
			(long long)(sum - run.busy));
}

static uint64_t memory_counted(const struct arb_segment *seg)
{
	struct arb_account_snap acct;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < arb_load32(&seg->header->accounts_high); i++)
		if (arb_account_read(seg, i, &acct) == 0)
			sum += acct.mem_used;
	return sum;
}

/* Nobody runs, nobody waits, all but the survivors' slots are free, and their memory is all there is. */
static void check_rest(struct world *w, struct arb_segment *seg, uint32_t survivors, uint64_t bytes)
{
	struct arb_snap s;

	check(w, seg);
	if (arb_running_read(seg, &s) < 0)
		return;
	for (uint32_t i = 0; i < s.words; i++)
		if (s.running[i] | s.waiting[i] | s.evicted[i])
			world_wrong(w, "somebody is left in the set: running %llx, waiting %llx, evicted %llx",
				(unsigned long long)s.running[i], (unsigned long long)s.waiting[i],
				(unsigned long long)s.evicted[i]);
	if (s.reserved || s.weight)
		world_wrong(w, "nobody is left, but W is %u and the reservation %llx", s.weight,
			(unsigned long long)s.reserved);
	for (uint32_t i = 0; i < seg->nslots; i++)
		if (!(survivors >> i & 1) && arb_load32(&seg->slots[i].state) != ARB_SLOT_FREE)
			world_wrong(w, "slot %u has not been freed: its state is %u", i, arb_load32(&seg->slots[i].state));
	if (memory_counted(seg) != bytes)
		world_wrong(w, "%llu bytes are counted, the survivors have %llu", (unsigned long long)memory_counted(seg),
			(unsigned long long)bytes);
}

static void sweep(struct world *w, struct arb_segment *seg, const struct arb_rules *rules)
{
	struct arb_reclaimed what;

	for (uint32_t i = 0; i < seg->nslots; i++) {
		int r = arb_reclaim_slot(seg, i, rules, &what);

		if (r < 0)
			world_wrong(w, "slot %u cannot be reclaimed: %s", i, strerror(-r));
	}
}

/* One who comes after: it finds a place, gets the lease and memory, and leaves. */
static void check_newcomer(struct world *w)
{
	struct gpuarb_options o = { .gpu = w->gpu, .dir = w->dir, .conf = "/dev/null", .account = "late",
		.ignore_env = !w->op->creates };
	struct gpuarb_error err = { 0, "" };
	struct gpuarb_client *c;
	int r = gpuarb_client_open(&o, &c, &err);

	if (r < 0) {
		world_wrong(w, "a newcomer cannot join: %s", err.text);
		return;
	}
	if ((r = gpuarb_client_wait(c, NULL, LEASE_BOUND_NS)) < 0)
		world_wrong(w, "a newcomer does not get the lease: %s", strerror(-r));
	if ((r = gpuarb_client_mem_reserve(c, 64)) < 0)
		world_wrong(w, "a newcomer does not get memory: %s", strerror(-r));
	gpuarb_client_leave(c, 0);
	gpuarb_client_close(c);
}

static void lease(struct world *w, struct gpuarb_client *c, const char *who)
{
	struct arb_snap s;
	int r = gpuarb_client_wait(c, NULL, LEASE_BOUND_NS);

	if (r < 0) {
		world_wrong(w, "%s does not get the lease: %s", who, strerror(-r));
		return;
	}
	/* Each member looks at the one behind it; after a few rounds the dead are out. */
	for (uint32_t i = 0; i <= c->seg.nslots; i++) {
		if (((r = gpuarb_client_tick(c)) < 0 && r != -EDQUOT) ||
			(w->b && (r = gpuarb_client_tick(w->b)) < 0 && r != -EDQUOT))
			world_wrong(w, "%s cannot go on: %s", who, strerror(-r));
	}
	if (arb_running_read(&c->seg, &s) < 0)
		return;
	for (uint32_t i = 0; i < c->seg.nslots; i++)
		if (arb_bit_test(s.running, i) && arb_slot_alive(&c->seg, i) == 0)
			world_wrong(w, "slot %u is dead and still in the running set", i);
}

static uint32_t bit_of(const struct gpuarb_client *c)
{
	return c ? 1u << c->me.slot : 0;
}

void world_recover(struct world *w)
{
	if (w->op->creates)
		w->a = world_client(w, "alpha", 0, 0);
	check(w, &w->a->seg);
	if (w->op->after)
		w->op->after(w);
	lease(w, w->a, "a survivor");
	gpuarb_client_leave(w->a, 0);
	if (w->b) {
		lease(w, w->b, "the other survivor");
		gpuarb_client_leave(w->b, 0);
	}
	sweep(w, &w->a->seg, &w->a->rules);
	check_rest(w, &w->a->seg, bit_of(w->a) | bit_of(w->b), w->a_bytes + w->b_bytes);
	check_newcomer(w);
	check_rest(w, &w->a->seg, bit_of(w->a) | bit_of(w->b), w->a_bytes + w->b_bytes);
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

void world_recover_copy(struct world *w)
{
	struct arb_create create = { w->a->seg.nslots, 0600, (gid_t)-1 };
	size_t from = offsetof(struct arb_state_header, head);
	uint64_t now = *shared_clock;
	char gpu[80];

	if (!w->copy.header) {
		snprintf(gpu, sizeof(gpu), "%s.copy", w->gpu);
		world_must(arb_segment_open(&w->copy, w->dir, gpu, true, &create, NULL), "make a copy");
	}
	memcpy((char *)w->copy.header + from, (char *)w->a->seg.header + from,
		(size_t)((char *)w->copy.events - (char *)w->copy.header) - from);
	check(w, &w->copy);
	sweep(w, &w->copy, &w->a->rules);
	check_rest(w, &w->copy, 0, 0);
	w->tally->states++;
	/* For the victim, which is stopped, no time has passed. */
	*shared_clock = now;
}

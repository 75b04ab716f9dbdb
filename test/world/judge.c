#include "test/world/judge.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "shm/segment/account.h"
#include "shm/segment/audit.h"
#include "shm/base/atomic.h"
#include "shm/segment/check.h"
#include "shm/client/client_state.h"
#include "shm/segment/running.h"
#include "shm/base/text.h"
#include "test/world/debts.h"
#include "test/sim/device/model.h"
#include "test/world/faults.h"
#include "test/world/gpu.h"
#include "gpuarb/client.h"
#include "gpuarb/control.h"
#include "test/world/records.h"
#include "test/world/windows.h"

/* A client that was woken or let in must move within this time, unless a thread was held up. */
#define LOST_NS (2 * WORLD_MS)
/* Time between two looks at sleepers. */
#define SLEEPERS_NS (50 * WORLD_US)
/* After this many steps the record is checked even if it has not changed, because time has passed. */
#define SAME_STEPS 8
/* Worlds whose whole segment is checked so seldom give figures: their record is checked seldom, too. Random worlds
 * search for faults. */
#define LONG_EVERY 1000

struct world_terms world_terms;

static struct {
	struct arb_segment seg;
	bool open;
	uint64_t files; /* world_files() when the segment was opened */
	uint64_t steps, head;
	uint64_t since_whole;           /* steps since the whole segment was checked */
	uint64_t sleepers_ns;           /* when sleepers were last looked at */
	uint64_t reserved, reserved_at; /* the reservation that was last seen, and since when */
	uint64_t t, v, busy;            /* clocks that never go back */
} judge;

/* What the audit of accounts without members has seen in this segment. */
static struct {
	struct arb_audit_seen seen[2 * ARB_SLOTS_MAX];
	uint32_t next;
} audited;

static void say(void *argument, const char *sentence)
{
	(void)argument;
	world_fail("%s", sentence);
}

static void begin_with_another(void)
{
	memset(&audited, 0, sizeof(audited));
	records_begin();
	windows_begin();
	debts_begin();
}

struct arb_segment *judge_segment(void)
{
	/* The file may have been removed and created anew: what was seen in the old one does not hold any more. */
	if (judge.open && judge.files != world_files() &&
		world_file(WORLD_STATE, NULL) != (void *)judge.seg.header) {
		arb_segment_close(&judge.seg);
		judge.open = false;
		judge.t = judge.v = judge.busy = judge.head = judge.reserved = 0;
		begin_with_another();
	}
	judge.files = world_files();
	if (!judge.open)
		judge.open = arb_segment_open(&judge.seg, WORLD_DIR, WORLD_GPU, false, NULL, NULL) == 0;
	return judge.open ? &judge.seg : NULL;
}

/* Checks the law and the invariants of the segments of the other GPUs. */
static void check_others(void)
{
	for (int i = 1; world_gpu_used() && i < sim_device_count(); i++) {
		struct sim_device_info info;
		struct arb_segment seg;
		char path[160];

		sim_device_info(i, &info);
		snprintf(path, sizeof(path), "%s/state/%s", WORLD_DIR, info.uuid);
		if (!world_file(path, NULL) ||
			arb_segment_open(&seg, WORLD_DIR, info.uuid, false, NULL, NULL) != 0)
			continue;
		if (arb_check(&seg, say, NULL) == -EBUSY)
			world_fail("the segment of %s never stands still, although nobody runs", info.uuid);
		arb_segment_close(&seg);
	}
}

void judge_begin(void)
{
	memset(&judge, 0, sizeof(judge));
	begin_with_another();
}

void judge_end(void)
{
	if (judge.open)
		arb_segment_close(&judge.seg);
	judge.open = false;
}

static unsigned members(const uint64_t *bits, unsigned words)
{
	unsigned n = 0;

	for (unsigned w = 0; w < words; w++)
		n += (unsigned)__builtin_popcountll(bits[w]);
	return n;
}

/* Returns whether a client that should wake another may have been held up. */
static bool anybody_held_up(void)
{
	for (unsigned i = 0; i < world.nthreads; i++)
		if (world.threads[i]->state != THREAD_GONE &&
			(world.threads[i]->held_up || world.threads[i]->process->stopped))
			return true;
	return false;
}

/* Checks sleepers: a client that sleeps although its word has changed was not woken by the client that changed the
 * word. */
static void check_sleepers(void)
{
	if (world.now_ns < judge.sleepers_ns + SLEEPERS_NS)
		return;
	judge.sleepers_ns = world.now_ns;
	for (unsigned i = 0; i < world.nthreads; i++) {
		struct world_thread *t = world.threads[i];

		if (t->state != THREAD_WAITING || !t->word || t->process->stopped ||
			__atomic_load_n(t->word, __ATOMIC_RELAXED) == t->value)
			continue;
		/* The client that changed the word may have been killed before it woke the sleeper. */
		if (!t->changed_ns || t->changed_ns < world.last_death_ns)
			t->changed_ns = world.now_ns;
		if (world.now_ns < t->changed_ns + LOST_NS)
			continue;
		if (anybody_held_up())
			return;
		world_fail("lost wake-up: thread %u (%s) of process %u sleeps since %.3f ms, its word was "
			   "%u and is %u",
			t->number, t->name, t->process->number, (double)(world.now_ns - t->since_ns) / 1e6,
			t->value, __atomic_load_n(t->word, __ATOMIC_RELAXED));
	}
}

/* Checks that a client does not go on sleeping while a place is kept for it: its wake-up was lost. */
static void check_reservation(const struct arb_snap *s)
{
	uint32_t slot = (uint32_t)s->reserved - 1;

	if (s->reserved != judge.reserved) {
		judge.reserved = s->reserved;
		judge.reserved_at = world.now_ns;
		return;
	}
	if (!s->reserved || !world_terms.quiet || slot >= judge.seg.nslots ||
		world.now_ns < judge.reserved_at + LOST_NS || world.now_ns > s->reserved_until)
		return;
	if (anybody_held_up())
		return;
	for (unsigned i = 0; i < world.nthreads; i++) {
		struct world_thread *t = world.threads[i];

		/* Nobody runs, so this client may enter: it slept without seeing the reservation, or was not woken
		 * for it. */
		if (t->state == THREAD_WAITING && t->word == &judge.seg.slots[slot].wake.v &&
			(t->since_ns < judge.reserved_at ||
				(!s->weight && world.now_ns > t->since_ns + LOST_NS)))
			world_fail(
				"lost wake-up: slot %u sleeps, and its place has been kept for it for %.3f ms",
				slot, (double)(world.now_ns - judge.reserved_at) / 1e6);
	}
}

static void check_clocks(const struct arb_snap *s)
{
	if (s->t < judge.t || s->v < judge.v || s->busy < judge.busy)
		world_fail("the record's clocks went back");
	judge.t = s->t;
	judge.v = s->v;
	judge.busy = s->busy;
}

static void check_quotas(void)
{
	uint32_t high = arb_load32(&judge.seg.header->accounts_high);
	struct arb_account_snap a;

	for (uint32_t i = 0; i < high; i++) {
		uint64_t limit = arb_load64(&judge.seg.accounts[i].mem_limit);

		if (limit && arb_account_read(&judge.seg, i, &a) == 0 && a.mem_used > limit)
			world_fail("account %u has %llu bytes, its quota is %llu", i,
				(unsigned long long)a.mem_used, (unsigned long long)limit);
	}
}

/* Checks that no client had to put a word of its own right: no intruder writes in this world. */
static void check_restored(void)
{
	for (uint32_t i = 0; i < judge.seg.nslots; i++)
		if (arb_hint32(&judge.seg.slots[i].restored))
			world_fail(
				"the client of slot %u has put its words right, and nobody had written over them",
				i);
}

static void audit(uint32_t a, struct arb_audit_seen *seen)
{
	int found = arb_audit_account(&judge.seg, a, seen);

	if (found > 0 || arb_hint64(&judge.seg.accounts[a].restored))
		world_fail(
			"account %u was put right (%x), and nobody had written over it", a, (unsigned)found);
}

/* Checks that the audit of accounts without members finds nothing to put right, either. The judge runs between two
 * steps of the clients, so it needs no lock: a record that is published is complete. */
static void check_audit(void)
{
	uint32_t high = arb_load32(&judge.seg.header->accounts_high);
	uint32_t most = sizeof(audited.seen) / sizeof(audited.seen[0]);

	if (most > judge.seg.naccounts)
		most = judge.seg.naccounts;
	if (high > most)
		high = most;
	for (uint32_t a = 0; a < high; a++)
		audit(a, &audited.seen[a]);
	/* An entry that was never used says the same each time, so one of them is looked at in turn. */
	audited.next = audited.next + 1 < most && audited.next + 1 > high ? audited.next + 1 : high;
	if (audited.next < most)
		audit(audited.next, &audited.seen[audited.next]);
}

void judge_step(void)
{
	struct arb_snap s;
	bool whole;
	int r;

	if (world.failed || world_terms.garbage)
		return;
	/* Most steps are not checked if no shared word can have changed, or if the world gives figures. */
	whole = ++judge.since_whole >= world_terms.every;
	if (whole)
		judge.since_whole = 0;
	if (++judge.steps % SAME_STEPS && !whole && (!world.touched || world_terms.every >= LONG_EVERY))
		return;
	if (!judge_segment())
		return;
	if (whole) {
		r = arb_check(&judge.seg, say, NULL);
		if (r == -EBUSY)
			world_fail("the segment never stands still, although nobody runs");
		check_others();
		check_restored();
		check_audit();
	}
	if (faults_limits_move())
		records_accounts(&judge.seg);
	debts_step(&judge.seg);
	/* The other checks depend on the record alone, so they need not be repeated until it changes. */
	if (world.failed || (judge.head == arb_load64(&judge.seg.header->head) && judge.steps % SAME_STEPS))
		return;
	if (arb_running_read(&judge.seg, &s) < 0)
		return;
	judge.head = s.head;
	check_clocks(&s);
	if (world_terms.exclusive && members(s.running, s.words) > 1)
		world_fail("%u are in the set, one may be", members(s.running, s.words));
	if (world_terms.quotas_fixed)
		check_quotas();
	check_sleepers();
	check_reservation(&s);
	records_step(&judge.seg, &s);
	windows_step(&judge.seg, &s);
}

bool judge_used(const char *account, uint64_t *used_ns)
{
	struct arb_account_snap a;
	char name[ARB_NAME_BYTES];
	struct arb_snap s;

	if (!judge_segment() || arb_running_read(&judge.seg, &s) < 0)
		return false;
	for (uint32_t i = 0; i < arb_load32(&judge.seg.header->accounts_high); i++) {
		arb_text_load(judge.seg.accounts[i].name, ARB_NAME_WORDS, name);
		if (strcmp(name, account) || arb_account_read(&judge.seg, i, &a) < 0)
			continue;
		*used_ns = arb_account_usage(&judge.seg, &s, &a, a.wall, false) / ARB_TICKS_PER_NS;
		return true;
	}
	return false;
}

void judge_rest(void)
{
	struct arb_account_snap a;
	struct arb_snap s;
	uint64_t sum = 0;
	bool renamed = false;

	if (world.failed || !judge_segment())
		return;
	if (arb_check(&judge.seg, say, NULL) < 0)
		world_fail("the segment cannot be checked");
	if (world.failed || arb_running_read(&judge.seg, &s) < 0)
		return;
	for (uint32_t i = 0; i < arb_load32(&judge.seg.header->accounts_high); i++) {
		if (arb_account_read(&judge.seg, i, &a) < 0)
			continue;
		sum += arb_account_usage(&judge.seg, &s, &a, false, false);
		/* An entry that was given another name has forgotten what its former account was billed. */
		renamed |= arb_load32(&judge.seg.accounts[i].generation) > 1;
		if (a.mem_used)
			world_fail("nobody is left, and account %u has %llu bytes", i,
				(unsigned long long)a.mem_used);
	}
	if (sum != s.busy && !renamed)
		world_fail("accounts have been billed %lld ticks more than the GPU was busy",
			(long long)(sum - s.busy));
	if (s.weight || s.reserved || members(s.running, s.words) || members(s.waiting, s.words) ||
		members(s.evicted, s.words))
		world_fail(
			"nobody is left, and somebody is in the set: W %u, running %u, waiting %u, evicted "
			"%u, reservation %llx",
			s.weight, members(s.running, s.words), members(s.waiting, s.words),
			members(s.evicted, s.words), (unsigned long long)s.reserved);
	for (uint32_t i = 0; i < judge.seg.nslots; i++)
		if (arb_load32(&judge.seg.slots[i].state) != ARB_SLOT_FREE)
			world_fail("nobody is left, and slot %u is not free: its state is %u", i,
				arb_load32(&judge.seg.slots[i].state));
}

static void say_nothing(void *argument, const char *sentence)
{
	(void)argument;
	(void)sentence;
}

/* The newcomer that joins after all others: it checks that the dead were cleaned up and that it can enter and leave. */
static void *last_one(void *argument)
{
	struct gpuarb_options o = {
		.gpu = WORLD_GPU, .dir = WORLD_DIR, .conf = "/dev/null", .account = "late"};
	struct gpuarb_client *client;
	struct gpuarb_error err = {0};
	int r;

	(void)argument;
	world_does("cleans up behind everybody", 0, 0);
	if (world_terms.garbage)
		gpuarb_control_repair(WORLD_DIR, WORLD_GPU, say_nothing, NULL, &err);
	for (int i = 0; i < 2000 && (r = gpuarb_control_reap(WORLD_DIR, WORLD_GPU, NULL, NULL, &err)) < 0;
		i++)
		world_sleep(WORLD_MS);
	if (r < 0 && r != -ENOENT && !world_terms.garbage)
		world_fail("the dead cannot be cleaned up behind: %s", err.text);
	r = gpuarb_client_open(&o, &client, &err);
	if (r < 0) {
		world_fail("a newcomer cannot join: %s", err.text);
		return NULL;
	}
	if ((r = gpuarb_client_wait(client, NULL, 3 * WORLD_S)) < 0)
		world_fail("a newcomer does not get in: %s", strerror(-r));
	if ((r = gpuarb_client_mem_reserve(client, 64)) < 0)
		world_fail("a newcomer gets no memory: %s", strerror(-r));
	gpuarb_client_leave(client, 0);
	gpuarb_client_close(client);
	return NULL;
}

void judge_aftermath(const char *const *environment)
{
	for (unsigned i = 0; i < world.nthreads && !world.failed; i++)
		if (world.threads[i]->state != THREAD_GONE)
			world_fail("thread %u (%s) of process %u never ends", world.threads[i]->number,
				world.threads[i]->name, world.threads[i]->process->number);
	if (world.failed)
		return;
	world_thread_new(world_process_new(environment), "newcomer", world.now_ns, last_one, NULL);
	world_run(world.now_ns + 20 * WORLD_S, judge_step);
	if (!world_terms.garbage)
		judge_rest();
}

/* What the victim is doing when it is killed, and how that comes about. */
#include "crash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../shm/atomic.h"
#include "../shm/config.h"
#include "../shm/events.h"
#include "../shm/os.h"
#include "../shm/reclaim.h"
#include "../shm/settings.h"
#include "../shm/text.h"
#include "stepper.h"

#define MUST(call) world_must(call, #call)

/* The victim. */

static void join(struct world *w)
{
	w->v = world_client(w, "victim", 40, 4096);
}

static void join_run(struct world *w)
{
	join(w);
	MUST(gpuarb_client_enter(w->v, NULL));
}

/* Without a limit: it may be in the set for long without owing anything. */
static void join_run_free(struct world *w)
{
	w->v = world_client(w, "victim", 0, 4096);
	MUST(gpuarb_client_enter(w->v, NULL));
	MUST(gpuarb_client_mem_reserve(w->v, 500));
}

static void join_free(struct world *w)
{
	w->v = world_client(w, "victim", 0, 0);
}

static void join_hold(struct world *w)
{
	join(w);
	MUST(gpuarb_client_mem_reserve(w->v, 500));
}

static void join_hold_run(struct world *w)
{
	join_hold(w);
	MUST(gpuarb_client_enter(w->v, NULL));
}

/* A name that no run before had, longer than a word of the entry. */
static void join_by_a_new_name(struct world *w)
{
	char name[ARB_NAME_BYTES];

	snprintf(name, sizeof(name), "an-account-of-run-%08u", w->runs);
	w->v = world_client(w, name, 40, 4096);
}

static void enter(struct world *w)
{
	MUST(gpuarb_client_enter(w->v, NULL));
}

static void leave(struct world *w)
{
	MUST(gpuarb_client_leave(w->v, 0));
}

static void enter_leave(struct world *w)
{
	enter(w);
	leave(w);
}

static void wait_long(struct world *w)
{
	MUST(gpuarb_client_wait(w->v, NULL, 1000 * MS));
}

static void join_wait(struct world *w)
{
	join(w);
	wait_long(w);
}

static void wait_in_vain(struct world *w)
{
	int r = gpuarb_client_wait(w->v, NULL, MS);

	MUST(r == -ETIMEDOUT ? 0 : -EPROTO);
}

static void wake(struct world *w)
{
	arb_os_wake(&w->v->seg.slots[w->v->me.slot].wake);
}

static void tick(struct world *w)
{
	int r = gpuarb_client_tick(w->v);

	MUST(r == -EDQUOT ? 0 : r);
}

static void change_limit(struct world *w)
{
	MUST(gpuarb_client_set_limits(w->v, 60, 8192, 70));
}

static void reserve(struct world *w)
{
	MUST(gpuarb_client_mem_reserve(w->v, 700));
}

static void reserve_too_much(struct world *w)
{
	MUST(gpuarb_client_mem_reserve(w->v, 1 << 20) == -ENOMEM ? 0 : -EPROTO);
}

static void release(struct world *w)
{
	MUST(gpuarb_client_mem_release(w->v, 200));
}

static void close_client(struct world *w)
{
	gpuarb_client_close(w->v);
}

/* All that a client does, for one who is to die anywhere in it. */
static void whole_life(struct world *w)
{
	join_hold(w);
	stepper_begin();
	reserve(w);
	enter(w);
	tick(w);
	release(w);
	leave(w);
	enter(w);
	close_client(w);
	stepper_end();
}

static void sweep(struct world *w)
{
	struct arb_reclaimed what;

	for (uint32_t i = 0; i < w->v->seg.nslots; i++)
		MUST(arb_reclaim_slot(&w->v->seg, i, &w->v->rules, &what));
}

static void write_event(struct world *w)
{
	arb_events_write(&w->v->seg, ARB_EVENT_TAIL, w->v->me.slot, w->v->account, 1, 2);
}

/* A pair of settings that belong together, so that a mixture of two copies shows. */
static void draft(struct world *w, uint64_t odd)
{
	int64_t pct = odd ? 20 : 10;

	MUST(arb_settings_begin(w->admin.control, w->draft));
	arb_store64(&w->draft->value[ARB_KEY_RESERVE_US], odd ? 2000 : 1000);
	MUST(arb_settings_set_limit(w->draft, "alpha", ARB_KEY_CORE, &pct));
	arb_store64(&w->draft->limit[ARB_CONTROL_LIMITS - 1].pad[3], odd ? 2 : 1);
}

static void become_admin(struct world *w)
{
	join(w);
	MUST(arb_control_map_open(&w->admin, w->dir, w->gpu, true, NULL, NULL, NULL));
	w->draft = malloc(sizeof(*w->draft));
	MUST(w->draft ? 0 : -ENOMEM);
	draft(w, arb_load64(&w->admin.control->head) >> 1 & 1);
}

static int publish_as_admin(struct world *w)
{
	int fd = arb_file_open(&w->admin.file, O_RDWR), r;

	if (fd < 0)
		return fd;
	r = arb_os_lock(fd, ARB_BYTE_CONTROL_WRITER);
	if (r == 0) {
		arb_settings_publish(w->admin.control, w->draft);
		arb_os_unlock(fd, ARB_BYTE_CONTROL_WRITER);
	}
	arb_os_close(fd);
	return r;
}

static void publish(struct world *w)
{
	MUST(publish_as_admin(w));
}

/* The survivors. */

static void a_runs(struct world *w)
{
	MUST(gpuarb_client_wait(w->a, NULL, 100 * MS));
}

static void a_leaves(struct world *w)
{
	MUST(gpuarb_client_leave(w->a, 0));
}

static void b_runs(struct world *w)
{
	MUST(gpuarb_client_wait(w->b, NULL, 100 * MS));
}

static void b_holds(struct world *w)
{
	if (!w->b_bytes)
		MUST(gpuarb_client_mem_reserve(w->b, 1000));
	w->b_bytes = 1000;
}

static void b_holds_runs(struct world *w)
{
	b_holds(w);
	b_runs(w);
}

static void half_a_window(struct world *w)
{
	(void)w;
	world_clock_skip(50 * MS);
}

static void a_window_and_a_half(struct world *w)
{
	(void)w;
	world_clock_skip(150 * MS);
}

static void past_grace(struct world *w)
{
	(void)w;
	world_clock_skip(600 * MS);
}

/* The victim, or the corpse, falls silent, and A takes its place. */
static void a_evicts(struct world *w)
{
	past_grace(w);
	MUST(gpuarb_client_enter(w->a, NULL));
	for (uint32_t i = 0; i < w->a->seg.nslots; i++)
		MUST(gpuarb_client_tick(w->a));
}

static void a_evicts_leaves(struct world *w)
{
	a_evicts(w);
	a_leaves(w);
}

/* What must hold beside what must hold always. */

static void settings_are_whole(struct world *w)
{
	int64_t value[ARB_KEY_COUNT];
	struct arb_config_limit limit;
	uint64_t epoch;

	if (!w->admin.control) {
		MUST(arb_control_map_open(&w->admin, w->dir, w->gpu, true, NULL, NULL, NULL));
		w->draft = malloc(sizeof(*w->draft));
		MUST(w->draft ? 0 : -ENOMEM);
	}
	MUST(arb_settings_read(w->admin.control, value, &epoch));
	if (epoch >> 1) {
		const struct arb_control_copy *copy = &w->admin.control->copy[epoch & 1];
		bool odd = value[ARB_KEY_RESERVE_US] == 2000;

		if (arb_settings_limit(w->admin.control, "alpha", &limit) != 1 || limit.core_pct != (odd ? 20 : 10) ||
			arb_load64(&copy->limit[ARB_CONTROL_LIMITS - 1].pad[3]) != (odd ? 2 : 1))
			world_wrong(w, "settings are a mixture of two");
	}
	draft(w, arb_load64(&w->admin.control->head) >> 1 & 1);
	if (publish_as_admin(w) < 0)
		world_wrong(w, "the next administrator cannot write");
}

static void events_are_whole(struct world *w)
{
	struct arb_segment *seg = &w->a->seg;
	struct arb_event_copy event;
	uint64_t first, end, lost = 0;

	arb_events_range(seg, &first, &end);
	for (uint64_t i = w->events_before > first ? w->events_before : first; i < end; i++)
		if (arb_events_read(seg, i, &event) < 0)
			lost++;
		else if (event.kind == ARB_EVENT_NONE || (event.kind == ARB_EVENT_TAIL && (event.a != 1 || event.b != 2)))
			world_wrong(w, "an event that was half written is shown");
	if (lost > 1)
		world_wrong(w, "%llu events were lost by one death", (unsigned long long)lost);
}

/* An evicted client must find its gate closed at the latest when it looks. */
static void the_gate_follows(struct world *w)
{
	struct gpuarb_client *b = w->b;
	struct arb_snap snap;

	MUST(gpuarb_client_tick(b));
	MUST(arb_running_read(&b->seg, &snap));
	if (arb_load32(&b->seg.slots[b->me.slot].gate) != arb_bit_test(snap.running, b->me.slot))
		world_wrong(w, "the gate of slot %u is %s", b->me.slot,
			arb_bit_test(snap.running, b->me.slot) ? "closed while it runs" : "open after it was evicted");
	MUST(gpuarb_client_leave(b, 0));
}

/* A neighbour in the dead one's account gets the memory that it left behind. */
static void memory_comes_back(struct world *w)
{
	int r = gpuarb_client_mem_reserve(w->b, 3000);

	if (r < 0)
		world_wrong(w, "a member of the dead one's account does not get its memory: %s", strerror(-r));
	else
		MUST(gpuarb_client_mem_release(w->b, 3000));
}

static void names_are_whole(struct world *w)
{
	const struct arb_segment *seg = &w->a->seg;
	char name[ARB_NAME_BYTES];

	for (uint32_t i = 0; i < seg->naccounts; i++) {
		arb_text_load(seg->accounts[i].name, ARB_NAME_WORDS, name);
		if (name[0] && strcmp(name, "alpha") != 0 && strcmp(name, "late") != 0 &&
			(strncmp(name, "an-account-of-run-", 18) != 0 || strlen(name) != 26))
			world_wrong(w, "account %u has half a name: %s", i, name);
	}
}

static void mode_is(struct world *w, const char *sub, mode_t mode)
{
	char path[512];
	struct stat st;

	snprintf(path, sizeof(path), "%s%s", w->dir, sub);
	if (stat(path, &st) != 0 || (st.st_mode & 07777) != mode)
		world_wrong(w, "%s has mode %o instead of %o", sub, st.st_mode & 07777, mode);
}

static void rights_are_right(struct world *w)
{
	mode_is(w, "", 0755);
	mode_is(w, "/state", 01770);
	mode_is(w, "/control", 0755);
}

const struct crash_op crash_ops[] = {
	{ .name = "create", .creates = true, .operate = join, .after = rights_are_right },
	{ .name = "join", .operate = join },
	{ .name = "join: a shared account", .b_account = "victim", .arrange = b_holds_runs, .operate = join },
	{ .name = "join: in a dead one's place", .slots = 2, .corpse = join_hold_run, .operate = join },
	{ .name = "join: a lapsed account's entry", .slots = 2, .forgets = true, .operate = join_by_a_new_name,
		.after = names_are_whole },
	{ .name = "enter: concurrent", .arrange = a_runs, .prepare = join, .operate = enter },
	{ .name = "enter: exclusive", .policy = "exclusive", .prepare = join, .operate = enter },
	{ .name = "enter: after an eviction", .prepare = join_run_free, .before = a_evicts, .operate = enter },
	{ .name = "leave: concurrent", .arrange = a_runs, .prepare = join_run, .operate = leave },
	{ .name = "leave: to a waiter", .policy = "exclusive", .b_account = "beta", .waits = true,
		.prepare = join_run, .operate = leave },
	{ .name = "leave: after an eviction", .prepare = join_run_free, .before = a_evicts, .operate = leave },
	{ .name = "leave: in another window", .arrange = a_runs, .prepare = join_run,
		.before = a_window_and_a_half, .operate = leave },
	{ .name = "wait: falls asleep", .policy = "exclusive", .sleep = SLEEP_ENDS, .arrange = a_runs,
		.prepare = join, .before = NULL, .operate = wait_long, .after = a_leaves },
	{ .name = "wait: is woken", .policy = "exclusive", .sleep = SLEEP_BEGINS, .arrange = a_runs,
		.prepare = join, .before = a_leaves, .operate = wait_long },
	{ .name = "wait: for a dead holder", .policy = "exclusive", .corpse = join_hold_run, .prepare = join,
		.operate = wait_long },
	{ .name = "wait: behind a dead waiter", .policy = "exclusive", .arrange = a_runs,
		.corpse_sleep = SLEEP_STOPS, .corpse = join_wait, .between = a_leaves, .prepare = join,
		.operate = wait_long },
	{ .name = "wait: in vain", .policy = "exclusive", .arrange = a_runs, .prepare = join,
		.operate = wait_in_vain, .after = a_leaves },
	{ .name = "wake", .prepare = join, .operate = wake },
	{ .name = "window roll", .arrange = a_runs, .prepare = join_run, .before = a_window_and_a_half,
		.operate = tick },
	{ .name = "limit change", .b_account = "victim", .arrange = b_holds_runs, .prepare = join_run,
		.before = half_a_window, .operate = change_limit },
	{ .name = "memory: reserve", .b_account = "victim", .arrange = b_holds, .prepare = join_hold,
		.operate = reserve, .after = memory_comes_back },
	{ .name = "memory: release", .b_account = "victim", .arrange = b_holds, .prepare = join_hold,
		.operate = release, .after = memory_comes_back },
	{ .name = "memory: refused", .b_account = "victim", .arrange = b_holds, .prepare = join_hold,
		.operate = reserve_too_much },
	{ .name = "event", .prepare = join, .operate = write_event, .after = events_are_whole },
	{ .name = "settings", .prepare = become_admin, .operate = publish, .after = settings_are_whole },
	{ .name = "evict", .b_account = "beta", .arrange = b_runs, .prepare = join_run_free, .before = past_grace,
		.operate = tick, .after = the_gate_follows },
	{ .name = "reclaim: a running one", .b_account = "victim", .arrange = b_holds, .corpse = join_hold_run,
		.prepare = join_run, .operate = tick },
	{ .name = "reclaim: an evicted one", .b_account = "victim", .arrange = b_holds, .corpse = join_run_free,
		.between = a_evicts_leaves, .prepare = join_run_free, .operate = sweep },
	{ .name = "reclaim: one that died anywhere", .b_account = "victim", .arrange = b_holds_runs,
		.corpse_steps = 6000, .corpse = whole_life, .prepare = join_run_free, .operate = sweep },
	{ .name = "close", .b_account = "victim", .arrange = b_holds_runs, .prepare = join_hold_run,
		.operate = close_client },
	{ .name = "wait: asleep in the kernel", .policy = "exclusive", .real = true, .asleep = true,
		.arrange = a_runs, .prepare = join, .operate = wait_long, .after = a_leaves },
	{ .name = "lease: real clock", .policy = "exclusive", .real = true, .prepare = join_free,
		.operate = enter_leave },
};

const unsigned crash_nops = sizeof(crash_ops) / sizeof(crash_ops[0]);

/* The operations in which the victim is killed, and how each situation is brought about. */
#include "test/crash/crash.h"

#include <errno.h>
#include <stdio.h>

#include "shm/base/atomic.h"
#include "shm/segment/events.h"
#include "shm/base/os.h"
#include "shm/client/reclaim.h"
#include "gpuarb/control.h"
#include "test/crash/stepper.h"

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

/* The victim has no limit, so it may be in the set for long without owing anything. */
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

/* The victim joins by a name that no earlier run had and that is longer than a word of the entry. */
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

/* It leaves, its place is kept, and it comes back; then it leaves and does not come. */
static void pause_and_go_on(struct world *w)
{
	MUST(gpuarb_client_pause(w->v, 0, 1000000000) < 0 ? -EPROTO : 0);
	enter(w);
}

static void pause_and_leave(struct world *w)
{
	MUST(gpuarb_client_pause(w->v, 0, 1000000000) < 0 ? -EPROTO : 0);
	leave(w);
}

static void run_dry(struct world *w)
{
	leave(w);
	MUST(gpuarb_client_enter(w->v, NULL) == -EAGAIN ? 0 : -EPROTO);
}

/* After the fork the survivor's client exists, but does not belong to the child, which joins anew. */
static void enter_as_inherited(struct world *w)
{
	MUST(gpuarb_client_enter(w->a, NULL));
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
	MUST(gpuarb_client_set_limits(w->v, 60, w->runs & 1 ? 8192 : 6144, 70));
}

static void reserve(struct world *w)
{
	MUST(gpuarb_client_mem_reserve(w->v, 700));
}

static void reserve_too_much(struct world *w)
{
	MUST(gpuarb_client_mem_reserve(w->v, 1 << 20) == -ENOMEM ? 0 : -EPROTO);
}

/* Reserves more than is needed, as for a pool, and gives the rest back. */
static void reserve_and_settle(struct world *w)
{
	MUST(gpuarb_client_mem_try(w->v, 900, true));
	MUST(gpuarb_client_mem_release(w->v, 200));
	gpuarb_client_mem_settled(w->v);
}

static void release(struct world *w)
{
	MUST(gpuarb_client_mem_release(w->v, 200));
}

static void close_client(struct world *w)
{
	gpuarb_client_close(w->v);
}

/* Does all that a client does: for a process that may die anywhere in it. */
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
	arb_events_write(&w->v->seg, ARB_EVENT_WINDOW, w->v->me.slot, w->v->account, 1, 2);
}

static void become_admin(struct world *w)
{
	join(w);
	crash_draft(w);
}

static void publish(struct world *w)
{
	MUST(crash_publish(w));
}

static void change_settings(struct world *w)
{
	bool odd = w->runs & 1;
	const struct gpuarb_change changes[] = {
		{NULL, "reserve_us", odd ? "2000" : "1000"}, {"alpha", "core", odd ? "20" : "10"}};

	MUST(gpuarb_control_change(w->dir, w->gpu, changes, 2, NULL));
}

static void reap(struct world *w)
{
	MUST(gpuarb_control_reap(w->dir, w->gpu, NULL, NULL, NULL));
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

/* The second survivor publishes, so that the account's head is one of its buffers. */
static void b_publishes(struct world *w)
{
	MUST(gpuarb_client_mem_reserve(w->b, 8));
	MUST(gpuarb_client_mem_release(w->b, 8));
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

static void settings_change(struct world *w)
{
	bool odd = w->runs & 1;
	const struct gpuarb_change changes[] = {{NULL, "billing", odd ? "full" : "weighted"},
		{NULL, "window_ms", odd ? "80" : "100"}, {"victim", "core", odd ? "50" : "70"}};

	MUST(gpuarb_control_change(w->dir, w->gpu, changes, 3, NULL));
}

/* The victim, or the corpse, falls silent, and survivor A takes its place. */
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

/* clang-format off */
const struct crash_op crash_ops[] = {
	{.name = "create", .has_many = true, .creates = true, .operate = join, .after = after_creation},
	{.name = "join", .has_many = true, .operate = join},
	{.name = "join: a shared account",
		.has_many = true,
		.b_account = "victim",
		.arrange = b_holds_runs,
		.operate = join},
	{.name = "join: in a dead one's place",
		.has_many = true,
		.slots = 2,
		.corpse = join_hold_run,
		.operate = join},
	{.name = "join: a lapsed account's entry",
		.has_many = true,
		.slots = 2,
		.forgets = true,
		.operate = join_by_a_new_name,
		.after = after_naming},
	{.name = "join: in a forked child",
		.has_many = true,
		.arrange = a_runs,
		.operate = enter_as_inherited},
	{.name = "enter: concurrent", .arrange = a_runs, .prepare = join, .operate = enter},
	{.name = "enter: exclusive", .policy = "exclusive", .prepare = join, .operate = enter},
	{.name = "enter: after an eviction", .prepare = join_run_free, .before = a_evicts, .operate = enter},
	{.name = "leave: concurrent", .arrange = a_runs, .prepare = join_run, .operate = leave},
	{.name = "leave: to a waiter",
		.policy = "exclusive",
		.b_account = "beta",
		.waits = true,
		.prepare = join_run,
		.operate = leave},
	{.name = "pause: before a waiter",
		.policy = "exclusive",
		.b_account = "beta",
		.waits = true,
		.prepare = join_run,
		.operate = pause_and_go_on},
	{.name = "pause: and away",
		.policy = "exclusive",
		.b_account = "beta",
		.waits = true,
		.prepare = join_run,
		.operate = pause_and_leave},
	{.name = "leave: after an eviction", .prepare = join_run_free, .before = a_evicts, .operate = leave},
	{.name = "leave: in another window",
		.arrange = a_runs,
		.prepare = join_run,
		.before = a_window_and_a_half,
		.operate = leave},
	{.name = "wait: falls asleep",
		.policy = "exclusive",
		.sleep = SLEEP_ENDS,
		.arrange = a_runs,
		.prepare = join,
		.before = NULL,
		.operate = wait_long,
		.after = a_leaves},
	{.name = "wait: is woken",
		.policy = "exclusive",
		.sleep = SLEEP_BEGINS,
		.arrange = a_runs,
		.prepare = join,
		.before = a_leaves,
		.operate = wait_long},
	{.name = "wait: for a dead holder",
		.policy = "exclusive",
		.corpse = join_hold_run,
		.prepare = join,
		.operate = wait_long},
	{.name = "wait: behind a dead waiter",
		.policy = "exclusive",
		.arrange = a_runs,
		.corpse_sleep = SLEEP_STOPS,
		.corpse = join_wait,
		.between = a_leaves,
		.prepare = join,
		.operate = wait_long},
	{.name = "wait: in vain",
		.policy = "exclusive",
		.arrange = a_runs,
		.prepare = join,
		.operate = wait_in_vain,
		.after = a_leaves},
	{.name = "wake", .prepare = join, .operate = wake},
	{.name = "window roll",
		.arrange = a_runs,
		.prepare = join_run,
		.before = a_window_and_a_half,
		.operate = tick},
	{.name = "limit change",
		.b_account = "victim",
		.arrange = b_holds_runs,
		.prepare = join_run,
		.before = half_a_window,
		.operate = change_limit,
		.after = after_limits},
	{.name = "settings: noticed",
		.b_account = "victim",
		.arrange = b_holds_runs,
		.prepare = join_hold_run,
		.before = settings_change,
		.operate = tick},
	{.name = "quota: borrowed",
		.borrows = true,
		.prepare = join_run,
		.before = half_a_window,
		.operate = tick},
	{.name = "quota: used up", .prepare = join_run, .before = half_a_window, .operate = run_dry},
	{.name = "memory: reserve",
		.b_account = "victim",
		.arrange = b_holds,
		.prepare = join_hold,
		.operate = reserve,
		.after = after_memory},
	{.name = "memory: reserve, one moves",
		.b_account = "victim",
		.moves = true,
		.arrange = b_holds,
		.prepare = join_hold,
		.before = b_publishes,
		.operate = reserve,
		.after = after_memory},
	{.name = "memory: release",
		.b_account = "victim",
		.arrange = b_holds,
		.prepare = join_hold,
		.operate = release,
		.after = after_memory},
	{.name = "memory: reserve more than is needed",
		.b_account = "victim",
		.arrange = b_holds,
		.prepare = join_hold,
		.operate = reserve_and_settle,
		.after = after_memory},
	{.name = "memory: refused",
		.b_account = "victim",
		.arrange = b_holds,
		.prepare = join_hold,
		.operate = reserve_too_much},
	{.name = "restore: its slot", .prepare = join_hold_run, .before = restore_slot_forged, .operate = tick, .mend = restore_slot_mend},
	{.name = "restore: its account's record", .prepare = join_hold_run, .before = restore_record_forged, .operate = tick, .mend = restore_record_mend},
	{.name = "event", .prepare = join, .operate = write_event, .after = after_event},
	{.name = "settings: change",
		.is_long = true,
		.operate = change_settings,
		.each = each_settings,
		.after = after_settings},
	{.name = "settings: publish",
		.has_many = true,
		.prepare = become_admin,
		.operate = publish,
		.each = each_settings,
		.after = after_settings},
	{.name = "evict",
		.b_account = "beta",
		.arrange = b_runs,
		.prepare = join_run_free,
		.before = past_grace,
		.operate = tick,
		.after = after_eviction},
	{.name = "reclaim: a running one",
		.b_account = "victim",
		.arrange = b_holds,
		.corpse = join_hold_run,
		.prepare = join_run,
		.operate = tick},
	{.name = "reclaim: an evicted one",
		.b_account = "victim",
		.arrange = b_holds,
		.corpse = join_run_free,
		.between = a_evicts_leaves,
		.prepare = join_run_free,
		.operate = sweep},
	{.name = "reclaim: one that died anywhere",
		.b_account = "victim",
		.arrange = b_holds_runs,
		.corpse_steps = 6000,
		.corpse = whole_life,
		.prepare = join_run_free,
		.operate = sweep},
	{.name = "reap",
		.has_many = true,
		.b_account = "victim",
		.arrange = b_holds,
		.corpse = join_hold_run,
		.operate = reap},
	{.name = "close",
		.b_account = "victim",
		.arrange = b_holds_runs,
		.prepare = join_hold_run,
		.operate = close_client},
	{.name = "above: enter", .arrange = above_high, .prepare = join, .operate = enter},
	{.name = "above: leave", .arrange = above_high, .prepare = join_run, .operate = leave},
	{.name = "above: a request is used up", .arrange = above_request, .prepare = join_run, .before = half_a_window, .operate = tick},
	{.name = "above: one below stops", .arrange = above_low, .prepare = join_run, .before = above_comes, .operate = above_stop},
	{.name = "above: lease", .arrange = above_class, .prepare = lease_join, .operate = above_lease, .after = lease_after},
	{.name = "acquire", .arrange = lease_normal, .prepare = lease_join, .operate = lease_acquire, .after = lease_after},
	{.name = "acquire: exclusive",
		.policy = "exclusive",
		.arrange = lease_normal,
		.prepare = lease_join,
		.operate = lease_acquire,
		.after = lease_after},
	{.name = "acquire: one more", .arrange = lease_normal, .prepare = lease_join_hold, .operate = lease_acquire, .after = lease_after},
	{.name = "acquire: in vain",
		.arrange = lease_pressure,
		.prepare = lease_join,
		.operate = lease_wait_in_vain,
		.after = lease_after},
	{.name = "acquire: when the pressure ends",
		.sleep = SLEEP_BEGINS,
		.arrange = lease_pressure,
		.prepare = lease_join,
		.before = lease_normal,
		.operate = lease_wait,
		.after = lease_after},
	{.name = "acquire: handed over",
		.policy = "exclusive",
		.sleep = SLEEP_BEGINS,
		.arrange = lease_held,
		.prepare = lease_join,
		.before = lease_let_go,
		.operate = lease_wait,
		.after = lease_after},
	{.name = "acquire: behind a dead waiter",
		.corpse_sleep = SLEEP_STOPS,
		.arrange = lease_pressure,
		.corpse = lease_join_wait,
		.prepare = lease_join,
		.before = lease_normal,
		.operate = lease_acquire,
		.after = lease_after},
	{.name = "release", .arrange = lease_normal, .prepare = lease_join_hold, .operate = lease_release, .after = lease_after},
	{.name = "sample", .prepare = lease_join, .operate = lease_sample, .after = lease_after},
	{.name = "hint", .arrange = lease_normal, .prepare = lease_join, .operate = lease_hint, .after = lease_after},
	{.name = "turn: enter", .policy = "memory", .arrange = turn_others, .prepare = turn_join, .operate = enter},
	{.name = "turn: leave, and hold",
		.policy = "memory",
		.arrange = turn_others,
		.prepare = turn_join_run,
		.operate = leave},
	{.name = "turn: over",
		.policy = "memory",
		.arrange = turn_others,
		.prepare = turn_join_run,
		.operate = turn_end},
	{.name = "turn: free",
		.policy = "memory",
		.arrange = turn_others,
		.prepare = turn_join_run,
		.operate = turn_shrink},
	{.name = "turn: what others have", .prepare = join_hold, .operate = turn_say_used},
	{.name = "turn: behind a dead one",
		.policy = "memory",
		.arrange = turn_others,
		.corpse = turn_join_run,
		.prepare = turn_join,
		.operate = turn_wait},
	{.name = "promise", .has_many = true, .operate = promise_make, .after = promise_after},
	{.name = "promise: a client joins", .has_many = true, .operate = promise_join, .after = promise_after},
	{.name = "promise: a client asks for more",
		.has_many = true,
		.prepare = promise_join_little,
		.operate = promise_more,
		.after = promise_after},
	{.name = "promise: an administrator gives more",
		.has_many = true,
		.prepare = promise_join_little,
		.operate = promise_set,
		.after = promise_after},
	{.name = "wait: asleep in the kernel",
		.policy = "exclusive",
		.real = true,
		.asleep = true,
		.arrange = a_runs,
		.prepare = join,
		.operate = wait_long,
		.after = a_leaves},
	{.name = "lease: real clock",
		.policy = "exclusive",
		.real = true,
		.prepare = join_free,
		.operate = enter_leave},
};
/* clang-format on */

const unsigned crash_nops = sizeof(crash_ops) / sizeof(crash_ops[0]);

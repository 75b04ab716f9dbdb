/*
 * Leases. All of this runs under the process's admission lock, and no thread sleeps while it holds that lock. Other
 * processes see two bits and a few words of our slot, which only this process writes; shm/README.md says how they
 * decide by them.
 */
#include "shm/admission/admission.h"

#include <errno.h>

#include "gpuarb/client.h"
#include "units.h"

#include "shm/client/above.h"
#include "shm/client/client_state.h"
#include "shm/segment/events.h"
#include "shm/base/os.h"
#include "shm/admission/decide.h"
#include "shm/admission/lease_queue.h"
#include "shm/segment/silence.h"
#include "shm/segment/slot.h"
#include "shm/segment/wait.h"
#include "shm/base/word.h"

/* A task that waits for the pressure to end is woken; this bound is for a waker that died. */
#define SLEEP_NS      ARB_QUEUE_SLEEP_NS
#define BUSY_LEAST_NS (20 * MS)
#define KICK_NS       (50 * MS)
#define LONGEST_MS    (366 * 86400000ll)

void arb_admission_settle_classes(struct gpuarb_client *c)
{
	arb_admission_have_default(c->admission.classes);
	c->admission.highest = 0;
	for (uint32_t i = 0; i < ARB_CLASSES; i++)
		if (c->admission.classes[i].name[0] &&
			c->admission.classes[i].priority > c->admission.highest)
			c->admission.highest = c->admission.classes[i].priority;
}

/* Joins if need be, and follows the settings. A class that is removed while a task waits goes on as it was. */
static int prepare_now(struct arb_task *t)
{
	struct gpuarb_client *c = t->c;
	uint32_t i = 0;
	int r;

	arb_lock_take(&c->guard->lock);
	r = arb_client_ensure(c);
	if (r == 0) {
		while (i < ARB_CLASSES && strcmp(c->admission.classes[i].name, t->name) != 0)
			i++;
		if (i < ARB_CLASSES) {
			t->rules = c->admission.classes[i];
			t->me.want = (i + 1) | t->rules.priority << ARB_WANT_PRIORITY_SHIFT |
				     (t->rules.pass ? ARB_WANT_PASS : 0) | (t->me.want & ARB_WANT_BLOCKED);
		} else if (!t->me.want) {
			r = -ENOENT;
		}
		t->usage = c->rules.usage;
		t->highest = c->admission.highest;
		t->grace_ns = c->rules.grace_ns;
		t->win_ms = c->rules.win_ms;
		t->turns = c->turn.taken || c->rules.policy == ARB_POLICY_MEMORY;
	}
	arb_lock_give(&c->guard->lock);
	/* The client has joined anew, after fork() or because the segment was replaced: its earlier leases are
	 * gone. */
	if (__builtin_expect(c->guard->counted != arb_load64(&c->guard->birth), 0)) {
		c->guard->counted = arb_load64(&c->guard->birth);
		c->guard->leases = 0;
	}
	return r;
}

/* Prepares, and waits for the directory of accounts where the client has to join first, up to the end of its time. */
static int prepare(struct arb_task *t)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE;
	bool more = true;
	int r;

	patience.until_ns = t->until_ns;
	while (__builtin_expect((r = prepare_now(t)) == -EBUSY, 0) && more) {
		arb_lock_give(&t->c->guard->adm);
		more = arb_patience_pause(&patience);
		arb_lock_take(&t->c->guard->adm);
	}
	return r;
}

/* The sample is too old: wakes clients that may take one, and counts the busy clock meanwhile. */
static int do_without_sample(struct arb_task *t)
{
	struct gpuarb_client *c = t->c;
	struct arb_snap snap;
	int busy = ARB_DECIDE_UNKNOWN;

	if (t->now_ns - c->patrol.kicked_ns >= KICK_NS) {
		c->patrol.kicked_ns = t->now_ns;
		arb_os_wake(&c->seg.header->adm_wake);
	}
	if (arb_running_read(&c->seg, &snap) == 0) {
		arb_silence_advance(&c->seg, &snap, t->now_ns, t->win_ms);
		if (snap.t - c->patrol.looked.at > 2 * t->usage.sample_ns * ARB_TICKS_PER_NS)
			c->patrol.looked.at = 0;
		busy = arb_admission_idle(&snap)
			       ? 0
			       : arb_usage_busy(&snap, &c->patrol.looked, BUSY_LEAST_NS, false);
		/* The base is renewed once it is older than a sample's period. */
		if (!c->patrol.looked.at ||
			snap.t - c->patrol.looked.at > t->usage.sample_ns * ARB_TICKS_PER_NS)
			c->patrol.looked = (struct arb_busy){snap.busy, snap.t};
	}
	return busy;
}

/* Looks at the tasks that wait or hold leases now; the pressure is taken as it was found. */
static uint32_t look_again(struct arb_task *t)
{
	struct arb_decide_case found;

	t->leases = t->high && arb_queue_leases(t->c);
	found = arb_queue_case(t, t->me.want);
	found.ahead = arb_queue_ahead(t);
	return arb_decide(&found);
}

/* May the task go, as far as pressure and classes are concerned? Returns an enum arb_reason. */
static uint32_t decide(struct arb_task *t)
{
	struct arb_segment *seg = &t->c->seg;
	struct arb_usage u = arb_usage_read(seg, &t->usage, t->now_ns);
	struct arb_decide_pressure pressure;
	int busy = ARB_DECIDE_UNKNOWN;

	if (__builtin_expect(!u.fresh, 0)) {
		/* Read anew: a sample that was taken after our last look at the clock would seem to come from the
		 * future. */
		t->now_ns = arb_os_now_ns();
		u = arb_usage_read(seg, &t->usage, t->now_ns);
	}
	if (__builtin_expect(!u.fresh, 0))
		busy = do_without_sample(t);
	pressure = arb_decide_pressure(&u, busy);
	if (__builtin_expect(pressure.note, 0) && arb_usage_settle(seg, &u, t->now_ns) && pressure.over)
		arb_sampler_wake_waiters(seg);
	t->high = pressure.high;
	return look_again(t);
}

/* With the preload, the launches themselves wait for their turn. So this only asks whether there is quota and, for a
 * task that does not wait, whether it would have to wait. */
static int ask_set(struct arb_task *t)
{
	struct gpuarb_client *c = t->c;
	struct arb_account_snap acct;
	struct arb_snap snap;
	int r = 0;

	arb_lock_take(&c->guard->lock);
	c->admission.leasing = true;
	if (c->move.admit && !c->running && (r = arb_client_roll(c, 0, &snap, &acct)) == 0) {
		c->quota.outstanding = 0;
		r = (int)arb_turn_admit(c, &snap, t->now_ns);
		if (r != ARB_REASON_QUOTA && !t->rules.skip)
			r = 0;
	}
	c->admission.leasing = false;
	arb_lock_give(&c->guard->lock);
	return r;
}

/* Enters the running set: 0, an enum arb_reason, or -errno. */
static int enter_set(struct arb_task *t)
{
	struct gpuarb_client *c = t->c;
	uint32_t reason;
	int r;

	r = c->admission.tracked ? ask_set(t) : arb_client_enter_now(c);
	t->queued_inside = r == -EAGAIN;
	/* There is garbage, and another process holds the directory that is needed to repair it: tries again in a
	 * moment. */
	if (r == -EBUSY)
		return ARB_REASON_QUEUE;
	if (r != -EAGAIN)
		return r;
	/* The word may hold anything, but the answer must be a reason that we know. */
	reason = arb_load32(&arb_client_slot(c)->reason);
	return reason && reason < ARB_REASON_COUNT ? (int)reason : ARB_REASON_QUEUE;
}

/* One attempt: 0, an enum arb_reason, or -errno. */
static int attempt(struct arb_task *t)
{
	struct gpuarb_client *c = t->c;
	int r = t->queued_inside ? 0 : (int)decide(t);

	if (r)
		return r;
	arb_queue_show_lease(c, true);
	/* A process that came between the two looks is seen by the second look, or it sees our lease bit. */
	if (!t->queued_inside)
		r = (int)look_again(t);
	if (!r)
		r = enter_set(t);
	if (r) {
		arb_queue_show_lease(c, c->guard->leases);
		if (t->high)
			arb_queue_wake_other(c);
		return r;
	}
	c->guard->leases++;
	/* While the process holds the lease, its launches are ordered by this class wherever they wait. */
	if (arb_want_priority(t->me.want) > arb_load32(&c->admission.class_priority)) {
		arb_store32(&c->admission.class_priority, arb_want_priority(t->me.want));
		arb_client_show_priority(c);
	}
	if (arb_above_matters(c))
		arb_above_leased(c);
	arb_store32(&arb_client_slot(c)->adm_leases, c->guard->leases);
	arb_store64(&arb_client_slot(c)->adm_granted, arb_load64(&arb_client_slot(c)->adm_granted) + 1);
	return 0;
}

/* Returns when the task looks again if it is not woken: at the latest when its time is over. */
static uint64_t next_look_ns(const struct arb_task *t, uint32_t reason)
{
	uint64_t ns = SLEEP_NS;

	if (reason == ARB_REASON_QUEUE)
		ns = arb_wait_sleep_ns(t->rank ? t->rank - 1 : 0);
	else if (t->leases && arb_want_priority(t->me.want) >= t->highest)
		ns = arb_wait_sleep_ns(0); /* it may go when the last lease ends, and the holder may die */
	else if (reason != ARB_REASON_PRESSURE)
		ns = 10 * MS;
	return ns < t->until_ns - t->now_ns ? t->now_ns + ns : t->until_ns;
}

/* Sleeps once, without the lock; for deaf_ns it does not listen to others. */
static int sleep_once(struct arb_task *t, uint32_t reason, uint32_t seen, uint64_t deaf_ns)
{
	struct gpuarb_client *c = t->c;
	uint64_t look_ns = next_look_ns(t, reason);
	int r;

	t->woken_cpu_ns = 0;
	if (t->queued_inside) {
		/* It waits in the queue of the running set, where the class is our priority. */
		r = arb_client_wait_until(c, NULL, t->until_ns, true);
	} else {
		t->woken_cpu_ns = arb_os_cpu_ns();
		if (__builtin_expect(deaf_ns != 0, 0))
			arb_os_sleep_ns(deaf_ns < look_ns - t->now_ns ? deaf_ns : look_ns - t->now_ns);
		r = arb_os_futex_wait_until(&arb_client_slot(c)->wake, seen, look_ns);
		if (r != 0)
			t->woken_cpu_ns = 0;
	}
	if (r == -ETIMEDOUT && !t->queued_inside)
		arb_queue_patrol(t);
	return r == -ESTALE || r == -EBADMSG || r == -EUSERS || r == -ENOSPC || r == -EBUSY ? r : 0;
}

/* Its own quota or memory keeps the task from running, so others need not wait for it. */
static void mark_blocked(struct arb_task *t, uint32_t reason)
{
	bool blocked = reason == ARB_REASON_QUOTA || reason == ARB_REASON_MEMORY;

	if (blocked != !!(t->me.want & ARB_WANT_BLOCKED)) {
		t->me.want ^= ARB_WANT_BLOCKED;
		arb_queue_show(t->c);
		if (blocked)
			arb_queue_wake(t->c);
	}
	if (!t->queued_inside)
		arb_store32(&arb_client_slot(t->c)->reason, reason);
}

uint32_t arb_admission_reason(uint32_t reason)
{
	return reason == ARB_REASON_PRESSURE ? GPUARB_GPU_USAGE_HIGH
	       : reason == ARB_REASON_QUEUE  ? GPUARB_QUEUE
	       : reason == ARB_REASON_MEMORY ? GPUARB_MEMORY
	       : reason == ARB_REASON_QUOTA  ? GPUARB_QUOTA
					     : GPUARB_WHY_NONE;
}

static int refuse(struct arb_task *t, uint32_t reason, struct gpuarb_lease *lease, int result)
{
	struct gpuarb_client *c = t->c;
	struct arb_slot *s = arb_client_slot(c);
	const struct arb_event_copy event = {
		.kind = result == GPUARB_SKIP ? ARB_EVENT_LEASE_SKIPPED : ARB_EVENT_LEASE_TIMEOUT,
		.slot = c->me.slot,
		.account = c->account,
		.a = (t->me.want & ((1u << ARB_WANT_CLASS_BITS) - 1)) - 1,
		.b = t->now_ns - t->began_ns,
		.why = reason};

	arb_store64(&s->adm_refused, arb_load64(&s->adm_refused) + 1);
	lease->reason = arb_admission_reason(reason);
	arb_lock_take(&c->guard->lock);
	arb_events_repeat(
		&c->seg, result == GPUARB_SKIP ? &c->admission.skipped : &c->admission.timeouts, &event);
	arb_lock_give(&c->guard->lock);
	return result;
}

/* Waits, from the first refusal on. The admission lock is held at the beginning and at the end. */
static int wait_for_it(struct arb_task *t, struct gpuarb_lease *lease, int reason)
{
	struct gpuarb_client *c = t->c;
	uint64_t deaf_ns;
	uint32_t seen;
	int r;

	for (;;) {
		if (arb_word_load_full(&lease->cancelled))
			return -ECANCELED;
		if (!t->listed) {
			if (t->until_ns == t->began_ns)
				return refuse(t, (uint32_t)reason, lease, GPUARB_TIMEOUT);
			arb_queue_join(t);
			if (arb_queue_full(t))
				return refuse(t, ARB_REASON_QUEUE, lease, GPUARB_TIMEOUT);
		}
		/* WAKE: the word first, then the decision; a wake-up in between changes the word. */
		seen = arb_load32_acquire(&arb_client_slot(c)->wake);
		reason = attempt(t);
		if (reason <= 0)
			return reason;
		/* Checked after the last look, so that a lease which became free at the last moment is taken. */
		if (t->now_ns >= t->until_ns)
			return refuse(t, (uint32_t)reason, lease, GPUARB_TIMEOUT);
		mark_blocked(t, (uint32_t)reason);
		if (arb_word_load_full(&lease->cancelled))
			return -ECANCELED;
		deaf_ns = t->woken_cpu_ns ? arb_wakeups_count(&c->admission.wakeups,
						    arb_os_cpu_ns() - t->woken_cpu_ns, t->now_ns)
					  : 0;
		arb_lock_give(&c->guard->adm);
		r = sleep_once(t, (uint32_t)reason, seen, deaf_ns);
		arb_lock_take(&c->guard->adm);
		if (r == 0)
			r = prepare(t);
		if (r < 0)
			return r;
		t->now_ns = arb_os_now_ns();
		arb_queue_show(c);
	}
}

/* Raises the water lines for a long task: 1 if it has, else 0. */
static int take_hint(
	struct gpuarb_client *c, const struct arb_usage_rules *rules, const struct gpuarb_hint *hint)
{
	if ((hint->input_ms < rules->long_task_ms && hint->hold_ms < rules->long_task_ms) ||
		!arb_usage_boost(&c->seg, rules, arb_os_now_ns()))
		return 0;
	/* By the raised lines the pressure may be over. */
	arb_sampler_wake_waiters(&c->seg);
	return 1;
}

static uint64_t wait_time(const struct gpuarb_request *request, const struct gpuarb_class_rules *rules)
{
	int64_t ms = request && request->max_wait_ms ? request->max_wait_ms : (int64_t)rules->max_wait_ms;

	return ms < 0 ? 0 : (uint64_t)(ms < LONGEST_MS ? ms : LONGEST_MS) * MS;
}

int arb_admission_acquire(
	struct gpuarb_client *c, const struct gpuarb_request *request, struct gpuarb_lease *lease)
{
	struct arb_task t = {.c = c, .name = gpuarb_class_default.name, .ahead = ARB_NONE};
	bool stood;
	int r;

	if (request && request->task_class)
		t.name = request->task_class;
	if (!*t.name)
		return -ENOENT;
	/* The wait begins here: the time to get the lock, and to join, is part of it. */
	t.now_ns = t.began_ns = t.me.since_ns = arb_os_now_ns();
	if (request && request->max_wait_ms)
		t.until_ns = t.began_ns + wait_time(request, NULL);
	arb_lock_take(&c->guard->adm);
	r = prepare(&t);
	/* The lease is held already; taking it again would lose the first, which would never be released. */
	if (r == 0 && lease->birth && lease->birth == c->guard->counted && c->guard->leases)
		r = -EALREADY;
	if (r < 0)
		goto out;
	lease->birth = 0;
	lease->reason = GPUARB_WHY_NONE;
	lease->waited_ns = 0;
	if (request && (request->hint.input_ms || request->hint.hold_ms))
		take_hint(c, &t.usage, &request->hint);
	r = attempt(&t);
	if (__builtin_expect(r > 0, 0)) {
		t.until_ns = t.began_ns + wait_time(request, &t.rules);
		if (t.rules.skip)
			r = refuse(&t, (uint32_t)r, lease, GPUARB_SKIP);
		else
			r = wait_for_it(&t, lease, r);
		stood = t.listed;
		arb_queue_leave(&t);
		/* It was cancelled, or something failed, after the set had let it in already. If leaving fails here,
		 * the thread that looks after the leases does it. */
		if (r != GPUARB_OK && t.queued_inside && !c->guard->leases)
			arb_client_leave_now(c);
		lease->waited_ns = arb_os_now_ns() - t.began_ns;
		/* The waiter behind us may go now. A task that was refused at once had nobody behind it. */
		if (stood)
			arb_queue_wake(c);
	}
	if (r == 0) {
		lease->birth = c->guard->counted;
		arb_word_store_release(&lease->client, c);
	}
out:
	arb_lock_give(&c->guard->adm);
	return r;
}

int arb_admission_release(struct gpuarb_client *c, struct gpuarb_lease *lease)
{
	int r = 0;

	arb_lock_take(&c->guard->adm);
	/* Not so for a lease of a parent process, or a lease that was released before. */
	if (lease->birth && lease->birth == arb_load64(&c->guard->birth) &&
		lease->birth == c->guard->counted && c->guard->leases) {
		arb_store32(&arb_client_slot(c)->adm_leases, --c->guard->leases);
		if (!c->guard->leases) {
			if (!c->admission.tracked)
				r = arb_client_leave_now(c);
			/* The thread that looks after the leases does it then. */
			if (r == -EBUSY)
				r = 0;
			arb_queue_show_lease(c, false);
			arb_queue_show(c);
			arb_queue_wake(c);
		}
	}
	lease->birth = 0;
	arb_lock_give(&c->guard->adm);
	return r;
}

static int hint_now(struct gpuarb_client *c, const struct gpuarb_hint *hint)
{
	struct arb_usage_rules rules;
	int r;

	arb_lock_take(&c->guard->adm);
	arb_lock_take(&c->guard->lock);
	r = arb_client_ensure(c);
	rules = c->rules.usage;
	arb_lock_give(&c->guard->lock);
	if (r == 0)
		r = take_hint(c, &rules, hint);
	arb_lock_give(&c->guard->adm);
	return r;
}

int arb_admission_hint(struct gpuarb_client *c, const struct gpuarb_hint *hint)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE;
	int r;

	do
		r = hint_now(c, hint);
	while (r == -EBUSY && arb_patience_pause(&patience));
	return r;
}

void arb_admission_cancel(struct gpuarb_client *c)
{
	arb_lock_take(&c->guard->adm);
	/* With the preload, launches may wait in the queue of the set, and cancelling a task must not cancel their
	 * wait. */
	if (c->admission.tracked)
		arb_os_wake(&arb_client_slot(c)->wake);
	else
		gpuarb_client_cancel(c);
	arb_lock_give(&c->guard->adm);
}

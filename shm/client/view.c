/* Looks at everything without disturbing any client: both segments are mapped read-only. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/control.h"

#include "shm/segment/account.h"
#include "shm/admission/admission.h"
#include "shm/base/atomic.h"
#include "shm/client/control_segment.h"
#include "shm/base/error.h"
#include "shm/segment/events.h"
#include "shm/segment/foreign.h"
#include "shm/segment/frozen.h"
#include "shm/base/os.h"
#include "shm/policy/policy.h"
#include "shm/promise/promise_bytes.h"
#include "shm/segment/running.h"
#include "shm/segment/segment.h"
#include "shm/segment/silence.h"
#include "shm/segment/settings.h"
#include "shm/segment/slot.h"
#include "shm/base/text.h"
#include "shm/segment/wait.h"

#define TRIES  50
#define ASK_NS 100000000u

struct gpuarb_view {
	struct arb_segment seg;
	struct arb_control_map control;
	bool have_control;
	char dir[PATH_MAX];
	char gpu[ARB_UUID_BYTES];
	struct arb_promises *promises;
	uint64_t asked_ns;                 /* when the kernel was last asked which clients live */
	bool only_looks;                   /* the viewer may not open the file of the locks */
	uint32_t dead[ARB_SLOTS_MAX];      /* the generation that was dead then; 0: alive */
	uint16_t place[2 * ARB_SLOTS_MAX]; /* in the picture's accounts[], by an account's index */
};

static void open_control(struct gpuarb_view *v)
{
	v->have_control = arb_control_map_open(&v->control, v->dir, v->gpu, false, NULL, NULL, NULL) == 0;
}

int gpuarb_view_open(const char *dir, const char *gpu, struct gpuarb_view **view, struct gpuarb_error *err)
{
	struct gpuarb_view *v = calloc(1, sizeof(*v));
	int r;

	*view = NULL;
	if (!v)
		return arb_fail(err, -ENOMEM, "out of memory");
	r = arb_os_clock_init();
	if (r < 0)
		arb_fail(err, r, "this time namespace's clock cannot be compared with that of the clients");
	else
		r = arb_segment_open(&v->seg, gpuarb_control_dir(dir), gpu, false, NULL, err);
	if (r < 0) {
		free(v);
		return r;
	}
	strncpy(v->dir, gpuarb_control_dir(dir), sizeof(v->dir) - 1);
	strncpy(v->gpu, gpu, sizeof(v->gpu) - 1);
	open_control(v);
	v->promises = arb_promise_alloc(&v->seg);
	*view = v;
	return 0;
}

void gpuarb_view_close(struct gpuarb_view *v)
{
	if (!v)
		return;
	arb_control_map_close(&v->control);
	arb_segment_close(&v->seg);
	free(v->promises);
	free(v);
}

/* What is published, what that becomes when it is counted on to now, and what is in force. */
struct moment {
	struct arb_snap run, ahead;
	int64_t value[ARB_KEY_COUNT];
	struct arb_rules rules;
	uint64_t now_ns;
};

/* Returns the account's cap in the window of `ahead`: the cap that it has, or the cap that its next roll will give
 * it. */
static uint64_t cap_now(const struct moment *m, const struct arb_account_snap *s, uint64_t start)
{
	if (s->window == m->ahead.win_number)
		return s->cap;
	return arb_policy_next_cap(start, s->limit_ppm >= ARB_PPM ? start : s->cap,
		arb_policy_grant(s->quota_ppm, m->ahead.win_ticks), m->rules.carryover_pct,
		s->window && m->ahead.win_number > s->window ? m->ahead.win_number - s->window : 1);
}

/*
 * Returns the limits to show. Members put new limits into force at their next step, so those of an account whose
 * members idle may be out of date: the limits shown are those that the next step will find.
 */
static struct arb_asked limits_now(
	const struct gpuarb_view *v, const char *name, struct arb_account_snap *s, uint64_t start)
{
	struct arb_asked force = {0};
	struct gpuarb_config_limit set = {.set = 0};

	for (uint32_t i = arb_bits_next(s->attached, v->seg.nwords, 0); i != ARB_NONE;
		i = arb_bits_next(s->attached, v->seg.nwords, i + 1))
		arb_asked_add(&force, &v->seg, i);
	if (v->have_control)
		arb_settings_limit(v->control.control, name, &set);
	arb_asked_settle(&force, &set);
	if (force.ppm != s->limit_ppm) {
		if (s->limit_ppm >= ARB_PPM)
			s->cap = start;
		s->limit_ppm = s->quota_ppm = force.ppm;
	}
	return force;
}

static void look_at_accounts(struct gpuarb_view *v, const struct moment *m, struct gpuarb_picture *p)
{
	const struct arb_snap *run = &m->run, *ahead = &m->ahead;
	uint32_t high = arb_load32_acquire(&v->seg.header->accounts_high);

	p->naccounts = 0;
	if (high > v->seg.naccounts)
		high = v->seg.naccounts;
	for (uint32_t a = 0; a < high; a++) {
		const struct arb_account *acct = &v->seg.accounts[a];
		struct gpuarb_view_account *to = &p->accounts[p->naccounts];
		struct arb_account_snap s;
		struct arb_asked force;
		uint64_t usage, start, cap;

		v->place[a] = UINT16_MAX;
		arb_text_load(acct->name, ARB_NAME_WORDS, to->name);
		if (!to->name[0] || arb_account_read(&v->seg, a, &s) < 0)
			continue;
		to->index = a;
		to->clients = arb_bits_count(s.attached, v->seg.nwords);
		to->active = arb_load64(&acct->active_window) >= ahead->win_number;
		/* An account that all clients have left, and that owes nothing, is not shown. */
		if (!to->clients && !to->active)
			continue;
		usage = arb_account_usage(&v->seg, ahead, &s, s.wall, false);
		start = s.window == ahead->win_number ? s.start
						      : arb_account_usage(&v->seg, ahead, &s, s.wall, true);
		force = (struct arb_asked){s.limit_ppm, arb_load64(&acct->mem_limit),
			arb_load32(&acct->request_ppm) / (ARB_PPM / 100), arb_load32(&acct->weight)};
		if (to->clients && s.window != ahead->win_number)
			force = limits_now(v, to->name, &s, start);
		cap = cap_now(m, &s, start);
		to->limit_ppm = s.limit_ppm;
		to->quota_ppm = s.quota_ppm;
		to->request_ppm = force.request_pct * (ARB_PPM / 100);
		to->weight = force.weight;
		if (to->request_ppm > ARB_PPM)
			to->request_ppm = 0;
		if (!to->weight || to->weight > ARB_SHARE_WEIGHT_MOST)
			to->weight = ARB_SHARE_WEIGHT;
		to->used_ns = arb_account_usage(&v->seg, run, &s, s.wall, false) / ARB_TICKS_PER_NS;
		to->used_now_ns = usage / ARB_TICKS_PER_NS;
		to->window_ns = (usage - start) / ARB_TICKS_PER_NS;
		to->left_ns = arb_policy_before(usage, cap) ? (cap - usage) / ARB_TICKS_PER_NS : 0;
		to->debt_ns = arb_policy_before(cap, usage) ? (usage - cap) / ARB_TICKS_PER_NS : 0;
		to->borrowed_ns = s.borrowed / ARB_TICKS_PER_NS;
		to->mem_used = s.mem_used;
		to->mem_peak = s.mem_peak;
		to->restored = arb_hint64(&v->seg.accounts[a].restored);
		to->mem_limit = force.mem;
		v->place[a] = (uint16_t)p->naccounts++;
	}
	for (uint32_t a = high; a < v->seg.naccounts; a++)
		v->place[a] = UINT16_MAX;
}

static void look_at_clients(struct gpuarb_view *v, const struct moment *m, struct gpuarb_picture *p)
{
	const struct arb_snap *run = &m->run;

	p->nclients = p->ndead = 0;
	for (uint32_t i = 0; i < v->seg.nslots; i++) {
		const struct arb_slot *s = &v->seg.slots[i];
		struct gpuarb_view_client *to = &p->clients[p->nclients];
		uint64_t said_ns;
		uint32_t account;

		if (arb_load32_acquire(&s->state) != ARB_SLOT_LIVE) /* pairs SLOT_PUBLISH */
			continue;
		to->slot = i;
		to->dead = false;
		to->generation = arb_load32(&s->generation);
		to->pid = arb_load32(&s->pid);
		to->uid = arb_load32(&s->uid);
		to->pid_ns = arb_load64(&s->pid_ns);
		to->start_time = arb_load64(&s->start_time);
		arb_text_load(s->command, ARB_COMMAND_WORDS, to->command);
		arb_text_load(s->container, ARB_NAME_WORDS, to->container);
		account = arb_load32(&s->account);
		to->account = account < v->seg.naccounts && v->place[account] != UINT16_MAX
				      ? v->place[account]
				      : ARB_NONE;
		to->priority = arb_load32(&s->priority);
		to->reason = arb_load32(&s->reason);
		to->running = i / 64 < run->words && arb_bit_test(run->running, i);
		to->waiting = i / 64 < run->words && arb_bit_test(run->waiting, i);
		to->evicted = i / 64 < run->words && arb_bit_test(run->evicted, i);
		to->frozen = to->running ? ARB_FROZEN_NOT : arb_frozen_read(s, m->now_ns, &said_ns);
		to->used_ns = (arb_running_usage(&v->seg, run, i) - arb_load64(&s->base)) / ARB_TICKS_PER_NS;
		to->used_now_ns =
			(arb_running_usage(&v->seg, &m->ahead, i) - arb_load64(&s->base)) / ARB_TICKS_PER_NS;
		to->throttled_ns = arb_load64(&s->throttled_ns);
		to->waited_ns = arb_load64(&s->waited_ns);
		to->estimated_ns = arb_load64(&s->estimated_ns);
		to->in_set_ns =
			(arb_running_wall_at(&v->seg, run, i, run->busy) - arb_load64(&s->wall_base)) /
			ARB_TICKS_PER_NS;
		to->wait_since_ns = arb_load64(&s->wait_since_ns);
		to->mem_bytes = arb_load64(&s->mem_now);
		to->turn_since_ns = m->rules.policy == ARB_POLICY_MEMORY ? arb_load64(&s->turn_since_ns) : 0;
		to->enters = arb_load64(&s->enters);
		to->evictions = arb_load64(&s->evictions);
		to->restored = arb_hint32(&s->restored);
		to->joined_ns = arb_load64(&s->joined_ns);
		to->heartbeat_ns = arb_load64(&s->heartbeat_ns);
		for (int k = 0; k < ARB_COUNTERS; k++)
			to->counter[k] = arb_load64(&s->counter[k]);
		arb_text_load(s->unknown, ARB_UNKNOWN_WORDS, to->unknown);
		to->adm_waiting = arb_load64(&v->seg.header->adm_waiting[i / 64]) >> (i % 64) & 1;
		to->adm_since_ns = to->adm_waiting ? arb_load64(&s->adm_since_ns) : 0;
		to->adm_leases = arb_load32(&s->adm_leases);
		to->adm_granted = arb_load64(&s->adm_granted);
		to->adm_refused = arb_load64(&s->adm_refused);
		arb_fence_acquire();
		if (arb_load32(&s->state) == ARB_SLOT_LIVE && arb_load32(&s->generation) == to->generation)
			p->nclients++;
	}
}

/* Finds the waiters' places in the queue. Done once for a picture, and not at each attempt to read one, because each
 * waiter is compared with all others. */
static void find_places(const struct gpuarb_view *v, const struct moment *m, struct gpuarb_picture *p)
{
	const struct arb_order order = {m->now_ns, m->rules.max_wait_ns, m->rules.grace_ns};

	for (unsigned i = 0; i < p->nclients; i++) {
		struct gpuarb_view_client *c = &p->clients[i];

		/* Those that wait for a quota or for others above them stand in no queue. */
		c->queue_place =
			c->waiting && (c->reason == ARB_REASON_QUEUE || c->reason == ARB_REASON_MEMORY)
				? arb_wait_rank(&v->seg, &m->run, c->slot, &order) + 1
				: 0;
	}
}

/* Finds the names of the classes with which clients wait to be admitted. */
static void find_classes(const struct gpuarb_view *v, struct gpuarb_picture *p)
{
	struct gpuarb_class_rules classes[ARB_CLASSES] = {0};

	if (v->have_control)
		arb_settings_classes(v->control.control, classes);
	arb_admission_have_default(classes);
	for (unsigned i = 0; i < p->nclients; i++) {
		struct gpuarb_view_client *c = &p->clients[i];
		uint32_t want = arb_load32(&v->seg.slots[c->slot].adm_want),
			 at = (want & ((1u << ARB_WANT_CLASS_BITS) - 1)) - 1;

		c->adm_class[0] = '\0';
		if (c->adm_waiting && at < ARB_CLASSES)
			memcpy(c->adm_class, classes[at].name, sizeof(c->adm_class));
	}
}

static uint64_t all_bills(const struct gpuarb_view *v, const struct arb_snap *run)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < v->seg.nslots; i++)
		sum += arb_running_usage(&v->seg, run, i);
	return sum;
}

static void read_settings(struct gpuarb_view *v, struct moment *m)
{
	uint64_t epoch;

	for (int key = 0; key < ARB_KEY_COUNT; key++)
		m->value[key] = gpuarb_keys[key].initial;
	if (!v->have_control)
		open_control(v);
	if (v->have_control)
		arb_settings_read(v->control.control, m->value, &epoch);
	arb_settings_rules(m->value, &m->rules);
}

/* Is the segment still the one that the path leads to? If it was removed or replaced, clients of the old one would be
 * shown for ever. */
static int still_there(const struct gpuarb_view *v)
{
	int fd = arb_file_open(&v->seg.file, O_RDONLY);

	if (fd < 0)
		return fd;
	arb_os_close(fd);
	return 0;
}

/* Finds clients that are dead and whose slots nobody has cleaned yet. The kernel is asked about each at most ten
 * times a second; in between a word of the slot tells of deaths that the kernel announced. */
static void find_dead(struct gpuarb_view *v, struct gpuarb_picture *p)
{
	bool ask = !v->asked_ns || p->now_ns - v->asked_ns >= ASK_NS;
	int fd = ask ? arb_segment_locks(&v->seg, O_RDONLY) : -1;

	if (ask)
		v->only_looks = fd == -EACCES;
	p->only_looks = v->only_looks;
	if (fd >= 0 || fd == -EACCES)
		v->asked_ns = p->now_ns;
	for (unsigned i = 0; i < p->nclients; i++) {
		struct gpuarb_view_client *c = &p->clients[i];
		struct gpuarb_view_account *a = c->account < p->naccounts ? &p->accounts[c->account] : NULL;

		if (fd >= 0)
			v->dead[c->slot] =
				arb_os_is_locked(fd, ARB_BYTE_SLOT(c->slot)) == 0 ? c->generation : 0;
		else if (fd == -EACCES)
			v->dead[c->slot] = arb_slot_alive(&v->seg, c->slot) == 0 ? c->generation : 0;
		c->dead = (v->dead[c->slot] && v->dead[c->slot] == c->generation) ||
			  arb_load32(&v->seg.slots[c->slot].life) & FUTEX_OWNER_DIED;
		if (!c->dead)
			continue;
		p->ndead++;
		p->nrunning -= c->running && p->nrunning;
		p->nwaiting -= c->waiting && p->nwaiting;
		c->running = c->waiting = false;
		/* The account counts neither this client nor its memory any more. */
		if (!a)
			continue;
		a->clients -= a->clients > 0;
		a->mem_used -= c->mem_bytes < a->mem_used ? c->mem_bytes : a->mem_used;
	}
	if (fd >= 0)
		arb_os_close(fd);
}

/* Adds a program that waits to start, and keeps those that come first. */
static void add_start(struct gpuarb_picture *p, const struct arb_promised *one)
{
	unsigned at = p->nstarts < GPUARB_VIEW_STARTS ? p->nstarts++ : GPUARB_VIEW_STARTS - 1;

	if (at == GPUARB_VIEW_STARTS - 1 && p->npromises_waiting > GPUARB_VIEW_STARTS &&
		p->starts[at].ticket < one->ticket)
		return;
	for (; at && p->starts[at - 1].ticket > one->ticket; at--)
		p->starts[at] = p->starts[at - 1];
	p->starts[at] = (struct gpuarb_view_start){.bytes = one->waiting > one->bytes ? one->waiting : 0,
		.request_pct = one->request_waiting > one->request_pct ? one->request_waiting : 0,
		.since_ns = one->since_ns,
		.ticket = one->ticket};
	memcpy(p->starts[at].account, one->name, sizeof(p->starts[at].account));
}

static void look_at_promises(const struct gpuarb_view *v, const struct moment *m, struct gpuarb_picture *p)
{
	uint64_t physical = (uint64_t)m->value[ARB_KEY_PHYSICAL_MEMORY_MB] << 20;

	p->mem_physical = physical ? physical : arb_load64(&v->seg.header->mem_physical);
	p->mem_foreign = arb_foreign_read(&v->seg, p->now_ns);
	p->mem_promise_most = arb_promise_limit(p->mem_physical, m->value[ARB_KEY_OVERSUB_RATIO]);
	p->mem_used = p->mem_promised = 0;
	p->requests_pct = p->npromises_waiting = p->nstarts = 0;
	for (unsigned i = 0; i < p->naccounts; i++) {
		p->mem_used += p->accounts[i].mem_used;
		p->accounts[i].mem_promised = 0;
	}
	if (v->promises && arb_promise_list(&v->seg, v->have_control ? v->control.control : NULL, ARB_NONE,
				   v->promises) == 0)
		for (uint32_t i = 0; i < v->promises->n; i++) {
			const struct arb_promised *to = &v->promises->list[i];

			if (to->waiting > to->bytes || to->request_waiting > to->request_pct) {
				p->npromises_waiting++;
				add_start(p, to);
			}
			p->requests_pct += to->request_pct;
			if (p->mem_promised + to->bytes >= p->mem_promised)
				p->mem_promised += to->bytes;
			if (to->index < v->seg.naccounts && v->place[to->index] < p->naccounts)
				p->accounts[v->place[to->index]].mem_promised = to->bytes;
		}
	p->nmem_waiting = 0;
	for (unsigned i = 0; i < p->nclients; i++)
		p->nmem_waiting += p->clients[i].waiting && p->clients[i].reason == ARB_REASON_MEMORY;
}

int gpuarb_view_read(struct gpuarb_view *v, struct gpuarb_picture *p)
{
	struct moment m;
	const struct arb_snap *run = &m.run, *ahead = &m.ahead;
	int r = still_there(v);

	if (r < 0)
		return r;
	read_settings(v, &m);
	for (int tries = 0; tries < TRIES; tries++) {
		r = arb_running_read(&v->seg, &m.run);
		if (r < 0)
			return r;
		m.now_ns = p->now_ns = arb_os_now_ns();
		m.ahead = m.run;
		arb_silence_advance(&v->seg, &m.ahead, m.now_ns, m.rules.win_ms);
		p->billed_ns = all_bills(v, run);
		look_at_accounts(v, &m, p);
		look_at_clients(v, &m, p);
		arb_fence_acquire();
		p->consistent = arb_load64(&v->seg.header->head) == run->head;
		if (p->consistent)
			break;
	}
	p->nrunning = arb_bits_count(run->running, run->words);
	p->nwaiting = arb_bits_count(run->waiting, run->words);
	find_dead(v, p);
	find_places(v, &m, p);
	look_at_promises(v, &m, p);
	find_classes(v, p);
	arb_admission_picture(&v->seg, v->have_control ? v->control.control : NULL, &m.rules, ahead, m.now_ns,
		&p->admission);
	memcpy(p->uuid, v->gpu, sizeof(p->uuid));
	p->nslots = v->seg.nslots;
	p->busy_ns = run->busy / ARB_TICKS_PER_NS;
	p->busy_now_ns = ahead->busy / ARB_TICKS_PER_NS;
	p->billed_ns /= ARB_TICKS_PER_NS;
	p->window_number = ahead->win_number;
	p->window_start_ns = ahead->win_start / ARB_TICKS_PER_NS;
	p->window_ns = ahead->win_ticks / ARB_TICKS_PER_NS;
	p->window_busy_ns = (ahead->busy - ahead->win_busy) / ARB_TICKS_PER_NS;
	p->reclaimed = arb_load64(&v->seg.header->reclaimed);
	p->reserved_slot = run->reserved ? (int)((uint32_t)run->reserved - 1) : -1;
	memset(p->setting, 0, sizeof(p->setting));
	memcpy(p->setting, m.value, sizeof(m.value));
	return 0;
}

int gpuarb_view_events(struct gpuarb_view *v, uint64_t *position, struct gpuarb_event *events, size_t most)
{
	uint64_t first, end;
	struct arb_event_copy e;
	size_t n = 0;

	arb_events_range(&v->seg, &first, &end);
	/* The ring was overwritten, or a process has set the counter back. */
	if (*position < first || *position > end)
		*position = first;
	for (; *position < end && n < most; (*position)++)
		if (arb_events_read(&v->seg, *position, &e) == 0)
			events[n++] = (struct gpuarb_event){e.position, e.time_ns, arb_events_name(e.kind),
				e.kind, e.slot, e.generation, e.account, e.a, e.b, e.c, e.why, e.times};
	return (int)n;
}

bool gpuarb_view_account_name(const struct gpuarb_view *v, unsigned index, char name[ARB_NAME_BYTES])
{
	if (index >= v->seg.naccounts)
		return false;
	arb_text_load(v->seg.accounts[index].name, ARB_NAME_WORDS, name);
	return name[0] != '\0';
}

uint64_t gpuarb_view_grant_ns(const struct gpuarb_picture *picture, const struct gpuarb_view_account *account)
{
	return arb_policy_grant(account->quota_ppm, picture->window_ns);
}

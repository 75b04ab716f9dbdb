/* Looking at everything without disturbing anybody: both segments are mapped read-only. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/control.h"

#include "account.h"
#include "atomic.h"
#include "control.h"
#include "error.h"
#include "events.h"
#include "os.h"
#include "policy.h"
#include "running.h"
#include "segment.h"
#include "settings.h"
#include "text.h"

#define TRIES 50

struct gpuarb_view {
	struct arb_segment seg;
	struct arb_control_map control;
	bool have_control;
	char dir[PATH_MAX];
	char gpu[ARB_UUID_BYTES];
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
		r = arb_segment_open(&v->seg, arb_control_dir(dir), gpu, false, NULL, err);
	if (r < 0) {
		free(v);
		return r;
	}
	strncpy(v->dir, arb_control_dir(dir), sizeof(v->dir) - 1);
	strncpy(v->gpu, gpu, sizeof(v->gpu) - 1);
	open_control(v);
	*view = v;
	return 0;
}

void gpuarb_view_close(struct gpuarb_view *v)
{
	if (!v)
		return;
	arb_control_map_close(&v->control);
	arb_segment_close(&v->seg);
	free(v);
}

static void look_at_accounts(struct gpuarb_view *v, const struct arb_snap *run, struct gpuarb_picture *p)
{
	uint32_t high = arb_load32_acquire(&v->seg.header->accounts_high);

	p->naccounts = 0;
	if (high > v->seg.naccounts)
		high = v->seg.naccounts;
	for (uint32_t a = 0; a < high; a++) {
		const struct arb_account *acct = &v->seg.accounts[a];
		struct gpuarb_view_account *to = &p->accounts[p->naccounts];
		struct arb_account_snap s;
		uint64_t usage, start;

		v->place[a] = UINT16_MAX;
		arb_text_load(acct->name, ARB_NAME_WORDS, to->name);
		if (!to->name[0] || arb_account_read(&v->seg, a, &s) < 0)
			continue;
		to->index = a;
		to->clients = arb_bits_count(s.attached, v->seg.nwords);
		to->active = arb_load64(&acct->active_window) >= run->win_number;
		/* One that left and owes nothing is nobody's concern. */
		if (!to->clients && !to->active)
			continue;
		usage = arb_account_usage(&v->seg, run, &s, s.wall, false);
		start = s.window == run->win_number ? s.start
						    : arb_account_usage(&v->seg, run, &s, s.wall, true);
		to->limit_ppm = s.limit_ppm;
		to->quota_ppm = s.quota_ppm;
		to->used_ns = usage / ARB_TICKS_PER_NS;
		to->window_ns = (usage - start) / ARB_TICKS_PER_NS;
		to->left_ns = arb_policy_before(usage, s.cap) ? (s.cap - usage) / ARB_TICKS_PER_NS : 0;
		to->debt_ns = arb_policy_before(s.cap, usage) ? (usage - s.cap) / ARB_TICKS_PER_NS : 0;
		to->borrowed_ns = s.borrowed / ARB_TICKS_PER_NS;
		to->mem_used = s.mem_used;
		to->mem_peak = s.mem_peak;
		to->mem_limit = arb_load64(&acct->mem_limit);
		v->place[a] = (uint16_t)p->naccounts++;
	}
	for (uint32_t a = high; a < v->seg.naccounts; a++)
		v->place[a] = UINT16_MAX;
}

static void look_at_clients(struct gpuarb_view *v, const struct arb_snap *run, struct gpuarb_picture *p)
{
	p->nclients = 0;
	for (uint32_t i = 0; i < v->seg.nslots; i++) {
		const struct arb_slot *s = &v->seg.slots[i];
		struct gpuarb_view_client *to = &p->clients[p->nclients];
		uint32_t account;

		if (arb_load32_acquire(&s->state) != ARB_SLOT_LIVE) /* pairs SLOT_PUBLISH */
			continue;
		to->slot = i;
		to->generation = arb_load32(&s->generation);
		to->pid = arb_load32(&s->pid);
		to->uid = arb_load32(&s->uid);
		to->pid_ns = arb_load64(&s->pid_ns);
		to->start_time = arb_load64(&s->start_time);
		arb_text_load(s->command, 2, to->command);
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
		to->used_ns = (arb_running_usage(&v->seg, run, i) - arb_load64(&s->base)) / ARB_TICKS_PER_NS;
		to->throttled_ns = arb_load64(&s->throttled_ns);
		to->waited_ns = arb_load64(&s->waited_ns);
		to->wait_since_ns = arb_load64(&s->wait_since_ns);
		to->mem_bytes = arb_load64(&s->mem_now);
		to->enters = arb_load64(&s->enters);
		to->evictions = arb_load64(&s->evictions);
		to->joined_ns = arb_load64(&s->joined_ns);
		to->heartbeat_ns = arb_load64(&s->heartbeat_ns);
		for (int k = 0; k < ARB_COUNTERS; k++)
			to->counter[k] = arb_load64(&s->counter[k]);
		arb_fence_acquire();
		if (arb_load32(&s->state) == ARB_SLOT_LIVE && arb_load32(&s->generation) == to->generation)
			p->nclients++;
	}
}

static uint64_t all_bills(const struct gpuarb_view *v, const struct arb_snap *run)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < v->seg.nslots; i++)
		sum += arb_running_usage(&v->seg, run, i);
	return sum;
}

int gpuarb_view_read(struct gpuarb_view *v, struct gpuarb_picture *p)
{
	struct arb_snap run;
	int64_t value[ARB_KEY_COUNT];
	uint64_t epoch, head;
	int r;

	/* Deleted or replaced? Somebody else's clients would be shown for ever. */
	r = arb_file_open(&v->seg.file, O_RDONLY);
	if (r < 0)
		return r;
	arb_os_close(r);
	if (!v->have_control)
		open_control(v);
	for (int tries = 0; tries < TRIES; tries++) {
		r = arb_running_read(&v->seg, &run);
		if (r < 0)
			return r;
		head = run.head;
		p->now_ns = arb_os_now_ns();
		p->billed_ns = all_bills(v, &run);
		p->busy_ns = run.busy;
		look_at_accounts(v, &run, p);
		look_at_clients(v, &run, p);
		arb_fence_acquire();
		p->consistent = arb_load64(&v->seg.header->head) == head;
		if (p->consistent)
			break;
	}
	memcpy(p->uuid, v->gpu, sizeof(p->uuid));
	p->nslots = v->seg.nslots;
	p->nrunning = arb_bits_count(run.running, run.words);
	p->nwaiting = arb_bits_count(run.waiting, run.words);
	p->busy_ns /= ARB_TICKS_PER_NS;
	p->billed_ns /= ARB_TICKS_PER_NS;
	p->window_number = run.win_number;
	p->window_start_ns = run.win_start / ARB_TICKS_PER_NS;
	p->window_ns = run.win_ticks / ARB_TICKS_PER_NS;
	p->window_busy_ns = (run.busy - run.win_busy) / ARB_TICKS_PER_NS;
	p->reclaimed = arb_load64(&v->seg.header->reclaimed);
	p->reserved_slot = run.reserved ? (int)((uint32_t)run.reserved - 1) : -1;
	for (int key = 0; key < ARB_KEY_COUNT; key++)
		value[key] = arb_keys[key].initial;
	if (v->have_control)
		arb_settings_read(v->control.control, value, &epoch);
	memset(p->setting, 0, sizeof(p->setting));
	memcpy(p->setting, value, sizeof(value));
	return 0;
}

int gpuarb_view_events(struct gpuarb_view *v, uint64_t *position, struct gpuarb_event *events, size_t most)
{
	uint64_t first, end;
	struct arb_event_copy e;
	size_t n = 0;

	arb_events_range(&v->seg, &first, &end);
	/* A ring that was overwritten, or a counter that somebody set back. */
	if (*position < first || *position > end)
		*position = first;
	for (; *position < end && n < most; (*position)++)
		if (arb_events_read(&v->seg, *position, &e) == 0)
			events[n++] = (struct gpuarb_event){e.position, e.time_ns, arb_events_name(e.kind),
				e.kind, e.slot, e.generation, e.account, e.a, e.b};
	return (int)n;
}

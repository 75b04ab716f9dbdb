#include "shm/segment/events.h"

#include <errno.h>

#include "shm/base/atomic.h"
#include "shm/base/os.h"

#define FIELDS 6

/* Detects an entry that two writers filled at once. It is no protection against malice. */
static uint64_t checksum(uint64_t seq, const uint64_t fields[FIELDS])
{
	uint64_t h = seq * 0x9e3779b97f4a7c15ull;

	for (int i = 0; i < FIELDS; i++) {
		h ^= fields[i];
		h *= 0xff51afd7ed558ccdull;
		h ^= h >> 32;
	}
	return h;
}

void arb_events_put(struct arb_segment *seg, const struct arb_event_copy *what)
{
	uint64_t position = arb_add64_full(&seg->header->event_next, 1);
	struct arb_event *e = &seg->events[position % seg->nevents];
	uint64_t done = 2 * position + 2;
	uint32_t slot = what->slot, account = what->account < ARB_EVENT_GPU ? what->account : ARB_EVENT_GPU;
	uint32_t generation = slot < seg->nslots ? arb_load32(&seg->slots[slot].generation) : 0;
	const uint64_t fields[FIELDS] = {arb_os_now_ns(),
		(uint64_t)what->kind | (uint64_t)(slot & 0xffff) << 16 | (uint64_t)generation << 32,
		account | (uint64_t)(what->why & 0xffff) << 16 | (uint64_t)what->times << 32, what->a,
		what->b, what->c};

	arb_store64(&e->seq, done - 1);
	arb_fence_release(); /* EVENT_PUBLISH: a reader that sees a field sees that it is being written */
	arb_store64(&e->time_ns, fields[0]);
	arb_store64(&e->what, fields[1]);
	arb_store64(&e->account, fields[2]);
	arb_store64(&e->a, fields[3]);
	arb_store64(&e->b, fields[4]);
	arb_store64(&e->c, fields[5]);
	arb_store64(&e->check, checksum(done, fields));
	arb_store64_release(&e->seq, done);
}

void arb_events_write(struct arb_segment *seg, enum arb_event_kind kind, uint32_t slot, uint32_t account,
	uint64_t a, uint64_t b)
{
	const struct arb_event_copy event = {
		.kind = kind, .slot = slot, .account = account, .a = a, .b = b, .times = 1};

	arb_events_put(seg, &event);
}

void arb_events_rest(struct arb_segment *seg, struct arb_repeat *r, bool now)
{
	uint64_t time_ns = arb_os_now_ns();

	if (!r->last.times || (!now && time_ns - r->written_ns < ARB_EVENT_REPEAT_NS))
		return;
	arb_events_put(seg, &r->last);
	r->last.times = 0;
	r->written_ns = time_ns;
}

void arb_events_repeat(struct arb_segment *seg, struct arb_repeat *r, const struct arb_event_copy *event)
{
	uint32_t before;

	/* Only events with the same words can be combined. */
	if (r->last.times && (r->last.why != event->why || r->last.account != event->account))
		arb_events_rest(seg, r, true);
	before = r->last.times;
	r->last = *event;
	r->last.times = before < UINT32_MAX ? before + 1 : before;
	arb_events_rest(seg, r, !r->written_ns);
}

void arb_events_range(const struct arb_segment *seg, uint64_t *first, uint64_t *end)
{
	*end = arb_load64_acquire(&seg->header->event_next);
	*first = *end > seg->nevents ? *end - seg->nevents : 0;
}

int arb_events_read(const struct arb_segment *seg, uint64_t position, struct arb_event_copy *event)
{
	const struct arb_event *e = &seg->events[position % seg->nevents];
	uint64_t seq = arb_load64_acquire(&e->seq); /* pairs EVENT_PUBLISH */
	uint64_t fields[FIELDS] = {arb_load64(&e->time_ns), arb_load64(&e->what), arb_load64(&e->account),
		arb_load64(&e->a), arb_load64(&e->b), arb_load64(&e->c)};
	uint64_t check = arb_load64(&e->check);

	arb_fence_acquire();
	if (seq != 2 * position + 2 || arb_load64(&e->seq) != seq || check != checksum(seq, fields) ||
		(fields[1] & 0xffff) >= ARB_EVENT_COUNT)
		return -ENOENT;
	event->position = position;
	event->time_ns = fields[0];
	event->kind = (enum arb_event_kind)(fields[1] & 0xffff);
	event->slot = (uint32_t)(fields[1] >> 16) & 0xffff;
	event->generation = (uint32_t)(fields[1] >> 32);
	event->account = (fields[2] & 0xffff) == ARB_EVENT_GPU ? ARB_NONE : (uint32_t)fields[2] & 0xffff;
	event->why = (uint32_t)(fields[2] >> 16) & 0xffff;
	event->times = fields[2] >> 32 ? (uint32_t)(fields[2] >> 32) : 1;
	event->a = fields[3];
	event->b = fields[4];
	event->c = fields[5];
	return 0;
}

const char *arb_events_name(enum arb_event_kind kind)
{
	static const char *const names[ARB_EVENT_COUNT] = {[ARB_EVENT_NONE] = "none",
		[ARB_EVENT_JOINED] = "joined",
		[ARB_EVENT_LEFT] = "left",
		[ARB_EVENT_RECLAIMED] = "reclaimed",
		[ARB_EVENT_THROTTLED] = "throttled",
		[ARB_EVENT_RESUMED] = "resumed",
		[ARB_EVENT_EVICTED] = "evicted",
		[ARB_EVENT_RETURNED] = "returned",
		[ARB_EVENT_WAIT_TIMEOUT] = "wait-timeout",
		[ARB_EVENT_LIMIT_CHANGED] = "limit-changed",
		[ARB_EVENT_MEM_LIMIT_CHANGED] = "memory-quota-changed",
		[ARB_EVENT_MEM_REFUSED] = "memory-refused",
		[ARB_EVENT_MEM_DRIVER] = "memory-refused-by-driver",
		[ARB_EVENT_TURN_BEGAN] = "memory-turn-began",
		[ARB_EVENT_TURN_ENDED] = "memory-turn-ended",
		[ARB_EVENT_PRESSURE] = "pressure",
		[ARB_EVENT_LEASE_SKIPPED] = "lease-skipped",
		[ARB_EVENT_LEASE_TIMEOUT] = "lease-timeout",
		[ARB_EVENT_AUTO] = "auto",
		[ARB_EVENT_WINDOW] = "window",
		[ARB_EVENT_ALTERNATES] = "alternates",
		[ARB_EVENT_CORRUPT] = "corrupt",
		[ARB_EVENT_CROWDED] = "crowded",
		[ARB_EVENT_RESTORED] = "restored",
		[ARB_EVENT_EMPTIED] = "account-emptied"};

	return kind < ARB_EVENT_COUNT && names[kind] ? names[kind] : "unknown";
}

#include "shm/admission/lease_queue.h"

#include <errno.h>

#include "gpuarb/client.h"

#include "shm/admission/admission.h"
#include "shm/base/atomic.h"
#include "shm/client/above.h"
#include "shm/client/client_state.h"
#include "shm/base/os.h"
#include "shm/client/reclaim.h"

/* A waiter that has not looked for this long, nor for grace_ms, is stopped: others do not wait for it. */
#define SILENT_NS (4 * ARB_QUEUE_SLEEP_NS)

void arb_queue_show(struct gpuarb_client *c)
{
	struct arb_slot *s = arb_client_slot(c);
	const struct arb_waiter *first = c->guard->waiters;
	arb_u64 *word = &c->seg.header->adm_waiting[c->me.slot / 64];
	uint64_t bit = 1ull << (c->me.slot % 64);
	unsigned priority = c->guard->leases ? arb_load32(&c->admission.class_priority) : 0;

	arb_store32(&c->guard->says_waits, first != NULL);
	/* Between two segments no slot is ours. A task that goes on waiting is shown again when the client has
	 * joined. */
	if (!arb_load32(&c->guard->joined))
		return;
	for (const struct arb_waiter *w = first; w; w = w->next)
		if (arb_want_before(w->want & ~ARB_WANT_BLOCKED, w->since_ns, first))
			first = w;
	if (first) {
		arb_store32(&s->adm_want, first->want);
		arb_store64(&s->adm_since_ns, first->since_ns);
		arb_store64(&s->heartbeat_ns, arb_os_now_ns());
		if (arb_want_priority(first->want) > priority)
			priority = arb_want_priority(first->want);
		/* This is a full barrier if the bit was not set: we look at others only after they can see us. */
		arb_bit_set(word, bit);
	} else {
		arb_bit_clear(word, bit);
	}
	arb_store32(&c->admission.class_priority, priority);
	arb_client_show_priority(c);
	arb_store32(&s->flags, (arb_load32(&s->flags) & ~ARB_SLOT_CLASSED) | (first ? ARB_SLOT_CLASSED : 0));
}

void arb_queue_show_lease(struct gpuarb_client *c, bool on)
{
	arb_u64 *word = &c->seg.header->adm_leased[c->me.slot / 64];
	uint64_t bit = 1ull << (c->me.slot % 64);

	arb_store32(&c->guard->says_holds, on);
	if (!arb_load32(&c->guard->joined))
		return;
	if (on)
		arb_bit_set(word, bit); /* a full barrier if the bit was not set */
	else
		arb_bit_clear(word, bit);
	if (!on && arb_above_matters(c))
		arb_above_release(&c->seg);
}

void arb_queue_join(struct arb_task *t)
{
	t->me.next = t->c->guard->waiters;
	t->c->guard->waiters = &t->me;
	t->listed = true;
	arb_queue_show(t->c);
}

void arb_queue_leave(struct arb_task *t)
{
	struct arb_waiter **p = &t->c->guard->waiters;

	if (!t->listed)
		return;
	while (*p && *p != &t->me)
		p = &(*p)->next;
	if (*p)
		*p = t->me.next;
	t->listed = false;
	arb_queue_show(t->c);
	if (arb_load32(&t->c->guard->joined))
		arb_store32(&arb_client_slot(t->c)->reason, ARB_REASON_NONE);
}

bool arb_queue_full(const struct arb_task *t)
{
	const struct arb_segment *seg = &t->c->seg;
	uint32_t class_bits = (1u << ARB_WANT_CLASS_BITS) - 1, others = 0;

	if (!t->rules.queue_limit)
		return false;
	for (uint32_t i = arb_admission_next(seg, seg->header->adm_waiting, 0); i != ARB_NONE;
		i = arb_admission_next(seg, seg->header->adm_waiting, i + 1))
		others += i != t->c->me.slot &&
			  (arb_load32(&seg->slots[i].adm_want) & class_bits) == (t->me.want & class_bits);
	return others >= t->rules.queue_limit;
}

bool arb_queue_leases(const struct gpuarb_client *c)
{
	const arb_u64 *leased = c->seg.header->adm_leased;
	uint32_t i = arb_admission_next(&c->seg, leased, 0);

	if (c->guard->leases)
		return true;
	if (i == c->me.slot)
		i = arb_admission_next(&c->seg, leased, i + 1);
	return i != ARB_NONE;
}

struct arb_decide_case arb_queue_case(const struct arb_task *t, uint32_t want)
{
	return (struct arb_decide_case){
		.want = want, .high = t->high, .leases = t->leases, .highest = t->highest};
}

static bool goes_before(const struct arb_task *t, uint32_t want, uint64_t since_ns)
{
	const struct arb_decide_case other = arb_queue_case(t, want);

	return arb_want_before(want, since_ns, &t->me) && arb_decide_fits(&other);
}

/*
 * A waiter that fits goes at its next look, unless it waits for its turn. That it waits is said by words that any process can
 * write that may join. So if waiters of other processes were ahead at every look for as long as a stopped one is waited
 * for, they only say so.
 */
static bool in_vain(struct arb_task *t)
{
	struct arb_client_admission *a = &t->c->admission;

	if (t->ahead == ARB_NONE || t->now_ns - a->behind_looked_ns > SILENT_NS)
		a->behind_since_ns = t->now_ns;
	a->behind_looked_ns = t->now_ns;
	return !t->turns && t->now_ns - a->behind_since_ns > t->grace_ns;
}

uint32_t arb_queue_ahead(struct arb_task *t)
{
	const struct gpuarb_client *c = t->c;
	const struct arb_segment *seg = &c->seg;
	uint32_t own;

	t->ahead = ARB_NONE;
	t->rank = 0;
	for (const struct arb_waiter *w = c->guard->waiters; w; w = w->next)
		t->rank += w != &t->me && goes_before(t, w->want, w->since_ns);
	own = t->rank;
	for (uint32_t i = arb_admission_next(seg, seg->header->adm_waiting, 0); i != ARB_NONE;
		i = arb_admission_next(seg, seg->header->adm_waiting, i + 1)) {
		const struct arb_slot *s = &seg->slots[i];
		uint32_t want = arb_load32(&s->adm_want);
		uint64_t beat = arb_load64(&s->heartbeat_ns);

		if (i == c->me.slot || !goes_before(t, want, arb_load64(&s->adm_since_ns)))
			continue;
		if (t->now_ns > beat && t->now_ns - beat > SILENT_NS && t->now_ns - beat > t->grace_ns)
			continue;
		t->ahead = i;
		t->rank++;
	}
	if (__builtin_expect(in_vain(t), 0))
		t->rank = own;
	return t->rank;
}

/* Returns the first waiter in order that is not blocked, or ARB_NONE. */
static uint32_t first_in_order(const struct arb_segment *seg)
{
	struct arb_waiter best = {0};
	uint32_t who = ARB_NONE;

	for (uint32_t i = arb_admission_next(seg, seg->header->adm_waiting, 0); i != ARB_NONE;
		i = arb_admission_next(seg, seg->header->adm_waiting, i + 1)) {
		uint32_t want = arb_load32(&seg->slots[i].adm_want);
		uint64_t since = arb_load64(&seg->slots[i].adm_since_ns);

		if (!(want & ARB_WANT_BLOCKED) && (who == ARB_NONE || arb_want_before(want, since, &best))) {
			best = (struct arb_waiter){NULL, want, since};
			who = i;
		}
	}
	return who;
}

void arb_queue_wake(struct gpuarb_client *c)
{
	uint32_t who = first_in_order(&c->seg);

	if (who != ARB_NONE)
		arb_os_wake(&c->seg.slots[who].wake);
}

void arb_queue_wake_other(struct gpuarb_client *c)
{
	uint32_t who = first_in_order(&c->seg);

	if (who != ARB_NONE && who != c->me.slot)
		arb_os_wake(&c->seg.slots[who].wake);
}

bool arb_queue_bits_agree(const struct gpuarb_client *c)
{
	const struct arb_state_header *h = c->seg.header;
	uint32_t word = c->me.slot / 64, shift = c->me.slot % 64;

	return (arb_load64(&h->adm_waiting[word]) >> shift & 1) == arb_load32(&c->guard->says_waits) &&
	       (arb_load64(&h->adm_leased[word]) >> shift & 1) == arb_load32(&c->guard->says_holds);
}

void arb_queue_tidy(struct gpuarb_client *c)
{
	arb_lock_take(&c->guard->adm);
	if (arb_load32(&c->guard->joined) && !arb_queue_bits_agree(c)) {
		arb_queue_show_lease(
			c, c->guard->leases && c->guard->counted == arb_load64(&c->guard->birth));
		arb_queue_show(c);
		arb_queue_wake(c);
	}
	arb_lock_give(&c->guard->adm);
}

/* Probes a few of the clients that hold a lease, or run, continuing where the last look ended. */
static void look_at_holders(struct gpuarb_client *c)
{
	struct arb_snap snap;

	for (int n = 0; n < 4; n++) {
		c->patrol.slot = arb_admission_next(&c->seg, c->seg.header->adm_leased, c->patrol.slot + 1);
		if (c->patrol.slot == ARB_NONE)
			break;
		arb_reclaim_look(&c->seg, c->me.slot, c->patrol.slot, false, &c->rules);
	}
	/* A client that died in the running set keeps the busy clock going, and that clock may be all that is known
	 * of the pressure. */
	if (arb_running_read(&c->seg, &snap) < 0)
		return;
	for (int n = 0; n < 4; n++) {
		c->patrol.set_slot = arb_bits_next(snap.running, snap.words, c->patrol.set_slot + 1);
		if (c->patrol.set_slot == ARB_NONE)
			break;
		arb_reclaim_look(&c->seg, c->me.slot, c->patrol.set_slot, true, &c->rules);
	}
}

void arb_queue_patrol(struct arb_task *t)
{
	struct gpuarb_client *c = t->c;

	arb_lock_take(&c->guard->lock);
	if (arb_load32(&c->guard->joined)) {
		if (t->ahead != ARB_NONE)
			arb_reclaim_look(&c->seg, c->me.slot, t->ahead, false, &c->rules);
		else
			look_at_holders(c);
	}
	arb_lock_give(&c->guard->lock);
}

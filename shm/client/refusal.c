/* What follows when a program is refused memory: the event and, for people, the holders of the memory. */
#include <string.h>

#include "gpuarb/client.h"

#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/segment/events.h"
#include "shm/segment/slot.h"
#include "shm/base/text.h"

/* Adds a holder, the largest first; those for which there is no room are only counted. */
static void add_holder(struct gpuarb_refusal *what, const struct gpuarb_holder *holder)
{
	unsigned at = what->nholders < GPUARB_HOLDERS ? what->nholders : GPUARB_HOLDERS;

	what->nholders++;
	while (at > 0 && what->holder[at - 1].bytes < holder->bytes)
		at--;
	if (at == GPUARB_HOLDERS)
		return;
	memmove(&what->holder[at + 1], &what->holder[at],
		(GPUARB_HOLDERS - 1 - at) * sizeof(what->holder[0]));
	what->holder[at] = *holder;
}

/* Finds the holders. Any value is possible here, because other processes write these slots. */
static void find_holders(
	const struct gpuarb_client *c, const struct arb_account_snap *acct, struct gpuarb_refusal *what)
{
	uint64_t here = arb_load64(&c->seg.slots[c->me.slot].pid_ns);

	for (uint32_t i = arb_bits_next(acct->attached, c->seg.nwords, 0); i != ARB_NONE && i < c->seg.nslots;
		i = arb_bits_next(acct->attached, c->seg.nwords, i + 1)) {
		const struct arb_slot *s = &c->seg.slots[i];
		struct gpuarb_holder holder = {.pid = arb_load32(&s->pid),
			.self = i == c->me.slot,
			.elsewhere = arb_load64(&s->pid_ns) != here,
			.bytes = arb_load64(&s->mem_now)};

		/* Where the bound is for a single client, only this process counts. */
		if (!holder.bytes || (what->why == ARB_REFUSAL_SINGLE && !holder.self))
			continue;
		arb_text_load(s->command, 2, holder.command);
		arb_text_load(s->container, ARB_NAME_WORDS, holder.container);
		add_holder(what, &holder);
	}
}

static uint64_t held_by_others(const struct gpuarb_client *c)
{
	uint64_t sum = 0;

	for (uint32_t w = 0; w < c->seg.nwords; w++)
		for (uint64_t taken = arb_load64(&c->seg.header->taken[w]); taken; taken &= taken - 1) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(taken);
			uint64_t bytes = i < c->seg.nslots ? arb_load64(&c->seg.slots[i].mem_now) : 0;

			if (bytes && bytes <= ARB_PHYSICAL_MOST &&
				arb_load32(&c->seg.slots[i].account) != c->account)
				sum += bytes;
		}
	return sum;
}

static void describe(
	const struct gpuarb_client *c, const struct arb_event_copy *event, struct gpuarb_refusal *what)
{
	struct arb_account_snap acct;

	memset(what, 0, sizeof(*what));
	what->why = event->why;
	what->bytes = event->a;
	what->bound = event->b;
	what->used = event->c;
	what->others = held_by_others(c);
	memcpy(what->account, c->opened.name, sizeof(what->account));
	if (arb_account_read(&c->seg, c->account, &acct) == 0)
		find_holders(c, &acct, what);
}

static bool refused(struct gpuarb_client *c, struct arb_repeat *repeat, struct arb_event_copy *event,
	struct gpuarb_refusal *what)
{
	struct arb_account_snap acct;

	if (!arb_load32(&c->guard->joined))
		return false;
	event->slot = c->me.slot;
	event->account = c->account;
	event->b = event->why == ARB_REFUSAL_SINGLE ? c->mem.most : c->mem.limit;
	if (event->why == ARB_REFUSAL_SINGLE)
		event->c = c->mem.held;
	else if (arb_account_read(&c->seg, c->account, &acct) == 0)
		event->c = acct.mem_used;
	arb_events_repeat(&c->seg, repeat, event);
	if (what)
		describe(c, event, what);
	return true;
}

bool gpuarb_client_mem_refused(struct gpuarb_client *c, uint64_t bytes, struct gpuarb_refusal *what)
{
	struct arb_event_copy event = {.kind = ARB_EVENT_MEM_REFUSED, .a = bytes};
	bool done;

	arb_lock_take(&c->guard->lock);
	event.why = c->mem.refusal;
	done = refused(c, &c->mem.refused, &event, what);
	arb_lock_give(&c->guard->lock);
	return done;
}

bool gpuarb_client_mem_driver_refused(struct gpuarb_client *c, uint64_t bytes, struct gpuarb_refusal *what)
{
	struct arb_event_copy event = {.kind = ARB_EVENT_MEM_DRIVER, .a = bytes};
	bool done;

	arb_lock_take(&c->guard->lock);
	done = refused(c, &c->mem.by_driver, &event, what);
	arb_lock_give(&c->guard->lock);
	return done;
}

/*
 * A client's quota and request are promised when it joins, and when it asks for more. However the programs were
 * started, all quotas of a GPU together stay within oversub_ratio, and all requests within 100 percent. What is
 * promised is the slot's asked_mem and asked_share, written while ARB_BYTE_PROMISES is held, so that of two clients
 * that come at once the second sees the first. The promise ends with the slot.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/base/error.h"
#include "shm/promise/promise_bytes.h"

/* Adds up what is promised, while ARB_BYTE_PROMISES is held. */
static int add_up(struct gpuarb_client *c, uint64_t bytes, unsigned request_pct)
{
	const struct arb_control *control = c->have_control ? c->control.control : NULL;
	struct arb_promise_bounds bounds = {
		c->opened.gpu, c->rules.memory.physical, c->rules.memory.oversub_permille};
	struct gpuarb_promise promise = {c->opened.name, bytes, 0, request_pct};
	struct arb_promises *all = arb_promise_alloc(&c->seg);
	struct gpuarb_room room;
	int r;

	if (!all)
		return -ENOMEM;
	r = arb_promise_look(
		&c->seg, control, &c->rules, &bounds, &promise, UINT64_MAX, c->me.slot, all, &room);
	if (r == 0 && !room.fits) {
		arb_promise_refuse(all, &bounds, c->opened.name, &room, &c->standing.denied);
		r = -EDQUOT;
	}
	free(all);
	return r;
}

/* Returns the quota that the account has if this client asks for `bytes`, as far as the client knows; 0 is none. */
static uint64_t quota_with(struct gpuarb_client *c, uint64_t bytes)
{
	return arb_promise_share(c->have_control ? c->control.control : NULL, c->opened.name, bytes);
}

static unsigned request_with(struct gpuarb_client *c, unsigned request_pct)
{
	return arb_promise_request(c->have_control ? c->control.control : NULL, c->opened.name, request_pct);
}

/* Stores what the client asks for in its slot, where all others see it. */
static void ask(struct gpuarb_client *c, uint64_t bytes, unsigned request_pct)
{
	struct arb_slot *slot = arb_client_slot(c);
	uint32_t share = c->standing.guest ? 0 : request_pct | c->asked.weight << 8;

	c->ledger.asked_mem = bytes;
	c->ledger.asked_share = share;
	arb_store64(&slot->asked_mem, bytes);
	if (arb_hint32(&slot->asked_share) != share)
		arb_store32(&slot->asked_share, share);
}

int arb_client_promise(struct gpuarb_client *c, uint64_t bytes, unsigned request_pct)
{
	uint64_t quota = quota_with(c, bytes);
	unsigned request = request_with(c, request_pct);
	/* The GPU's size is not known yet: the promise is asked for again when it is. */
	bool known = c->rules.memory.physical != 0, own = c->seg.alone || c->seg.stranded;
	/* Only more than before needs room. No quota, a smaller one, or what was promised in a segment that was
	 * replaced takes nothing from others. */
	bool more = (known && quota > c->guard->promised) || request > c->guard->promised_request;
	struct arb_lock lock;
	int r = 0;

	if (more && !own) {
		r = arb_slot_lock(&c->seg, ARB_BYTE_PROMISES(c->seg.nslots), &lock);
		if (r < 0)
			return r == -EAGAIN ? -EBUSY : r;
		r = add_up(c, bytes, request_pct);
	}
	if (r == 0) {
		ask(c, bytes, request_pct);
		if (known && !c->seg.alone)
			c->guard->promised = quota;
		if (!c->seg.alone)
			c->guard->promised_request = request;
	}
	if (more && !own)
		arb_slot_unlock(&lock);
	return r;
}

int arb_client_promise_again(struct gpuarb_client *c)
{
	int promised, r;

	if (quota_with(c, c->asked.mem_bytes) <= c->guard->promised)
		return 0;
	promised = arb_client_promise(c, c->asked.mem_bytes, c->asked.request_pct);
	if (promised < 0 && promised != -EDQUOT)
		return promised;
	/* If two clients came before the size was known, one of them must get the promise: a client that is denied
	 * takes back what it asked for, so that it does not keep out the other. */
	if (promised < 0) {
		c->ledger.asked_mem = 0;
		arb_store64(&arb_client_slot(c)->asked_mem, 0);
	}
	r = arb_client_refresh(c);
	return r < 0 ? r : promised;
}

const char *gpuarb_client_denied(const struct gpuarb_client *c)
{
	return c->standing.denied.text;
}

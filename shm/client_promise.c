/*
 * A client's quota is promised when it joins, and when it asks for more: however the program was started, all
 * quotas of a GPU together stay within oversub_ratio. What is promised is the slot's asked_mem, written with
 * ARB_BYTE_PROMISES in hand, so that of two who come at once the second sees the first; it goes with its
 * slot.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "atomic.h"
#include "client.h"
#include "error.h"
#include "promise.h"

/* With the byte. */
static int add_up(struct gpuarb_client *c, uint64_t bytes)
{
	const struct arb_control *control = c->have_control ? c->control.control : NULL;
	struct arb_promise_bounds bounds = {
		c->gpu, c->rules.memory.physical, c->rules.memory.oversub_permille};
	struct gpuarb_promise promise = {c->name, bytes, 0};
	struct arb_promises *all = arb_promise_alloc(&c->seg);
	struct gpuarb_room room;
	int r;

	if (!all)
		return -ENOMEM;
	r = arb_promise_look(
		&c->seg, control, &c->rules, &bounds, &promise, UINT64_MAX, c->me.slot, all, &room);
	if (r == 0 && !room.fits) {
		arb_promise_refuse(all, &bounds, c->name, &room, &c->denied);
		r = -EDQUOT;
	}
	free(all);
	return r;
}

/* What the account's quota comes to with it, as far as this client knows: 0 is none. */
static uint64_t quota_with(struct gpuarb_client *c, uint64_t bytes)
{
	return arb_promise_share(c->have_control ? c->control.control : NULL, c->name, bytes);
}

int arb_client_promise(struct gpuarb_client *c, uint64_t bytes)
{
	arb_u64 *asked = &arb_client_slot(c)->asked_mem;
	uint64_t quota = quota_with(c, bytes);
	struct arb_lock lock;
	int r = 0;

	/* Nobody knows yet of how much: it is asked again when somebody does. */
	if (!c->rules.memory.physical) {
		arb_store64(asked, bytes);
		return 0;
	}
	/* No quota, less than before, or what it was promised in a segment that was replaced: nobody can have
	 * less because of it. */
	if (c->seg.alone || c->seg.stranded || !quota || quota <= c->guard->promised) {
		arb_store64(asked, bytes);
		if (!c->seg.alone)
			c->guard->promised = quota;
		return 0;
	}
	r = arb_slot_lock(&c->seg, ARB_BYTE_PROMISES(c->seg.nslots), &lock);
	if (r < 0)
		return r == -EAGAIN ? -EBUSY : r;
	r = add_up(c, bytes);
	if (r == 0) {
		arb_store64(asked, bytes);
		c->guard->promised = quota;
	}
	arb_slot_unlock(&lock);
	return r;
}

int arb_client_promise_again(struct gpuarb_client *c)
{
	int promised, r;

	if (quota_with(c, c->mem_bytes) <= c->guard->promised)
		return 0;
	promised = arb_client_promise(c, c->mem_bytes);
	if (promised < 0 && promised != -EDQUOT)
		return promised;
	/* Of two that came before anybody knew, one must get it: who is denied does not stand in its way. */
	if (promised < 0)
		arb_store64(&arb_client_slot(c)->asked_mem, 0);
	r = arb_client_refresh(c);
	return r < 0 ? r : promised;
}

const char *gpuarb_client_denied(const struct gpuarb_client *c)
{
	return c->denied.text;
}

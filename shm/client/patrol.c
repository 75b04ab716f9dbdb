/* A client probes others: those that should have handed over, and those that may have left something behind. */
#include <errno.h>

#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/client/floor.h"
#include "shm/base/os.h"
#include "shm/client/reclaim.h"
#include "shm/segment/running.h"
#include "shm/segment/wait.h"

/* Probes one slot. A dead client whose slot cannot be cleaned yet has lost its place all the same, so the next client
 * can be probed. */
static int look(struct gpuarb_client *c, uint32_t slot, bool runs)
{
	int r = arb_reclaim_look(&c->seg, c->me.slot, slot, runs, &c->rules);

	if (r == 1)
		arb_floor_in_vain(c, arb_os_now_ns());
	return r == -EBUSY ? 0 : r;
}

int arb_client_patrol(struct gpuarb_client *c)
{
	struct arb_snap snap;
	uint32_t looked = 0;
	int r = arb_running_read(&c->seg, &snap), worst = 0;

	if (r < 0)
		return r;
	if (snap.reserved)
		worst = look(c, (uint32_t)snap.reserved - 1, false);
	/* A few members are probed at a time, from our own place on, because other clients probe as well. */
	for (uint32_t i = arb_bits_next(snap.running, snap.words, c->me.slot + 1); looked < 4 && worst >= 0;
		looked++) {
		if (i == ARB_NONE)
			i = arb_bits_next(snap.running, snap.words, 0);
		if (i == ARB_NONE || i == c->me.slot)
			break;
		worst = look(c, i, true);
		i = arb_bits_next(snap.running, snap.words, i + 1);
	}
	if (worst >= 0) {
		/* A silent waiter is included, because it may be dead. */
		struct arb_order order = {arb_os_now_ns(), c->rules.max_wait_ns, UINT64_MAX};
		uint32_t first = arb_wait_choose(&c->seg, &snap, &order);

		if (first != ARB_NONE)
			worst = look(c, first, false);
	}
	return worst < 0 ? worst : 0;
}

/* A death in the set is noticed at once, and a death in the queue soon, because others wait for the place. Nobody waits
 * for a client that dies idle or throttled, but its slot and its memory are still taken. So every second each client
 * looks at a few slots, in turn. */
void arb_client_scrub(struct gpuarb_client *c)
{
	uint64_t taken[ARB_WORDS];

	for (uint32_t w = 0; w < c->seg.nwords; w++)
		taken[w] = arb_load64(&c->seg.header->taken[w]);
	for (int n = 0; n < 16; n++) {
		c->patrol.scrubbed = arb_bits_next(taken, c->seg.nwords, c->patrol.scrubbed + 1);
		if (c->patrol.scrubbed == ARB_NONE)
			return; /* the end is reached: the next call begins with the first slot */
		if (arb_reclaim_look(&c->seg, c->me.slot, c->patrol.scrubbed, false, &c->rules) == -EBUSY) {
			c->patrol
				.scrubbed--; /* the directory is held: the next call looks at this slot again */
			return;
		}
	}
}

/* Was the slot heard of a moment ago? A client that runs gives a sign of life every few milliseconds, and probing its
 * lock costs system calls. */
static bool was_heard(const struct gpuarb_client *c, uint32_t slot, uint64_t now_ns)
{
	uint64_t beat = slot < c->seg.nslots ? arb_load64(&c->seg.slots[slot].heartbeat_ns) : 0;

	return beat <= now_ns && now_ns - beat < ARB_HEARD_NS;
}

/* Finds the member, other than this client, that asks for exactly the limit that binds. */
static uint32_t who_asks(const struct gpuarb_client *c, uint32_t ppm, uint64_t mem)
{
	struct arb_account_snap acct;

	if (arb_account_read(&c->seg, c->account, &acct) < 0)
		return ARB_NONE;
	for (uint32_t i = arb_bits_next(acct.attached, c->seg.nwords, 0); i != ARB_NONE;
		i = arb_bits_next(acct.attached, c->seg.nwords, i + 1))
		if (i != c->me.slot && ((ppm && arb_load32(&c->seg.slots[i].asked_ppm) == ppm) ||
					       (mem && arb_load64(&c->seg.slots[i].asked_mem) == mem)))
			return i;
	return ARB_NONE;
}

/* Probes the member whose limit binds. If that member is dead, cleans up behind it and probes the member with the next
 * strictest limit, until a living one is found. */
static void look_at_strictest(struct gpuarb_client *c, bool mem)
{
	for (uint32_t n = 0; n < c->seg.nslots; n++) {
		struct arb_asked asked = arb_account_asked(&c->seg, c->account);
		uint32_t i = mem ? who_asks(c, 0, asked.mem) : who_asks(c, asked.ppm, 0);

		if (i == ARB_NONE || arb_reclaim_look(&c->seg, c->me.slot, i, false, &c->rules) <= 0)
			return;
	}
}

void arb_client_members(struct gpuarb_client *c)
{
	look_at_strictest(c, false);
	look_at_strictest(c, true);
}

int arb_client_neighbour(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	uint32_t next = arb_bits_next(snap->running, snap->words, c->me.slot + 1);

	if (next == ARB_NONE)
		next = arb_bits_next(snap->running, snap->words, 0);
	return was_heard(c, next, now_ns) ? 0 : arb_reclaim_look(&c->seg, c->me.slot, next, true, &c->rules);
}

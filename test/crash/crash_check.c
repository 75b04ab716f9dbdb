/* What must hold for the survivors after a kill. */
#include "test/crash/crash.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/base/atomic.h"
#include "shm/segment/check.h"
#include "shm/client/reclaim.h"
#include "shm/segment/slot.h"

static void say(void *argument, const char *sentence)
{
	world_wrong(argument, "%s", sentence);
}

/* Checks the invariants, and that accounts have been billed for all busy time, which holds while no client runs. */
static void check(struct world *w, struct arb_segment *seg)
{
	struct arb_account_snap acct;
	struct arb_snap run;
	uint64_t sum = 0;
	int r = arb_check(seg, say, w);

	if (r < 0)
		world_wrong(w, "the segment cannot be checked: %s", strerror(-r));
	if (arb_running_read(seg, &run) < 0)
		return;
	for (uint32_t i = 0; i < arb_load32(&seg->header->accounts_high); i++)
		if (arb_account_read(seg, i, &acct) == 0)
			sum += arb_account_usage(seg, &run, &acct, false, false);
	if (sum != run.busy && !w->op->forgets)
		world_wrong(w, "accounts have been billed %lld ticks more than the GPU was busy",
			(long long)(sum - run.busy));
}

static uint64_t memory_counted(const struct arb_segment *seg)
{
	struct arb_account_snap acct;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < arb_load32(&seg->header->accounts_high); i++)
		if (arb_account_read(seg, i, &acct) == 0)
			sum += acct.mem_used;
	return sum;
}

/* Checks that no client runs or waits, that all slots but the survivors' are free, and that only their memory is
 * counted. */
static void check_rest(struct world *w, struct arb_segment *seg, uint32_t survivors, uint64_t bytes)
{
	struct arb_snap s;

	check(w, seg);
	if (arb_running_read(seg, &s) < 0)
		return;
	for (uint32_t i = 0; i < s.words; i++)
		if (s.running[i] | s.waiting[i] | s.evicted[i])
			world_wrong(w,
				"somebody is left in the set: running %llx, waiting %llx, evicted %llx",
				(unsigned long long)s.running[i], (unsigned long long)s.waiting[i],
				(unsigned long long)s.evicted[i]);
	if (s.reserved || s.weight)
		world_wrong(w, "nobody is left, but W is %u and the reservation %llx", s.weight,
			(unsigned long long)s.reserved);
	if (arb_load64(&seg->header->adm_waiting[0]) | arb_load64(&seg->header->adm_leased[0]))
		world_wrong(w, "leases are left: waiting %llx, leased %llx",
			(unsigned long long)arb_load64(&seg->header->adm_waiting[0]),
			(unsigned long long)arb_load64(&seg->header->adm_leased[0]));
	for (uint32_t i = 0; i < seg->nslots; i++)
		if (!(survivors >> i & 1) && arb_load32(&seg->slots[i].state) != ARB_SLOT_FREE)
			world_wrong(w, "slot %u has not been freed: its state is %u", i,
				arb_load32(&seg->slots[i].state));
	if (memory_counted(seg) != bytes)
		world_wrong(w, "%llu bytes are counted, the survivors have %llu",
			(unsigned long long)memory_counted(seg), (unsigned long long)bytes);
}

static void sweep(struct world *w, struct arb_segment *seg, const struct arb_rules *rules)
{
	struct arb_reclaimed what;

	for (uint32_t i = 0; i < seg->nslots; i++) {
		int r = arb_reclaim_slot(seg, i, rules, &what);

		if (r < 0)
			world_wrong(w, "slot %u cannot be reclaimed: %s", i, strerror(-r));
	}
}

/* A newcomer finds a slot, gets the lease and memory, and leaves. */
static void check_newcomer(struct world *w)
{
	struct gpuarb_options o = {.gpu = w->gpu,
		.dir = w->dir,
		.conf = "/dev/null",
		.account = "late",
		.ignore_env = !w->op->creates};
	struct gpuarb_error err = {0, ""};
	struct gpuarb_client *c;
	int r = gpuarb_client_open(&o, &c, &err);

	if (r < 0) {
		world_wrong(w, "a newcomer cannot join: %s", err.text);
		return;
	}
	if ((r = gpuarb_client_wait(c, NULL, LEASE_BOUND_NS)) < 0)
		world_wrong(w, "a newcomer does not get the lease: %s", strerror(-r));
	if ((r = gpuarb_client_mem_reserve(c, 64)) < 0)
		world_wrong(w, "a newcomer does not get memory: %s", strerror(-r));
	gpuarb_client_leave(c, 0);
	gpuarb_client_close(c);
}

static void lease(struct world *w, struct gpuarb_client *c, const char *who)
{
	struct arb_snap s;
	int r = gpuarb_client_wait(c, NULL, LEASE_BOUND_NS);

	if (r < 0) {
		/* The victim may have used up its account's quota while it was held up. */
		if (!crash_pausing || arb_load32(&c->seg.slots[c->me.slot].reason) != ARB_REASON_QUOTA)
			world_wrong(w, "%s does not get the lease: %s", who, strerror(-r));
		return;
	}
	/* Clients that gave a sign of life recently are not probed, so the clock is moved until all signs are old. */
	for (uint32_t i = 0; i < c->seg.nslots; i++)
		if (arb_slot_alive(&c->seg, i) == 0)
			arb_store64(&c->seg.slots[i].heartbeat_ns, 0);
	/* Each member probes the next one; after a few rounds the dead are out of the set. */
	for (uint32_t i = 0; i <= c->seg.nslots; i++) {
		if (((r = gpuarb_client_tick(c)) < 0 && r != -EDQUOT && r != -EAGAIN) ||
			(w->b && (r = gpuarb_client_tick(w->b)) < 0 && r != -EDQUOT && r != -EAGAIN))
			world_wrong(w, "%s cannot go on: %s", who, strerror(-r));
	}
	if (arb_running_read(&c->seg, &s) < 0)
		return;
	for (uint32_t i = 0; i < c->seg.nslots; i++)
		if (arb_bit_test(s.running, i) && arb_slot_alive(&c->seg, i) == 0)
			world_wrong(w, "slot %u is dead and still in the running set", i);
}

static uint32_t bit_of(const struct gpuarb_client *c)
{
	return c ? 1u << c->me.slot : 0;
}

void world_recover(struct world *w)
{
	if (w->op->creates)
		w->a = world_client(w, "alpha", 0, 0);
	if (w->op->mend)
		w->op->mend(w, &w->a->seg);
	check(w, &w->a->seg);
	if (w->op->after)
		w->op->after(w);
	lease(w, w->a, "a survivor");
	gpuarb_client_leave(w->a, 0);
	if (w->b) {
		lease(w, w->b, "the other survivor");
		gpuarb_client_leave(w->b, 0);
	}
	sweep(w, &w->a->seg, &w->a->rules);
	check_rest(w, &w->a->seg, bit_of(w->a) | bit_of(w->b), w->a_bytes + w->b_bytes);
	check_newcomer(w);
	check_rest(w, &w->a->seg, bit_of(w->a) | bit_of(w->b), w->a_bytes + w->b_bytes);
}

/* Its slot's buffers belong to another account for a while. */
static void move_there_and_back(struct world *w)
{
	gpuarb_client_close(w->b);
	w->b = world_client(w, "elsewhere", 0, 4096);
	for (int i = 0; i < 3; i++)
		world_must(gpuarb_client_mem_reserve(w->b, 100), "hold memory elsewhere");
	gpuarb_client_close(w->b);
	w->b = world_client(w, w->op->b_account, 0, 4096);
	world_must(gpuarb_client_mem_reserve(w->b, w->b_bytes), "hold memory again");
}

void world_disturb(struct world *w)
{
	unsigned how = (unsigned)rand() >> 4;

	if (w->op->mend)
		w->op->mend(w, &w->a->seg);

	if (how & 1)
		world_clock_skip(120 * MS); /* another window */
	if (how & 2)
		world_clock_skip(600 * MS); /* the victim looks silent, and is evicted if it runs */
	gpuarb_client_enter(w->a, NULL);
	for (uint32_t i = 0; i < w->a->seg.nslots; i++)
		gpuarb_client_tick(w->a);
	if (how & 4 || w->op->waits)
		gpuarb_client_leave(w->a, 0);
	if (w->b && !w->op->waits) {
		if (gpuarb_client_mem_reserve(w->b, 8) == 0)
			gpuarb_client_mem_release(w->b, 8);
		gpuarb_client_enter(w->b, NULL);
		gpuarb_client_tick(w->b);
		if (how & 8)
			gpuarb_client_leave(w->b, 0);
	}
	if (w->op->moves)
		move_there_and_back(w);
	check(w, &w->a->seg);
}

void world_recover_copy(struct world *w)
{
	struct arb_create create = {w->a->seg.nslots, 0600, (gid_t)-1};
	size_t from = offsetof(struct arb_state_header, head);
	uint64_t now = world_clock_now();
	char gpu[80];

	if (!w->copy.header) {
		snprintf(gpu, sizeof(gpu), "%s.copy", w->gpu);
		world_must(arb_segment_open(&w->copy, w->dir, gpu, true, &create, NULL), "make a copy");
	}
	memcpy((char *)w->copy.header + from, (char *)w->a->seg.header + from,
		(size_t)((char *)w->copy.events - (char *)w->copy.header) - from);
	if (w->op->mend)
		w->op->mend(w, &w->copy);
	check(w, &w->copy);
	sweep(w, &w->copy, &w->a->rules);
	check_rest(w, &w->copy, 0, 0);
	w->tally->states++;
	/* The victim is stopped: for it no time has passed. */
	world_clock_set(now);
}

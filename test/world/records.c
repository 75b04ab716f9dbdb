#include "test/world/records.h"

#include <string.h>

#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/policy/policy.h"
#include "test/world/faults.h"
#include "test/world/judge.h"

#define ACCOUNTS 16
/* A dead member may stay in the running set, and time be counted for it, until its neighbour finds it: this long. */
#define FOUND_NS (40 * WORLD_MS)
/* A client that takes out the dead saw them silent for ARB_HEARD_NS, and may be held up before it publishes. */
#define SURE_NS (ARB_HEARD_NS + 15 * WORLD_MS)
/* A waiter looks after 50 ms at the latest. Some look late, or a place is kept in vain for one that is gone. */
#define IDLE_NS (120 * WORLD_MS)

static struct {
	struct arb_snap last;
	bool any;
	uint64_t idle_since, seen_ns; /* seen_ns: when the last record was seen */
	struct arb_account_snap account[ACCOUNTS];
} records;

void records_begin(void)
{
	memset(&records, 0, sizeof(records));
	records.idle_since = world.now_ns;
}

static uint64_t sequence(uint64_t head)
{
	return head >> ARB_HEAD_SEQ_SHIFT;
}

const struct world_process *records_owner(const struct arb_segment *seg, uint32_t slot)
{
	uint32_t number = arb_load32(&seg->slots[slot].pid) - 1000;

	return number < world.nprocesses ? world.processes[number] : NULL;
}

/* Checks that the dead are taken out in the order in which they were last heard of: a dead member that is passed over
 * would be billed until the other's end. */
static void check_order(const struct arb_segment *seg, const struct arb_snap *s, uint32_t out)
{
	uint64_t end = arb_load64(&seg->slots[out].heartbeat_ns);

	for (uint32_t i = arb_bits_next(s->running, s->words, 0); i != ARB_NONE;
		i = arb_bits_next(s->running, s->words, i + 1)) {
		const struct world_process *p = records_owner(seg, i);
		uint64_t beat = arb_load64(&seg->slots[i].heartbeat_ns);

		if (p && !p->alive && beat < end && beat + SURE_NS < world.now_ns &&
			s->t / ARB_TICKS_PER_NS > beat + ARB_DEATH_NS &&
			arb_load32(&seg->slots[i].state) == ARB_SLOT_LIVE &&
			!world_is_locked(WORLD_LOCKS_FILE, i))
			world_fail(
				"slot %u, last heard of at %.3f ms, was passed over for slot %u, last heard of at "
				"%.3f ms, and pays until %.3f ms",
				i, (double)(beat - world.start_ns) / 1e6, out,
				(double)(end - world.start_ns) / 1e6,
				(double)(s->t / ARB_TICKS_PER_NS - world.start_ns) / 1e6);
	}
}

/* Checks that a dead client is billed until ARB_DEATH_NS after its end at most. The record that takes it out has no
 * later time, unless the record before it had one; and no client counts time for a dead member for long. */
static void check_deaths(const struct arb_segment *seg, const struct arb_snap *s)
{
	const struct arb_snap *last = &records.last;

	for (uint32_t i = arb_bits_next(last->running, last->words, 0); i != ARB_NONE;
		i = arb_bits_next(last->running, last->words, i + 1)) {
		const struct world_process *p = records_owner(seg, i);
		bool in = i / 64 < s->words && arb_bit_test(s->running, i);
		uint64_t until;

		if (!p || p->alive || s->t <= last->t || (!in && arb_bit_test(s->evicted, i)))
			continue;
		if (!in && p->ended_ns < records.seen_ns && !faults.forks && !faults.replaces)
			check_order(seg, s, i);
		until = p->ended_ns + (in ? ARB_HEARD_NS + FOUND_NS : ARB_DEATH_NS);
		if (s->t / ARB_TICKS_PER_NS > until)
			world_fail("slot %u died %.3f ms ago, and is billed for %.3f ms of that", i,
				(double)(world.now_ns - p->ended_ns) / 1e6,
				(double)(s->t / ARB_TICKS_PER_NS - p->ended_ns) / 1e6);
	}
}

/* Checks that only a client that leaves, and so frees a place, restarts a reservation. */
static void check_reservation(const struct arb_snap *s)
{
	const struct arb_snap *last = &records.last;

	if (s->reserved && s->reserved == last->reserved && !s->weight && !last->weight &&
		s->reserved_until > last->reserved_until && world.now_ns < last->reserved_until)
		world_fail("a reservation was prolonged by %.3f ms, although nobody has left",
			(double)(s->reserved_until - last->reserved_until) / 1e6);
}

/* Checks that no living client is taken for hung where no thread is stopped or held up for long. */
static void check_evictions(const struct arb_segment *seg, const struct arb_snap *s)
{
	const struct arb_snap *last = &records.last;

	for (uint32_t i = arb_bits_next(s->evicted, s->words, 0); i != ARB_NONE && world_terms.prompt;
		i = arb_bits_next(s->evicted, s->words, i + 1)) {
		const struct world_process *p = records_owner(seg, i);

		if (p && p->alive && i / 64 < last->words && arb_bit_test(last->running, i))
			world_fail("slot %u was taken for hung, and is not", i);
	}
}

/* Checks that a client enters and leaves only in a window into which its account has been rolled. */
static void check_window(const struct arb_snap *s)
{
	const struct arb_snap *last = &records.last;

	for (uint32_t w = 0; w < s->words && w < last->words && s->win_number != last->win_number; w++)
		if ((s->running[w] | s->evicted[w]) != (last->running[w] | s->evicted[w]))
			world_fail("window %llu began with a member that entered or left",
				(unsigned long long)s->win_number);
}

/* Checks that the GPU is not idle while a client that could use it waits. */
static void check_idle(const struct arb_segment *seg, const struct arb_snap *s)
{
	bool waits = false;

	for (uint32_t i = arb_bits_next(s->waiting, s->words, 0); i != ARB_NONE && !s->weight;
		i = arb_bits_next(s->waiting, s->words, i + 1)) {
		const struct world_process *p = records_owner(seg, i);

		/* A client that was stopped has this time anew from when it goes on. */
		waits |= p && p->alive && !p->stopped && world.now_ns > p->continue_ns + IDLE_NS &&
			 arb_load64(&seg->slots[i].wait_since_ns);
	}
	if (!waits || !world_terms.polite)
		records.idle_since = world.now_ns;
	else if (world.now_ns > records.idle_since + IDLE_NS)
		world_fail("nobody has used the GPU for %.3f ms, and somebody waits for it",
			(double)(world.now_ns - records.idle_since) / 1e6);
}

void records_step(const struct arb_segment *seg, const struct arb_snap *s)
{
	if (records.any && sequence(s->head) == sequence(records.last.head) + 1) {
		if (!faults.stops)
			check_deaths(seg, s);
		check_reservation(s);
		check_evictions(seg, s);
		check_window(s);
	}
	check_idle(seg, s);
	records.last = *s;
	records.any = true;
	records.seen_ns = world.looked_ns;
}

/* Checks that a limit that changes within a window moves the cap, at least by its part of the rest of that window. */
static void check_cap(const struct arb_account_snap *old, const struct arb_account_snap *new)
{
	const struct arb_snap *run = &records.last;
	uint64_t end = run->win_start + run->win_ticks, now = world.now_ns * ARB_TICKS_PER_NS, least, most;
	uint32_t by = old->limit_ppm > new->limit_ppm ? old->limit_ppm - new->limit_ppm
						      : new->limit_ppm - old->limit_ppm;
	uint64_t moved = old->limit_ppm > new->limit_ppm ? old->hard - new->hard : new->hard - old->hard;

	if (sequence(new->head) != sequence(old->head) + 1 || !by || old->window != new->window ||
		old->wall != new->wall || run->win_number != new->window)
		return;
	least = end > now ? arb_policy_grant(by, end - now) : 0;
	most = arb_policy_grant(by, run->win_ticks);
	if (moved + 2 < least || moved > most + 2)
		world_fail(
			"a limit went from %u to %u ppm %.3f ms before the window's end, and the cap moved by "
			"%lld ticks, not by %llu at least",
			old->limit_ppm, new->limit_ppm, (double)(end - now) / 1e6 / ARB_TICKS_PER_NS,
			(long long)moved, (unsigned long long)least);
}

void records_accounts(const struct arb_segment *seg)
{
	uint32_t high = arb_load32(&seg->header->accounts_high);

	for (uint32_t a = 0; a < high && a < ACCOUNTS; a++) {
		struct arb_account_snap *last = &records.account[a], s;

		if (last->head == arb_load64(&seg->accounts[a].head) || arb_account_read(seg, a, &s) < 0)
			continue;
		if (last->head)
			check_cap(last, &s);
		*last = s;
	}
}

void records_left(const struct gpuarb_client *client)
{
	if (world_terms.garbage || !arb_load32(&client->guard->joined))
		return;
	if (arb_load32(&client->seg.slots[client->me.slot].gate))
		world_fail("slot %u has left, and its gate is open", client->me.slot);
}

void records_gave_up(const struct gpuarb_client *client)
{
	struct arb_snap s;

	if (world_terms.garbage || !arb_load32(&client->guard->joined) ||
		arb_running_read(&client->seg, &s) < 0 || client->me.slot / 64 >= s.words)
		return;
	if (arb_bit_test(s.waiting, client->me.slot))
		world_fail("slot %u has given up waiting, and is in the queue", client->me.slot);
}

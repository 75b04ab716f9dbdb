#include "test/world/debts.h"

#include <string.h>

#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/policy/policy.h"
#include "test/world/faults.h"
#include "test/world/judge.h"
#include "test/world/records.h"

#define ACCOUNTS 16

static struct {
	uint64_t head;
	uint64_t attached[ARB_WORDS];
	unsigned most; /* the most members that the account had at once since it last owed nothing */
	uint32_t
		buried; /* slot + 1 of the account's last member, which has died; 0 once that slot is clean */
} debts[ACCOUNTS];

void debts_begin(void)
{
	memset(debts, 0, sizeof(debts));
}

static uint64_t owes(
	const struct arb_segment *seg, const struct arb_snap *run, const struct arb_account_snap *a)
{
	uint64_t usage = arb_account_usage(seg, run, a, a->wall, false);

	return a->limit_ppm < ARB_PPM && arb_policy_before(a->cap, usage) ? usage - a->cap : 0;
}

/* Checks that an account owes at most one window (times its members if each pays in full), or the work that its members
 * may have on the GPU if that is more. */
static void check_living(const struct arb_segment *seg, const struct arb_snap *run, uint32_t i,
	const struct arb_account_snap *a)
{
	unsigned members = arb_bits_count(a->attached, seg->nwords);
	uint64_t debt = owes(seg, run, a), window, work;

	if (members > debts[i].most || !debt)
		debts[i].most = members;
	members = debts[i].most;
	window = run->win_ticks * (a->wall ? members : 1);
	work = world_terms.work_ns * ARB_TICKS_PER_NS * members;
	if (world_terms.work_ns && a->window == run->win_number && debt > window && debt > work)
		world_fail("account %u of %u members owes %.3f ms, its window is of %.3f ms", i, members,
			(double)debt / 1e6 / ARB_TICKS_PER_NS,
			(double)run->win_ticks / 1e6 / ARB_TICKS_PER_NS);
}

/* Notes the death of the last member of an account; it must not have left in the same step. */
static void note_burial(const struct arb_segment *seg, uint32_t i, const struct arb_account_snap *a)
{
	uint32_t last = arb_bits_next(debts[i].attached, seg->nwords, 0);
	const struct world_process *p = last == ARB_NONE ? NULL : records_owner(seg, last);

	if (arb_bits_count(a->attached, seg->nwords))
		debts[i].buried = 0;
	else if (p)
		debts[i].buried = !p->alive && p->ended_ns < world.looked_ns ? last + 1 : 0;
	memcpy(debts[i].attached, a->attached, sizeof(a->attached));
}

static void check_dead(const struct arb_segment *seg, const struct arb_snap *run, uint32_t i,
	const struct arb_account_snap *a)
{
	uint64_t debt = owes(seg, run, a);

	debts[i].buried = 0;
	if (debt > run->win_ticks)
		world_fail(
			"the last member of account %u has died, and it owes %.3f ms; its window is of %.3f ms",
			i, (double)debt / 1e6 / ARB_TICKS_PER_NS,
			(double)run->win_ticks / 1e6 / ARB_TICKS_PER_NS);
}

void debts_step(const struct arb_segment *seg)
{
	uint32_t high = arb_load32(&seg->header->accounts_high);
	struct arb_account_snap a;
	struct arb_snap run;

	for (uint32_t i = 0; i < high && i < ACCOUNTS; i++) {
		bool clean = debts[i].buried &&
			     arb_load32(&seg->slots[debts[i].buried - 1].state) == ARB_SLOT_FREE;

		if (!clean && debts[i].head == arb_load64(&seg->accounts[i].head))
			continue;
		if (arb_account_read(seg, i, &a) < 0 || arb_running_read(seg, &run) < 0)
			continue;
		if (clean)
			check_dead(seg, &run, i, &a);
		else
			note_burial(seg, i, &a);
		check_living(seg, &run, i, &a);
		debts[i].head = a.head;
	}
}

#include "shm/segment/wait.h"

#include "shm/base/atomic.h"
#include "shm/policy/policy.h"

/* Longer than a kernel's tick (4 ms at 250 Hz): a shorter timer makes the processor set its clock anew for
 * every sleep and every wake-up, which on virtual machines costs more than all the rest of a hand-over. */
#define SLEEP_FIRST_NS 5000000u
#define SLEEP_LAST_NS  50000000u

/* A waiter gives a sign of life whenever it looks. After this number of missed looks it counts as silent. */
#define LOOKS_MISSED 4

uint32_t arb_wait_order(const struct arb_segment *seg, uint32_t i)
{
	bool in_request = arb_hint32(&seg->header->ranks) && arb_running_level(seg, i) & ARB_LEVEL_IN_REQUEST;
	uint32_t priority = arb_load32(&seg->slots[i].priority);

	return (priority <= ARB_PRIORITY_MOST ? priority : 0) + (in_request ? ARB_ORDER_IN_REQUEST : 0);
}

static struct arb_candidate candidate(
	const struct arb_segment *seg, uint32_t i, const struct arb_order *order)
{
	const struct arb_slot *s = &seg->slots[i];
	uint64_t beat = arb_load64(&s->heartbeat_ns),
		 silence = order->now_ns > beat ? order->now_ns - beat : 0,
		 since = arb_load64(&s->wait_since_ns);

	/* The order of classes is never inverted: a task that waits for a lease gives up when its time is over, so it
	 * need not go before higher classes because it has waited for long. */
	if (arb_load32(&s->flags) & ARB_SLOT_CLASSED && since && order->now_ns > order->max_wait_ns &&
		since < order->now_ns - order->max_wait_ns)
		since = order->now_ns - order->max_wait_ns;
	return (struct arb_candidate){arb_wait_order(seg, i), arb_load64(&s->rank_ppm), since,
		silence > order->grace_ns && silence > (uint64_t)LOOKS_MISSED * SLEEP_LAST_NS};
}

uint32_t arb_wait_choose(
	const struct arb_segment *seg, const struct arb_snap *snap, const struct arb_order *order)
{
	uint32_t best = arb_bits_next(snap->waiting, snap->words, 0);
	struct arb_candidate first, other;

	if (best == ARB_NONE)
		return best;
	first = candidate(seg, best, order);
	for (uint32_t i = arb_bits_next(snap->waiting, snap->words, best + 1); i != ARB_NONE;
		i = arb_bits_next(snap->waiting, snap->words, i + 1)) {
		other = candidate(seg, i, order);
		if (arb_policy_goes_first(&other, &first, order->now_ns, order->max_wait_ns)) {
			best = i;
			first = other;
		}
	}
	return first.silent ? ARB_NONE : best;
}

uint32_t arb_wait_rank(const struct arb_segment *seg, const struct arb_snap *snap, uint32_t me,
	const struct arb_order *order)
{
	struct arb_candidate mine = candidate(seg, me, order), other;
	uint32_t rank = 0;

	for (uint32_t i = arb_bits_next(snap->waiting, snap->words, 0); i != ARB_NONE;
		i = arb_bits_next(snap->waiting, snap->words, i + 1)) {
		if (i == me)
			continue;
		other = candidate(seg, i, order);
		rank += arb_policy_goes_first(&other, &mine, order->now_ns, order->max_wait_ns);
	}
	return rank;
}

bool arb_wait_counts_for_more(
	const struct arb_segment *seg, uint32_t slot, uint32_t other, const struct arb_order *order)
{
	struct arb_candidate a = candidate(seg, slot, order), b = candidate(seg, other, order);

	return a.priority > b.priority && arb_policy_goes_first(&a, &b, order->now_ns, order->max_wait_ns);
}

uint64_t arb_wait_sleep_ns(uint32_t rank)
{
	/* The first two look every 5 ms, those behind them ever more rarely. */
	uint64_t ns = SLEEP_FIRST_NS * (uint64_t)(rank < 2 ? 1 : rank);

	return ns < SLEEP_LAST_NS ? ns : SLEEP_LAST_NS;
}

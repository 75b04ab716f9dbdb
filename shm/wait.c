#include "wait.h"

#include "atomic.h"
#include "policy.h"

/* Longer than a kernel's tick (4 ms at 250 Hz): a shorter timer makes the processor set its clock anew for
 * every sleep and every wake-up, which on virtual machines costs more than all the rest of a hand-over. */
#define SLEEP_FIRST_NS 5000000u
#define SLEEP_LAST_NS  50000000u

static struct arb_candidate candidate(const struct arb_segment *seg, uint32_t i)
{
	const struct arb_slot *s = &seg->slots[i];

	return (struct arb_candidate){
		arb_load32(&s->priority), arb_load64(&s->rank_ppm), arb_load64(&s->wait_since_ns)};
}

uint32_t arb_wait_choose(
	const struct arb_segment *seg, const struct arb_snap *snap, uint64_t now_ns, uint64_t max_wait_ns)
{
	uint32_t best = arb_bits_next(snap->waiting, snap->words, 0);
	struct arb_candidate first, other;

	if (best == ARB_NONE || arb_bits_next(snap->waiting, snap->words, best + 1) == ARB_NONE)
		return best;
	first = candidate(seg, best);
	for (uint32_t i = arb_bits_next(snap->waiting, snap->words, best + 1); i != ARB_NONE;
		i = arb_bits_next(snap->waiting, snap->words, i + 1)) {
		other = candidate(seg, i);
		if (arb_policy_goes_first(&other, &first, now_ns, max_wait_ns)) {
			best = i;
			first = other;
		}
	}
	return best;
}

uint32_t arb_wait_rank(const struct arb_segment *seg, const struct arb_snap *snap, uint32_t me,
	uint64_t now_ns, uint64_t max_wait_ns)
{
	struct arb_candidate mine = candidate(seg, me), other;
	uint32_t rank = 0;

	for (uint32_t i = arb_bits_next(snap->waiting, snap->words, 0); i != ARB_NONE;
		i = arb_bits_next(snap->waiting, snap->words, i + 1)) {
		if (i == me)
			continue;
		other = candidate(seg, i);
		rank += arb_policy_goes_first(&other, &mine, now_ns, max_wait_ns);
	}
	return rank;
}

uint64_t arb_wait_sleep_ns(uint32_t rank)
{
	/* The first two look every 5 ms, those behind them ever more rarely. */
	uint64_t ns = SLEEP_FIRST_NS * (uint64_t)(rank < 2 ? 1 : rank);

	return ns < SLEEP_LAST_NS ? ns : SLEEP_LAST_NS;
}

#include "shm/admission/decide.h"

#include "shm/admission/lease_queue.h"

struct arb_decide_pressure arb_decide_pressure(const struct arb_usage *sample, int busy)
{
	bool was = sample->word & ARB_SAMPLE_HIGH;

	if (sample->fresh)
		return (struct arb_decide_pressure){
			.high = sample->high, .note = sample->high != was, .over = was && !sample->high};
	/* The usage is not known, and pressure is the safe answer. */
	return (struct arb_decide_pressure){
		.high = busy < 0 || arb_usage_pressure(sample->high, (unsigned)busy, sample->lines)};
}

bool arb_decide_fits(const struct arb_decide_case *c)
{
	if (c->want & ARB_WANT_BLOCKED)
		return false;
	/* If no lease is held, a task of the highest class goes in spite of the pressure. */
	return !c->high || c->want & ARB_WANT_PASS ||
	       (!c->leases && arb_want_priority(c->want) >= c->highest);
}

uint32_t arb_decide(const struct arb_decide_case *c)
{
	struct arb_decide_case anew = *c;

	if (c->ahead)
		return ARB_REASON_QUEUE;
	anew.want &= ~ARB_WANT_BLOCKED;
	return arb_decide_fits(&anew) ? ARB_REASON_NONE : ARB_REASON_PRESSURE;
}

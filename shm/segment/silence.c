#include "shm/segment/silence.h"

#include "shm/base/atomic.h"
#include "shm/segment/slot.h"

uint32_t arb_silence_longest(
	const struct arb_segment *seg, const struct arb_snap *snap, const struct arb_silence *silence)
{
	uint64_t oldest = silence->before_ns;
	uint32_t found = ARB_NONE;

	for (uint32_t i = arb_bits_next(snap->running, snap->words, 0); i != ARB_NONE;
		i = arb_bits_next(snap->running, snap->words, i + 1)) {
		uint64_t heard = arb_running_heard(seg, i, silence->now_ns);

		if (i == silence->except || arb_bit_test(silence->looked, i) || heard >= oldest ||
			heard + ARB_HEARD_NS >= silence->now_ns)
			continue;
		oldest = heard;
		found = i;
	}
	return found;
}

uint64_t arb_silence_death(const struct arb_segment *seg, uint32_t slot, uint64_t now_ns)
{
	uint64_t heard = arb_running_heard(seg, slot, now_ns);

	if (!heard)
		return 0;
	return heard + ARB_DEATH_NS < now_ns ? heard + ARB_DEATH_NS : now_ns;
}

void arb_silence_advance(
	const struct arb_segment *seg, struct arb_snap *snap, uint64_t now_ns, uint32_t win_ms)
{
	struct arb_silence silence = {.now_ns = now_ns, .before_ns = UINT64_MAX, .except = ARB_NONE};
	uint32_t i;

	while ((i = arb_silence_longest(seg, snap, &silence)) != ARB_NONE) {
		uint32_t weight = (uint32_t)arb_load64(&seg->slots[i].weight);

		silence.looked[i / 64] |= 1ull << (i % 64);
		if (arb_slot_alive(seg, i) != 0)
			continue;
		arb_running_advance(snap, arb_silence_death(seg, i, now_ns) * ARB_TICKS_PER_NS, win_ms);
		/* From here on the clock runs for the others alone, and stands still if there are none. */
		snap->weight -= weight < snap->weight ? weight : snap->weight;
	}
	arb_running_advance(snap, now_ns * ARB_TICKS_PER_NS, win_ms);
}

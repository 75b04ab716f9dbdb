#include "test/stress/garble.h"

#include <string.h>

/* Chooses a place where garbage does harm: header words, the head, a slot (mostly a used one), an account, an event,
 * or anywhere. */
static size_t place(const struct arb_segment *seg, struct t_random *random)
{
	const char *base = seg->file.base;
	const struct arb_slot *slot = &seg->slots[t_below(random, t_below(random, 2) ? 10 : seg->nslots)];
	const struct arb_account *account =
		&seg->accounts[t_below(random, t_below(random, 2) ? 8 : seg->naccounts)];

	switch (t_below(random, 9)) {
	case 0:
		return ARB_FIXED + t_below(random, sizeof(struct arb_state_header) - ARB_FIXED - 8);
	case 1:
		return offsetof(struct arb_state_header, head);
	case 2:
		return (size_t)((const char *)slot - base) + t_below(random, sizeof(*slot) - 8);
	case 3:
		return (size_t)((const char *)&slot->record[t_below(random, 2)] - base) +
		       8 * t_below(random, 60);
	case 4:
		return (size_t)((const char *)account - base) + t_below(random, sizeof(*account) - 8);
	case 5:
		return (size_t)((const char *)slot - base) + 8 * t_below(random, 32);
	case 6:
		return (size_t)((const char *)&seg->events[t_below(random, seg->nevents)] - base) +
		       8 * t_below(random, 7);
	case 7:
		return (size_t)((const char *)&seg->promises[t_below(random, 4)] - base) +
		       8 * t_below(random, sizeof(struct arb_promise) / 8);
	default:
		return ARB_FIXED + (size_t)(t_next(random) % (seg->file.size - ARB_FIXED - 8));
	}
}

void garble(const struct arb_segment *seg, struct t_random *random)
{
	static const uint64_t special[] = {0, UINT64_MAX, INT64_MAX, 1ull << 63, 1, UINT32_MAX, 1ull << 32,
		ARB_SLOTS_MAX, 0x7ff, 1000000, 256, 257};
	size_t at = place(seg, random);
	char *p = (char *)seg->file.base + at, *q;
	uint64_t word, other;

	memcpy(&word, p, 8);
	switch (t_below(random, 7)) {
	case 0:
		*p = (char)t_next(random);
		break;
	case 1:
		word = t_next(random);
		memcpy(p, &word, 8);
		break;
	case 2:
		word = special[t_below(random, sizeof(special) / sizeof(special[0]))];
		memcpy(p, &word, 8);
		break;
	case 3:
		*p = (char)(*p ^ 1 << t_below(random, 8));
		break;
	case 4:
		word += (uint64_t)t_below(random, 3) - 1 +
			((uint64_t)t_below(random, 5) << t_below(random, 60));
		memcpy(p, &word, 8);
		break;
	case 5:
		q = (char *)seg->file.base + place(seg, random);
		memcpy(&other, q, 8);
		memcpy(p, &other, 8);
		memcpy(q, &word, 8);
		break;
	case 6: {
		struct arb_slot *a = &seg->slots[t_below(random, 10)],
				*b = &seg->slots[t_below(random, seg->nslots)];
		struct arb_slot copy = *a;

		memcpy(a, b, sizeof(copy));
		memcpy(b, &copy, sizeof(copy));
		break;
	}
	}
}

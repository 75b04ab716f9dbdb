#include "shm/segment/check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/base/os.h"
#include "shm/segment/publish.h"
#include "shm/segment/running.h"

#define TRIES 2000

struct report {
	arb_check_say *say;
	void *argument;
	int violations;
};

__attribute__((format(printf, 2, 3))) static void wrong(struct report *r, const char *format, ...)
{
	char text[256];
	va_list ap;

	r->violations++;
	if (!r->say)
		return;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	r->say(r->argument, text);
}

static void check_times(const struct arb_snap *s, struct report *r)
{
	uint64_t now = arb_os_now_ns() * ARB_TICKS_PER_NS;

	if ((int64_t)(s->t - now) > 0)
		wrong(r, "the record's time is %llu ticks ahead of now", (unsigned long long)(s->t - now));
	if ((int64_t)(s->v - s->win_v) < 0 || (int64_t)(s->busy - s->win_busy) < 0)
		wrong(r, "the clocks stand before the beginning of their window");
	if (s->busy - s->win_busy > s->t - s->win_start + ARB_WEIGHT_ONE * ARB_SLOTS_MAX)
		wrong(r, "busy for longer than the window has lasted");
}

/* Sums that the record and all slots must agree on at one moment. */
struct sums {
	uint64_t usage;
	uint64_t weight;
};

static struct sums add_up(const struct arb_segment *seg, const struct arb_snap *s)
{
	struct sums sums = {0, 0};

	for (uint32_t i = 0; i < seg->nslots; i++) {
		sums.usage += arb_running_usage(seg, s, i);
		if (i / 64 < s->words && arb_bit_test(s->running, i))
			sums.weight += arb_load64(&seg->slots[i].weight);
	}
	return sums;
}

static int check_running(const struct arb_segment *seg, struct report *r, struct arb_snap *s)
{
	struct sums sums;
	int result, tries = 0;

	do {
		result = arb_running_read(seg, s);
		if (result == -EBADMSG) {
			wrong(r, "the head or its record is garbage (head %016llx)",
				(unsigned long long)s->head);
			return result;
		}
		if (result < 0 || tries++ == TRIES)
			return -EBUSY;
		sums = add_up(seg, s);
		arb_fence_acquire();
	} while (arb_load64(&seg->header->head) != s->head);

	if (sums.weight != s->weight)
		wrong(r, "W is %u, the weights of those that run add up to %llu", s->weight,
			(unsigned long long)sums.weight);
	if (sums.usage != s->busy)
		wrong(r, "the law: bills add up to %llu ticks, the GPU was busy for %llu (difference %lld)",
			(unsigned long long)sums.usage, (unsigned long long)s->busy,
			(long long)(sums.usage - s->busy));
	check_times(s, r);
	if (s->reserved) {
		uint32_t slot = (uint32_t)s->reserved - 1;

		if (slot >= seg->nslots || slot / 64 >= s->words || !arb_bit_test(s->waiting, slot))
			wrong(r, "the reservation is for slot %u, which does not wait", slot);
	}
	return 0;
}

/* Is a member in both accounts? It may move between two looks, so this holds only if the first account stood still
 * while the second was read. */
static bool in_both(const struct arb_segment *seg, uint32_t slot, uint32_t a, uint32_t b)
{
	struct arb_account_snap one, other;

	if (arb_account_read(seg, a, &one) < 0 || !arb_bit_test(one.attached, slot) ||
		arb_account_read(seg, b, &other) < 0 || !arb_bit_test(other.attached, slot))
		return false;
	arb_fence_acquire();
	return arb_load64(&seg->accounts[a].head) == one.head;
}

/* Checks one account, read while its head stands still. seen[slot]: the account it was found in, plus one. */
static int check_account(
	const struct arb_segment *seg, uint32_t a, uint64_t window, uint32_t *seen, struct report *r)
{
	struct arb_account_snap s;
	uint64_t mem;
	uint32_t stranger, head_index;
	int tries = 0, result;

	do {
		result = arb_account_read(seg, a, &s);
		if (result == -EBADMSG) {
			wrong(r, "account %u: its head or record is garbage", a);
			return 0;
		}
		if (result < 0 || tries++ == TRIES)
			return -EBUSY;
		mem = 0;
		stranger = ARB_NONE;
		for (uint32_t i = arb_bits_next(s.attached, seg->nwords, 0); i != ARB_NONE;
			i = arb_bits_next(s.attached, seg->nwords, i + 1)) {
			mem += arb_load64(&seg->slots[i].mem[arb_bit_test(s.parity, i)]);
			if (arb_load32(&seg->slots[i].account) != a ||
				arb_load32(&seg->slots[i].state) == ARB_SLOT_FREE)
				stranger = i;
		}
		arb_fence_acquire();
	} while (arb_load64(&seg->accounts[a].head) != s.head);

	head_index = publish_owner(s.head);
	if (mem != s.mem_used)
		wrong(r, "account %u: %llu bytes counted, its members have %llu", a,
			(unsigned long long)s.mem_used, (unsigned long long)mem);
	if (stranger != ARB_NONE)
		wrong(r, "account %u: slot %u is attached but belongs elsewhere", a, stranger);
	if (head_index != ARB_HOME && (head_index >= seg->nslots || !arb_bit_test(s.attached, head_index)))
		wrong(r, "account %u: its record lies with slot %u, which is not attached", a, head_index);
	if (window && s.window > window + 1000)
		wrong(r, "account %u: window %llu is in the future", a, (unsigned long long)s.window);
	for (uint32_t i = arb_bits_next(s.attached, seg->nwords, 0); i != ARB_NONE;
		i = arb_bits_next(s.attached, seg->nwords, i + 1)) {
		if (seen[i] && in_both(seg, i, seen[i] - 1, a))
			wrong(r, "account %u: slot %u is attached to account %u as well", a, i, seen[i] - 1);
		seen[i] = a + 1;
	}
	return 0;
}

static void check_slots(const struct arb_segment *seg, const struct arb_snap *s, struct report *r)
{
	for (uint32_t i = 0; i < seg->nslots; i++) {
		const struct arb_slot *slot = &seg->slots[i];
		uint32_t generation = arb_load32(&slot->generation), a = arb_load32(&slot->account);
		uint32_t state = arb_load32_acquire(&slot->state); /* pairs SLOT_PUBLISH */
		struct arb_account_snap acct;
		bool in_set =
			i / 64 < s->words && (arb_bit_test(s->running, i) || arb_bit_test(s->waiting, i) ||
						     arb_bit_test(s->evicted, i));
		bool lost = state == ARB_SLOT_LIVE &&
			    (arb_account_read(seg, a, &acct) < 0 || !arb_bit_test(acct.attached, i));

		arb_fence_acquire();
		if (arb_load32(&slot->generation) != generation || arb_load32(&slot->state) != state)
			continue;
		if (state > ARB_SLOT_LIVE)
			wrong(r, "slot %u: its state is %u", i, state);
		if (lost)
			wrong(r, "slot %u: lives but is not attached to its account %u", i, a);
		if (state == ARB_SLOT_FREE && in_set && arb_load64(&seg->header->head) == s->head)
			wrong(r, "slot %u: free but in the running set", i);
	}
}

int arb_check(const struct arb_segment *seg, arb_check_say *say, void *argument)
{
	struct report r = {say, argument, 0};
	uint32_t high = arb_load32_acquire(&seg->header->accounts_high);
	uint32_t seen[ARB_SLOTS_MAX] = {0};
	struct arb_snap s;
	int result = check_running(seg, &r, &s);

	if (result == -EBUSY)
		return result;
	if (high > seg->naccounts) {
		wrong(&r, "%u accounts in use, there is room for %u", high, seg->naccounts);
		high = seg->naccounts;
	}
	for (uint32_t a = 0; a < high; a++) {
		result = check_account(seg, a, r.violations ? 0 : s.win_number, seen, &r);
		if (result < 0)
			return result;
	}
	if (!r.violations)
		check_slots(seg, &s, &r);
	return r.violations;
}

#ifdef ARB_DEBUG
static void say_to_stderr(void *argument, const char *sentence)
{
	(void)argument;
	fprintf(stderr, "gpuarb: invariant violated: %s\n", sentence);
}

void arb_check_debug(const struct arb_segment *seg)
{
	if (arb_check(seg, say_to_stderr, NULL) > 0)
		abort();
}
#endif

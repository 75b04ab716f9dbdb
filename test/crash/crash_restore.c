/*
 * A client is killed while it puts right what somebody wrote over its words. Each word is then what was written, or what its
 * owner knows, and nothing else; with the first put right by hand everything holds that holds after any death.
 */
#include "test/crash/crash.h"

#include <stddef.h>
#include <string.h>

#include "shm/base/atomic.h"
#include "shm/segment/account_record.h"

#define HOUR (3600ull * 1000000000u * ARB_TICKS_PER_NS)
#define MOST 16

/* The words that were written over: where in the segment, what stood there, and what was written. */
static struct {
	size_t at;
	uint64_t right, wrong;
} words[MOST];
static unsigned nwords;
static uint32_t victim;
static uint64_t head; /* of its account, when it was written over */

static arb_u64 *word_at(const struct arb_segment *seg, size_t at)
{
	return (arb_u64 *)((char *)seg->header + at);
}

static void forge(struct world *w, arb_u64 *word, uint64_t value)
{
	words[nwords].at = (size_t)((char *)word - (char *)w->a->seg.header);
	words[nwords].right = arb_load64(word);
	words[nwords++].wrong = value;
	arb_store64(word, value);
}

static struct arb_slot *find_victim(struct world *w)
{
	nwords = 0;
	for (uint32_t i = 0; i < w->a->seg.nslots; i++)
		if (i != w->a->me.slot && !(w->b && i == w->b->me.slot) &&
			arb_load32(&w->a->seg.slots[i].state) == ARB_SLOT_LIVE)
			victim = i;
	/* It is time for the victim to look. */
	world_clock_skip(110 * MS);
	return &w->a->seg.slots[victim];
}

/* Its bill, what it asks for, its memory; and its slot as if it were free: state and generation are one word here. */
void restore_slot_forged(struct world *w)
{
	struct arb_slot *s = find_victim(w);

	forge(w, &s->acc, arb_load64(&s->acc) + HOUR);
	forge(w, &s->total, arb_load64(&s->total) + HOUR);
	forge(w, &s->base, arb_load64(&s->base) - HOUR);
	forge(w, &s->wall_acc, arb_load64(&s->wall_acc) - HOUR);
	forge(w, &s->asked_mem, 1);
	forge(w, &s->mem_now, 1ull << 40);
}

/* Caps, usage and memory of its account, which is detached from nothing. */
void restore_record_forged(struct world *w)
{
	struct arb_slot *s = find_victim(w);
	uint32_t a = arb_load32(&s->account);
	struct arb_account_record *r;

	head = arb_load64(&w->a->seg.accounts[a].head);
	r = account_record_of(&w->a->seg, a, head);
	forge(w, &r->cap, arb_load64(&r->cap) - HOUR);
	forge(w, &r->hard, arb_load64(&r->hard) - HOUR);
	forge(w, &r->folded, arb_load64(&r->folded) + HOUR);
	forge(w, &r->mem_used, 1ull << 40);
	forge(w, &r->attached[0], 0);
}

void restore_slot_mend(struct world *w, struct arb_segment *seg)
{
	for (unsigned i = 0; i < nwords; i++) {
		arb_u64 *word = word_at(seg, words[i].at);
		uint64_t now = arb_load64(word);

		if (now == words[i].wrong)
			arb_store64(word, words[i].right);
		else if (now != words[i].right)
			world_wrong(w,
				"word %u is %llx, and neither what was written over it nor what it was", i,
				(unsigned long long)now);
	}
}

/* A record is replaced by the next one: as long as it is the head it is what somebody wrote. */
void restore_record_mend(struct world *w, struct arb_segment *seg)
{
	uint32_t a = arb_load32(&seg->slots[victim].account);

	if (arb_segment_account(seg, a) && arb_load64(&seg->accounts[a].head) == head)
		restore_slot_mend(w, seg);
}

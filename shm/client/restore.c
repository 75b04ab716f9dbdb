/*
 * A client that finds one of its own words, or its account's record, written over restores it and reports this. Each
 * of these words has one writer (shm/README.md, "Who knows what"). So a difference proves that another process has
 * written a word that is not its own.
 */
#include <stdio.h>
#include <string.h>

#include "shm/base/atomic.h"
#include "shm/base/fault.h"
#include "shm/client/client_state.h"
#include "shm/segment/ledger.h"

/* The time between two looks. The client's own reads do not depend on them. */
#define LOOK_NS 100000000u

static bool put64(arb_u64 *word, uint64_t known)
{
	if (__builtin_expect(arb_hint64(word) == known, 1))
		return false;
	arb_store64(word, known);
	return true;
}

static bool put32(arb_u32 *word, uint32_t known)
{
	if (__builtin_expect(arb_hint32(word) == known, 1))
		return false;
	arb_store32(word, known);
	return true;
}

static uint32_t restore_bill(struct arb_slot *s, const struct arb_ledger *own)
{
	bool found = put64(&s->acc, own->acc);

	found |= put64(&s->total, own->total);
	found |= put64(&s->weight, own->weight);
	found |= put64(&s->base, own->base);
	found |= put64(&s->wall_acc, own->wall_acc);
	found |= put64(&s->wall_total, own->wall_total);
	found |= put64(&s->wall_base, own->wall_base);
	return found ? ARB_RESTORED_BILL : 0;
}

static uint32_t restore_asked(struct gpuarb_client *c, struct arb_slot *s, const struct arb_ledger *own)
{
	bool found = put32(&s->asked_ppm, own->asked_ppm);

	found |= put64(&s->asked_mem, own->asked_mem);
	found |= put32(&s->asked_share, own->asked_share);
	/* The other members have followed the wrong words. */
	if (found)
		arb_add32_full(&c->seg.header->epoch, 1);
	return found ? ARB_RESTORED_ASKED : 0;
}

static uint32_t restore_memory(struct gpuarb_client *c, struct arb_slot *s, const struct arb_ledger *own)
{
	bool odd = own->has_record && arb_bit_test(own->record.parity, c->me.slot);
	bool found = put64(&s->mem[odd], own->mem);

	found |= put64(&s->mem_now, own->mem);
	found |= put64(&s->mem_pending, (uint64_t)c->mem.settled << 32 | c->mem.pending);
	return found ? ARB_RESTORED_MEMORY : 0;
}

static uint32_t restore_slot(struct gpuarb_client *c, struct arb_slot *s, const struct arb_ledger *own)
{
	bool found = put32(&s->account, c->account);

	found |= put32(&s->generation, own->generation);
	/* SLOT_PUBLISH: last */
	if (arb_hint32(&s->state) != ARB_SLOT_LIVE) {
		arb_store32_release(&s->state, ARB_SLOT_LIVE);
		found = true;
	}
	return found ? ARB_RESTORED_SLOT : 0;
}

/* Restores the account's entry: while it has members it gets no other name and no other owner. */
static uint32_t restore_entry(struct gpuarb_client *c, const struct arb_ledger *own)
{
	struct arb_account *entry = &c->seg.accounts[c->account];
	arb_u32 *high = &c->seg.header->accounts_high;
	uint32_t there = arb_hint32(high);
	uint64_t name[ARB_NAME_WORDS] = {0};
	bool found = false;

	memcpy(name, c->opened.name, strnlen(c->opened.name, sizeof(name) - 1));
	for (unsigned i = 0; i < ARB_NAME_WORDS; i++)
		found |= put64(&entry->name[i], name[i]);
	if (own->owner)
		found |= put64(&entry->owner, own->owner);
	/* The number of entries in use never gets smaller, and an entry that has a name is in use. */
	if (__builtin_expect(there <= c->account || there > c->seg.naccounts, 0)) {
		uint32_t used = c->seg.naccounts;

		while (used - 1 > c->account && !arb_hint64(&c->seg.accounts[used - 1].name[0]))
			used--;
		found |= arb_cas32_full(high, there, used);
	}
	return found ? ARB_RESTORED_ENTRY : 0;
}

static void tell(struct gpuarb_client *c, uint32_t found)
{
	struct arb_slot *s = arb_client_slot(c);

	c->restoring.times++;
	c->restoring.what |= found;
	arb_store32(&s->restored, c->restoring.times);
	arb_events_repeat(&c->seg, &c->restoring.told,
		&(struct arb_event_copy){
			.kind = ARB_EVENT_RESTORED, .slot = c->me.slot, .account = c->account, .why = found});
}

void arb_client_restore(struct gpuarb_client *c, uint64_t now_ns)
{
	struct arb_slot *s = arb_client_slot(c);
	struct arb_ledger *own = &c->ledger;
	uint32_t found;

	/* Go on if a transition has found something, or if it is time to look. */
	if (__builtin_expect(!own->found && now_ns - c->restoring.looked_ns < LOOK_NS, 1) ||
		!arb_hint32(&c->guard->joined) || arb_fault_lost(c->seg.file.guard))
		return;
	c->restoring.looked_ns = now_ns;
	found = own->found;
	own->found = 0;
	found |= restore_slot(c, s, own);
	found |= restore_bill(s, own);
	found |= restore_asked(c, s, own);
	if (arb_account_restore(&c->me, c->account))
		found |= ARB_RESTORED_RECORD;
	found |= restore_memory(c, s, own);
	found |= restore_entry(c, own);
	if (arb_segment_restore_header(&c->seg))
		found |= ARB_RESTORED_ENTRY;
	if (__builtin_expect(found != 0, 0))
		tell(c, found);
}

uint32_t gpuarb_client_restored_words(struct gpuarb_client *c, char *text, size_t size)
{
	size_t length = 0;
	uint32_t n, what;

	arb_lock_take(&c->guard->lock);
	n = c->restoring.times - c->restoring.told_times;
	what = c->restoring.what;
	c->restoring.told_times = c->restoring.times;
	c->restoring.what = 0;
	arb_lock_give(&c->guard->lock);
	*text = '\0';
#define ARB_RESTORED_ADD(name, words)                                                                        \
	if (what & ARB_RESTORED_##name && length < size)                                                     \
		length += (size_t)snprintf(text + length, size - length, "%s" words, length ? ", " : "");
	ARB_RESTORED_LIST(ARB_RESTORED_ADD)
#undef ARB_RESTORED_ADD
	if (length < size)
		snprintf(text + length, size - length, " in %s", c->seg.file.path);
	return n;
}

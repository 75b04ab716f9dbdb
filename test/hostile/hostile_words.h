/* What an attack on words of the segment writes to. */
#ifndef TEST_HOSTILE_WORDS_H
#define TEST_HOSTILE_WORDS_H

#include "shm/base/atomic.h"
#include "shm/segment/account_record.h"
#include "shm/segment/snapshot.h"
#include "test/hostile/hostile.h"

#define HOUR_TICKS (3600ull * 1000000000u * ARB_TICKS_PER_NS)

static inline struct arb_slot *slot(struct target *t)
{
	return &t->seg.slots[t->slot];
}

static inline void add(arb_u64 *word, uint64_t by)
{
	arb_store64(word, arb_load64(word) + by);
}

/* The record that counts now. */
static inline struct arb_record *record(struct target *t)
{
	return snap_record_of(&t->seg, arb_load64(&t->seg.header->head));
}

static inline struct arb_account_record *account(struct target *t)
{
	struct arb_account_record *r =
		account_record_of(&t->seg, t->account, arb_load64(&t->seg.accounts[t->account].head));

	return r ? r : &t->seg.accounts[t->account].home[0];
}

#endif

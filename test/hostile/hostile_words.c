/* Attacks on words of the segment: bills, caps, slots, accounts, and the record of the running set. */
#include "test/hostile/hostile_words.h"

#include <stdio.h>
#include <string.h>

#include "shm/base/os.h"
#include "shm/base/text.h"

void attack_bill_raised(struct target *t)
{
	add(&slot(t)->acc, HOUR_TICKS);
	add(&slot(t)->total, HOUR_TICKS);
}

void attack_bill_lowered(struct target *t)
{
	add(&slot(t)->acc, 0 - HOUR_TICKS);
	add(&slot(t)->total, 0 - HOUR_TICKS);
}

void attack_base_lowered(struct target *t)
{
	add(&slot(t)->base, 0 - HOUR_TICKS);
}

void attack_folded_raised(struct target *t)
{
	add(&account(t)->folded, HOUR_TICKS);
}

void attack_cap_lowered(struct target *t)
{
	add(&account(t)->cap, 0 - HOUR_TICKS);
	add(&account(t)->hard, 0 - HOUR_TICKS);
}

void attack_cap_raised(struct target *t)
{
	add(&account(t)->cap, HOUR_TICKS);
	add(&account(t)->hard, HOUR_TICKS);
}

void attack_quota_lowered(struct target *t)
{
	arb_store64(&account(t)->quota, 10000 | 10000ull << 32);
	arb_store32(&t->seg.accounts[t->account].limit_ppm, 10000);
}

void attack_slots_zeroed(struct target *t)
{
	memset((void *)t->seg.slots, 0, t->seg.nslots * sizeof(struct arb_slot));
}

void attack_accounts_zeroed(struct target *t)
{
	memset((void *)t->seg.accounts, 0, t->seg.naccounts * sizeof(struct arb_account));
}

void attack_asked(struct target *t)
{
	arb_store32(&slot(t)->asked_ppm, 10000);
	arb_add32_full(&t->seg.header->epoch, 1);
}

void attack_asked_nothing(struct target *t)
{
	arb_store32(&slot(t)->asked_ppm, 0);
	arb_add32_full(&t->seg.header->epoch, 1);
}

void attack_weight(struct target *t)
{
	arb_store64(&slot(t)->weight, 1);
}

void attack_out_of_the_set(struct target *t)
{
	struct arb_record *r = record(t);

	for (unsigned w = 0; r && w < ARB_WORDS; w++)
		arb_store64(&r->running[w], 0);
	if (r)
		arb_store64(&r->shape, arb_load64(&r->shape) & ~((1ull << ARB_SHAPE_WEIGHT_BITS) - 1));
}

void attack_head_anywhere(struct target *t)
{
	static uint64_t seed = 88172645463325252ull;

	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	arb_store64(&t->seg.header->head, seed);
}

void attack_clock_jumps(struct target *t)
{
	struct arb_record *r = record(t);

	if (r)
		add(&r->v, HOUR_TICKS / ARB_WEIGHT_ONE);
}

void attack_time_ahead(struct target *t)
{
	struct arb_record *r = record(t);
	uint64_t by = 50ull * 1000000000u * ARB_TICKS_PER_NS;

	if (r) {
		add(&r->t, by);
		add(&r->win_start, by);
	}
}

void attack_window_long(struct target *t)
{
	struct arb_record *r = record(t);

	if (r)
		arb_store64(
			&r->shape, (arb_load64(&r->shape) & 0xffffffff) | 3600000ull << ARB_SHAPE_WIN_SHIFT);
}

void attack_crowd(struct target *t)
{
	struct arb_record *r = record(t);
	uint64_t shape;

	if (!r)
		return;
	shape = arb_load64(&r->shape);
	for (uint32_t i = 0; i < 64 && i < t->seg.nslots; i++) {
		if (i == t->slot)
			continue;
		arb_store64(&t->seg.slots[i].weight, ARB_WEIGHT_ONE);
		arb_store64(&t->seg.slots[i].heartbeat_ns, arb_os_now_ns());
	}
	arb_store64(&r->running[0], ~0ull);
	shape &= ~((1ull << ARB_SHAPE_WEIGHT_BITS) - 1);
	arb_store64(&r->shape, shape | 64 * ARB_WEIGHT_ONE);
}

/* Every entry has a name, a limit, and a member that does not exist. */
void attack_entries(struct target *t)
{
	for (uint32_t a = 0; a < t->seg.naccounts; a++) {
		struct arb_account *entry = &t->seg.accounts[a];
		char name[32];

		if (a == t->account)
			continue;
		snprintf(name, sizeof(name), "nobody-%u", a);
		arb_text_store(entry->name, ARB_NAME_WORDS, name);
		arb_store64(&entry->home[0].attached[0], 1ull << (t->seg.nslots - 1));
		arb_store64(&entry->home[0].quota, 10000 | 10000ull << 32);
		arb_store64(&entry->head, (uint64_t)ARB_HOME << ARB_HEAD_BUFFER_BITS);
	}
	arb_store32(&t->seg.header->accounts_high, t->seg.naccounts);
}

/* The GPU's memory is promised, used and foreign; and clients take turns for the next two minutes. */
void attack_promised(struct target *t)
{
	for (uint32_t i = 0; i < t->seg.nslots; i++)
		arb_store64(&t->seg.promises[i].bytes, 1ull << 40);
	arb_store64(&t->seg.header->mem_foreign, ~0ull);
	arb_store64(&t->seg.header->mem_physical, 4096);
	arb_store64(&t->seg.header->alternates_until_ns, arb_os_now_ns() + 119000000000ull);
}

void attack_name_changed(struct target *t)
{
	arb_text_store(t->seg.accounts[t->account].name, ARB_NAME_WORDS, "stolen");
}

void attack_slot_freed(struct target *t)
{
	arb_store32(&slot(t)->state, ARB_SLOT_FREE);
	arb_add32_full(&slot(t)->generation, 1);
	arb_store32(&slot(t)->account, 7);
}

void attack_flood(struct target *t)
{
	for (int i = 0; i < 1000; i++) {
		arb_add32_full(&t->seg.header->epoch, 1);
		arb_os_wake(&slot(t)->wake);
	}
}

void attack_mem_counted(struct target *t)
{
	arb_store64(&account(t)->mem_used, 1ull << 40);
	arb_store64(&slot(t)->asked_mem, 4096);
	arb_store64(&t->seg.accounts[t->account].mem_limit, 4096);
}

void attack_not_attached(struct target *t)
{
	struct arb_account_record *r = account(t);

	for (unsigned w = 0; w < ARB_WORDS; w++)
		arb_store64(&r->attached[w], 0);
}

void attack_last_events(struct target *t)
{
	arb_store64(&t->seg.header->event_next, UINT64_MAX - 3);
	memset((void *)t->seg.events, 0xff, t->seg.nevents * sizeof(struct arb_event));
}

/* Who comes finds a segment of another version. */
void attack_header(struct target *t)
{
	t->seg.header->version = 99;
	t->seg.header->nslots = 8;
	t->seg.header->fingerprint = 1;
}

void attack_hints(struct target *t)
{
	for (unsigned w = 0; w < ARB_WORDS; w++)
		arb_store64(&t->seg.header->taken[w], ~0ull);
	arb_store32(&t->seg.header->accounts_high, 0);
	arb_store64(&t->seg.header->mem_physical, 1);
}

void attack_everything(struct target *t)
{
	size_t from = offsetof(struct arb_state_header, head);

	memset((char *)t->seg.file.base + from, 0x5a, t->seg.file.size - from);
}

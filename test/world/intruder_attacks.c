/* The attacks of the intruder: each writes over words of others as any process can that may write the segment. */
#include "test/world/intruder.h"

#include <string.h>

#include "shm/base/text.h"
#include "shm/segment/account_record.h"
#include "shm/segment/snapshot.h"
#include "test/world/world.h"

#define HOUR (3600ull * 1000000000u * ARB_TICKS_PER_NS)

static void add(arb_u64 *word, uint64_t by)
{
	word->v += by;
}

static void bill(struct target *t)
{
	add(&t->slot->acc, HOUR);
	add(&t->slot->total, HOUR);
}

static void credit(struct target *t)
{
	add(&t->slot->acc, 0 - HOUR);
	add(&t->slot->total, 0 - HOUR);
}

static void base(struct target *t)
{
	add(&t->slot->base, 0 - HOUR);
}

static void weight(struct target *t)
{
	t->slot->weight.v = 1;
}

static void asked(struct target *t)
{
	t->slot->asked_ppm.v = 10000;
	t->seg->header->epoch.v++;
}

static void asked_nothing(struct target *t)
{
	t->slot->asked_ppm.v = 0;
	t->seg->header->epoch.v++;
}

static void folded(struct target *t)
{
	add(&t->account->folded, HOUR);
}

static void cap_lowered(struct target *t)
{
	add(&t->account->cap, 0 - HOUR);
	add(&t->account->hard, 0 - HOUR);
}

static void cap_raised(struct target *t)
{
	add(&t->account->cap, HOUR);
	add(&t->account->hard, HOUR);
}

static void quota(struct target *t)
{
	t->account->quota.v = 10000 | 10000ull << 32;
	t->entry->limit_ppm.v = 10000;
}

static void detach(struct target *t)
{
	memset(t->account->attached, 0, sizeof(t->account->attached));
}

static void memory(struct target *t)
{
	t->account->mem_used.v = 1ull << 40;
	t->slot->asked_mem.v = 4096;
	t->slot->mem_now.v = 1ull << 40;
}

static void account_zeroed(struct target *t)
{
	memset(t->entry->home, 0, sizeof(t->entry->home));
	memset(t->slot->account_record, 0, sizeof(t->slot->account_record));
	t->entry->head.v = 0;
}

static void slots_zeroed(struct target *t)
{
	memset(t->seg->slots, 0, t->seg->nslots * sizeof(struct arb_slot));
}

static void emptied(struct target *t)
{
	if (!t->record)
		return;
	memset(t->record->running, 0, sizeof(t->record->running));
	t->record->shape.v &= ~((1ull << ARB_SHAPE_WEIGHT_BITS) - 1);
}

static void crowd(struct target *t)
{
	if (!t->record)
		return;
	for (uint32_t i = 0; i < 64 && i < t->seg->nslots; i++)
		if (t->seg->slots[i].state.v == ARB_SLOT_FREE) {
			t->seg->slots[i].weight.v = ARB_WEIGHT_ONE;
			t->seg->slots[i].heartbeat_ns.v = world.now_ns;
			if (!(t->record->running[0].v >> i & 1))
				t->record->shape.v += ARB_WEIGHT_ONE;
			t->record->running[0].v |= 1ull << i;
		}
}

static void jump(struct target *t)
{
	if (t->record)
		add(&t->record->v, HOUR / ARB_WEIGHT_ONE);
}

static void ahead(struct target *t)
{
	if (!t->record)
		return;
	add(&t->record->t, 50ull * 1000000000u * ARB_TICKS_PER_NS);
	add(&t->record->win_start, 50ull * 1000000000u * ARB_TICKS_PER_NS);
}

static void window(struct target *t)
{
	if (t->record)
		t->record->shape.v =
			(t->record->shape.v & 0xff000000ffffffff) | 3600000ull << ARB_SHAPE_WIN_SHIFT;
}

static void freed(struct target *t)
{
	t->slot->state.v = ARB_SLOT_FREE;
	t->slot->generation.v++;
	t->slot->account.v = 7;
}

/* A member that does not exist, with an account of its own. No client has had its slot, and none holds its byte. */
#define FORGED 40u

static struct arb_slot *forge(struct target *t, uint32_t level)
{
	uint32_t a = t->seg->naccounts - 1;
	struct arb_slot *s = &t->seg->slots[FORGED];
	struct arb_account *entry = &t->seg->accounts[a];

	t->seg->header->ranks.v = 1;
	t->seg->header->accounts_high.v = t->seg->naccounts;
	arb_text_store(entry->name, ARB_NAME_WORDS, "forged");
	entry->active_window.v = t->record ? t->record->win_number.v + 1 : 0;
	entry->limit_ppm.v = ARB_PPM;
	entry->home[0].attached[0].v = 1ull << FORGED;
	entry->home[0].window.v = t->record ? t->record->win_number.v : 0;
	entry->home[0].cap.v = entry->home[0].hard.v = HOUR;
	entry->home[0].quota.v = ARB_PPM | (uint64_t)ARB_PPM << 32;
	entry->head.v = (uint64_t)ARB_HOME << ARB_HEAD_BUFFER_BITS;
	s->state.v = ARB_SLOT_LIVE;
	s->account.v = a;
	s->weight.v = ARB_WEIGHT_ONE;
	s->priority.v = 100;
	s->level.v = level;
	s->heartbeat_ns.v = world.now_ns;
	return s;
}

/* Puts the member into the running set. */
static void enter(struct target *t, uint32_t level)
{
	forge(t, level);
	if (!t->record)
		return;
	if (!(t->record->running[0].v >> FORGED & 1))
		t->record->shape.v += ARB_WEIGHT_ONE;
	t->record->running[0].v |= 1ull << FORGED;
	t->record->shape.v = (t->record->shape.v & ~(255ull << ARB_SHAPE_TOP_SHIFT)) |
			     (uint64_t)level << ARB_SHAPE_TOP_SHIFT;
}

static void level(struct target *t)
{
	enter(t, 200);
}

static void level_impossible(struct target *t)
{
	enter(t, 255);
}

/* It is within its request for ever, of the whole GPU. */
static void request(struct target *t)
{
	enter(t, 101);
	t->seg->accounts[t->seg->naccounts - 1].request_ppm.v = ARB_PPM;
}

/* It sits in the set, and accounts that nobody uses have limits. */
static void limited(struct target *t)
{
	enter(t, 100);
	t->seg->accounts[t->seg->naccounts - 1].limit_ppm.v = ARB_PPM - 1;
	for (uint32_t a = t->seg->naccounts - 2; a > t->seg->naccounts - 100; a--) {
		t->seg->accounts[a].limit_ppm.v = ARB_PPM - 1;
		t->seg->accounts[a].active_window.v = t->record ? t->record->win_number.v + 1 : 0;
	}
}

/* It has a lease of the highest class. */
static void lease(struct target *t)
{
	struct arb_slot *s = forge(t, 200);

	s->adm_want.v = 2 | 100u << ARB_WANT_PRIORITY_SHIFT;
	s->adm_leased_ns.v = world.now_ns;
	t->seg->header->adm_leased[0].v |= 1ull << FORGED;
}

/* It stands in the queue, before all others, and a place is kept for it. */
static void waits(struct target *t)
{
	struct arb_slot *s = forge(t, 201);

	s->wait_since_ns.v = 1;
	if (!t->record)
		return;
	t->record->waiting[0].v |= 1ull << FORGED;
	t->record->reserved.v = (FORGED + 1) | (uint64_t)s->generation.v << 32;
	t->record->reserved_until.v = world.now_ns + 5 * WORLD_MS;
	t->record->shape.v |= ARB_SHAPE_WAITING | ARB_SHAPE_RESERVED;
}

static void top(struct target *t)
{
	t->seg->header->ranks.v = 1;
	if (t->record)
		t->record->shape.v |= 255ull << ARB_SHAPE_TOP_SHIFT;
}

static void gate(struct target *t)
{
	t->slot->gate.v = 0;
}

static void heartbeat_old(struct target *t)
{
	t->slot->heartbeat_ns.v = 1;
}

static void heartbeat_ahead(struct target *t)
{
	for (uint32_t i = 0; i < t->seg->nslots; i++)
		t->seg->slots[i].heartbeat_ns.v = world.now_ns + 3600 * WORLD_S;
}

static void evicted(struct target *t)
{
	uint64_t bit = 1ull << ((t->slot - t->seg->slots) % 64);

	if (!t->record || !(t->record->running[0].v & bit))
		return;
	t->record->running[0].v &= ~bit;
	t->record->evicted[0].v = bit;
	t->record->shape.v -= ARB_WEIGHT_ONE;
	t->record->shape.v |= ARB_SHAPE_EVICTED;
	t->slot->evicted_v.v = t->record->v.v + HOUR / ARB_WEIGHT_ONE;
}

static void number(struct target *t)
{
	if (t->record)
		add(&t->record->win_number, 1000000);
}

static void overflow(struct target *t)
{
	if (t->record)
		t->record->v.v = 0 - (uint64_t)1000;
}

static void lost(struct target *t)
{
	t->seg->header->lost_ns.v += 100000000;
}

static void frozen(struct target *t)
{
	t->slot->frozen.v = ARB_FROZEN_CHECKPOINTED | world.now_ns << ARB_FROZEN_STATE_BITS;
	t->slot->ask_frozen.v++;
}

static void alternates(struct target *t)
{
	t->seg->header->alternates_until_ns.v = world.now_ns + 119 * WORLD_S;
}

static void life(struct target *t)
{
	t->slot->life.v = 0x40000000;
	t->slot->life2.v = 0x40000000;
	t->slot->life_next.v = t->slot->life2_next.v = ~0ull;
	t->seg->header->ring.v++;
}

/* The account's head leads to another account's own record. */
static void home(struct target *t)
{
	uint64_t sequence = t->entry->head.v >> ARB_HEAD_SEQ_SHIFT;

	t->entry->head.v = (sequence + 1) << ARB_HEAD_SEQ_SHIFT | (uint64_t)ARB_HOME << ARB_HEAD_BUFFER_BITS;
}

static void flags(struct target *t)
{
	t->slot->flags.v = ~0u;
}

/* The account has a weight of one, no request, and was never active. */
static void hints(struct target *t)
{
	t->seg->header->ranks.v = 1;
	t->entry->weight.v = 1;
	t->entry->request_ppm.v = 0;
	t->entry->active_window.v = 0;
	t->slot->priority.v = 0;
	t->slot->level.v = 2;
}

static void epoch(struct target *t)
{
	for (uint32_t i = 0; i < t->seg->nslots; i++)
		t->seg->slots[i].wake.v++;
	t->seg->header->epoch.v++;
}

static void everything(struct target *t)
{
	size_t from = offsetof(struct arb_state_header, head);

	memset((char *)t->seg->file.base + from, 0x5a, t->seg->file.size - from);
}

/* It sits in the set and seems to be stopped, but never for so long that it is evicted. */
static void silent(struct target *t)
{
	enter(t, 100);
	t->seg->slots[FORGED].heartbeat_ns.v = world.now_ns - 30 * WORLD_MS;
}

/* A task of the highest class waits for a lease, and never goes. */
static void lease_waits(struct target *t)
{
	struct arb_slot *s = forge(t, 100);

	s->adm_want.v = 2 | 100u << ARB_WANT_PRIORITY_SHIFT | ARB_WANT_PASS;
	s->adm_since_ns.v = 1;
	t->seg->header->adm_waiting[0].v |= 1ull << FORGED;
}

const struct intruder_attack intruder_attacks[] = {
	{.name = "bill", .write = bill},
	{.name = "bills", .write = bill, .again = true},
	{.name = "credit", .write = credit},
	{.name = "credits", .write = credit, .again = true},
	{.name = "base", .write = base},
	{.name = "weight", .write = weight, .again = true},
	{.name = "asked", .write = asked},
	{.name = "asked-not", .write = asked_nothing},
	{.name = "folded", .write = folded},
	{.name = "cap", .write = cap_lowered},
	{.name = "caps", .write = cap_lowered, .again = true},
	{.name = "unlimit", .write = cap_raised, .again = true},
	{.name = "quota", .write = quota, .again = true},
	{.name = "detach", .write = detach, .again = true},
	{.name = "memory", .write = memory, .again = true},
	{.name = "account", .write = account_zeroed},
	{.name = "slots", .write = slots_zeroed},
	{.name = "emptied", .write = emptied},
	/* A client that was taken out of the set is billed as one of the most members that the set had at any look in
	 * the last one or two windows. So it pays its part at most, and less where the set has become smaller. */
	{.name = "out", .write = emptied, .again = true, .gives = 5},
	/* Half of what is used may be billed to no account. These points are what that gives at the smallest limit. */
	{.name = "crowd", .write = crowd, .again = true, .gives = 2},
	{.name = "jump", .write = jump},
	{.name = "ahead", .write = ahead},
	{.name = "window", .write = window},
	{.name = "free", .write = freed, .again = true},
	/* A member that does not exist takes part of the bill, whatever it claims. */
	{.name = "level", .write = level, .again = true, .gives = 5},
	{.name = "level-impossible", .write = level_impossible, .again = true, .gives = 5},
	{.name = "request", .write = request, .again = true, .gives = 5},
	{.name = "limits", .write = limited, .again = true, .gives = 5},
	{.name = "lease", .write = lease, .again = true},
	{.name = "priority", .again = true, .asks = {"GPUARB_PRIORITY", "100"}},
	{.name = "waits", .write = waits, .again = true, .policy = "fair"},
	{.name = "stays", .write = level, .again = true, .gives = 5, .policy = "fair"},
	/* A client waits for its turn for 0.6 s, once. */
	{.name = "priority-fair",
		.again = true,
		.takes = 6,
		.policy = "fair",
		.asks = {"GPUARB_PRIORITY", "100"}},
	/* Garbage is replaced, and some of what was used meanwhile is billed to nobody. */
	{.name = "top", .write = top, .again = true, .gives = 2},
	{.name = "gate", .write = gate, .again = true},
	{.name = "heartbeat", .write = heartbeat_old, .again = true},
	{.name = "heartbeat-ahead", .write = heartbeat_ahead, .again = true},
	/* As for `out`. The others pay as if it did not run, until it has come back. */
	{.name = "evicted", .write = evicted, .again = true, .gives = 8, .takes = 5},
	/* Each window gives a quota. */
	{.name = "number", .write = number, .again = true, .gives = 3},
	{.name = "overflow", .write = overflow},
	{.name = "lost", .write = lost, .again = true},
	{.name = "frozen", .write = frozen, .again = true},
	{.name = "alternates", .write = alternates, .again = true},
	{.name = "life", .write = life, .again = true},
	{.name = "home", .write = home, .again = true},
	{.name = "flags", .write = flags, .again = true},
	{.name = "hints", .write = hints, .again = true},
	{.name = "epoch", .write = epoch, .again = true},
	{.name = "silent", .write = silent, .again = true, .gives = 5, .policy = "fair"},
	{.name = "lease-waits", .write = lease_waits, .again = true},
	{.name = "everything", .write = everything},
	/* Each look finds garbage, and bills what it can know. */
	{.name = "everythings", .write = everything, .again = true, .gives = 10},
};
const unsigned intruder_nattacks = sizeof(intruder_attacks) / sizeof(intruder_attacks[0]);

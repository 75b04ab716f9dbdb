/* Attacks by claims: who comes before others, who waits, who lives, who was evicted. */
#include <fcntl.h>
#include <limits.h>

#include "shm/base/os.h"
#include "shm/base/text.h"
#include "test/hostile/hostile_words.h"

/* The attacker's own slot and account. It holds the slot's byte, so the kernel says that its client lives. */
#define OWN_SLOT 40u

static uint32_t own_account(const struct target *t)
{
	return t->seg.naccounts - 1;
}

static struct arb_slot *take(struct target *t, uint32_t level)
{
	static int fd = -1;
	struct arb_slot *s = &t->seg.slots[OWN_SLOT];
	struct arb_account *entry = &t->seg.accounts[own_account(t)];
	struct arb_record *r = record(t);
	uint64_t window = r ? arb_load64(&r->win_number) : 0;
	char path[PATH_MAX];

	if (fd < 0) {
		struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = OWN_SLOT, .l_len = 1};

		fd = open(locks_of(t, path), O_RDWR | O_CLOEXEC);
		fcntl(fd, F_OFD_SETLK, &l);
	}
	arb_store32(&t->seg.header->ranks, 1);
	arb_store32(&t->seg.header->accounts_high, t->seg.naccounts);
	arb_text_store(entry->name, ARB_NAME_WORDS, "important");
	arb_store64(&entry->active_window, window + 1);
	arb_store32(&entry->limit_ppm, ARB_PPM);
	arb_store64(&entry->home[0].attached[0], 1ull << OWN_SLOT);
	arb_store64(&entry->home[0].window, window);
	arb_store64(&entry->home[0].cap, HOUR_TICKS);
	arb_store64(&entry->home[0].hard, HOUR_TICKS);
	arb_store64(&entry->home[0].quota, ARB_PPM | (uint64_t)ARB_PPM << 32);
	arb_store64(&entry->head, (uint64_t)ARB_HOME << ARB_HEAD_BUFFER_BITS);
	arb_store32(&s->state, ARB_SLOT_LIVE);
	arb_store32(&s->account, own_account(t));
	arb_store64(&s->weight, ARB_WEIGHT_ONE);
	arb_store32(&s->priority, 100);
	arb_store32(&s->level, level);
	arb_store64(&s->heartbeat_ns, arb_os_now_ns());
	return s;
}

static void enter(struct target *t, uint32_t level)
{
	struct arb_record *r = record(t);
	uint64_t shape;

	take(t, level);
	if (!r)
		return;
	shape = arb_load64(&r->shape);
	if (!(arb_load64(&r->running[0]) >> OWN_SLOT & 1))
		shape += ARB_WEIGHT_ONE;
	arb_store64(&r->running[0], arb_load64(&r->running[0]) | 1ull << OWN_SLOT);
	arb_store64(&r->shape,
		(shape & ~(255ull << ARB_SHAPE_TOP_SHIFT)) | (uint64_t)level << ARB_SHAPE_TOP_SHIFT);
}

void attack_level(struct target *t)
{
	enter(t, 200);
}

void attack_level_impossible(struct target *t)
{
	enter(t, 255);
}

/* It has a request of the whole GPU, and has never used any of it. */
void attack_in_request(struct target *t)
{
	enter(t, 101);
}

void attack_limits(struct target *t)
{
	struct arb_record *r = record(t);

	enter(t, 100);
	for (uint32_t a = own_account(t); r && a > own_account(t) - 100; a--) {
		arb_store32(&t->seg.accounts[a].limit_ppm, ARB_PPM - 1);
		arb_store64(&t->seg.accounts[a].active_window, arb_load64(&r->win_number) + 1);
	}
}

void attack_waits(struct target *t)
{
	struct arb_slot *s = take(t, ARB_LEVEL_MOST);
	struct arb_record *r = record(t);

	arb_store64(&s->wait_since_ns, 1);
	if (!r)
		return;
	arb_store64(&r->waiting[0], arb_load64(&r->waiting[0]) | 1ull << OWN_SLOT);
	arb_store64(&r->reserved, (OWN_SLOT + 1) | (uint64_t)arb_load32(&s->generation) << 32);
	arb_store64(&r->reserved_until, arb_os_now_ns() + 5000000);
	arb_store64(&r->shape, arb_load64(&r->shape) | ARB_SHAPE_WAITING | ARB_SHAPE_RESERVED);
}

void attack_lease(struct target *t)
{
	struct arb_slot *s = take(t, 200);

	arb_store32(&s->adm_want, 2 | 100u << ARB_WANT_PRIORITY_SHIFT);
	arb_store64(&s->adm_leased_ns, arb_os_now_ns());
	arb_store64(
		&t->seg.header->adm_leased[0], arb_load64(&t->seg.header->adm_leased[0]) | 1ull << OWN_SLOT);
}

void attack_top(struct target *t)
{
	struct arb_record *r = record(t);

	arb_store32(&t->seg.header->ranks, 1);
	if (r)
		arb_store64(&r->shape, arb_load64(&r->shape) | 255ull << ARB_SHAPE_TOP_SHIFT);
}

void attack_gate(struct target *t)
{
	arb_store32(&slot(t)->gate, 0);
}

void attack_heartbeat_old(struct target *t)
{
	arb_store64(&slot(t)->heartbeat_ns, 1);
}

void attack_heartbeat_ahead(struct target *t)
{
	for (uint32_t i = 0; i < t->seg.nslots; i++)
		arb_store64(&t->seg.slots[i].heartbeat_ns, arb_os_now_ns() + 3600000000000ull);
}

void attack_evicted(struct target *t)
{
	struct arb_record *r = record(t);
	uint64_t bit = 1ull << t->slot % 64;

	if (!r || !(arb_load64(&r->running[t->slot / 64]) & bit))
		return;
	arb_store64(&slot(t)->evicted_v, arb_load64(&r->v) + HOUR_TICKS / ARB_WEIGHT_ONE);
	arb_store64(&r->running[t->slot / 64], arb_load64(&r->running[t->slot / 64]) & ~bit);
	arb_store64(&r->evicted[t->slot / 64], bit);
	arb_store64(&r->shape, (arb_load64(&r->shape) - ARB_WEIGHT_ONE) | ARB_SHAPE_EVICTED);
}

void attack_number(struct target *t)
{
	struct arb_record *r = record(t);

	if (r)
		add(&r->win_number, 1000000);
}

void attack_overflow(struct target *t)
{
	struct arb_record *r = record(t);

	if (r)
		arb_store64(&r->v, 0 - (uint64_t)1000);
}

void attack_lost(struct target *t)
{
	arb_store32(&t->seg.header->lost_ns, arb_load32(&t->seg.header->lost_ns) + 100000000);
}

void attack_frozen(struct target *t)
{
	arb_store64(&slot(t)->frozen, ARB_FROZEN_CHECKPOINTED | arb_os_now_ns() << ARB_FROZEN_STATE_BITS);
	arb_add32_full(&slot(t)->ask_frozen, 1);
	arb_os_wake(&slot(t)->ask_frozen);
}

void attack_alternates(struct target *t)
{
	arb_store64(&t->seg.header->alternates_until_ns, arb_os_now_ns() + 119000000000ull);
}

void attack_life(struct target *t)
{
	arb_store32(&slot(t)->life, 0x40000000);
	arb_store32(&slot(t)->life2, 0x40000000);
	arb_store64(&slot(t)->life_next, ~0ull);
	arb_store64(&slot(t)->life2_next, ~0ull);
	arb_os_wake(&slot(t)->life);
	arb_os_wake(&t->seg.header->ring);
}

void attack_home(struct target *t)
{
	arb_u64 *head = &t->seg.accounts[t->account].head;

	arb_store64(head, ((arb_load64(head) >> ARB_HEAD_SEQ_SHIFT) + 1) << ARB_HEAD_SEQ_SHIFT |
				  (uint64_t)ARB_HOME << ARB_HEAD_BUFFER_BITS);
}

void attack_flags(struct target *t)
{
	arb_store32(&slot(t)->flags, ~0u);
}

void attack_share_hints(struct target *t)
{
	struct arb_account *entry = &t->seg.accounts[t->account];

	arb_store32(&t->seg.header->ranks, 1);
	arb_store32(&entry->weight, 1);
	arb_store32(&entry->request_ppm, 0);
	arb_store64(&entry->active_window, 0);
	arb_store32(&slot(t)->priority, 0);
	arb_store32(&slot(t)->level, 2);
}

/* A member that seems to be stopped, but never for long enough to be evicted. */
void attack_silent(struct target *t)
{
	enter(t, 100);
	arb_store64(&t->seg.slots[OWN_SLOT].heartbeat_ns, arb_os_now_ns() - 30000000);
}

/* A member with a lease: where one client runs at a time it has the GPU until its task ends. */
void attack_lease_inside(struct target *t)
{
	enter(t, 100);
	arb_store64(
		&t->seg.header->adm_leased[0], arb_load64(&t->seg.header->adm_leased[0]) | 1ull << OWN_SLOT);
}

/* A member that has all of the GPU's memory and whose turn never ends. */
void attack_resident(struct target *t)
{
	struct arb_slot *s;

	enter(t, 100);
	s = &t->seg.slots[OWN_SLOT];
	arb_store64(&s->mem_now, 1ull << 40);
	arb_store64(&s->turn_since_ns, arb_os_now_ns());
	arb_store64(&t->seg.header->taken[0], arb_load64(&t->seg.header->taken[0]) | 1ull << OWN_SLOT);
}

/* The weighted clock runs nearly as fast as if each member were alone, and never jumps. */
void attack_drift(struct target *t)
{
	uint64_t began = arb_os_now_ns(), last = began, now;

	for (; last - began < 5000000; last = now) {
		struct arb_record *r = record(t);
		uint64_t weight = r ? arb_load64(&r->shape) & ((1ull << ARB_SHAPE_WEIGHT_BITS) - 1) : 0;

		now = arb_os_now_ns();
		if (weight > ARB_WEIGHT_ONE)
			add(&r->v, (now - last) * ARB_TICKS_PER_NS / 10 * 9 / ARB_WEIGHT_ONE -
					   (now - last) * ARB_TICKS_PER_NS / 10 * 9 / weight);
	}
}

/* Members that live, as far as the kernel knows, and have no work. */
void attack_live_crowd(struct target *t)
{
	static int fd = -1;
	struct arb_record *r = record(t);
	uint64_t members = 0, shape;
	char path[PATH_MAX];

	if (fd < 0) {
		fd = open(locks_of(t, path), O_RDWR | O_CLOEXEC);
		for (uint32_t i = 0; i < 64; i++) {
			struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = i, .l_len = 1};

			if (i != t->slot)
				fcntl(fd, F_OFD_SETLK, &l);
		}
	}
	if (!r)
		return;
	for (uint32_t i = 0; i < 64; i++) {
		struct arb_slot *s = &t->seg.slots[i];

		members |= 1ull << i;
		if (i == t->slot)
			continue;
		arb_store32(&s->state, ARB_SLOT_LIVE);
		arb_store32(&s->account, own_account(t));
		arb_store64(&s->weight, ARB_WEIGHT_ONE);
		arb_store64(&s->heartbeat_ns, arb_os_now_ns());
	}
	members |= arb_load64(&r->running[0]) & 1ull << t->slot;
	arb_store64(&r->running[0], members);
	shape = arb_load64(&r->shape) & ~((1ull << ARB_SHAPE_WEIGHT_BITS) - 1);
	arb_store64(&r->shape, shape | (uint64_t)__builtin_popcountll(members) * ARB_WEIGHT_ONE);
}

/* A task of the highest class that waits, that fits, and that never goes. */
void attack_lease_waits(struct target *t)
{
	struct arb_slot *s = take(t, 100);

	arb_store32(&s->adm_want, 2 | 100u << ARB_WANT_PRIORITY_SHIFT | ARB_WANT_PASS);
	arb_store64(&s->adm_since_ns, 1);
	arb_store64(&t->seg.header->adm_waiting[0],
		arb_load64(&t->seg.header->adm_waiting[0]) | 1ull << OWN_SLOT);
}

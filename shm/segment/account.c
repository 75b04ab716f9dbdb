#include "shm/segment/account_record.h"

#include <errno.h>
#include <string.h>

#include "shm/base/os.h"
#include "shm/policy/policy.h"
#include "shm/base/text.h"

int arb_account_read(const struct arb_segment *seg, uint32_t a, struct arb_account_snap *s)
{
	if (!arb_segment_account(seg, a))
		return -EBADMSG;
	for (int i = 0; i < ARB_TRIES; i++) {
		bool good = account_copy(seg, a, s) && account_plausible(seg, s);

		if (account_unchanged(seg, a, s)) {
			if (good)
				arb_ledger_note(seg, a, s);
			return good ? 0 : -EBADMSG;
		}
		arb_pause();
	}
	return -EBUSY;
}

void arb_asked_add(struct arb_asked *asked, const struct arb_segment *seg, uint32_t i)
{
	const struct arb_slot *slot = &seg->slots[i];
	const struct arb_ledger *own = arb_ledger_of(seg, i);
	uint32_t ppm = arb_load32(&slot->asked_ppm);
	uint64_t mem = ARB_LEDGER_LOAD(own, slot, asked_mem);
	uint32_t share = arb_hint32(&slot->asked_share);

	if (own) {
		ppm = own->asked_ppm;
		share = own->asked_share;
	}
	if (ppm >= ARB_PPM / 100 && ppm < ARB_PPM && (!asked->ppm || ppm < asked->ppm))
		asked->ppm = ppm;
	if (mem && (!asked->mem || mem < asked->mem))
		asked->mem = mem;
	if (share) {
		uint32_t request = share & 0xff, weight = share >> 8;

		if (request <= 100 && request > asked->request_pct)
			asked->request_pct = request;
		if (weight <= ARB_SHARE_WEIGHT_MOST && weight > asked->weight)
			asked->weight = weight;
	}
}

struct arb_asked arb_account_asked(const struct arb_segment *seg, uint32_t a)
{
	struct arb_asked asked = {0};
	struct arb_account_snap s;
	int r = arb_account_read(seg, a, &s);

	if (r == 0)
		for (uint32_t i = arb_bits_next(s.attached, seg->nwords, 0); i != ARB_NONE;
			i = arb_bits_next(s.attached, seg->nwords, i + 1))
			arb_asked_add(&asked, seg, i);
	/* The caller is a member, whatever the record says. */
	if (arb_ledger_in(seg, a) && (r < 0 || !arb_bit_test(s.attached, seg->own_slot)))
		arb_asked_add(&asked, seg, seg->own_slot);
	return asked;
}

void arb_asked_settle(struct arb_asked *asked, const struct gpuarb_config_limit *set)
{
	if (!asked->ppm)
		asked->ppm = ARB_PPM;
	if (!asked->weight)
		asked->weight = ARB_SHARE_WEIGHT;
	if (set->set & ARB_LIMIT_CORE)
		asked->ppm = (uint32_t)set->core_pct * (ARB_PPM / 100);
	if (set->set & ARB_LIMIT_MEM)
		asked->mem = (uint64_t)set->mem_bytes;
	if (set->set & ARB_LIMIT_REQUEST)
		asked->request_pct = (uint32_t)set->request_pct;
	if (set->set & ARB_LIMIT_WEIGHT)
		asked->weight = (uint32_t)set->weight;
}

static uint64_t base(const struct arb_segment *seg, uint32_t i)
{
	const struct arb_ledger *own = arb_ledger_of(seg, i);

	return ARB_LEDGER_LOAD(own, &seg->slots[i], base);
}

static uint64_t wall_base(const struct arb_segment *seg, uint32_t i)
{
	const struct arb_ledger *own = arb_ledger_of(seg, i);

	return ARB_LEDGER_LOAD(own, &seg->slots[i], wall_base);
}

uint64_t arb_account_usage(const struct arb_segment *seg, const struct arb_snap *run,
	const struct arb_account_snap *acct, bool wall, bool at_start)
{
	uint64_t sum = wall ? acct->wall_folded : acct->folded;

	for (uint32_t i = arb_bits_next(acct->attached, seg->nwords, 0); i != ARB_NONE;
		i = arb_bits_next(acct->attached, seg->nwords, i + 1))
		if (wall)
			sum += arb_running_wall_at(seg, run, i, at_start ? run->win_busy : run->busy) -
			       wall_base(seg, i);
		else
			sum += arb_running_usage_at(seg, run, i, at_start ? run->win_v : run->v) -
			       base(seg, i);
	return sum;
}

/* Has the account no members, and has the time that went by paid what it owed, if it can owe? */
static bool lapsed(const struct arb_segment *seg, uint32_t a, uint64_t window, unsigned carryover_pct)
{
	struct arb_account_snap s;
	uint64_t usage, grant, windows;

	if (account_load(seg, a, &s) < 0)
		return true;
	if (arb_bits_count(s.attached, seg->nwords))
		return false;
	/* An account without a limit owes nothing. Otherwise processes that come and go would fill the table. */
	if (s.limit_ppm >= ARB_PPM)
		return true;
	if (window == 0 || window == s.window)
		return false;
	/* No member can have been in a later window than ours: windows are counted anew, or the record is garbage. */
	if (s.window > window)
		return true;
	windows = window - s.window;
	usage = s.wall ? s.wall_folded : s.folded;
	/* Estimated by the grant of the window in which the account was last rolled. */
	grant = s.cap - s.start;
	if ((int64_t)grant <= 0)
		grant = 1;
	return windows > 100000 ||
	       arb_policy_next_cap(usage, s.cap, grant, carryover_pct, windows) == usage + grant;
}

uint32_t arb_account_find(struct arb_segment *seg, const char *name, uint64_t window, unsigned carryover_pct)
{
	uint32_t high = arb_load32(&seg->header->accounts_high), counted, best = ARB_NONE;
	uint64_t best_at = 0;
	struct arb_account *acct;
	struct arb_account_snap fresh;

	if (high > seg->naccounts)
		high = seg->naccounts;
	/* An entry that has a name is in use. If the count leaves it out, another process has overwritten the count,
	 * or the process that named the entry died before it counted it. */
	counted = high;
	while (high < seg->naccounts && arb_hint64(&seg->accounts[high].name[0]))
		high++;
	/* So is an entry of a client that has joined, whatever was written over the entry. */
	for (uint32_t i = 0; i < seg->nslots; i++) {
		uint32_t a = arb_hint32(&seg->slots[i].account);

		if (__builtin_expect(a >= high && a < seg->naccounts, 0) &&
			arb_hint32(&seg->slots[i].state) == ARB_SLOT_LIVE)
			high = a + 1;
	}
	if (high != counted)
		arb_store32_release(&seg->header->accounts_high, high);
	for (uint32_t a = 0; a < high; a++)
		if (arb_text_equals(seg->accounts[a].name, ARB_NAME_WORDS, name))
			return a;
	if (high < seg->naccounts) {
		best = high;
	} else {
		uint32_t first = (uint32_t)(arb_text_hash(name) % high);

		/* Where all entries were written over, the first ones belong to clients that will put them right: so
		 * of those that were left at the same time any may be taken. */
		for (uint32_t n = 0; n < high; n++) {
			uint32_t a = (first + n) % high;
			uint64_t at = arb_load64(&seg->accounts[a].used_at);

			if ((best == ARB_NONE || at < best_at) && lapsed(seg, a, window, carryover_pct)) {
				best = a;
				best_at = at;
			}
		}
		if (best == ARB_NONE)
			return ARB_NONE;
	}
	acct = &seg->accounts[best];
	/* The name is removed first: a process that dies here leaves an entry without an owner. */
	arb_text_store(acct->name, ARB_NAME_WORDS, "");
	arb_add32_full(&acct->generation, 1);
	arb_store64(&acct->active_window, 0);
	arb_store32(&acct->limit_ppm, ARB_PPM);
	arb_store64(&acct->mem_limit, 0);
	arb_store64(&acct->owner, 0);
	if (arb_hint32(&seg->header->ranks)) {
		arb_store32(&acct->request_ppm, 0);
		arb_store32(&acct->weight, 0);
	}
	memset(&fresh, 0, sizeof(fresh));
	fresh.limit_ppm = fresh.quota_ppm = ARB_PPM;
	do
		fresh.head = arb_load64_acquire(&acct->head);
	while (!account_publish(seg, best, ARB_HOME, &fresh));
	arb_fence_release();
	arb_text_store(acct->name, ARB_NAME_WORDS, name);
	if (best == high)
		arb_store32_release(&seg->header->accounts_high, high + 1);
	return best;
}

bool arb_account_claim(
	struct arb_segment *seg, uint32_t a, uint64_t owner, uint64_t window, unsigned carryover_pct)
{
	arb_u64 *word = &seg->accounts[a].owner;
	uint64_t whose = arb_load64(word);

	if (whose == owner)
		return true;
	if (whose && !lapsed(seg, a, window, carryover_pct))
		return false;
	arb_store64(word, owner);
	return true;
}

static uint64_t mem_of(const struct arb_segment *seg, const struct arb_account_snap *acct, uint32_t slot)
{
	const struct arb_ledger *own = arb_ledger_of(seg, slot);
	uint64_t there = arb_load64(&seg->slots[slot].mem[arb_bit_test(acct->parity, slot)]);

	return arb_ledger_choose(there, own != NULL, own ? own->mem : 0);
}

int arb_account_attach(struct arb_segment *seg, uint32_t a, uint32_t slot)
{
	struct arb_slot *s = &seg->slots[slot];
	struct arb_ledger *own = arb_ledger_of(seg, slot);
	struct arb_account_snap acct;
	uint64_t bit = 1ull << (slot % 64);

	for (int i = 0; i < ARB_TRIES; i++) {
		int r = account_load(seg, a, &acct);

		if (r < 0)
			return r;
		/* The record cannot know this slot, which has only just come: another process wrote that. */
		if (acct.attached[slot / 64] & bit) {
			uint64_t mem = mem_of(seg, &acct, slot);

			acct.mem_used -= mem < acct.mem_used ? mem : acct.mem_used;
		}
		arb_fence_release();
		arb_store64(&s->mem[0], 0);
		arb_store64(&s->mem[1], 0);
		arb_store64(&s->mem_now, 0);
		arb_store64(&s->mem_pending, 0);
		ARB_LEDGER_STORE(own, s, base, ARB_LEDGER_LOAD(own, s, total));
		ARB_LEDGER_STORE(own, s, wall_base, ARB_LEDGER_LOAD(own, s, wall_total));
		acct.attached[slot / 64] |= bit;
		acct.parity[slot / 64] &= ~bit;
		if (account_publish(seg, a, ARB_HOME, &acct))
			return 0;
	}
	return -EBUSY;
}

int arb_account_detach(struct arb_segment *seg, uint32_t a, uint32_t slot, uint64_t *freed)
{
	struct arb_slot *s = &seg->slots[slot];
	struct arb_ledger *own = arb_ledger_of(seg, slot);
	struct arb_account_snap acct;
	uint64_t bit = 1ull << (slot % 64);

	*freed = 0;
	for (int i = 0; i < ARB_TRIES; i++) {
		int r = account_load(seg, a, &acct);
		uint64_t mem;

		if (r < 0)
			return r;
		/* The dead client may have been the last to publish: then its buffer must not stay the head. */
		if (!(acct.attached[slot / 64] & bit) && publish_owner(acct.head) != slot)
			return 0;
		if (acct.attached[slot / 64] & bit) {
			mem = mem_of(seg, &acct, slot);
			acct.mem_used = acct.mem_used > mem ? acct.mem_used - mem : 0;
			acct.folded += ARB_LEDGER_LOAD(own, s, total) - ARB_LEDGER_LOAD(own, s, base);
			acct.wall_folded +=
				ARB_LEDGER_LOAD(own, s, wall_total) - ARB_LEDGER_LOAD(own, s, wall_base);
			acct.attached[slot / 64] &= ~bit;
			acct.parity[slot / 64] &= ~bit;
			*freed = mem;
			arb_store64(&s->mem_pending, 0);
		}
		arb_store64(&seg->accounts[a].used_at, arb_os_now_ns());
		if (account_publish(seg, a, ARB_HOME, &acct))
			return 0;
	}
	return -EBUSY;
}

int arb_account_repair(struct arb_segment *seg, uint32_t a)
{
	struct arb_account_snap s;

	for (int i = 0; i < ARB_TRIES; i++) {
		if (account_copy(seg, a, &s) && account_plausible(seg, &s)) {
			if (account_unchanged(seg, a, &s))
				return 0;
			continue;
		}
		/* Window 0 makes the next roll start afresh; members and their memory are what the slots say.
		 */
		s = (struct arb_account_snap){.head = s.head, .limit_ppm = ARB_PPM, .quota_ppm = ARB_PPM};
		for (uint32_t slot = 0; slot < seg->nslots; slot++)
			if (arb_load32(&seg->slots[slot].state) == ARB_SLOT_LIVE &&
				arb_load32(&seg->slots[slot].account) == a) {
				uint64_t mem = arb_load64(&seg->slots[slot].mem_now);

				s.attached[slot / 64] |= 1ull << (slot % 64);
				s.mem_used += arb_load64(&seg->slots[slot].mem[0]) == mem ? mem : 0;
				if (arb_load64(&seg->slots[slot].mem[0]) != mem) {
					s.parity[slot / 64] |= 1ull << (slot % 64);
					s.mem_used += arb_load64(&seg->slots[slot].mem[1]);
				}
			}
		if (account_publish(seg, a, ARB_HOME, &s))
			return 1;
	}
	return -EBUSY;
}

/* Before a client is refused, compares what is counted with what the members have. A client never leaves a
 * difference; garbage does, and nothing else would ever find it. Returns true if *s has been corrected. */
static bool recount(const struct arb_segment *seg, uint32_t a, struct arb_account_snap *s)
{
	uint64_t sum = 0;
	bool strangers = false;

	for (uint32_t i = arb_bits_next(s->attached, seg->nwords, 0); i != ARB_NONE;
		i = arb_bits_next(s->attached, seg->nwords, i + 1)) {
		/* A slot names its account before it is attached, and until it has been detached. */
		if (arb_load32(&seg->slots[i].account) == a) {
			sum += mem_of(seg, s, i);
			continue;
		}
		strangers = true;
		s->attached[i / 64] &= ~(1ull << (i % 64));
		s->parity[i / 64] &= ~(1ull << (i % 64));
	}
	if (!strangers && sum == s->mem_used)
		return false;
	s->mem_used = sum;
	return true;
}

static int count_mem(const struct arb_actor *me, uint32_t a, int64_t bytes, uint64_t quota, bool sure)
{
	struct arb_slot *slot = &me->seg->slots[me->slot];
	struct arb_ledger *own = arb_ledger_of(me->seg, me->slot);
	struct arb_account_snap s;
	uint64_t bit = 1ull << (me->slot % 64);

	for (int i = 0; i < ARB_TRIES; i++) {
		int r = account_load(me->seg, a, &s);
		bool odd = (s.parity[me->slot / 64] & bit) != 0;
		uint64_t mine = mem_of(me->seg, &s, me->slot);

		if (r < 0)
			return r;
		if (!(s.attached[me->slot / 64] & bit)) {
			if (account_unchanged(me->seg, a, &s))
				return -EBADMSG;
			continue;
		}
		if (bytes > 0 && ((quota && (s.mem_used > quota || (uint64_t)bytes > quota - s.mem_used)) ||
					 s.mem_used + (uint64_t)bytes < s.mem_used)) {
			if (recount(me->seg, a, &s)) {
				account_publish(me->seg, a, me->slot, &s);
				continue;
			}
			if (account_unchanged(me->seg, a, &s))
				return -ENOMEM;
			continue;
		}
		if (bytes < 0 && (mine < 0 - (uint64_t)bytes || s.mem_used < 0 - (uint64_t)bytes)) {
			if (account_unchanged(me->seg, a, &s))
				return -EINVAL;
			continue;
		}
		/* A torn copy may have the wrong parity, if its buffer has gone to another account meanwhile:
		 * then the word that counts would be overwritten. One clean look is enough, because nobody
		 * else changes our parity. */
		if (!account_unchanged(me->seg, a, &s))
			continue;
		arb_fence_release();
		arb_store64(&slot->mem[!odd], mine + (uint64_t)bytes);
		s.mem_used += (uint64_t)bytes;
		if (sure && s.mem_used > s.mem_peak)
			s.mem_peak = s.mem_used;
		s.parity[me->slot / 64] ^= bit;
		if (account_publish(me->seg, a, me->slot, &s)) {
			if (own)
				own->mem = mine + (uint64_t)bytes;
			arb_store64(&slot->mem_now, mine + (uint64_t)bytes);
			return 0;
		}
	}
	return -EBUSY;
}

int arb_account_mem(const struct arb_actor *me, uint32_t a, int64_t bytes, uint64_t quota)
{
	return count_mem(me, a, bytes, quota, true);
}

int arb_account_mem_most(const struct arb_actor *me, uint32_t a, uint64_t bytes, uint64_t quota)
{
	return count_mem(me, a, (int64_t)bytes, quota, false);
}

bool arb_account_active(struct arb_segment *seg, uint32_t a, uint64_t window)
{
	arb_u64 *word = &seg->accounts[a].active_window;
	uint64_t last = arb_load64(word);

	if (last == window + 1)
		return false;
	arb_store64(word, window + 1);
	return last < window;
}

uint64_t arb_account_sum(const struct arb_segment *seg, uint64_t window, uint32_t without)
{
	uint32_t high = arb_load32_acquire(&seg->header->accounts_high);
	const struct arb_account *accounts = seg->accounts;
	uint64_t sum = 0;

	if (high > seg->naccounts)
		high = seg->naccounts;
	for (uint32_t a = 0; a < high; a++) {
		uint32_t limit;

		/* Active means: in `window` - 1 up to `window` + 1. For earlier windows the difference is a large
		 * number. */
		if (arb_load64(&accounts[a].active_window) - window > 2 || a == without)
			continue;
		limit = arb_load32(&accounts[a].limit_ppm);
		sum += limit < ARB_PPM ? limit : 0;
	}
	return sum;
}

bool arb_account_share(const struct arb_segment *seg, uint32_t a, uint64_t window, struct arb_share *s)
{
	const struct arb_account *acct = &seg->accounts[a];
	uint64_t last = arb_load64(&acct->active_window);

	*s = (struct arb_share){
		arb_load32(&acct->request_ppm), arb_load32(&acct->limit_ppm), arb_load32(&acct->weight), 0};
	if (s->request_ppm > ARB_PPM)
		s->request_ppm = 0;
	if (s->limit_ppm > ARB_PPM)
		s->limit_ppm = ARB_PPM;
	if (s->weight > ARB_SHARE_WEIGHT_MOST || !s->weight)
		s->weight = ARB_SHARE_WEIGHT;
	return last >= window && last <= window + 2;
}

unsigned arb_account_shares(const struct arb_segment *seg, uint64_t window, uint32_t without,
	struct arb_share *list, unsigned most)
{
	uint32_t high = arb_load32_acquire(&seg->header->accounts_high);
	unsigned n = 0;

	if (high > seg->naccounts)
		high = seg->naccounts;
	for (uint32_t a = 0; a < high; a++) {
		struct arb_share s;

		if (a == without || !arb_account_share(seg, a, window, &s))
			continue;
		if (n < most) {
			list[n++] = s;
			continue;
		}
		list[n - 1].request_ppm += s.request_ppm;
		list[n - 1].limit_ppm += s.limit_ppm;
		list[n - 1].weight += s.weight;
	}
	return n;
}

/* Does a member of the account run or wait, so that the account that asks must heed it? */
static bool wants(const struct arb_segment *seg, const struct arb_snap *run, const struct arb_account_snap *s,
	const struct arb_wanting *who)
{
	uint64_t members[ARB_WORDS];

	for (uint32_t w = 0; w < run->words; w++)
		members[w] = s->attached[w] & (run->running[w] | run->waiting[w]);
	for (uint32_t i = arb_bits_next(members, run->words, 0); i != ARB_NONE;
		i = arb_bits_next(members, run->words, i + 1)) {
		uint32_t level;

		if (!who->shares && !who->level)
			return true;
		level = arb_running_level(seg, i);
		if (!(level & ARB_LEVEL_IN_REQUEST) && level < (who->level & ~ARB_LEVEL_IN_REQUEST))
			continue;
		/* An account whose members are stopped lends what it has. */
		if (!who->shares || who->now_ns - arb_running_heard(seg, i, who->now_ns) < 2 * ARB_HEARD_NS)
			return true;
	}
	return false;
}

bool arb_account_others_short(
	const struct arb_segment *seg, const struct arb_snap *run, const struct arb_wanting *who)
{
	uint32_t high = arb_load32_acquire(&seg->header->accounts_high);
	struct arb_account_snap s;
	uint64_t usage;

	if (high > seg->naccounts)
		high = seg->naccounts;
	for (uint32_t a = 0; a < high; a++) {
		if (a == who->account || arb_load64(&seg->accounts[a].active_window) < run->win_number ||
			(!who->shares && arb_load32(&seg->accounts[a].limit_ppm) >= ARB_PPM) ||
			account_load(seg, a, &s) < 0)
			continue;
		if (!wants(seg, run, &s, who))
			continue;
		usage = arb_account_usage(seg, run, &s, s.wall, false);
		/* An account that has not rolled yet has not used any of its new quota. */
		if (s.window < run->win_number || arb_policy_before(usage, s.cap))
			return true;
		if (arb_account_debt(&s, usage) < who->debt &&
			(s.limit_ppm >= ARB_PPM || arb_policy_before(usage, s.hard)))
			return true;
	}
	return false;
}

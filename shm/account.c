#include "account.h"

#include <errno.h>
#include <string.h>

#include "atomic.h"
#include "os.h"
#include "policy.h"
#include "text.h"

#define TRIES 1000000
/* A day of GPU time beyond the quota was not used by a client: garbage was billed. */
#define DEBT_TICKS_MAX (86400ull * 1000000000u * ARB_TICKS_PER_NS)

static inline uint32_t index_of(uint64_t head)
{
	return (uint32_t)(head >> ARB_HEAD_BUFFER_BITS) & ((1u << ARB_HEAD_INDEX_BITS) - 1);
}

static inline struct arb_account_record *record_of(const struct arb_segment *seg, uint32_t a, uint64_t head)
{
	struct arb_slot *slot;

	if (index_of(head) == ARB_HOME)
		return &seg->accounts[a].home[head & 1];
	slot = arb_segment_slot(seg, index_of(head));
	return slot ? &slot->account_record[head & 1] : NULL;
}

static inline bool copy_in(const struct arb_segment *seg, uint32_t a, struct arb_account_snap *s)
{
	const struct arb_account_record *r;
	uint64_t quota;

	s->head = arb_load64_acquire(&seg->accounts[a].head); /* pairs ACCOUNT_PUBLISH */
	r = record_of(seg, a, s->head);
	if (!r)
		return false;
	s->folded = arb_load64(&r->folded);
	s->wall_folded = arb_load64(&r->wall_folded);
	s->cap = arb_load64(&r->cap);
	s->hard = arb_load64(&r->hard);
	s->window = arb_load64(&r->window);
	quota = arb_load64(&r->quota);
	s->quota_ppm = (uint32_t)quota;
	s->limit_ppm = (uint32_t)(quota >> 32);
	s->start = arb_load64(&r->start);
	s->wall = arb_load64(&r->wall);
	s->borrowed = arb_load64(&r->borrowed);
	s->mem_used = arb_load64(&r->mem_used);
	s->mem_peak = arb_load64(&r->mem_peak);
	for (uint32_t w = 0; w < seg->nwords; w++) {
		s->attached[w] = arb_load64(&r->attached[w]);
		s->parity[w] = arb_load64(&r->parity[w]);
	}
	return true;
}

static inline bool plausible(const struct arb_segment *seg, const struct arb_account_snap *s)
{
	return s->limit_ppm <= ARB_PPM && s->quota_ppm <= s->limit_ppm && s->wall <= 1 &&
	       !(s->attached[seg->nwords - 1] & seg->beyond);
}

static inline bool unchanged(const struct arb_segment *seg, uint32_t a, const struct arb_account_snap *s)
{
	arb_fence_acquire(); /* pairs SNAPSHOT_REUSE */
	return arb_load64(&seg->accounts[a].head) == s->head;
}

/* For those who will CAS: no second look at the head. */
static inline int load(const struct arb_segment *seg, uint32_t a, struct arb_account_snap *s)
{
	for (int i = 0; __builtin_expect(!copy_in(seg, a, s) || !plausible(seg, s), 0); i++)
		if (unchanged(seg, a, s) || i == TRIES)
			return -EBADMSG;
	return 0;
}

int arb_account_read(const struct arb_segment *seg, uint32_t a, struct arb_account_snap *s)
{
	if (!arb_segment_account(seg, a))
		return -EBADMSG;
	for (int i = 0; i < TRIES; i++) {
		bool good = copy_in(seg, a, s) && plausible(seg, s);

		if (unchanged(seg, a, s))
			return good ? 0 : -EBADMSG;
		arb_pause();
	}
	return -EBUSY;
}

/* `owner` is the slot whose buffers are used, or ARB_HOME. */
static bool publish(struct arb_segment *seg, uint32_t a, uint32_t owner, struct arb_account_snap *s)
{
	uint32_t own = owner << ARB_HEAD_BUFFER_BITS;
	uint32_t where = ((uint32_t)s->head & ((1u << ARB_HEAD_SEQ_SHIFT) - 1)) == own ? own | 1 : own;
	uint64_t next = (((s->head >> ARB_HEAD_SEQ_SHIFT) + 1) << ARB_HEAD_SEQ_SHIFT) | where;
	struct arb_account_record *r = record_of(seg, a, where);

	arb_fence_release(); /* SNAPSHOT_REUSE */
	arb_store64(&r->folded, s->folded);
	arb_store64(&r->wall_folded, s->wall_folded);
	arb_store64(&r->cap, s->cap);
	arb_store64(&r->hard, s->hard);
	arb_store64(&r->window, s->window);
	arb_store64(&r->quota, s->quota_ppm | (uint64_t)s->limit_ppm << 32);
	arb_store64(&r->start, s->start);
	arb_store64(&r->wall, s->wall);
	arb_store64(&r->borrowed, s->borrowed);
	arb_store64(&r->mem_used, s->mem_used);
	arb_store64(&r->mem_peak, s->mem_peak);
	for (uint32_t w = 0; w < seg->nwords; w++) {
		arb_store64(&r->attached[w], s->attached[w]);
		arb_store64(&r->parity[w], s->parity[w]);
	}
	if (!arb_cas64_full(&seg->accounts[a].head, s->head, next)) /* ACCOUNT_PUBLISH */
		return false;
	s->head = next;
	return true;
}

void arb_asked_add(struct arb_asked *asked, const struct arb_slot *slot)
{
	uint32_t ppm = arb_load32(&slot->asked_ppm);
	uint64_t mem = arb_load64(&slot->asked_mem);

	if (ppm >= ARB_PPM / 100 && ppm < ARB_PPM && (!asked->ppm || ppm < asked->ppm))
		asked->ppm = ppm;
	if (mem && (!asked->mem || mem < asked->mem))
		asked->mem = mem;
}

struct arb_asked arb_account_asked(const struct arb_segment *seg, uint32_t a)
{
	struct arb_asked asked = {0};
	struct arb_account_snap s;

	if (arb_account_read(seg, a, &s) == 0)
		for (uint32_t i = arb_bits_next(s.attached, seg->nwords, 0); i != ARB_NONE;
			i = arb_bits_next(s.attached, seg->nwords, i + 1))
			arb_asked_add(&asked, &seg->slots[i]);
	return asked;
}

uint64_t arb_account_usage(const struct arb_segment *seg, const struct arb_snap *run,
	const struct arb_account_snap *acct, bool wall, bool at_start)
{
	uint64_t sum = wall ? acct->wall_folded : acct->folded;

	for (uint32_t i = arb_bits_next(acct->attached, seg->nwords, 0); i != ARB_NONE;
		i = arb_bits_next(acct->attached, seg->nwords, i + 1))
		if (wall)
			sum += arb_running_wall_at(seg, run, i, at_start ? run->win_busy : run->busy) -
			       arb_load64(&seg->slots[i].wall_base);
		else
			sum += arb_running_usage_at(seg, run, i, at_start ? run->win_v : run->v) -
			       arb_load64(&seg->slots[i].base);
	return sum;
}

/* Nobody attached, and what it owed, if it can owe, has been paid by the time that went by. */
static bool lapsed(const struct arb_segment *seg, uint32_t a, uint64_t window, unsigned carryover_pct)
{
	struct arb_account_snap s;
	uint64_t usage, grant, windows;

	if (load(seg, a, &s) < 0)
		return true;
	if (arb_bits_count(s.attached, seg->nwords))
		return false;
	/* Without a limit there is nothing to owe: processes that come and go must not fill the table. */
	if (s.limit_ppm >= ARB_PPM)
		return true;
	if (window == 0 || window == s.window)
		return false;
	/* Nobody is attached who could have been ahead of us: windows are counted anew, or it is garbage. */
	if (s.window > window)
		return true;
	windows = window - s.window;
	usage = s.wall ? s.wall_folded : s.folded;
	/* The grant of the window it was last seen in, as good an estimate as any. */
	grant = s.cap - s.start;
	if ((int64_t)grant <= 0)
		grant = 1;
	return windows > 100000 ||
	       arb_policy_next_cap(usage, s.cap, grant, carryover_pct, windows) == usage + grant;
}

uint32_t arb_account_find(struct arb_segment *seg, const char *name, uint64_t window, unsigned carryover_pct)
{
	uint32_t high = arb_load32(&seg->header->accounts_high), best = ARB_NONE;
	uint64_t best_at = UINT64_MAX;
	struct arb_account *acct;
	struct arb_account_snap fresh;

	if (high > seg->naccounts)
		high = seg->naccounts;
	for (uint32_t a = 0; a < high; a++)
		if (arb_text_equals(seg->accounts[a].name, ARB_NAME_WORDS, name))
			return a;
	if (high < seg->naccounts) {
		best = high;
	} else {
		for (uint32_t a = 0; a < high; a++) {
			uint64_t at = arb_load64(&seg->accounts[a].used_at);

			if (at < best_at && lapsed(seg, a, window, carryover_pct)) {
				best = a;
				best_at = at;
			}
		}
		if (best == ARB_NONE)
			return ARB_NONE;
	}
	acct = &seg->accounts[best];
	/* Without a name first: whoever dies here leaves an entry that is nobody's. */
	arb_text_store(acct->name, ARB_NAME_WORDS, "");
	arb_add32_full(&acct->generation, 1);
	arb_store64(&acct->active_window, 0);
	arb_store32(&acct->limit_ppm, ARB_PPM);
	arb_store64(&acct->mem_limit, 0);
	memset(&fresh, 0, sizeof(fresh));
	fresh.limit_ppm = fresh.quota_ppm = ARB_PPM;
	do
		fresh.head = arb_load64_acquire(&acct->head);
	while (!publish(seg, best, ARB_HOME, &fresh));
	arb_fence_release();
	arb_text_store(acct->name, ARB_NAME_WORDS, name);
	if (best == high)
		arb_store32_release(&seg->header->accounts_high, high + 1);
	return best;
}

int arb_account_attach(struct arb_segment *seg, uint32_t a, uint32_t slot)
{
	struct arb_slot *s = &seg->slots[slot];
	struct arb_account_snap acct;
	uint64_t bit = 1ull << (slot % 64);

	for (int i = 0; i < TRIES; i++) {
		int r = load(seg, a, &acct);

		if (r < 0)
			return r;
		if (acct.attached[slot / 64] & bit)
			return 0;
		arb_fence_release();
		arb_store64(&s->mem[0], 0);
		arb_store64(&s->mem[1], 0);
		arb_store64(&s->mem_now, 0);
		arb_store64(&s->mem_passing, 0);
		arb_store64(&s->base, arb_load64(&s->total));
		arb_store64(&s->wall_base, arb_load64(&s->wall_total));
		acct.attached[slot / 64] |= bit;
		acct.parity[slot / 64] &= ~bit;
		if (publish(seg, a, ARB_HOME, &acct))
			return 0;
	}
	return -EBUSY;
}

static uint64_t mem_of(const struct arb_segment *seg, const struct arb_account_snap *acct, uint32_t slot)
{
	return arb_load64(&seg->slots[slot].mem[arb_bit_test(acct->parity, slot)]);
}

int arb_account_detach(struct arb_segment *seg, uint32_t a, uint32_t slot, uint64_t *freed)
{
	struct arb_slot *s = &seg->slots[slot];
	struct arb_account_snap acct;
	uint64_t bit = 1ull << (slot % 64);

	*freed = 0;
	for (int i = 0; i < TRIES; i++) {
		int r = load(seg, a, &acct);
		uint64_t mem;

		if (r < 0)
			return r;
		/* The dead one may have been the last to publish: then its buffer must not stay the head. */
		if (!(acct.attached[slot / 64] & bit) && index_of(acct.head) != slot)
			return 0;
		if (acct.attached[slot / 64] & bit) {
			mem = mem_of(seg, &acct, slot);
			acct.mem_used = acct.mem_used > mem ? acct.mem_used - mem : 0;
			acct.folded += arb_load64(&s->total) - arb_load64(&s->base);
			acct.wall_folded += arb_load64(&s->wall_total) - arb_load64(&s->wall_base);
			acct.attached[slot / 64] &= ~bit;
			acct.parity[slot / 64] &= ~bit;
			*freed = mem;
			arb_store64(&s->mem_passing, 0);
		}
		arb_store64(&seg->accounts[a].used_at, arb_os_now_ns());
		if (publish(seg, a, ARB_HOME, &acct))
			return 0;
	}
	return -EBUSY;
}

int arb_account_bound_debt(struct arb_segment *seg, uint32_t a)
{
	struct arb_account_snap s;
	struct arb_snap run;

	for (int i = 0; i < TRIES; i++) {
		int r = arb_running_read(seg, &run);
		uint64_t least;

		if (r == 0)
			r = load(seg, a, &s);
		if (r < 0)
			return r;
		least = arb_account_usage(seg, &run, &s, s.wall, false) - run.win_ticks;
		arb_fence_acquire(); /* pairs SNAPSHOT_REUSE: usage is that of one moment */
		if (arb_load64(&seg->header->head) != run.head)
			continue;
		if (s.limit_ppm >= ARB_PPM || !arb_policy_before(s.cap, least)) {
			if (unchanged(seg, a, &s))
				return 0;
			continue;
		}
		s.cap = least;
		if (arb_policy_before(s.hard, least))
			s.hard = least;
		if (publish(seg, a, ARB_HOME, &s))
			return 0;
	}
	return -EBUSY;
}

int arb_account_repair(struct arb_segment *seg, uint32_t a)
{
	struct arb_account_snap s;

	for (int i = 0; i < TRIES; i++) {
		if (copy_in(seg, a, &s) && plausible(seg, &s)) {
			if (unchanged(seg, a, &s))
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
		if (publish(seg, a, ARB_HOME, &s))
			return 1;
	}
	return -EBUSY;
}

/*
 * Another clock for the caps: what was left stays left. Only if no member has come or gone since the
 * snapshot: its words would belong to another one, and the account's own CAS does not see that. If so, at the
 * next roll.
 */
static void change_clock(
	const struct arb_segment *seg, const struct arb_snap *run, struct arb_account_snap *s, bool wall)
{
	uint64_t shift =
		arb_account_usage(seg, run, s, wall, false) - arb_account_usage(seg, run, s, !wall, false);

	arb_fence_acquire(); /* pairs SNAPSHOT_REUSE */
	if (arb_load64(&seg->header->head) != run->head)
		return;
	s->cap += shift;
	s->hard += shift;
	s->start += shift;
	s->wall = wall;
}

/* One that pauses keeps a place there, and waits for nobody. */
static bool in_queue(
	const struct arb_segment *seg, const struct arb_snap *run, const struct arb_account_snap *s)
{
	for (uint32_t i = arb_bits_next(run->waiting, run->words, 0); i != ARB_NONE;
		i = arb_bits_next(run->waiting, run->words, i + 1))
		if (arb_bit_test(s->attached, i) && arb_load64(&seg->slots[i].wait_since_ns))
			return true;
	return false;
}

static uint64_t next_cap(
	uint64_t usage, uint64_t cap, uint64_t grant, unsigned carryover_pct, uint64_t windows, bool queued)
{
	uint64_t next = arb_policy_next_cap(usage, cap, grant, carryover_pct, windows), saved;

	if (!queued)
		return next;
	saved = arb_policy_saved_cap(usage, cap, grant, windows);
	return arb_policy_before(next, saved) ? saved : next;
}

static void roll_to(const struct arb_segment *seg, const struct arb_snap *run, const struct arb_terms *terms,
	struct arb_account_snap *s)
{
	uint64_t windows = run->win_number - s->window;
	uint64_t usage = arb_account_usage(seg, run, s, s->wall, true);
	bool queued = in_queue(seg, run, s);

	/* Nobody can have run up such a debt; it would lock the account out for ever. */
	if ((int64_t)(usage - s->cap) > (int64_t)DEBT_TICKS_MAX)
		s->cap = usage;
	if ((int64_t)(usage - s->hard) > (int64_t)DEBT_TICKS_MAX)
		s->hard = usage;
	/* Without a limit there is nothing to owe, though members that pay in full use more than there is. */
	if (s->limit_ppm >= ARB_PPM)
		s->cap = s->hard = usage;
	/* Whoever was away for a whole window, or is new, comes on today's terms, with a full quota. */
	if (windows > 1 || s->window == 0) {
		s->quota_ppm = terms->quota_ppm;
		s->limit_ppm = terms->limit_ppm;
	}
	s->cap = next_cap(usage, s->cap, arb_policy_grant(s->quota_ppm, run->win_ticks), terms->carryover_pct,
		windows, queued);
	s->hard = next_cap(usage, s->hard, arb_policy_grant(s->limit_ppm, run->win_ticks),
		terms->carryover_pct, windows, queued);
	s->start = usage;
	s->window = run->win_number;
}

int arb_account_roll(const struct arb_actor *me, uint32_t a, const struct arb_snap *run,
	const struct arb_terms *terms, uint64_t now, struct arb_account_snap *s)
{
	struct arb_segment *seg = me->seg;
	uint64_t end = run->win_start + run->win_ticks;
	uint64_t left = (int64_t)(end - now) > 0 ? end - now : 0;

	for (int i = 0; i < TRIES; i++) {
		int r = load(seg, a, s);

		if (r < 0)
			return r;
		/* Somebody is ahead of this snapshot: it has been done, by a later one. With no later one,
		 * this window is garbage (or the snapshot was, and its windows are counted anew): back to the
		 * snapshot's. */
		if (s->window > run->win_number && arb_load64(&seg->header->head) != run->head)
			return 0;
		if (s->window == run->win_number && s->limit_ppm == terms->limit_ppm &&
			s->quota_ppm == terms->quota_ppm && s->wall == terms->wall) {
			if (unchanged(seg, a, s))
				return 0;
			continue;
		}
		if (s->window != run->win_number)
			roll_to(seg, run, terms, s);
		if (left > run->win_ticks)
			left = run->win_ticks;
		s->cap = arb_policy_move_cap(s->cap, s->quota_ppm, terms->quota_ppm, left);
		s->hard = arb_policy_move_cap(s->hard, s->limit_ppm, terms->limit_ppm, left);
		s->quota_ppm = terms->quota_ppm;
		s->limit_ppm = terms->limit_ppm;
		if (s->wall != terms->wall)
			change_clock(seg, run, s, terms->wall);
		if (publish(seg, a, me->slot, s)) {
			arb_store32(&seg->accounts[a].limit_ppm, terms->limit_ppm);
			return 0;
		}
	}
	return -EBUSY;
}

int arb_account_extend(
	const struct arb_actor *me, uint32_t a, uint64_t to, bool borrow, struct arb_account_snap *s)
{
	for (int i = 0; i < TRIES; i++) {
		uint64_t until = to;
		int r = load(me->seg, a, s);

		if (r < 0)
			return r;
		if (!borrow && arb_policy_before(s->hard, until))
			until = s->hard;
		if (!arb_policy_before(s->cap, until)) {
			if (unchanged(me->seg, a, s))
				return 0;
			continue;
		}
		s->borrowed += until - s->cap;
		s->cap = until;
		if (borrow && arb_policy_before(s->hard, until))
			s->hard = until;
		if (publish(me->seg, a, me->slot, s))
			return 0;
	}
	return -EBUSY;
}

/*
 * Before anybody is refused: is what is counted what the members have? A client never leaves a difference;
 * garbage does, and nobody else would ever find it. True: *s has been corrected.
 */
static bool recount(const struct arb_segment *seg, uint32_t a, struct arb_account_snap *s)
{
	uint64_t sum = 0;
	bool strangers = false;

	for (uint32_t i = arb_bits_next(s->attached, seg->nwords, 0); i != ARB_NONE;
		i = arb_bits_next(s->attached, seg->nwords, i + 1)) {
		/* Said before attaching and taken back after detaching. */
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
	struct arb_account_snap s;
	uint64_t bit = 1ull << (me->slot % 64);

	for (int i = 0; i < TRIES; i++) {
		int r = load(me->seg, a, &s);
		bool odd = (s.parity[me->slot / 64] & bit) != 0;
		uint64_t mine = arb_load64(&slot->mem[odd]);

		if (r < 0)
			return r;
		if (!(s.attached[me->slot / 64] & bit)) {
			if (unchanged(me->seg, a, &s))
				return -EBADMSG;
			continue;
		}
		if (bytes > 0 && ((quota && (s.mem_used > quota || (uint64_t)bytes > quota - s.mem_used)) ||
					 s.mem_used + (uint64_t)bytes < s.mem_used)) {
			if (recount(me->seg, a, &s)) {
				publish(me->seg, a, me->slot, &s);
				continue;
			}
			if (unchanged(me->seg, a, &s))
				return -ENOMEM;
			continue;
		}
		if (bytes < 0 && (mine < 0 - (uint64_t)bytes || s.mem_used < 0 - (uint64_t)bytes)) {
			if (unchanged(me->seg, a, &s))
				return -EINVAL;
			continue;
		}
		/* A torn copy may have the wrong parity, if its buffer has gone to another account meanwhile:
		 * then the word that counts would be overwritten. One clean look is enough, because nobody
		 * else changes our parity. */
		if (!unchanged(me->seg, a, &s))
			continue;
		arb_fence_release();
		arb_store64(&slot->mem[!odd], mine + (uint64_t)bytes);
		s.mem_used += (uint64_t)bytes;
		if (sure && s.mem_used > s.mem_peak)
			s.mem_peak = s.mem_used;
		s.parity[me->slot / 64] ^= bit;
		if (publish(me->seg, a, me->slot, &s)) {
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
	uint64_t sum = 0;

	if (high > seg->naccounts)
		high = seg->naccounts;
	for (uint32_t a = 0; a < high; a++) {
		uint64_t last = arb_load64(&seg->accounts[a].active_window);
		uint32_t limit = arb_load32(&seg->accounts[a].limit_ppm);

		if (a != without && last >= window && last <= window + 2 && limit < ARB_PPM)
			sum += limit;
	}
	return sum;
}

bool arb_account_others_short(const struct arb_segment *seg, const struct arb_snap *run, uint32_t me)
{
	uint32_t high = arb_load32_acquire(&seg->header->accounts_high);
	struct arb_account_snap s;

	if (high > seg->naccounts)
		high = seg->naccounts;
	for (uint32_t a = 0; a < high; a++) {
		bool wants = false;

		if (a == me || arb_load64(&seg->accounts[a].active_window) < run->win_number ||
			arb_load32(&seg->accounts[a].limit_ppm) >= ARB_PPM || load(seg, a, &s) < 0)
			continue;
		for (uint32_t w = 0; w < run->words; w++)
			wants |= (s.attached[w] & (run->running[w] | run->waiting[w])) != 0;
		/* One that has not rolled yet has a whole new quota before it. */
		if (wants &&
			(s.window < run->win_number ||
				arb_policy_before(arb_account_usage(seg, run, &s, s.wall, false), s.cap)))
			return true;
	}
	return false;
}

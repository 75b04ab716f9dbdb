/* Another process overwrites words of a client. The client goes by what it knows, restores them and reports it. */
#include "test/unit/unit_clients.h"

#include "shm/segment/account_record.h"
#include "shm/segment/events.h"
#include "shm/base/text.h"
#include "shm/segment/snapshot.h"

#define HOUR (3600000 * U_MS)

static struct gpuarb_client *one, *other;

static void open_two(void)
{
	u_begin(NULL);
	one = u_client("one", 30);
	other = u_client("other", 40);
	u_set("grace_ms", "600000");
}

static void close_two(void)
{
	gpuarb_client_close(one);
	gpuarb_client_close(other);
	u_end();
}

TestSuite(restore, .init = open_two, .fini = close_two);

static struct arb_slot *slot_of(struct gpuarb_client *c)
{
	return &c->seg.slots[c->me.slot];
}

static struct arb_account_record *record_of(struct gpuarb_client *c)
{
	return account_record_of(&c->seg, c->account, arb_load64(&c->seg.accounts[c->account].head));
}

static void add(arb_u64 *word, uint64_t by)
{
	arb_store64(word, arb_load64(word) + by);
}

static void tick_after(struct gpuarb_client *c, unsigned ms)
{
	int r;

	u_clock_ns += ms * 1000000ull;
	r = gpuarb_client_tick(c);
	cr_assert(r == 0 || r == -EDQUOT, "%d", r);
}

/* Whether one event reports all of `what` as found overwritten. */
static bool said(struct gpuarb_client *c, uint32_t what)
{
	struct arb_event_copy e;
	uint64_t position, end;

	arb_events_range(&c->seg, &position, &end);
	for (; position < end; position++)
		if (arb_events_read(&c->seg, position, &e) == 0 && e.kind == ARB_EVENT_RESTORED &&
			e.slot == c->me.slot && (e.why & what) == what)
			return true;
	return false;
}

static struct gpuarb_client_status status_of(struct gpuarb_client *c)
{
	struct gpuarb_client_status status;

	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	return status;
}

static void nothing_is_wrong(void)
{
	cr_assert_eq(arb_check(&one->seg, t_say, NULL), 0);
}

Test(restore, a_bill_is_what_its_owner_wrote)
{
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	u_clock_ns += 10 * MS;
	add(&slot_of(one)->acc, HOUR);
	add(&slot_of(one)->total, HOUR);
	add(&slot_of(one)->base, 0 - HOUR);
	cr_assert_eq(status_of(one).total_ns, 10 * MS, "at once, whatever the word says");
	tick_after(one, 100);
	cr_assert_eq(status_of(one).total_ns, 110 * MS);
	cr_assert(said(one, ARB_RESTORED_BILL));
	cr_assert_eq(one->restoring.times, 1);
	cr_assert_eq(arb_load32(&slot_of(one)->restored), 1);
	cr_assert_eq(gpuarb_client_leave(one, 0), 0);
	nothing_is_wrong();
}

Test(restore, the_weight_of_a_running_client_is_what_it_entered_with)
{
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	arb_store64(&slot_of(one)->weight, 1);
	u_clock_ns += 10 * MS;
	cr_assert_eq(gpuarb_client_leave(one, 0), 0);
	cr_assert_eq(status_of(one).total_ns, 10 * MS);
	tick_after(one, 100);
	nothing_is_wrong();
}

Test(restore, a_limit_is_what_its_owner_asks_for)
{
	arb_store32(&slot_of(one)->asked_ppm, 10000);
	arb_add32_full(&one->seg.header->epoch, 1);
	cr_assert_eq(status_of(one).core_pct, 30);
	arb_store32(&slot_of(one)->asked_ppm, 0);
	arb_add32_full(&one->seg.header->epoch, 1);
	cr_assert_eq(status_of(one).core_pct, 30, "never unlimited");
	tick_after(one, 100);
	cr_assert_eq(arb_load32(&slot_of(one)->asked_ppm), 300000);
	cr_assert(said(one, ARB_RESTORED_ASKED));
}

Test(restore, of_the_members_of_an_account_the_strictest_counts_again)
{
	struct gpuarb_client *strict = u_client("other", 20);

	cr_assert_eq(status_of(other).core_pct, 20);
	arb_store32(&slot_of(strict)->asked_ppm, 0);
	arb_add32_full(&one->seg.header->epoch, 1);
	cr_assert_eq(status_of(other).core_pct, 40, "about other members it believes their words");
	tick_after(strict, 100);
	cr_assert_eq(status_of(other).core_pct, 20);
	cr_assert_eq(status_of(strict).core_pct, 20);
	gpuarb_client_close(strict);
}

Test(restore, the_record_of_an_account_does_not_change_while_it_is_the_head)
{
	struct arb_account_record *r = record_of(one);
	uint64_t cap = arb_load64(&r->cap);

	add(&r->cap, 0 - HOUR);
	add(&r->hard, 0 - HOUR);
	add(&r->folded, HOUR);
	arb_store64(&r->mem_used, 1ull << 40);
	cr_assert_eq(status_of(one).debt_ns, 0);
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0, "it has its quota");
	cr_assert_eq(gpuarb_client_leave(one, 0), 0);
	u_clock_ns += 1;
	one->restoring.looked_ns = 0;
	cr_assert_eq(gpuarb_client_tick(one), 0);
	cr_assert_eq(arb_load64(&record_of(one)->cap), cap);
	cr_assert_eq(arb_load64(&record_of(one)->folded), 0);
	cr_assert(said(one, ARB_RESTORED_RECORD));
	nothing_is_wrong();
}

Test(restore, a_member_stays_attached)
{
	struct arb_account_record *r = record_of(one);

	cr_assert_eq(gpuarb_client_mem_reserve(one, 5000), 0);
	for (unsigned w = 0; w < ARB_WORDS; w++)
		arb_store64(&record_of(one)->attached[w], 0);
	cr_assert_eq(status_of(one).core_pct, 30);
	tick_after(one, 100);
	r = record_of(one);
	cr_assert(arb_load64(&r->attached[0]) >> one->me.slot & 1);
	cr_assert_eq(arb_load64(&r->mem_used), 5000);
	nothing_is_wrong();
}

Test(restore, a_later_record_that_has_lost_a_member_gets_it_back)
{
	struct arb_account_snap s;

	cr_assert_eq(gpuarb_client_mem_reserve(one, 5000), 0);
	/* Another member has published a record that follows the overwritten words. */
	cr_assert(account_copy_raw(&other->seg, one->account, &s));
	s.attached[0] = 0;
	s.mem_used = 0;
	cr_assert(account_publish(&other->seg, one->account, ARB_HOME, &s));
	tick_after(one, 100);
	cr_assert(arb_load64(&record_of(one)->attached[0]) >> one->me.slot & 1);
	cr_assert_eq(arb_load64(&record_of(one)->mem_used), 5000);
	cr_assert(said(one, ARB_RESTORED_RECORD));
	nothing_is_wrong();
}

Test(restore, the_heads_of_an_account_never_go_back)
{
	arb_store64(&one->seg.accounts[one->account].head, 0);
	tick_after(one, 100);
	cr_assert_eq(status_of(one).core_pct, 30);
	cr_assert(said(one, ARB_RESTORED_RECORD));
	nothing_is_wrong();
}

Test(restore, owner_and_name_of_slot_and_entry_are_restored)
{
	struct arb_account *entry = &one->seg.accounts[one->account];
	uint64_t owner = arb_load64(&entry->owner);

	arb_store32(&slot_of(one)->state, ARB_SLOT_FREE);
	arb_store32(&slot_of(one)->account, 7);
	arb_store64(&entry->owner, owner + 1);
	arb_text_store(entry->name, ARB_NAME_WORDS, "stolen");
	arb_store32(&one->seg.header->accounts_high, 0);
	tick_after(one, 100);
	cr_assert_eq(arb_load64(&entry->owner), owner);
	cr_assert(arb_text_equals(entry->name, ARB_NAME_WORDS, "one"));
	cr_assert_gt(arb_load32(&one->seg.header->accounts_high), one->account);
	cr_assert(said(one, ARB_RESTORED_SLOT | ARB_RESTORED_ENTRY));
	nothing_is_wrong();
}

static struct arb_record *set(void)
{
	return snap_record_of(&one->seg, arb_load64(&one->seg.header->head));
}

Test(restore, a_client_that_another_took_out_of_the_set_still_pays)
{
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	arb_store64(&set()->running[0], 0);
	arb_store64(&set()->shape, arb_load64(&set()->shape) & ~((1ull << ARB_SHAPE_WEIGHT_BITS) - 1));
	u_clock_ns += 10 * MS;
	cr_assert_eq(gpuarb_client_leave(one, 0), 0);
	cr_assert_eq(status_of(one).total_ns, 10 * MS);
	cr_assert(said(one, ARB_RESTORED_PLACE));
}

/* It gave a sign of life before it entered and every 4 ms since, and an eviction needs a silence of 10 ms. */
Test(restore, a_client_that_was_not_silent_was_not_evicted)
{
	uint64_t bit = 1ull << one->me.slot;

	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(other, NULL), 0);
	tick_after(one, 4);
	arb_store64(&set()->running[0], arb_load64(&set()->running[0]) & ~bit);
	arb_store64(&set()->evicted[0], bit);
	arb_store64(&set()->shape, (arb_load64(&set()->shape) | ARB_SHAPE_EVICTED) - ARB_WEIGHT_ONE);
	arb_store64(&slot_of(one)->evicted_v, arb_load64(&set()->v));
	tick_after(one, 4);
	cr_assert_eq(status_of(one).total_ns, 4 * MS, "its half of 8 ms");
	cr_assert(said(one, ARB_RESTORED_PLACE));
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	cr_assert(status_of(one).running);
}

/* Its thread had read the clock, and was stopped before it read the record. */
Test(restore, a_client_that_was_stopped_on_its_way_to_the_record_was_evicted)
{
	struct arb_move *move;
	struct arb_snap snap;

	u_set("grace_ms", "20");
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(other, NULL), 0);
	tick_after(other, 1);
	tick_after(one, 1);
	move = arb_client_move(one, 0);
	for (int i = 0; i < 20; i++)
		tick_after(other, 3);
	cr_assert_eq(arb_load64(&slot_of(one)->evictions), 1);
	cr_assert_eq(arb_running_roll(&one->me, move, &snap), 0);
	cr_assert_not(one->ledger.impossible);
	tick_after(one, 0);
	nothing_is_wrong();
}

/* Neither by itself, because it seems to have been stopped, nor by others. */
Test(restore, an_old_sign_of_life_evicts_nobody)
{
	u_set("grace_ms", "50");
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(other, NULL), 0);
	for (int i = 0; i < 20; i++) {
		tick_after(one, 3);
		tick_after(other, 3);
		arb_store64(&slot_of(one)->heartbeat_ns, 1);
		tick_after(other, 3);
		cr_assert(status_of(one).running, "%d", i);
	}
	cr_assert_eq(arb_load64(&slot_of(one)->evictions), 0);
	nothing_is_wrong();
}

Test(restore, no_client_is_put_into_the_set_by_another)
{
	uint64_t shape = arb_load64(&set()->shape);

	arb_store64(&set()->running[0], 1ull << one->me.slot);
	arb_store64(&set()->shape, shape | ARB_WEIGHT_ONE);
	tick_after(one, 10);
	cr_assert_eq(status_of(one).total_ns, 0);
	cr_assert_not(status_of(one).running);
	nothing_is_wrong();
}

Test(restore, a_clock_that_jumps_bills_nobody)
{
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	u_clock_ns += 10 * MS;
	add(&set()->v, HOUR / ARB_WEIGHT_ONE);
	tick_after(one, 0);
	tick_after(one, 1);
	cr_assert_leq(status_of(one).total_ns, 11 * MS);
	cr_assert(said(one, ARB_RESTORED_CLOCKS));
}

Test(restore, a_time_in_the_future_is_corrected)
{
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	add(&set()->t, 50000 * U_MS);
	add(&set()->win_start, 50000 * U_MS);
	tick_after(one, 1);
	tick_after(one, 1);
	tick_after(one, 8);
	cr_assert_geq(status_of(one).total_ns, 9 * MS, "it is billed nevertheless");
	nothing_is_wrong();
}

Test(restore, a_window_that_was_made_longer_is_the_old_one_again)
{
	struct arb_snap s;

	tick_after(one, 0);
	arb_store64(&set()->shape,
		(arb_load64(&set()->shape) & 0xff000000ffffffff) | 3600000ull << ARB_SHAPE_WIN_SHIFT);
	tick_after(one, 1);
	cr_assert_eq(arb_running_read(&one->seg, &s), 0);
	cr_assert_eq(s.win_ms, 100);
	nothing_is_wrong();
}

Test(restore, members_that_do_not_exist_are_removed_and_share_no_bill)
{
	cr_assert_eq(gpuarb_client_enter(one, NULL), 0);
	arb_store64(&set()->running[0], arb_load64(&set()->running[0]) | 0xff00);
	arb_store64(&set()->shape, arb_load64(&set()->shape) + 8 * ARB_WEIGHT_ONE);
	for (unsigned i = 8; i < 16; i++) {
		arb_store64(&one->seg.slots[i].weight, ARB_WEIGHT_ONE);
		arb_store64(&one->seg.slots[i].heartbeat_ns, u_clock_ns);
	}
	tick_after(one, 9);
	cr_assert_eq(gpuarb_client_leave(one, 0), 0);
	cr_assert_eq(status_of(one).total_ns, 9 * MS);
	nothing_is_wrong();
}

Test(restore, nothing_is_reported_where_nothing_was_overwritten)
{
	for (unsigned i = 0; i < 200; i++) {
		struct gpuarb_client *c = i % 3 ? one : other;

		if (gpuarb_client_enter(c, NULL) == 0 && i % 5)
			gpuarb_client_leave(c, i % 7 ? 0 : u_clock_ns - MS);
		gpuarb_client_mem_reserve(c, 1000);
		tick_after(c, i % 40);
		if (i % 4)
			gpuarb_client_mem_release(c, 500);
	}
	cr_assert_eq(one->restoring.times, 0);
	cr_assert_eq(other->restoring.times, 0);
	nothing_is_wrong();
}

Test(restore, an_entry_with_a_name_is_given_to_nobody_else)
{
	struct gpuarb_client *third;

	arb_store32(&one->seg.header->accounts_high, 0);
	third = u_client("third", 0);
	cr_assert_neq(third->account, one->account);
	cr_assert_neq(third->account, other->account);
	tick_after(one, 200);
	cr_assert_eq(one->quota.terms.limit_ppm, 300000);
	nothing_is_wrong();
	gpuarb_client_close(third);
}

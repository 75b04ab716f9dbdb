/* Accounts that nobody uses: what somebody wrote over them is put right by whoever comes, or by a watchdog. */
#include "test/unit/unit_clients.h"

#include "shm/base/text.h"
#include "shm/segment/account_record.h"
#include "shm/segment/audit.h"
#include "shm/segment/events.h"

#define HOUR (3600000 * U_MS)

static struct gpuarb_client *neighbour;
static struct gpuarb_books *books;

static void begin(void)
{
	u_begin(NULL);
	neighbour = u_client("neighbour", 40);
	books = gpuarb_control_books();
}

static void end(void)
{
	gpuarb_control_books_free(books);
	gpuarb_client_close(neighbour);
	u_end();
}

TestSuite(audit, .init = begin, .fini = end);

static void use(struct gpuarb_client *c, unsigned ms)
{
	cr_assert_eq(gpuarb_client_wait(c, NULL, 1000 * MS), 0);
	u_clock_ns += ms * 1000000ull;
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
}

/* The account's entry, after a member has used the GPU for 10 ms and left. */
static uint32_t left_by(const char *name)
{
	struct gpuarb_client *c = u_client(name, 30);
	uint32_t a = c->account;

	use(neighbour, 20);
	use(c, 10);
	gpuarb_client_close(c);
	return a;
}

static struct arb_account_record *record_of(uint32_t a)
{
	return account_record_of(&neighbour->seg, a, arb_load64(&neighbour->seg.accounts[a].head));
}

static void add(arb_u64 *word, uint64_t by)
{
	arb_store64(word, arb_load64(word) + by);
}

static uint64_t debt_of(const char *name)
{
	struct gpuarb_client *c = u_client(name, 30);
	struct gpuarb_client_status status;

	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	gpuarb_client_close(c);
	return status.debt_ns;
}

static int found(void)
{
	struct gpuarb_error err = {0};
	int r = gpuarb_control_audit(u_dir.path, T_GPU, books, NULL, NULL, &err);

	cr_assert_geq(r, 0, "%s", err.text);
	return r;
}

static void forget_the_ring(void)
{
	arb_store64(&neighbour->seg.header->event_next, 0);
	memset((void *)neighbour->seg.events, 0, neighbour->seg.nevents * sizeof(struct arb_event));
}

Test(audit, whoever_comes_knows_from_the_ring_what_is_owed)
{
	uint32_t a = left_by("nightly");

	add(&record_of(a)->cap, 0 - 50 * U_MS);
	add(&record_of(a)->hard, 0 - 50 * U_MS);
	cr_assert_eq(debt_of("nightly"), 0, "it could owe that, but did not");
	cr_assert_eq(arb_load64(&neighbour->seg.accounts[a].restored), 1);
}

Test(audit, nobody_owes_what_it_cannot_have_used)
{
	uint32_t a = left_by("nightly");

	forget_the_ring();
	add(&record_of(a)->cap, 0 - HOUR);
	add(&record_of(a)->hard, 0 - HOUR);
	cr_assert_eq(debt_of("nightly"), 0);
}

Test(audit, nobody_has_used_more_than_the_busy_clock)
{
	uint32_t a = left_by("nightly");

	forget_the_ring();
	add(&record_of(a)->folded, HOUR);
	add(&record_of(a)->wall_folded, HOUR);
	cr_assert_eq(debt_of("nightly"), 0);
	cr_assert_lt(arb_load64(&record_of(a)->folded), HOUR);
}

Test(audit, a_debt_that_is_one_stays)
{
	struct gpuarb_client *c = u_client("nightly", 10);

	use(neighbour, 5);
	use(c, 400);
	gpuarb_client_close(c);
	cr_assert_eq(found(), 0);
	cr_assert_gt(debt_of("nightly"), 300 * MS);
	cr_assert_eq(found(), 0);
	cr_assert_gt(debt_of("nightly"), 300 * MS);
}

Test(audit, who_has_looked_before_puts_back_what_was_there)
{
	uint32_t a = left_by("nightly");
	struct arb_account_snap before, after;

	cr_assert_eq(found(), 0);
	cr_assert_eq(arb_account_read(&neighbour->seg, a, &before), 0);
	forget_the_ring();
	add(&record_of(a)->folded, U_MS);
	add(&record_of(a)->cap, 0 - U_MS);
	add(&record_of(a)->mem_used, 4096);
	cr_assert_eq(found(), 1);
	cr_assert_eq(arb_account_read(&neighbour->seg, a, &after), 0);
	cr_assert_eq(after.folded, before.folded);
	cr_assert_eq(after.cap, before.cap);
	cr_assert_eq(after.mem_used, 0);
	cr_assert_eq(found(), 0, "once");
	/* Nor does an older head bring back an older record. */
	arb_store64(&neighbour->seg.accounts[a].head, (uint64_t)ARB_HOME << ARB_HEAD_BUFFER_BITS);
	cr_assert_eq(found(), 1);
	cr_assert_eq(arb_account_read(&neighbour->seg, a, &after), 0);
	cr_assert_eq(after.cap, before.cap);
}

Test(audit, what_was_used_between_two_looks_is_bounded_by_the_busy_clock)
{
	uint32_t a = left_by("nightly");

	cr_assert_eq(found(), 0);
	left_by("nightly");
	cr_assert_eq(found(), 0, "it has been used");
	left_by("nightly");
	add(&record_of(a)->folded, 50 * U_MS);
	cr_assert_eq(found(), 1, "within the busy clock in all, but not since the last look");
}

Test(audit, an_account_is_not_active_in_a_window_to_come)
{
	uint32_t a = left_by("nightly");

	add(&neighbour->seg.accounts[a].active_window, 100);
	cr_assert_eq(found(), 1);
	cr_assert_eq(arb_load64(&neighbour->seg.accounts[a].active_window), 0);
}

/* Every entry has a name, a limit, and members that there are not. */
Test(audit, entries_full_of_nobody_keep_nobody_out)
{
	struct arb_segment *seg = &neighbour->seg;
	uint32_t last = seg->nslots - 1; /* a slot that nobody has */
	struct gpuarb_client *c;

	for (uint32_t a = 0; a < seg->naccounts; a++) {
		struct arb_account *entry = &seg->accounts[a];
		char name[32];

		if (a == neighbour->account)
			continue;
		snprintf(name, sizeof(name), "nobody-%u", a);
		arb_text_store(entry->name, ARB_NAME_WORDS, name);
		arb_store64(&entry->home[0].attached[last / 64], 1ull << (last % 64));
		arb_store64(&entry->home[0].quota, 10000 | 10000ull << 32);
		arb_store64(&entry->head, (uint64_t)ARB_HOME << ARB_HEAD_BUFFER_BITS);
	}
	arb_store32(&seg->header->accounts_high, seg->naccounts);
	c = u_client("newcomer", 30);
	use(c, 1);
	gpuarb_client_close(c);
	found();
	cr_assert_eq(arb_check(seg, t_say, NULL), 0);
}

Test(audit, a_bill_that_nobody_can_put_right_any_more_is_taken_out_of_the_sum)
{
	left_by("nightly");
	add(&neighbour->seg.slots[neighbour->seg.nslots - 1].total, HOUR);
	cr_assert_eq(arb_check(&neighbour->seg, NULL, NULL), 1);
	cr_assert_eq(found(), 0, "its client may be about to");
	cr_assert_eq(found(), 1);
	cr_assert_eq(arb_check(&neighbour->seg, t_say, NULL), 0);
}

Test(audit, the_ring_says_what_the_last_member_left)
{
	struct arb_event_copy e;
	uint64_t first, at;
	uint32_t a = left_by("nightly");

	arb_events_range(&neighbour->seg, &first, &at);
	while (at-- > first)
		if (arb_events_read(&neighbour->seg, at, &e) == 0 && e.kind == ARB_EVENT_EMPTIED)
			break;
	cr_assert_eq(e.kind, ARB_EVENT_EMPTIED);
	cr_assert_eq(e.account, a);
	cr_assert_eq(e.a, 10 * U_MS);
	cr_assert_eq(e.b, 0);
}

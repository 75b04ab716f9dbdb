/* Accounts: caps from window to window, changed limits, shared budgets, memory. */
#include "test/unit/unit.h"

#include "shm/policy/policy.h"

static uint32_t web;

static void open_with_account(void)
{
	u_open(64);
	web = arb_account_find(&u_seg, "web", 1, 100);
	cr_assert_neq(web, ARB_NONE);
	for (uint32_t slot = 0; slot < 2; slot++) {
		arb_store32(&u_seg.slots[slot].account, web);
		arb_store32(&u_seg.slots[slot].state, ARB_SLOT_LIVE);
		cr_assert_eq(arb_account_attach(&u_seg, web, slot), 0);
	}
}

TestSuite(account, .init = open_with_account, .fini = u_close);

/* Rolls the account as slot 0 does, on the given terms, and returns the account afterwards. */
static struct arb_account_snap roll(uint32_t limit_pct, uint32_t quota_pct)
{
	struct arb_terms terms = {limit_pct * 10000, quota_pct * 10000, 100, false};
	struct arb_actor me = {&u_seg, 0};
	struct arb_move m = u_move();
	struct arb_account_snap acct;
	struct arb_snap s;

	cr_assert_eq(arb_running_roll(&me, &m, &s), 0);
	cr_assert_eq(arb_account_roll(&me, web, &s, &terms, u_ticks(), &acct), 0);
	return acct;
}

static uint64_t usage(void)
{
	struct arb_account_snap acct;
	struct arb_snap s;

	cr_assert_eq(arb_running_read(&u_seg, &s), 0);
	arb_running_advance(&s, u_ticks(), 100);
	cr_assert_eq(arb_account_read(&u_seg, web, &acct), 0);
	return arb_account_usage(&u_seg, &s, &acct, false, false);
}

static void run(uint32_t slot, unsigned ms)
{
	u_enter(slot, ARB_WEIGHT_ONE);
	u_clock_ns += ms * 1000000ull;
	u_leave(slot);
}

Test(account, a_window_grants_the_quota)
{
	struct arb_account_snap acct = roll(40, 40);

	cr_assert_eq(acct.cap, 40 * U_MS);
	cr_assert_eq(acct.hard, 40 * U_MS);
}

Test(account, members_share_one_budget)
{
	roll(40, 40);
	run(0, 10);
	run(1, 15);
	cr_assert_eq(usage(), 25 * U_MS);
	u_check();
}

Test(account, unused_quota_lapses_and_overuse_is_a_debt)
{
	struct arb_account_snap acct = roll(40, 40);

	run(0, 10);
	u_clock_ns += 90000000;
	acct = roll(40, 40);
	cr_assert_eq(acct.window, 2);
	cr_assert_eq(acct.start, 10 * U_MS);
	cr_assert_eq(acct.cap, 50 * U_MS, "30 were not used, and are gone");
	run(0, 55);
	u_clock_ns += 45000000;
	acct = roll(40, 40);
	cr_assert_eq(acct.cap, 90 * U_MS, "15 too much: 25 left");
	cr_assert_eq(acct.cap - usage(), 25 * U_MS);
}

Test(account, a_client_that_runs_through_the_boundary_pays_on_both_sides)
{
	struct arb_account_snap acct = roll(40, 40);

	u_clock_ns += 70000000;
	u_enter(0, ARB_WEIGHT_ONE);
	u_clock_ns += 50000000;
	acct = roll(40, 40);
	cr_assert_eq(acct.start, 30 * U_MS, "exactly what it had at the boundary");
	cr_assert_eq(acct.cap, 70 * U_MS);
	cr_assert_eq(usage(), 50 * U_MS);
	u_leave(0);
	u_check();
}

Test(account, a_changed_limit_holds_for_the_rest_of_the_window)
{
	struct arb_account_snap acct = roll(20, 20);

	cr_assert_eq(acct.cap, 20 * U_MS);
	u_clock_ns += 50000000;
	acct = roll(80, 80);
	cr_assert_eq(acct.cap, 50 * U_MS, "20 and 60 percent of the half that is left");
	acct = roll(20, 20);
	cr_assert_eq(acct.cap, 20 * U_MS, "back at once: nothing gained");
	acct = roll(80, 40);
	cr_assert_eq(acct.cap, 30 * U_MS, "scaled");
	cr_assert_eq(acct.hard, 50 * U_MS);
}

Test(account, going_beyond_the_scaled_quota_is_no_debt)
{
	struct arb_account_snap acct = roll(80, 40);
	struct arb_actor me = {&u_seg, 0};

	cr_assert_eq(
		arb_account_extend(&me, web, &(struct arb_extension){0, 60 * U_MS, false, false}, &acct), 0);
	cr_assert_eq(acct.cap, 60 * U_MS);
	cr_assert_eq(acct.borrowed, 20 * U_MS);
	cr_assert_eq(
		arb_account_extend(&me, web, &(struct arb_extension){0, 95 * U_MS, false, false}, &acct), 0);
	cr_assert_eq(acct.cap, 80 * U_MS, "not beyond the limit");
	cr_assert_eq(
		arb_account_extend(&me, web, &(struct arb_extension){0, 95 * U_MS, true, false}, &acct), 0);
	cr_assert_eq(acct.cap, 95 * U_MS, "unless it may borrow");
	run(0, 95);
	u_clock_ns += 5000000;
	acct = roll(80, 40);
	cr_assert_eq(acct.cap, 135 * U_MS, "no debt");
}

Test(account, going_beyond_a_share_does_not_pay_a_debt)
{
	struct arb_account_snap acct = roll(100, 40);
	struct arb_actor me = {&u_seg, 0};

	run(0, 50);
	cr_assert_eq(
		arb_account_extend(&me, web, &(struct arb_extension){50 * U_MS, 2 * U_MS, true, true}, &acct),
		0);
	cr_assert_eq(acct.cap, 52 * U_MS);
	cr_assert_eq(acct.owed, 10 * U_MS);
	cr_assert_eq(acct.borrowed, 2 * U_MS);
	cr_assert_eq(arb_account_debt(&acct, usage()), 10 * U_MS);
	/* What it uses meanwhile is free, and so is a little beyond that. */
	run(0, 3);
	cr_assert_eq(
		arb_account_extend(&me, web, &(struct arb_extension){53 * U_MS, 2 * U_MS, true, true}, &acct),
		0);
	cr_assert_eq(acct.cap, 55 * U_MS);
	cr_assert_eq(acct.owed, 10 * U_MS);
	run(0, 1);
	u_clock_ns += 46000000;
	acct = roll(100, 40);
	cr_assert_eq(acct.start, 54 * U_MS);
	cr_assert_eq(acct.cap, 84 * U_MS, "40 but for the 10 that it owed");
	cr_assert_eq(acct.owed, 0);
	u_check();
}

Test(account, another_clock_leaves_what_was_left)
{
	struct arb_terms full = {400000, 400000, 100, true};
	struct arb_actor me = {&u_seg, 0};
	struct arb_account_snap acct = roll(40, 40);
	struct arb_snap s;

	u_enter(0, ARB_WEIGHT_ONE);
	u_enter(5, ARB_WEIGHT_ONE); /* a client of another account: each is billed for half the time */
	u_clock_ns += 20000000;
	u_leave(0);
	cr_assert_eq(usage(), 10 * U_MS);
	cr_assert_eq(arb_running_read(&u_seg, &s), 0);
	cr_assert_eq(arb_account_roll(&me, web, &s, &full, u_ticks(), &acct), 0);
	cr_assert_eq(acct.wall, 1);
	cr_assert_eq(acct.cap - arb_account_usage(&u_seg, &s, &acct, true, false), 30 * U_MS);
	u_leave(5);
}

Test(account, the_first_window_of_all_grants_no_more_than_others)
{
	struct arb_account_snap acct;

	u_clock_ns += 50000000;
	acct = roll(40, 40);
	cr_assert_eq(acct.window, 1);
	cr_assert_eq(acct.cap, 40 * U_MS, "%llu", (unsigned long long)(acct.cap / U_MS));
	cr_assert_eq(acct.hard, 40 * U_MS);
}

Test(account, what_was_used_without_a_limit_is_no_debt_under_one)
{
	struct arb_terms terms = {ARB_PPM, ARB_PPM, 100, true};
	struct arb_actor me = {&u_seg, 0};
	struct arb_account_snap acct;
	struct arb_move m;
	struct arb_snap s;

	/* Two members, each of which pays for all of its time: twice what the window has. */
	u_enter(0, ARB_WEIGHT_ONE);
	u_enter(1, ARB_WEIGHT_ONE);
	for (int i = 0; i < 20; i++) {
		m = u_move();
		cr_assert_eq(arb_running_roll(&me, &m, &s), 0);
		cr_assert_eq(arb_account_roll(&me, web, &s, &terms, u_ticks(), &acct), 0);
		u_clock_ns += 100000000;
	}
	terms.limit_ppm = terms.quota_ppm = 500000;
	m = u_move();
	cr_assert_eq(arb_running_roll(&me, &m, &s), 0);
	cr_assert_eq(arb_account_roll(&me, web, &s, &terms, u_ticks(), &acct), 0);
	cr_assert_eq(acct.cap - arb_account_usage(&u_seg, &s, &acct, true, false), 50 * U_MS);
	cr_assert_eq(acct.hard, acct.cap);
}

Test(account, memory_is_counted_and_the_last_byte_is_given_once)
{
	struct arb_actor a = {&u_seg, 0}, b = {&u_seg, 1};
	struct arb_account_snap acct;
	uint64_t freed;

	cr_assert_eq(arb_account_mem(&a, web, 600, 1000), 0);
	cr_assert_eq(arb_account_mem(&b, web, 400, 1000), 0);
	cr_assert_eq(arb_account_mem(&b, web, 1, 1000), -ENOMEM);
	cr_assert_eq(arb_account_mem(&a, web, 1, 500), -ENOMEM, "a quota below what is used");
	cr_assert_eq(arb_account_mem(&a, web, -700, 0), -EINVAL, "not more than it has");
	u_check();
	cr_assert_eq(arb_account_mem(&a, web, -100, 0), 0);
	cr_assert_eq(arb_account_mem(&b, web, 100, 1000), 0);
	cr_assert_eq(arb_account_mem(&b, web, INT64_MAX, 0), 0, "no quota");
	cr_assert_eq(arb_account_mem(&b, web, INT64_MAX, 0), -ENOMEM, "but no wrap-around");
	u_check();
	cr_assert_eq(arb_account_detach(&u_seg, web, 1, &freed), 0);
	cr_assert_eq(freed, 500 + (uint64_t)INT64_MAX);
	arb_store32(&u_seg.slots[1].state, ARB_SLOT_FREE);
	cr_assert_eq(arb_account_read(&u_seg, web, &acct), 0);
	cr_assert_eq(acct.mem_used, 500);
	u_check();
}

Test(account, leaving_and_coming_back_gains_nothing)
{
	struct arb_account_snap acct;
	uint64_t freed;

	roll(40, 40);
	run(0, 35);
	for (uint32_t slot = 0; slot < 2; slot++) {
		cr_assert_eq(arb_account_detach(&u_seg, web, slot, &freed), 0);
		arb_store32(&u_seg.slots[slot].state, ARB_SLOT_FREE);
	}
	cr_assert_eq(arb_account_find(&u_seg, "web", 1, 100), web, "the same entry");
	arb_store32(&u_seg.slots[0].state, ARB_SLOT_LIVE);
	cr_assert_eq(arb_account_attach(&u_seg, web, 0), 0);
	acct = roll(40, 40);
	cr_assert_eq(acct.cap - usage(), 5 * U_MS);
	u_check();
}

Test(account, entries_are_used_again_only_when_nothing_is_owed)
{
	char name[32];
	uint32_t last = ARB_NONE;

	for (uint32_t i = 1; i < u_seg.naccounts; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		last = arb_account_find(&u_seg, name, 1, 100);
		cr_assert_eq(last, i);
	}
	cr_assert_eq(arb_account_find(&u_seg, "n1", 1, 100), 1);
	arb_store64(&u_seg.accounts[1].used_at, 5);
	last = arb_account_find(&u_seg, "one-more", 2, 100);
	cr_assert_neq(last, ARB_NONE);
	cr_assert_neq(last, web, "web has members");
	cr_assert_neq(last, 1, "the entry that was used longest ago is taken first");
}

Test(account, only_active_and_limited_accounts_are_added_up)
{
	uint32_t other = arb_account_find(&u_seg, "other", 1, 100);

	arb_store32(&u_seg.accounts[web].limit_ppm, 600000);
	arb_store32(&u_seg.accounts[other].limit_ppm, 700000);
	cr_assert_eq(arb_account_sum(&u_seg, 1, ARB_NONE), 0, "joined, but idle");
	cr_assert(arb_account_active(&u_seg, web, 1));
	cr_assert_not(arb_account_active(&u_seg, web, 1));
	cr_assert_eq(arb_account_sum(&u_seg, 1, ARB_NONE), 600000);
	arb_account_active(&u_seg, other, 1);
	cr_assert_eq(arb_account_sum(&u_seg, 1, ARB_NONE), 1300000);
	cr_assert_eq(arb_account_sum(&u_seg, 2, web), 700000, "still active in the window after");
	cr_assert_eq(arb_account_sum(&u_seg, 3, ARB_NONE), 0, "not two windows later");
	arb_store32(&u_seg.accounts[other].limit_ppm, ARB_PPM);
	cr_assert_eq(
		arb_account_sum(&u_seg, 1, ARB_NONE), 600000, "an account without a limit is not in the sum");
}

Test(account, an_account_without_a_limit_owes_nothing_and_makes_room_at_once)
{
	char name[32];

	/* Five times as many short-lived processes as there is room for, all within one window. */
	for (uint32_t i = 0; i < 5 * u_seg.naccounts; i++) {
		snprintf(name, sizeof(name), "short-%u", i);
		cr_assert_neq(arb_account_find(&u_seg, name, 1, 100), ARB_NONE, "%s", name);
	}
}

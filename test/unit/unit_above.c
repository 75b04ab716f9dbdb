/* Requests, weights and priorities of clients, with a clock that the test moves. */
#include "test/unit/unit_clients.h"

#include "shm/policy/policy.h"
#include "shm/segment/wait.h"

static struct gpuarb_client *low, *high;

static struct gpuarb_client *with(const char *account, unsigned priority, unsigned request_pct)
{
	struct gpuarb_options o = t_options(&u_dir, account);
	struct gpuarb_client *c;
	struct gpuarb_error err = {0};

	o.priority = priority;
	o.request_pct = request_pct;
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), 0, "%s", err.text);
	return c;
}

static void open_two(void)
{
	u_begin(NULL);
	low = with("low", 10, 0);
	high = with("high", 90, 0);
	u_set("grace_ms", "600000");
}

static void close_two(void)
{
	cr_assert_eq(arb_check(&low->seg, t_say, NULL), 0);
	gpuarb_client_close(low);
	gpuarb_client_close(high);
	u_end();
}

TestSuite(above, .init = open_two, .fini = close_two);

static bool is_open(struct gpuarb_client *c)
{
	return gpuarb_client_may_launch(c);
}

static struct gpuarb_client_status status_of(struct gpuarb_client *c)
{
	struct gpuarb_client_status status;

	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	return status;
}

Test(above, a_newcomer_closes_the_gates_below_and_only_their_owners_open_them)
{
	cr_assert_eq(gpuarb_client_enter(low, NULL), 0);
	cr_assert(is_open(low));
	cr_assert_eq(gpuarb_client_enter(high, NULL), 0);
	cr_assert(is_open(high));
	cr_assert_not(is_open(low), "the newcomer closed it");
	cr_assert_eq(gpuarb_client_tick(low), -EAGAIN);
	cr_assert(status_of(low).below);
	cr_assert(status_of(low).above_present);
	cr_assert_not(status_of(high).above_present);
	cr_assert_eq(gpuarb_client_leave(high, 0), 0);
	cr_assert_not(is_open(low));
	cr_assert_eq(gpuarb_client_tick(low), 0);
	cr_assert(is_open(low));
}

/* A tick is as of when its caller decided to look. A client above may have shown a sign of life after that moment. */
Test(above, a_client_above_is_present_although_it_was_heard_of_after_the_decision_to_look)
{
	struct gpuarb_client_status status;
	uint64_t decided_ns = u_clock_ns;
	int told;

	cr_assert_eq(gpuarb_client_enter(low, NULL), 0);
	u_clock_ns += MS;
	cr_assert_eq(gpuarb_client_enter(high, NULL), 0);
	cr_assert_eq(gpuarb_client_leave(high, 0), 0);
	cr_assert_eq(gpuarb_client_tick_status(low, decided_ns, &status, &told), 0);
	cr_assert_eq(told, 0);
	cr_assert(status.above_present);
}

Test(above, a_stopped_client_waits_and_the_last_one_above_wakes_it)
{
	cr_assert_eq(gpuarb_client_enter(high, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(low, NULL), -EAGAIN);
	cr_assert_eq(status_of(low).reason, ARB_REASON_ABOVE);
	cr_assert_eq(gpuarb_client_wait(low, NULL, 2 * MS), -ETIMEDOUT);
	cr_assert_eq(arb_check(&low->seg, t_say, NULL), 0);
	/* It is registered and has not given up yet, as if it slept. */
	low->move.queue = true;
	cr_assert_eq(arb_running_enter(&low->me, arb_client_move(low, 0), &(struct arb_snap){0}), -EAGAIN);
	u_futex.nwoken = 0;
	cr_assert_eq(gpuarb_client_leave(high, 0), 0);
	cr_assert_eq(u_futex.nwoken, 1);
	cr_assert_eq(u_futex.first_woken, &high->seg.slots[low->me.slot].wake);
	cr_assert_eq(gpuarb_client_enter(low, NULL), 0);
}

static void wait_a_while(void)
{
	u_clock_ns += 3 * MS;
	if (u_futex.nslept == 2)
		gpuarb_client_leave(high, 0);
}

Test(above, the_time_below_others_is_counted_as_waited)
{
	cr_assert_eq(gpuarb_client_enter(high, NULL), 0);
	u_futex.while_asleep = wait_a_while;
	cr_assert_eq(gpuarb_client_wait(low, NULL, UINT64_MAX), 0);
	u_futex.while_asleep = NULL;
	cr_assert_geq(status_of(low).waited_ns, 6 * MS);
	cr_assert_leq(status_of(low).waited_ns, 12 * MS);
	u_clock_ns += 50 * MS;
	cr_assert_leq(status_of(low).waited_ns, 12 * MS, "it does not wait any more");
}

Test(above, no_client_stops_for_a_stopped_one)
{
	cr_assert_eq(gpuarb_client_enter(high, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(low, NULL), -EAGAIN);
	u_clock_ns += 21 * MS;
	cr_assert_eq(gpuarb_client_enter(low, NULL), 0);
	cr_assert_eq(gpuarb_client_tick(high), 0);
	cr_assert_eq(gpuarb_client_tick(low), -EAGAIN, "it goes on");
}

Test(above, a_priority_that_is_set_counts_at_once)
{
	struct gpuarb_change change = {"low", "priority", "95"};

	cr_assert_eq(gpuarb_client_enter(low, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(high, NULL), 0);
	cr_assert_not(is_open(low));
	cr_assert_eq(gpuarb_control_change(u_dir.path, T_GPU, &change, 1, NULL), 0);
	cr_assert_eq(gpuarb_client_tick(low), 0);
	cr_assert(is_open(low));
	cr_assert_not(is_open(high));
	cr_assert_eq(gpuarb_client_tick(high), -EAGAIN);
}

Test(above, clients_of_equal_priority_do_not_stop_for_each_other)
{
	struct gpuarb_client *a = with("a", 90, 0);

	cr_assert_eq(gpuarb_client_enter(a, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(high, NULL), 0);
	cr_assert(is_open(a));
	cr_assert_eq(gpuarb_client_tick(a), 0);
	cr_assert_eq(gpuarb_client_tick(high), 0);
	gpuarb_client_close(a);
}

/* A client of lower priority gets its request in each window, whoever is above it. Then it stops. */
Test(above, every_client_gets_its_request)
{
	struct gpuarb_client *c = with("guaranteed", 10, 20);

	u_clock_ns += 100 * MS - u_clock_ns % (100 * MS);
	cr_assert_eq(gpuarb_client_enter(high, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	cr_assert(is_open(c));
	cr_assert(status_of(c).in_request);
	for (int i = 0; i < 9; i++) {
		u_clock_ns += 4 * MS;
		cr_assert_eq(gpuarb_client_tick(high), 0, "%d", i);
		cr_assert_eq(gpuarb_client_tick(c), 0, "%d", i);
	}
	u_clock_ns += 5 * MS;
	cr_assert_eq(gpuarb_client_tick(high), 0);
	cr_assert_eq(gpuarb_client_tick(c), -EAGAIN, "20 of its 20 ms");
	cr_assert_not(status_of(c).in_request);
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	cr_assert_eq(gpuarb_client_enter(c, NULL), -EAGAIN);
	u_clock_ns += 60 * MS;
	gpuarb_client_tick(high);
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0, "another window");
	gpuarb_client_close(c);
}

/* At the same priority, a client that has not had its request comes before one that has. */
Test(above, what_was_lent_comes_back_at_once)
{
	struct gpuarb_client *owner = with("owner", 0, 50), *borrower = with("borrower", 0, 0);

	cr_assert_eq(gpuarb_client_enter(borrower, NULL), 0);
	u_clock_ns += 5 * MS;
	cr_assert_eq(gpuarb_client_tick(borrower), 0, "all of it is lent");
	cr_assert_eq(gpuarb_client_enter(owner, NULL), 0);
	cr_assert_not(is_open(borrower));
	cr_assert_eq(gpuarb_client_tick(borrower), -EAGAIN);
	cr_assert_eq(status_of(owner).quota_ppm, 750000);
	cr_assert_eq(status_of(borrower).quota_ppm, 250000);
	cr_assert_eq(gpuarb_client_leave(owner, 0), 0);
	cr_assert_eq(gpuarb_client_tick(borrower), 0, "nobody wants it: it is lent again");
	gpuarb_client_close(owner);
	gpuarb_client_close(borrower);
}

/* The same order holds where one client runs at a time: it precedes a client of higher priority without a request,
 * and does not wait for a slice. */
Test(above, a_client_without_its_request_has_the_next_turn)
{
	struct gpuarb_client *owner = with("owner", 10, 20), *greedy = with("greedy", 10, 0);

	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(greedy, NULL), 0);
	cr_assert_eq(gpuarb_client_tick(greedy), 0);
	cr_assert_eq(gpuarb_client_wait(owner, NULL, 0), -ETIMEDOUT);
	owner->move.queue = true;
	cr_assert_eq(
		arb_running_enter(&owner->me, arb_client_move(owner, 0), &(struct arb_snap){0}), -EAGAIN);
	high->move.queue = true;
	cr_assert_eq(gpuarb_client_wait(high, NULL, 0), -ETIMEDOUT);
	cr_assert_eq(arb_running_enter(&high->me, arb_client_move(high, 0), &(struct arb_snap){0}), -EAGAIN);
	cr_assert_gt(arb_wait_order(&high->seg, owner->me.slot), arb_wait_order(&high->seg, high->me.slot));
	cr_assert_eq(gpuarb_client_tick(greedy), -EAGAIN, "its turn is over");
	u_futex.nwoken = 0;
	cr_assert_eq(gpuarb_client_leave(greedy, 0), 0);
	cr_assert_eq(u_futex.first_woken, &greedy->seg.slots[owner->me.slot].wake);
	cr_assert_eq(gpuarb_client_enter(owner, NULL), 0);
	cr_assert_eq(gpuarb_client_tick(owner), 0, "it stops for nobody");
	gpuarb_client_close(owner);
	gpuarb_client_close(greedy);
}

/* Under exclusive a turn lasts for a window, but only for a slice if the client's work has been short so far. */
Test(above, a_client_that_wants_little_waits_for_a_slice_at_most)
{
	struct gpuarb_client *little = with("little", 0, 0), *much = with("much", 0, 0);
	uint64_t left;

	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(little, NULL), 0);
	u_clock_ns += MS / 2;
	cr_assert_eq(gpuarb_client_leave(little, 0), 0);
	cr_assert_eq(gpuarb_client_enter(much, NULL), 0);
	cr_assert_eq(gpuarb_client_wait(little, NULL, 0), -ETIMEDOUT);
	little->move.queue = true;
	cr_assert_eq(
		arb_running_enter(&little->me, arb_client_move(little, 0), &(struct arb_snap){0}), -EAGAIN);
	left = status_of(much).turn_left_ns;
	cr_assert_leq(left, 10 * MS);
	u_clock_ns += left - 1;
	cr_assert_eq(gpuarb_client_tick(much), 0);
	u_clock_ns += 1;
	cr_assert_eq(gpuarb_client_tick(much), -EAGAIN);
	cr_assert_eq(gpuarb_client_leave(much, 0), 0);
	cr_assert_eq(gpuarb_client_enter(little, NULL), 0);
	gpuarb_client_close(little);
	gpuarb_client_close(much);
}

Test(above, requests_add_up_to_at_most_100)
{
	struct gpuarb_client *a = with("a", 0, 60), *b = with("b", 0, 30), *c = NULL;
	struct gpuarb_options o = t_options(&u_dir, "c");
	struct gpuarb_change change = {"b", "request", "50"};
	struct gpuarb_error err = {0};

	o.request_pct = 20;
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), -EDQUOT);
	cr_assert(
		strstr(err.text,
			"cannot promise 20 percent of its time to c: 90 of 100 are promised (a has 60, b has 30)"),
		"%s", err.text);
	cr_assert_eq(gpuarb_control_change(u_dir.path, T_GPU, &change, 1, &err), -ENOSPC);
	cr_assert(strstr(err.text,
			  "cannot promise 50 percent of its time to b: 60 of 100 are promised (a has 60)"),
		"%s", err.text);
	cr_assert_eq(gpuarb_client_set_share(b, 50, 0), -EDQUOT);
	cr_assert_eq(gpuarb_client_set_share(b, 40, 0), 0);
	cr_assert_eq(gpuarb_client_set_share(a, 10, 300), 0);
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), 0, "%s", err.text);
	cr_assert_eq(status_of(a).request_pct, 10);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
	gpuarb_client_close(c);
}

static int set_request(const char *account, const char *percent, struct gpuarb_error *err)
{
	struct gpuarb_change change = {account, "request", percent};

	return gpuarb_control_change(u_dir.path, T_GPU, &change, 1, err);
}

/* Else others would be promised its time, and it would be refused when it comes. */
Test(above, a_request_that_is_set_is_promised_while_nobody_uses_the_account)
{
	struct gpuarb_client *a = NULL, *b = NULL;
	struct gpuarb_options o = t_options(&u_dir, "a");
	struct gpuarb_error err = {0};

	cr_assert_eq(set_request("a", "60", &err), 0, "%s", err.text);
	cr_assert_eq(set_request("b", "50", &err), -ENOSPC);
	cr_assert(strstr(err.text,
			  "cannot promise 50 percent of its time to b: 60 of 100 are promised (a has 60)"),
		"%s", err.text);
	cr_assert_eq(set_request("b", "40", &err), 0, "%s", err.text);
	o = t_options(&u_dir, "c");
	o.request_pct = 1;
	cr_assert_eq(gpuarb_client_open(&o, &b, &err), -EDQUOT);
	cr_assert(strstr(err.text, "to c: 100 of 100 are promised (a has 60, b has 40)"), "%s", err.text);
	/* Whoever it was set for has it, whatever it asks for, and is counted once. */
	a = with("a", 0, 90);
	cr_assert_eq(status_of(a).request_pct, 60);
	b = with("b", 0, 0);
	cr_assert_eq(status_of(b).request_pct, 40);
	cr_assert_eq(set_request("b", "41", &err), -ENOSPC);
	cr_assert(strstr(err.text, "to b: 60 of 100 are promised (a has 60)"), "%s", err.text);
	cr_assert_eq(set_request("a", "20", &err), 0, "%s", err.text);
	cr_assert_eq(set_request("b", "80", &err), 0, "%s", err.text);
	/* What members ask for comes back where what was set is taken back. */
	cr_assert_eq(set_request("a", NULL, &err), -ENOSPC, "it asks for 90");
	gpuarb_client_close(a);
	cr_assert_eq(set_request("a", NULL, &err), 0, "%s", err.text);
	gpuarb_client_close(b);
}

Test(above, requests_that_are_too_much_already_can_be_lowered_only)
{
	struct gpuarb_client *a = with("a", 0, 60), *b = with("b", 0, 40);
	struct gpuarb_error err = {0};
	struct arb_control_map map;
	struct gpuarb_change both[] = {{"x", "request", "60"}, {"y", "request", "41"}};

	cr_assert_eq(gpuarb_control_change(u_dir.path, T_GPU, both, 2, &err), -ENOSPC);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
	cr_assert_eq(gpuarb_control_change(u_dir.path, T_GPU, both, 2, &err), -ENOSPC, "101 by themselves");
	both[1].value = "40";
	cr_assert_eq(gpuarb_control_change(u_dir.path, T_GPU, both, 2, &err), 0, "%s", err.text);
	/* As somebody leaves it who writes the settings by hand. */
	cr_assert_eq(arb_control_map_open(&map, u_dir.path, T_GPU, true, NULL, NULL, NULL), 0);
	arb_store64(&map.control->copy[arb_settings_epoch(map.control) & 1].limit[0].request_pct, 90);
	arb_control_map_close(&map);
	cr_assert_eq(set_request("y", "41", &err), -ENOSPC);
	cr_assert_eq(set_request("y", "39", &err), 0, "%s", err.text);
	cr_assert_eq(set_request("x", "89", &err), 0, "%s", err.text);
	cr_assert_eq(set_request("x", NULL, &err), 0, "%s", err.text);
}

/* Under `memory` clients that fit run together, so levels decide who launches. That does not end a turn: what the client
 * has on the GPU stays there. */
Test(above, under_memory_a_client_stops_for_one_above_and_keeps_its_turn)
{
	u_set("policy", "memory");
	cr_assert_eq(gpuarb_client_enter(low, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(high, NULL), 0);
	cr_assert_not(is_open(low));
	cr_assert_eq(gpuarb_client_tick(low), -EAGAIN);
	cr_assert_not(is_open(low), "its tick does not open the gate");
	cr_assert(status_of(low).below);
	cr_assert_eq(gpuarb_client_leave(low, 0), 0);
	cr_assert_gt(arb_load64(&low->seg.slots[low->me.slot].turn_hold_ns), u_clock_ns);
	cr_assert_eq(gpuarb_client_leave(high, 0), 0);
	cr_assert_eq(gpuarb_client_enter(low, NULL), 0);
	cr_assert_eq(gpuarb_client_tick(low), 0);
}

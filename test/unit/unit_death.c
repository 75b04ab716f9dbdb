/* A client that dies in the running set is billed to its last sign of life, whichever client finds it and however
 * late; one that was stopped to the end of its work. */
#include "test/unit/unit_clients.h"

#include "shm/client/reclaim.h"
#include "shm/segment/silence.h"
#include "shm/segment/slot.h"

TestSuite(death, .init = u_begin_default, .fini = u_end);

/* Lets `ns` pass for clients that are alive: each gives a sign of life every 5 ms, also beyond its quota. */
static void live(uint64_t ns, struct gpuarb_client *const *clients)
{
	uint64_t end = u_clock_ns + ns;

	while (u_clock_ns < end) {
		u_clock_ns += 5 * MS;
		for (struct gpuarb_client *const *c = clients; *c; c++)
			gpuarb_client_tick(*c);
	}
}

static struct gpuarb_client *working(const char *account, unsigned core_pct)
{
	struct gpuarb_client *c = u_client(account, core_pct);

	cr_assert_eq(gpuarb_client_mem_reserve(c, 1 << 20), 0);
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	return c;
}

/* Runs a client alone for `ns`; it dies in the set. */
static void work_and_die(const char *account, unsigned core_pct, uint64_t ns)
{
	struct gpuarb_client *c = working(account, core_pct);

	live(ns, (struct gpuarb_client *[]){c, NULL});
	u_die(c);
}

static uint64_t total_ns(struct gpuarb_client *c)
{
	struct gpuarb_client_status status;

	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	return status.total_ns;
}

static uint64_t busy_ns(struct gpuarb_client *c)
{
	struct arb_snap snap;

	cr_assert_eq(arb_running_read(&c->seg, &snap), 0);
	cr_assert_eq(arb_check(&c->seg, t_say, NULL), 0,
		"bills add up to the busy time, and all other invariants hold");
	return snap.busy / ARB_TICKS_PER_NS;
}

/* Checks a bill of a client that died. Its last sign of life was up to 5 ms before its end, and it is billed until 4
 * ms after that sign. */
static void assert_about(uint64_t ns, uint64_t expected_ns)
{
	cr_assert(ns + 6 * MS >= expected_ns && ns <= expected_ns + 6 * MS, "%.3f ms instead of %.3f",
		(double)ns / 1e6, (double)expected_ns / 1e6);
}

Test(death, a_client_that_died_alone_is_billed_to_its_last_sign_of_life)
{
	struct gpuarb_client *other = u_client("other", 0), *next;
	struct gpuarb_client_status status;

	work_and_die("job", 30, 3000 * MS);
	/* The next client gets another slot than the one in which it died. */
	gpuarb_client_close(other);
	u_clock_ns += 30000 * MS;
	next = u_client("job", 30);
	assert_about(total_ns(next), 3000 * MS);
	assert_about(busy_ns(next), 3000 * MS);
	cr_assert_eq(gpuarb_client_status(next, &status), 0);
	cr_assert_eq(status.debt_ns, 0, "27 s later it is paid");
	gpuarb_client_close(next);
}

Test(death, what_a_dead_program_leaves_is_at_most_the_debt_of_a_window)
{
	struct gpuarb_client *next;
	struct gpuarb_client_status status;

	work_and_die("job", 10, 60000 * MS);
	u_clock_ns += MS;
	next = u_client("job", 10);
	cr_assert_eq(gpuarb_client_status(next, &status), 0);
	cr_assert(status.debt_ns > 0 && status.debt_ns <= status.window_ns, "%.3f ms",
		(double)status.debt_ns / 1e6);
	gpuarb_client_close(next);
}

Test(death, each_of_several_dead_is_billed_to_its_own_end)
{
	/* The slots' order is not that of the deaths. */
	struct gpuarb_client *late = working("late", 0), *early = working("early", 0),
			     *middle = working("middle", 0), *a, *b, *c;

	live(1000 * MS, (struct gpuarb_client *[]){late, early, middle, NULL});
	u_die(early);
	live(1000 * MS, (struct gpuarb_client *[]){late, middle, NULL});
	u_die(middle);
	live(1000 * MS, (struct gpuarb_client *[]){late, NULL});
	u_die(late);
	u_clock_ns += 86400000 * MS;
	a = u_client("late", 0);
	b = u_client("middle", 0);
	c = u_client("early", 0);
	assert_about(total_ns(c), 1000 * MS / 3);
	assert_about(total_ns(b), 1000 * MS / 3 + 1000 * MS / 2);
	assert_about(total_ns(a), 1000 * MS / 3 + 1000 * MS / 2 + 1000 * MS);
	assert_about(busy_ns(a), 3000 * MS);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
	gpuarb_client_close(c);
}

/* Two clients die, one 5 ms after the other, and the later one is found first. `young`: a third client enters and leaves in
 * between. */
static void two_deaths(bool young, uint64_t early_ns, uint64_t late_ns)
{
	struct gpuarb_client *finder = u_client("other", 0), *early = working("early", 0),
			     *late = working("late", 0), *a, *b;
	struct arb_reclaimed what;
	uint32_t found = late->me.slot;

	live(100 * MS, (struct gpuarb_client *[]){early, late, NULL});
	u_die(early);
	live(5 * MS, (struct gpuarb_client *[]){late, NULL});
	u_die(late);
	if (young) {
		cr_assert_eq(gpuarb_client_enter(finder, NULL), 0);
		cr_assert_eq(gpuarb_client_leave(finder, 0), 0, "the record's time is 105 ms now");
	}
	u_clock_ns += 20 * MS;
	cr_assert_eq(arb_reclaim_slot(&finder->seg, found, &finder->rules, &what), 1);
	cr_assert_eq(busy_ns(finder), 109 * MS);
	gpuarb_client_close(finder);
	a = u_client("early", 0);
	b = u_client("late", 0);
	cr_assert_eq(total_ns(a), early_ns);
	cr_assert_eq(total_ns(b), late_ns);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

Test(death, one_that_died_5_ms_earlier_is_not_billed_for_them_whichever_is_found_first)
{
	two_deaths(false, 52 * MS, 57 * MS);
}

Test(death, one_that_died_earlier_is_not_billed_for_4_ms_more_where_the_record_is_young)
{
	two_deaths(true, 105 * MS / 2, 105 * MS / 2 + 4 * MS);
}

Test(death, several_clients_that_died_at_once_and_were_not_found_for_a_night)
{
	struct gpuarb_client *all[17] = {NULL}, *next;

	for (int i = 0; i < 16; i++)
		all[i] = working(i % 2 ? "odd" : "even", 0);
	live(800 * MS, all);
	for (int i = 0; i < 16; i++)
		u_die(all[i]);
	u_clock_ns += 30000000 * MS;
	next = u_client("odd", 0);
	assert_about(total_ns(next), 400 * MS);
	assert_about(busy_ns(next), 800 * MS);
	gpuarb_client_close(next);
}

Test(death, the_partner_of_a_dead_client_pays_for_the_time_that_it_has_the_gpu_alone)
{
	struct gpuarb_client *living = working("living", 0), *dead = working("dead", 0), *next;

	live(1000 * MS, (struct gpuarb_client *[]){living, dead, NULL});
	u_die(dead);
	live(3000 * MS, (struct gpuarb_client *[]){living, NULL});
	next = u_client("dead", 0);
	assert_about(total_ns(next), 500 * MS);
	assert_about(total_ns(living), 3500 * MS);
	gpuarb_client_close(next);
	gpuarb_client_close(living);
}

Test(death, a_stopped_program_is_billed_for_the_grace_that_it_had)
{
	struct gpuarb_client *stopped = u_client("stopped", 0), *next;
	uint64_t grace = stopped->rules.grace_ns;

	cr_assert_eq(gpuarb_client_enter(stopped, NULL), 0);
	u_clock_ns += 3600000 * MS;
	next = u_client("next", 0);
	assert_about(busy_ns(next), grace);
	assert_about(total_ns(stopped), grace);
	gpuarb_client_close(next);
	gpuarb_client_close(stopped);
}

Test(death, a_stopped_program_that_is_alone_is_billed_for_its_grace_as_well)
{
	struct gpuarb_client *c = u_client("stopped", 10);
	struct gpuarb_client_status status;
	uint64_t grace = c->rules.grace_ns;

	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	u_clock_ns += 3600000 * MS;
	cr_assert_eq(gpuarb_client_tick(c), 0);
	assert_about(busy_ns(c), grace);
	assert_about(total_ns(c), grace);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.debt_ns, 0, "an hour later it is paid");
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	u_clock_ns += 3600000 * MS;
	/* It does not look in between, and does not know when its work ended. */
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	assert_about(total_ns(c), 2 * grace);
	/* This time it knows when its work ended. */
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	u_clock_ns += 3600000 * MS;
	cr_assert_eq(gpuarb_client_leave(c, u_clock_ns - 3590000 * MS), 0);
	assert_about(total_ns(c), 2 * grace + 10000 * MS);
	gpuarb_client_close(c);
}

Test(death, an_observer_shows_neither_the_dead_nor_what_they_held)
{
	static struct gpuarb_picture picture;
	struct gpuarb_client *other = u_client("other", 0);
	struct gpuarb_view *view;

	work_and_die("job", 30, 1000 * MS);
	u_clock_ns += 50 * MS;
	cr_assert_eq(gpuarb_view_open(u_dir.path, T_GPU, &view, NULL), 0);
	cr_assert_eq(gpuarb_view_read(view, &picture), 0);
	assert_about(picture.busy_now_ns, 1000 * MS);
	cr_assert(picture.now_ns - picture.window_start_ns < picture.window_ns, "the window that now is");
	cr_assert_eq(picture.mem_used, 0);
	cr_assert_eq(picture.ndead, 1);
	cr_assert_eq(picture.nrunning, 0, "the dead do not run");
	for (unsigned i = 0; i < picture.naccounts; i++)
		if (strcmp(picture.accounts[i].name, "job") == 0) {
			assert_about(picture.accounts[i].used_now_ns, 1000 * MS);
			cr_assert_eq(picture.accounts[i].clients, 0);
			cr_assert_eq(picture.accounts[i].mem_used, 0);
		}
	gpuarb_view_close(view);
	gpuarb_client_close(other);
}

Test(death, a_sign_of_life_from_the_future_is_none)
{
	struct gpuarb_client *c = u_client("job", 0);

	uint32_t i = c->me.slot + 1;

	arb_store64(&c->seg.slots[i].heartbeat_ns, u_clock_ns + 1);
	cr_assert_eq(arb_silence_death(&c->seg, i, u_clock_ns), 0);
	arb_store64(&c->seg.slots[i].heartbeat_ns, u_clock_ns - MS);
	cr_assert_eq(arb_silence_death(&c->seg, i, u_clock_ns), u_clock_ns, "not beyond now");
	gpuarb_client_close(c);
}

static int open_nothing(const char *path, int flags)
{
	(void)path;
	(void)flags;
	return -EMFILE;
}

/* A program may have used up its descriptors, or given up its rights to the file, while it runs. Then it cannot ask
 * the kernel whether others live. */
Test(death, a_client_that_cannot_ask_whether_another_lives_leaves_it_in_peace)
{
	static const struct arb_os_hooks without_files = {.now_ns = u_now,
		.futex_wait = u_futex_wait,
		.futex_wake = u_futex_wake,
		.open = open_nothing};
	const struct arb_os_hooks *before = arb_os_hooks;
	struct gpuarb_client *silent = working("silent", 0), *c = working("job", 0);

	u_clock_ns += 50 * MS;
	arb_os_hooks = &without_files;
	cr_assert_eq(gpuarb_client_tick(c), 0);
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	arb_os_hooks = before;
	gpuarb_client_close(c);
	gpuarb_client_close(silent);
}

Test(death, a_client_that_died_beside_a_stopped_one_is_billed_to_its_own_end)
{
	struct gpuarb_client *stopped = working("stopped", 0), *dead = working("dead", 0), *next;
	uint64_t grace = stopped->rules.grace_ns;

	live(250 * MS, (struct gpuarb_client *[]){dead, NULL});
	u_die(dead);
	u_clock_ns += 3600000 * MS;
	next = u_client("dead", 0);
	assert_about(total_ns(next), 125 * MS);
	assert_about(total_ns(stopped), grace - 125 * MS);
	assert_about(busy_ns(next), grace);
	gpuarb_client_close(next);
	gpuarb_client_close(stopped);
}

/* The client that cleans up is stopped half-way: it holds the lock of the dead client, whose slot is not live any
 * more. */
Test(death, a_client_whose_slot_is_being_cleaned_is_billed_to_its_end)
{
	struct gpuarb_client *dead = working("dead", 0), *living = working("living", 0), *next;
	struct arb_lock lock;

	live(100 * MS, (struct gpuarb_client *[]){dead, living, NULL});
	u_die(dead);
	cr_assert_eq(arb_slot_lock(&living->seg, ARB_BYTE_SLOT(dead->me.slot), &lock), 0);
	arb_store32(&arb_client_slot(dead)->state, ARB_SLOT_JOINING);
	live(100 * MS, (struct gpuarb_client *[]){living, NULL});
	arb_slot_unlock(&lock);
	next = u_client("dead", 0);
	assert_about(total_ns(next), 50 * MS);
	assert_about(total_ns(living), 150 * MS);
	gpuarb_client_close(next);
	gpuarb_client_close(living);
}

/* Otherwise no limit would bind a program whose workers end by _exit(), one after the other. */
Test(death, a_member_that_dies_pays_nothing_of_what_the_living_owe)
{
	struct gpuarb_client *c = working("job", 10), *worker = u_client("job", 0),
			     *other = u_client("other", 0);
	struct gpuarb_client_status before, after;

	live(10000 * MS, (struct gpuarb_client *[]){c, NULL});
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	cr_assert_eq(gpuarb_client_status(c, &before), 0);
	cr_assert(before.debt_ns > 50 * before.window_ns, "%.3f ms", (double)before.debt_ns / 1e6);
	u_die(worker);
	cr_assert_eq(arb_reclaim_look(&other->seg, other->me.slot, worker->me.slot, false, &other->rules), 1);
	cr_assert_eq(gpuarb_client_status(c, &after), 0);
	cr_assert_eq(after.debt_ns, before.debt_ns);
	gpuarb_client_close(c);
	gpuarb_client_close(other);
}

/* Counts the windows in which it is refused, when it asks at the beginning of each. */
static unsigned windows_until_it_enters(struct gpuarb_client *c)
{
	struct gpuarb_client_status status;
	unsigned n = 0;

	while (gpuarb_client_enter(c, NULL) == -EAGAIN && n < 1000) {
		cr_assert_eq(gpuarb_client_status(c, &status), 0);
		u_clock_ns = status.window_end_ns + MS;
		n++;
	}
	return n;
}

/* Work that takes longer than a window is a debt of more than a window. If that debt were written off, no limit would
 * bind such work. */
Test(death, a_living_account_pays_for_all_that_it_has_run)
{
	struct gpuarb_client *c = working("job", 10);
	struct gpuarb_client_status status;

	live(200 * MS, (struct gpuarb_client *[]){c, NULL});
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert(status.debt_ns > 150 * MS && status.debt_ns <= 190 * MS, "%.3f ms",
		(double)status.debt_ns / 1e6);
	cr_assert(windows_until_it_enters(c) >= 17, "200 ms at 10 percent are the quota of twenty windows");
	gpuarb_client_close(c);
}

/* Where each client pays in full, an account of three runs for the time of three windows in one window. */
Test(death, members_that_pay_in_full_owe_a_window_each)
{
	struct gpuarb_change full = {NULL, "billing", "full"};
	struct gpuarb_client *all[4] = {NULL}, *c;
	struct gpuarb_client_status status;
	struct gpuarb_error err;

	c = u_client("job", 10);
	cr_assert_eq(gpuarb_control_change(u_dir.path, T_GPU, &full, 1, &err), 0, "%s", err.text);
	for (int i = 0; i < 3; i++)
		all[i] = working("job", 10);
	live(100 * MS, all);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(gpuarb_client_leave(all[i], 0), 0);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert(status.debt_ns > 2 * status.window_ns && status.debt_ns <= 3 * status.window_ns, "%.3f ms",
		(double)status.debt_ns / 1e6);
	/* When the last member dies, the debt of one window is left. */
	gpuarb_client_close(c);
	for (int i = 0; i < 3; i++)
		u_die(all[i]);
	c = u_client("job", 10);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert(status.debt_ns > 0 && status.debt_ns <= status.window_ns, "%.3f ms",
		(double)status.debt_ns / 1e6);
	gpuarb_client_close(c);
}

/* The tracker saw work, was stopped on its way into the tick for three windows, and then sees when the work had ended. */
Test(death, an_end_before_a_late_tick_can_still_be_dated)
{
	struct gpuarb_client *c = u_client("a", 30);
	struct gpuarb_client_status status;
	uint64_t seen, used;
	int told;

	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	used = status.total_ns;
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	cr_assert_eq(gpuarb_client_tick(c), 0);
	seen = u_clock_ns + 1000000;
	u_clock_ns += 300000000;
	cr_assert_eq(gpuarb_client_tick_status(c, seen, &status, &told), 0);
	cr_assert_eq(told, 0);
	cr_assert(status.running);
	cr_assert_eq(gpuarb_client_leave(c, seen + 2000000), 0);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.total_ns - used, 3000000, "%llu ns are billed for 3 ms",
		(unsigned long long)(status.total_ns - used));
	gpuarb_client_close(c);
}

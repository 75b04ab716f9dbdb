/* Clients, with a clock and a futex that the test moves: which client is woken, how long a client sleeps, what a
 * limit does. */
#include "test/unit/unit_clients.h"

#include "shm/segment/events.h"

#include <sys/wait.h>
#include <unistd.h>

TestSuite(client, .init = u_begin_default, .fini = u_end);

static struct gpuarb_client *holder, *waiter;

static void holder_leaves(void)
{
	u_futex.while_asleep = NULL;
	cr_assert_eq(gpuarb_client_leave(holder, 0), 0);
}

Test(client, a_leaver_wakes_the_waiter_it_reserved_the_place_for)
{
	holder = u_client("a", 0);
	waiter = u_client("b", 0);
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	u_futex.nwoken = 0;
	u_futex.while_asleep = holder_leaves;
	cr_assert_eq(gpuarb_client_wait(waiter, NULL, 1000000000), 0);
	cr_assert_eq(u_futex.nslept, 1);
	cr_assert_eq(u_futex.first_timeout_ns, 5000000, "the first in the queue looks every 5 ms");
	cr_assert_eq(u_futex.nwoken, 1);
	cr_assert_eq(u_futex.first_woken, &holder->seg.slots[waiter->me.slot].wake, "its own word");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), -EAGAIN);
	cr_assert_eq(arb_check(&waiter->seg, t_say, NULL), 0);
	gpuarb_client_close(holder);
	gpuarb_client_close(waiter);
}

Test(client, a_wait_ends_with_its_time_and_leaves_the_queue)
{
	struct gpuarb_client_status status;

	holder = u_client("a", 0);
	waiter = u_client("b", 0);
	u_set("policy", "exclusive");
	u_set("grace_ms", "600000");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	cr_assert_eq(gpuarb_client_wait(waiter, NULL, 25000000), -ETIMEDOUT);
	cr_assert_eq(gpuarb_client_status(waiter, &status), 0);
	cr_assert_eq(status.waited_ns, 25000000);
	cr_assert_eq(status.reason, ARB_REASON_QUEUE);
	u_futex.nwoken = 0;
	cr_assert_eq(gpuarb_client_leave(holder, 0), 0);
	cr_assert_eq(u_futex.nwoken, 0, "nobody waits any more");
	gpuarb_client_close(holder);
	gpuarb_client_close(waiter);
}

static void cancel(void)
{
	gpuarb_client_cancel(waiter);
}

Test(client, a_wait_can_be_cancelled)
{
	holder = u_client("a", 0);
	waiter = u_client("b", 0);
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	u_futex.while_asleep = cancel;
	cr_assert_eq(gpuarb_client_wait(waiter, NULL, 1000000000), -ECANCELED);
	gpuarb_client_close(holder);
	gpuarb_client_close(waiter);
}

Test(client, a_silent_holder_loses_its_place_to_the_waiter)
{
	struct gpuarb_client_status status;

	holder = u_client("a", 0);
	waiter = u_client("b", 0);
	u_set("policy", "exclusive");
	u_set("grace_ms", "100");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	/* The holder is alive, because its byte is locked, but gives no sign of life while the clock runs. */
	cr_assert_eq(gpuarb_client_wait(waiter, NULL, 1000000000), 0);
	cr_assert_eq(gpuarb_client_status(holder, &status), 0);
	cr_assert_not(status.running);
	cr_assert(status.total_ns >= 100000000 && status.total_ns <= 106000000, "%lu",
		(unsigned long)status.total_ns);
	cr_assert_eq(gpuarb_client_leave(holder, 0), 0, "the holder may find out late");
	cr_assert_eq(gpuarb_client_leave(waiter, 0), 0);
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	cr_assert_eq(arb_check(&waiter->seg, t_say, NULL), 0);
	gpuarb_client_close(holder);
	gpuarb_client_close(waiter);
}

static struct gpuarb_client *stopped;

/* Lets a waiter be stopped for two seconds, in which the holder gives signs of life. */
static void other_waits(void)
{
	uint64_t before;

	for (int i = 0; i < 20; i++) {
		u_clock_ns += 100000000;
		int r = gpuarb_client_tick(holder);

		cr_assert(r == 0 || r == -EAGAIN, "it runs, or its turn is over: %d", r);
	}
	before = u_clock_ns;
	u_futex.while_asleep = holder_leaves;
	cr_assert_eq(gpuarb_client_wait(waiter, NULL, 1000000000), 0);
	cr_assert_eq(u_clock_ns, before, "woken at once: no place was kept for the stopped client");
	cr_assert_eq(gpuarb_client_leave(waiter, 0), 0);
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0, "no place is kept if nobody else waits either");
	cr_assert_eq(gpuarb_client_leave(holder, 0), 0);
}

Test(client, a_stopped_waiter_does_not_hold_up_the_others)
{
	holder = u_client("a", 0);
	waiter = u_client("b", 0);
	stopped = u_client("c", 0);
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	u_futex.while_asleep = other_waits;
	cr_assert_eq(gpuarb_client_wait(stopped, NULL, 10000000000), 0, "when it goes on it has its turn");
	cr_assert_eq(arb_check(&waiter->seg, t_say, NULL), 0);
	gpuarb_client_close(holder);
	gpuarb_client_close(waiter);
	gpuarb_client_close(stopped);
}

/* Lets one limited client run for `ms`, ticking every `step_us`; returns what it was billed. */
static uint64_t saturate(struct gpuarb_client *c, unsigned ms, unsigned step_us)
{
	uint64_t end = u_clock_ns + ms * 1000000ull;
	struct gpuarb_client_status status;
	uint64_t before;

	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	before = status.total_ns;
	while (u_clock_ns < end) {
		int r = gpuarb_client_wait(c, NULL, end - u_clock_ns);

		if (r == -ETIMEDOUT)
			break;
		cr_assert_eq(r, 0);
		do
			u_clock_ns += step_us * 1000ull;
		while ((r = gpuarb_client_tick(c)) == 0 && u_clock_ns < end);
		cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	}
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	return status.total_ns - before;
}

Test(client, a_limit_holds_over_many_windows)
{
	for (unsigned pct = 10; pct <= 90; pct += 20) {
		char name[16];
		struct gpuarb_client *c;
		uint64_t used;

		snprintf(name, sizeof(name), "limit-%u", pct);
		c = u_client(name, pct);
		used = saturate(c, 10000, 700);
		cr_assert(used <= pct * 100000000ull + 2000000 && used >= pct * 100000000ull - 10000000,
			"%u %%: %.3f", pct, (double)used / 1e8);
		cr_assert_eq(arb_check(&c->seg, t_say, NULL), 0);
		gpuarb_client_close(c);
	}
}

Test(client, a_changed_limit_wakes_and_holds_at_once)
{
	struct gpuarb_client *c = u_client("web", 20);
	struct gpuarb_client_status status;
	uint64_t used;

	saturate(c, 950, 500);
	u_limit("web", "core", "80");
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 80, "an administrator's word stands above the client's own");
	cr_assert(status.left_ns > 0, "there is quota again in this very window");
	used = saturate(c, 5000, 500);
	cr_assert(used >= 3950000000ull && used <= 4050000000ull, "%lu", (unsigned long)used);
	u_limit("web", "core", NULL);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 20, "the client's own counts when it is taken back");
	gpuarb_client_close(c);
}

Test(client, limits_wait_for_an_account_that_comes_later)
{
	struct gpuarb_client *first = u_client("first", 0), *c;
	struct gpuarb_client_status status;

	u_limit("later", "core", "35");
	u_limit("later", "mem", "1Ki");
	c = u_client("later", 90);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 35);
	cr_assert_eq(status.mem_limit, 1024);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 1025), -ENOMEM);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 1024), 0);
	gpuarb_client_close(c);
	c = u_client("later", 0);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 35, "they outlive it");
	cr_assert_eq(status.mem_used, 0);
	gpuarb_client_close(c);
	gpuarb_client_close(first);
}

Test(client, a_tick_with_a_status_says_the_same_as_a_tick_and_a_status)
{
	struct gpuarb_client *a = u_client("a", 30), *b = u_client("b", 60);
	struct gpuarb_client_status both, status;
	int told;

	cr_assert_eq(gpuarb_client_enter(b, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(a, NULL), 0);
	/* Five windows are rolled, and its quota ends. */
	for (int i = 0; i < 100; i++) {
		int r;

		u_clock_ns += 5 * 1000000ull;
		r = gpuarb_client_tick_status(a, 0, &both, &told);
		cr_assert_eq(told, 0);
		cr_assert_eq(gpuarb_client_tick(a), r);
		cr_assert_eq(gpuarb_client_status(a, &status), 0);
		cr_assert_arr_eq(&both, &status, sizeof(status), "after %d ticks", i);
	}
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

Test(client, limits_that_exceed_the_gpu_are_scaled_for_the_active_alone)
{
	struct gpuarb_client *a = u_client("a", 80), *b = u_client("b", 80);
	struct gpuarb_client_status status;

	cr_assert_eq(gpuarb_client_enter(a, NULL), 0);
	cr_assert_eq(gpuarb_client_status(a, &status), 0);
	cr_assert_eq(status.quota_ppm, 800000, "the other has joined and idles");
	cr_assert_eq(gpuarb_client_enter(b, NULL), 0);
	cr_assert_eq(gpuarb_client_tick(a), 0);
	cr_assert_eq(gpuarb_client_status(a, &status), 0);
	cr_assert_eq(status.quota_ppm, 500000);
	cr_assert_eq(gpuarb_client_status(b, &status), 0);
	cr_assert_eq(status.quota_ppm, 500000);
	cr_assert_eq(gpuarb_client_leave(b, 0), 0);
	u_clock_ns += 300000000;
	cr_assert_eq(gpuarb_client_status(a, &status), 0);
	cr_assert_eq(status.quota_ppm, 800000, "alone again");
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

Test(client, a_forked_child_is_active_from_its_first_launch_on)
{
	struct gpuarb_client *c = u_client(NULL, 40);
	int status;
	pid_t pid;

	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	pid = fork();
	if (pid == 0) {
		status = gpuarb_client_enter(c, NULL);
		if (status == 0)
			status =
				arb_load64(&c->seg.accounts[c->account].active_window) != c->quota.window + 1;
		_exit(status ? 1 : 0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0, "the limits of an account that nobody takes for active are not added up");
	gpuarb_client_close(c);
}

Test(client, priority_decides_who_is_next)
{
	struct gpuarb_client *c[3];
	struct arb_snap s;

	for (int i = 0; i < 3; i++)
		c[i] = u_client(i == 0 ? "x" : i == 1 ? "low" : "high", 0);
	u_set("policy", "exclusive");
	u_set("grace_ms", "600000");
	u_limit("low", "priority", "10");
	u_limit("high", "priority", "90");
	cr_assert_eq(gpuarb_client_enter(c[0], NULL), 0);
	/* Both stand in the queue; `low` came first. */
	for (int i = 1; i < 3; i++) {
		gpuarb_client_tick(c[i]);
		c[i]->move.queue = true;
		cr_assert_eq(arb_running_enter(&c[i]->me, arb_client_move(c[i], 0), &s), -EAGAIN);
	}
	cr_assert_eq(gpuarb_client_leave(c[0], 0), 0);
	cr_assert_eq(arb_running_read(&c[0]->seg, &s), 0);
	cr_assert_eq((uint32_t)s.reserved - 1, c[2]->me.slot);
	for (int i = 0; i < 3; i++)
		gpuarb_client_close(c[i]);
}

Test(client, a_setting_of_the_gpu_is_not_read_as_a_limit_of_an_account)
{
	struct gpuarb_error err = {0};
	char text[64];

	u_limit("web", "priority", "70");
	cr_assert_eq(gpuarb_control_get(u_dir.path, T_GPU, "web", "priority", text, sizeof(text), &err), 0);
	cr_assert_str_eq(text, "70");
	cr_assert_eq(gpuarb_control_get(u_dir.path, T_GPU, "web", "window_ms", text, sizeof(text), &err),
		-EINVAL, "%s", text);
	cr_assert_eq(gpuarb_control_get(u_dir.path, T_GPU, NULL, "core", text, sizeof(text), &err), -EINVAL);
}

Test(client, changes_come_together_or_not_at_all)
{
	struct gpuarb_client *c = u_client("web", 0);
	struct gpuarb_change changes[] = {{NULL, "window_ms", "200"}, {"web", "core", "30"},
		{NULL, "policy", "fair"}, {NULL, "windw_ms", "5"}};
	struct gpuarb_error err = {0};
	char text[64];

	cr_assert_eq(gpuarb_control_change(u_dir.path, T_GPU, changes, 4, &err), -EINVAL);
	cr_assert_str_eq(err.text, "there is no setting 'windw_ms'; did you mean 'window_ms'?");
	cr_assert_eq(gpuarb_control_get(u_dir.path, T_GPU, NULL, "window_ms", text, sizeof(text), &err), 0);
	cr_assert_str_eq(text, "100");
	cr_assert_eq(gpuarb_control_get(u_dir.path, T_GPU, "web", "core", text, sizeof(text), &err), -ENOENT);
	cr_assert_eq(gpuarb_control_change(u_dir.path, T_GPU, changes, 3, &err), 0);
	cr_assert_eq(gpuarb_control_get(u_dir.path, T_GPU, NULL, "policy", text, sizeof(text), &err), 0);
	cr_assert_str_eq(text, "fair");
	cr_assert_eq(gpuarb_control_get(u_dir.path, T_GPU, "web", "core", text, sizeof(text), &err), 0);
	cr_assert_str_eq(text, "30");
	changes[0] = (struct gpuarb_change){NULL, "core", "5"};
	cr_assert_eq(gpuarb_control_change(u_dir.path, T_GPU, changes, 1, &err), -EINVAL);
	cr_assert_str_eq(err.text, "core is a limit of an account: say which one");
	gpuarb_client_close(c);
}

Test(client, everything_that_happened_is_in_the_black_box)
{
	struct gpuarb_client *c = u_client("web", 10);
	struct gpuarb_view *view;
	struct gpuarb_event events[64];
	struct gpuarb_error err = {0};
	static struct gpuarb_picture picture;
	uint64_t position = 0;
	unsigned seen = 0;
	int n;

	saturate(c, 300, 500);
	cr_assert_eq(gpuarb_client_set_limits(c, 0, 100, 0), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 101), -ENOMEM);
	cr_assert_eq(gpuarb_view_open(u_dir.path, T_GPU, &view, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_view_read(view, &picture), 0);
	cr_assert(picture.consistent);
	cr_assert_eq(picture.nclients, 1);
	cr_assert_eq(picture.naccounts, 1);
	cr_assert_str_eq(picture.accounts[0].name, "web");
	cr_assert_eq(picture.accounts[picture.clients[0].account].limit_ppm, 100000);
	cr_assert_eq(picture.busy_ns, picture.billed_ns, "the law");
	cr_assert(picture.clients[0].throttled_ns > 200000000);
	gpuarb_client_close(c);
	n = gpuarb_view_events(view, &position, events, 64);
	for (int i = 0; i < n; i++) {
		seen |= 1u << events[i].kind;
		if (events[i].kind == ARB_EVENT_THROTTLED)
			cr_assert(events[i].a >= 10 * U_MS && events[i].a <= 11 * U_MS,
				"a tenth of the window was used: %lu", (unsigned long)events[i].a);
	}
	cr_assert(seen & 1u << ARB_EVENT_JOINED);
	cr_assert(seen & 1u << ARB_EVENT_THROTTLED);
	cr_assert(seen & 1u << ARB_EVENT_RESUMED);
	cr_assert(seen & 1u << ARB_EVENT_MEM_REFUSED);
	cr_assert(seen & 1u << ARB_EVENT_LEFT);
	cr_assert_eq(gpuarb_view_events(view, &position, events, 64), 0);
	gpuarb_view_close(view);
}

static unsigned count_events(struct gpuarb_view *view, enum arb_event_kind kind)
{
	struct gpuarb_event events[64];
	uint64_t position = 0;
	unsigned found = 0;
	int n = gpuarb_view_events(view, &position, events, 64);

	for (int i = 0; i < n; i++)
		found += events[i].kind == kind;
	return found;
}

Test(client, memory_that_may_be_given_back_refuses_nobody_for_good)
{
	struct gpuarb_client *a = u_client("web", 0), *b = u_client("web", 0);
	static struct gpuarb_picture picture;
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;

	cr_assert_eq(gpuarb_view_open(u_dir.path, T_GPU, &view, &err), 0, "%s", err.text);
	u_limit("web", "mem", "1000");
	cr_assert_eq(gpuarb_client_mem_try(a, 700, true), 0);
	cr_assert_eq(gpuarb_client_mem_try(b, 400, false), -EAGAIN, "another process's call is under way");
	cr_assert_eq(gpuarb_client_mem_try(a, 400, true), -EAGAIN, "its own call is under way");
	cr_assert_eq(gpuarb_client_mem_try(b, 1001, false), -ENOMEM, "nothing makes room for that");
	cr_assert_eq(gpuarb_client_mem_try(b, 300, true), 0);
	cr_assert_eq(gpuarb_client_mem_release(a, 600), 0);
	gpuarb_client_mem_settled(a);
	cr_assert_eq(gpuarb_client_mem_try(a, 700, false), -EAGAIN, "b's call still is");
	gpuarb_client_mem_settled(b);
	cr_assert_eq(gpuarb_client_mem_try(a, 700, false), -ENOMEM, "nobody's call is");
	cr_assert_eq(gpuarb_client_mem_try(a, 600, false), 0);
	cr_assert_eq(gpuarb_client_mem_try(b, 1, true), -ENOMEM);
	cr_assert_eq(gpuarb_view_read(view, &picture), 0);
	cr_assert_eq(picture.accounts[0].mem_peak, 1000, "%lu: what was needed, not what might have been",
		(unsigned long)picture.accounts[0].mem_peak);
	cr_assert_eq(count_events(view, ARB_EVENT_MEM_REFUSED), 0, "nobody was refused for good yet");
	cr_assert(gpuarb_client_mem_refused(b, 1, NULL));
	cr_assert_eq(count_events(view, ARB_EVENT_MEM_REFUSED), 1);
	/* Garbage that another process wrote is gone with the owner's next call. */
	arb_store64(&a->seg.slots[a->me.slot].mem_pending, UINT64_MAX);
	cr_assert_eq(gpuarb_client_mem_try(b, 1, false), -EAGAIN);
	cr_assert_eq(gpuarb_client_mem_try(a, 1, true), -ENOMEM);
	cr_assert_eq(gpuarb_client_mem_try(b, 1, false), -ENOMEM);
	gpuarb_client_mem_settled(b);
	cr_assert_eq(arb_load64(&b->seg.slots[b->me.slot].mem_pending), 1ull << 32, "not below zero");
	gpuarb_view_close(view);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

Test(client, what_a_client_saw_is_shown)
{
	struct gpuarb_client *c = u_client("web", 10);
	uint64_t counters[ARB_COUNTERS + 4];
	static struct gpuarb_picture picture;
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;

	for (unsigned i = 0; i < ARB_COUNTERS + 4; i++)
		counters[i] = 100 + i;
	cr_assert_eq(gpuarb_client_counters(c, counters, ARB_COUNTERS + 4), 0);
	cr_assert_eq(gpuarb_view_open(u_dir.path, T_GPU, &view, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_view_read(view, &picture), 0);
	for (unsigned i = 0; i < ARB_COUNTERS; i++)
		cr_assert_eq(picture.clients[0].counter[i], 100 + i);
	gpuarb_client_close(c);
	/* The next client in the slot begins with none. */
	c = u_client("web", 10);
	cr_assert_eq(gpuarb_view_read(view, &picture), 0);
	cr_assert_eq(picture.clients[0].counter[0], 0);
	gpuarb_view_close(view);
	gpuarb_client_close(c);
}

/* Whatever garbage a reservation holds, nobody waits for it for ever. */
Test(client, a_reservation_that_nobody_made_is_passed)
{
	static const struct {
		const char *what;
		uint32_t slot;
		uint64_t until_ns;
	} garbage[] = {{"for no slot at all", 5000, ~0ull}, {"for a slot that does not wait", 7, ~0ull},
		{"for one that waits, for ever", 1, ~0ull}};

	u_set("policy", "exclusive");
	for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
		struct gpuarb_client *c = u_client("a", 0), *w = u_client("b", 0);
		struct arb_record *r;
		uint64_t head;

		cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
		cr_assert_eq(gpuarb_client_leave(c, 0), 0);
		head = arb_load64(&c->seg.header->head);
		r = &c->seg.slots[head >> 1 & 2047].record[head & 1];
		cr_assert_eq(w->me.slot, 1);
		arb_store64(&r->waiting[0], 2);
		arb_store64(&r->reserved, garbage[i].slot + 1);
		arb_store64(&r->reserved_until, garbage[i].until_ns);
		arb_store64(&r->shape, arb_load64(&r->shape) | ARB_SHAPE_RESERVED | ARB_SHAPE_WAITING);
		u_futex.nslept = 0;
		cr_assert_eq(gpuarb_client_wait(c, NULL, 1000000000), 0, "%s", garbage[i].what);
		gpuarb_client_close(w);
		gpuarb_client_close(c);
	}
}

Test(client, a_control_segment_that_is_replaced_is_followed)
{
	struct gpuarb_client *c = u_client("web", 0);
	struct gpuarb_client_status status;
	char path[PATH_MAX];

	u_limit("web", "core", "40");
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 40);
	t_path(&u_dir, "control", path);
	cr_assert_eq(unlink(path), 0);
	u_clock_ns += 2000000000;
	cr_assert_eq(gpuarb_client_tick(c), 0);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 40, "removed: what was set last goes on");
	u_limit("web", "core", "70");
	u_clock_ns += 2000000000;
	cr_assert_eq(gpuarb_client_tick(c), 0);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 70, "made anew: found within a second");
	gpuarb_client_close(c);
}

static unsigned core_of(struct gpuarb_client *c)
{
	struct gpuarb_client_status status;

	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	return status.core_pct;
}

Test(client, the_limit_that_a_program_asked_for_ends_with_it)
{
	struct gpuarb_client *a = u_client("job", 30), *b = u_client("job", 0);

	cr_assert_eq(core_of(b), 30, "it shares the budget of its account");
	gpuarb_client_close(a);
	cr_assert_eq(core_of(b), 100, "nobody asks for a limit any more");
	gpuarb_client_close(b);
	a = u_client("job", 0);
	cr_assert_eq(core_of(a), 100);
	gpuarb_client_close(a);
}

Test(client, of_two_programs_of_an_account_the_stricter_limit_counts)
{
	struct gpuarb_client *strict = u_client("job", 30), *lenient = u_client("job", 60);

	cr_assert_eq(core_of(lenient), 30, "though it came later");
	cr_assert_eq(core_of(strict), 30);
	cr_assert_eq(gpuarb_client_set_limits(lenient, 20, 0, 0), 0);
	cr_assert_eq(core_of(strict), 20);
	cr_assert_eq(gpuarb_client_set_limits(lenient, 100, 0, 0), 0);
	cr_assert_eq(core_of(lenient), 30, "it takes back its own limit alone");
	gpuarb_client_close(strict);
	cr_assert_eq(core_of(lenient), 100);
	gpuarb_client_close(lenient);
}

Test(client, what_a_dead_program_asked_for_does_not_bind_a_new_one)
{
	struct gpuarb_client *other = u_client("other", 0), *next;
	int status;
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		u_client("job", 30);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	/* Its slot is not the lowest free one, so no client cleans it by joining there. */
	gpuarb_client_close(other);
	next = u_client("job", 0);
	cr_assert_eq(core_of(next), 100);
	gpuarb_client_close(next);
}

Test(client, processes_of_one_container_share_an_account)
{
	struct gpuarb_client *one = u_client("@container", 30), *two = u_client("@container", 30);
	struct gpuarb_client *own = u_client("", 0);

	cr_assert_str_eq(one->opened.name, two->opened.name);
	cr_assert_eq(one->account, two->account);
	/* The account is named by the engine's short id, or by the PID namespace where there is no engine. */
	cr_assert(strspn(one->opened.name, "0123456789abcdef") == 12 ||
			  strncmp(one->opened.name, "pidns-", 6) == 0,
		"%s", one->opened.name);
	cr_assert_neq(own->account, one->account);
	gpuarb_client_close(one);
	gpuarb_client_close(two);
	gpuarb_client_close(own);
}

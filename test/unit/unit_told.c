/* What the event ring says about what happened: the kind, the reason and how often; with a clock that the test moves.
 */
#include <unistd.h>

#include "units.h"

#include "test/unit/unit_admission.h"

#include "shm/segment/events.h"

static struct gpuarb_view *view;
static struct gpuarb_event seen[512];
static int nseen;
static uint64_t position;

static void begin(void)
{
	open_dir();
	three();
}

static void end(void)
{
	gpuarb_view_close(view);
	gpuarb_client_close(c);
	gpuarb_client_close(b);
	gpuarb_client_close(a);
	u_end();
}

TestSuite(told, .init = begin, .fini = end);

/* Reads the events that were written since the last call. */
static void look(void)
{
	struct gpuarb_error err = {0};

	if (!view)
		cr_assert_eq(gpuarb_view_open(u_dir.path, T_GPU, &view, &err), 0, "%s", err.text);
	nseen = gpuarb_view_events(view, &position, seen, 512);
	cr_assert(nseen >= 0 && nseen < 512);
}

/* Finds the k-th event of a kind. */
static const struct gpuarb_event *find(enum arb_event_kind kind, unsigned k)
{
	for (int i = 0; i < nseen; i++)
		if (seen[i].kind == kind && k-- == 0)
			return &seen[i];
	return NULL;
}

static unsigned count(enum arb_event_kind kind)
{
	unsigned n = 0;

	while (find(kind, n))
		n++;
	return n;
}

Test(told, each_kind_has_a_name)
{
	for (unsigned kind = 0; kind < ARB_EVENT_COUNT; kind++)
		cr_assert_str_neq(arb_events_name((enum arb_event_kind)kind), "unknown", "kind %u", kind);
}

Test(told, what_repeats_is_written_once_a_second_and_nothing_is_lost)
{
	struct arb_repeat repeat = {0};
	struct arb_event_copy e = {.kind = ARB_EVENT_LEASE_SKIPPED, .slot = 1, .account = 0, .why = 3};
	unsigned sum = 0;

	look();
	for (int i = 0; i < 5000; i++) {
		arb_events_repeat(&a->seg, &repeat, &e);
		u_clock_ns += MS;
	}
	e.why = 4;
	arb_events_repeat(&a->seg, &repeat, &e);
	arb_events_rest(&a->seg, &repeat, true);
	look();
	cr_assert(count(ARB_EVENT_LEASE_SKIPPED) <= 8, "%u", count(ARB_EVENT_LEASE_SKIPPED));
	cr_assert_eq(find(ARB_EVENT_LEASE_SKIPPED, 0)->times, 1, "the first at once");
	for (unsigned k = 0; k < count(ARB_EVENT_LEASE_SKIPPED); k++)
		sum += find(ARB_EVENT_LEASE_SKIPPED, k)->times;
	cr_assert_eq(sum, 5001);
	cr_assert_eq(find(ARB_EVENT_LEASE_SKIPPED, count(ARB_EVENT_LEASE_SKIPPED) - 1)->why, 4);
	cr_assert_eq(find(ARB_EVENT_LEASE_SKIPPED, count(ARB_EVENT_LEASE_SKIPPED) - 1)->times, 1,
		"another reason is not said together with the first");
}

Test(told, an_allocation_over_the_quota_lists_the_holders_of_the_memory)
{
	struct gpuarb_client *other = u_client("a", 0);
	struct gpuarb_refusal what;
	const struct gpuarb_event *e;

	u_limit("a", "mem", "4Gi");
	cr_assert_eq(gpuarb_client_mem_reserve(a, GIB), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(other, 2 * GIB), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(b, 7 * GIB), 0);
	look();
	cr_assert_eq(gpuarb_client_mem_try(a, 3 * GIB, false), -ENOMEM);
	cr_assert(gpuarb_client_mem_refused(a, 3 * GIB, &what));
	cr_assert_eq(what.why, ARB_REFUSAL_QUOTA);
	cr_assert_eq(what.bytes, 3 * GIB);
	cr_assert_eq(what.bound, 4 * GIB);
	cr_assert_eq(what.used, 3 * GIB);
	cr_assert_eq(what.others, 7 * GIB);
	cr_assert_str_eq(what.account, "a");
	cr_assert_eq(what.nholders, 2);
	cr_assert_eq(what.holder[0].bytes, 2 * GIB, "the largest first");
	cr_assert_not(what.holder[0].self);
	cr_assert_eq(what.holder[1].bytes, GIB);
	cr_assert(what.holder[1].self);
	cr_assert_eq(what.holder[1].pid, (unsigned)getpid());
	look();
	e = find(ARB_EVENT_MEM_REFUSED, 0);
	cr_assert(e && e->why == ARB_REFUSAL_QUOTA && e->a == 3 * GIB && e->b == 4 * GIB && e->c == 3 * GIB);
	gpuarb_client_close(other);
}

Test(told, more_holders_than_are_named_are_counted_and_the_largest_are_named)
{
	struct gpuarb_client *more[9];
	struct gpuarb_refusal what;

	for (int i = 0; i < 9; i++) {
		more[i] = u_client("a", 0);
		cr_assert_eq(gpuarb_client_mem_reserve(more[i], (uint64_t)(i * 7 % 9 + 1) << 20), 0);
	}
	u_limit("a", "mem", "50Mi");
	cr_assert_eq(gpuarb_client_mem_try(a, 10 << 20, false), -ENOMEM);
	cr_assert(gpuarb_client_mem_refused(a, 10 << 20, &what));
	cr_assert_eq(what.nholders, 9, "a client without memory is not counted");
	for (unsigned i = 0; i < GPUARB_HOLDERS; i++)
		cr_assert_eq(what.holder[i].bytes, (uint64_t)(9 - i) << 20, "%u", i);
	for (int i = 0; i < 9; i++)
		gpuarb_client_close(more[i]);
}

Test(told, the_bound_of_a_single_client_is_not_called_a_quota)
{
	const struct gpuarb_event *e;
	struct gpuarb_refusal what;

	u_set("physical_memory_mb", "16384");
	u_set("oversubscribe", "on");
	u_set("oversub_ratio", "2");
	look();
	cr_assert_eq(gpuarb_client_mem_reserve(a, 20 * GIB), -ENOMEM);
	look();
	e = find(ARB_EVENT_MEM_REFUSED, 0);
	cr_assert(e != NULL);
	cr_assert_eq(e->why, ARB_REFUSAL_SINGLE);
	cr_assert_eq(e->b, a->mem.most);
	cr_assert(e->b > 14 * GIB && e->b < 16 * GIB, "not 0, which is what its quota is");
	/* The account may have a quota as well; the event names the bound that refused. */
	u_limit("a", "mem", "30Gi");
	cr_assert_eq(gpuarb_client_mem_try(a, 20 * GIB, false), -ENOMEM);
	cr_assert(gpuarb_client_mem_refused(a, 20 * GIB, &what));
	cr_assert_eq(what.why, ARB_REFUSAL_SINGLE);
	u_limit("a", "mem", "3Gi");
	cr_assert_eq(gpuarb_client_mem_try(a, 4 * GIB, false), -ENOMEM);
	cr_assert(gpuarb_client_mem_refused(a, 4 * GIB, &what));
	cr_assert_eq(what.why, ARB_REFUSAL_QUOTA);
	cr_assert_eq(what.bound, 3 * GIB);
	cr_assert_eq(gpuarb_client_mem_try(a, UINT64_MAX, false), -ENOMEM);
	cr_assert(gpuarb_client_mem_refused(a, UINT64_MAX, &what));
	cr_assert_eq(what.why, ARB_REFUSAL_SIZE);
}

Test(told, a_refusal_of_the_drivers_is_an_event_of_its_own)
{
	const struct gpuarb_event *e;
	struct gpuarb_refusal what;

	u_limit("a", "mem", "4Gi");
	cr_assert_eq(gpuarb_client_mem_reserve(a, GIB), 0);
	look();
	cr_assert(gpuarb_client_mem_driver_refused(a, 2 * GIB, &what));
	cr_assert_eq(what.used, GIB);
	look();
	e = find(ARB_EVENT_MEM_DRIVER, 0);
	cr_assert(e && e->a == 2 * GIB && e->b == 4 * GIB && e->c == GIB);
	cr_assert_eq(count(ARB_EVENT_MEM_REFUSED), 0);
}

Test(told, a_thousand_refusals_are_two_events_and_a_thousand_times)
{
	look();
	u_limit("a", "mem", "1Mi");
	for (int i = 0; i < 1000; i++)
		cr_assert_eq(gpuarb_client_mem_reserve(a, 2 << 20), -ENOMEM);
	gpuarb_client_close(a);
	look();
	a = u_client("a", 0);
	cr_assert_eq(count(ARB_EVENT_MEM_REFUSED), 2);
	cr_assert_eq(find(ARB_EVENT_MEM_REFUSED, 0)->times, 1);
	cr_assert_eq(find(ARB_EVENT_MEM_REFUSED, 1)->times, 999, "the rest at the latest when it leaves");
}

Test(told, the_rest_is_written_by_a_tick_a_second_later)
{
	look();
	u_limit("a", "mem", "1Mi");
	for (int i = 0; i < 10; i++)
		cr_assert_eq(gpuarb_client_mem_reserve(a, 2 << 20), -ENOMEM);
	u_clock_ns += 1100 * MS;
	gpuarb_client_tick(a);
	look();
	cr_assert_eq(count(ARB_EVENT_MEM_REFUSED), 2);
	cr_assert_eq(find(ARB_EVENT_MEM_REFUSED, 1)->times, 9);
}

Test(told, a_changed_limit_or_quota_is_reported_once_whichever_client_notices)
{
	struct gpuarb_client *other = u_client("a", 0);
	const struct gpuarb_event *e;

	look();
	cr_assert_eq(count(ARB_EVENT_LIMIT_CHANGED) + count(ARB_EVENT_MEM_LIMIT_CHANGED), 0);
	u_limit("a", "mem", "4Gi");
	u_limit("a", "core", "30");
	for (int i = 0; i < 3; i++) {
		gpuarb_client_tick(a);
		gpuarb_client_tick(other);
		gpuarb_client_tick(b);
	}
	look();
	cr_assert_eq(count(ARB_EVENT_LIMIT_CHANGED), 1);
	cr_assert_eq(count(ARB_EVENT_MEM_LIMIT_CHANGED), 1);
	e = find(ARB_EVENT_MEM_LIMIT_CHANGED, 0);
	cr_assert(e->a == 0 && e->b == 4 * GIB);
	u_limit("a", "mem", NULL);
	gpuarb_client_tick(other);
	gpuarb_client_tick(a);
	look();
	cr_assert_eq(count(ARB_EVENT_MEM_LIMIT_CHANGED), 1);
	e = find(ARB_EVENT_MEM_LIMIT_CHANGED, 0);
	cr_assert(e->a == 4 * GIB && e->b == 0);
	gpuarb_client_close(other);
}

Test(told, pressure_is_said_when_it_begins_and_ends_and_once_a_second_at_most)
{
	look();
	sample(50);
	look();
	cr_assert_eq(count(ARB_EVENT_PRESSURE), 0, "normal is how it begins");
	sample(92);
	look();
	cr_assert_eq(count(ARB_EVENT_PRESSURE), 1);
	cr_assert(find(ARB_EVENT_PRESSURE, 0)->why == 1 && find(ARB_EVENT_PRESSURE, 0)->a == 9200);
	cr_assert_eq(find(ARB_EVENT_PRESSURE, 0)->b, 8500, "the high water");
	cr_assert_eq(find(ARB_EVENT_PRESSURE, 0)->account, ARB_NONE, "it is the GPU's");
	for (int i = 0; i < 100; i++) {
		u_clock_ns += 5 * MS;
		sample(i % 2 ? 92 : 20);
	}
	sample(20);
	look();
	cr_assert_eq(count(ARB_EVENT_PRESSURE), 0, "half a second of swinging");
	u_clock_ns += 600 * MS;
	sample(21);
	look();
	cr_assert_eq(count(ARB_EVENT_PRESSURE), 1, "the state that lasts is reported");
	cr_assert(find(ARB_EVENT_PRESSURE, 0)->why == 0 && find(ARB_EVENT_PRESSURE, 0)->a == 2100);
}

Test(told, skips_and_timeouts_of_leases)
{
	const struct gpuarb_event *e;

	sample(95);
	look();
	cr_assert_eq(acquire(a, "repair", &la), GPUARB_SKIP);
	look();
	e = find(ARB_EVENT_LEASE_SKIPPED, 0);
	cr_assert(e != NULL);
	cr_assert_eq(e->why, ARB_REASON_PRESSURE);
	cr_assert_str_eq(a->admission.classes[e->a].name, "repair");
	for (int i = 0; i < 100; i++)
		cr_assert_eq(acquire(a, "repair", &la), GPUARB_SKIP);
	look();
	cr_assert_eq(count(ARB_EVENT_LEASE_SKIPPED), 0, "they wait for the second to pass");
	cr_assert_eq(acquire(b, "nmt", &lb), GPUARB_TIMEOUT);
	look();
	e = find(ARB_EVENT_LEASE_TIMEOUT, 0);
	cr_assert(e != NULL);
	cr_assert_eq(e->why, ARB_REASON_PRESSURE);
	cr_assert_eq(e->b, 300 * MS, "%lu", (unsigned long)e->b);
	cr_assert_str_eq(b->admission.classes[e->a].name, "nmt");
	u_clock_ns += 1100 * MS;
	gpuarb_client_tick(a);
	look();
	cr_assert_eq(count(ARB_EVENT_LEASE_SKIPPED), 1);
	cr_assert_eq(find(ARB_EVENT_LEASE_SKIPPED, 0)->times, 100);
}

Test(told, a_lease_that_times_out_in_the_queue_of_the_set_is_one_event)
{
	u_set("policy", "exclusive");
	sample(10);
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	look();
	u_set("grace_ms", "600000");
	cr_assert_eq(acquire_for(b, "asr", 5000, &lc), GPUARB_TIMEOUT);
	look();
	cr_assert_eq(count(ARB_EVENT_LEASE_TIMEOUT), 1);
	cr_assert_eq(count(ARB_EVENT_WAIT_TIMEOUT), 0);
	cr_assert_eq(find(ARB_EVENT_LEASE_TIMEOUT, 0)->why, ARB_REASON_QUEUE);
	cr_assert_eq(arb_admission_release(a, &la), 0);
}

/* Lets the client work for a while, which makes its account active. */
static void work(struct gpuarb_client *who)
{
	cr_assert_eq(gpuarb_client_enter(who, NULL), 0);
	u_clock_ns += MS;
	gpuarb_client_tick(who);
	cr_assert_eq(gpuarb_client_leave(who, 0), 0);
}

Test(told, auto_changes_to_turns_and_back_and_reports_each_change_once)
{
	u_set("policy", "auto");
	u_limit("a", "core", "60");
	u_limit("b", "core", "50");
	look();
	for (int i = 0; i < 10; i++) {
		work(a);
		u_clock_ns += 50 * MS;
		gpuarb_client_tick(b); /* has a limit, and no work: nobody takes turns with it */
		gpuarb_client_tick(c);
	}
	look();
	cr_assert_eq(count(ARB_EVENT_AUTO), 0);
	for (int i = 0; i < 10; i++) {
		work(a);
		work(b);
		gpuarb_client_tick(c);
		u_clock_ns += 50 * MS;
	}
	look();
	cr_assert_eq(count(ARB_EVENT_AUTO), 1);
	cr_assert_eq(find(ARB_EVENT_AUTO, 0)->why, 1);
	cr_assert_eq(find(ARB_EVENT_AUTO, 0)->a, 1100000);
	for (int i = 0; i < 10; i++) {
		work(a);
		u_clock_ns += 50 * MS;
	}
	look();
	cr_assert_eq(count(ARB_EVENT_AUTO), 1);
	cr_assert_eq(find(ARB_EVENT_AUTO, 0)->why, 0);
}

Test(told, a_changed_window_length_is_reported_once)
{
	work(a);
	work(b);
	look();
	cr_assert_eq(count(ARB_EVENT_WINDOW), 0);
	u_set("window_ms", "250");
	for (int i = 0; i < 5; i++) {
		u_clock_ns += 60 * MS;
		work(a);
		work(b);
	}
	look();
	cr_assert_eq(count(ARB_EVENT_WINDOW), 1);
	cr_assert(find(ARB_EVENT_WINDOW, 0)->a == 250 * MS && find(ARB_EVENT_WINDOW, 0)->b == 100 * MS);
}

Test(told, an_evicted_client_that_comes_back_reports_it)
{
	cr_assert_eq(gpuarb_client_enter(a, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(b, NULL), 0);
	look();
	for (int i = 0; i < 400; i++) {
		u_clock_ns += 2 * MS;
		gpuarb_client_tick(b);
	}
	look();
	cr_assert_eq(count(ARB_EVENT_EVICTED), 1);
	cr_assert_eq(count(ARB_EVENT_RETURNED), 0);
	cr_assert_eq(gpuarb_client_resume(a), 0);
	look();
	cr_assert_eq(count(ARB_EVENT_RETURNED), 1);
	cr_assert_eq(find(ARB_EVENT_RETURNED, 0)->slot, a->me.slot);
	cr_assert_eq(gpuarb_client_leave(a, 0), 0);
	cr_assert_eq(gpuarb_client_leave(b, 0), 0);
	look();
	cr_assert_eq(count(ARB_EVENT_RETURNED), 0);
}

/* Runs `a` until its turn is over. */
static void a_works_on(void)
{
	if (a->running && gpuarb_client_tick(a) == -EAGAIN)
		gpuarb_client_leave(a, 0);
}

Test(told, turns_at_the_memory_begin_and_end)
{
	const struct gpuarb_event *began, *ended;
	uint64_t from;

	u_set("physical_memory_mb", "16384");
	u_set("policy", "memory");
	u_set("switch_min_ms", "1000");
	u_set("grace_ms", "600000");
	cr_assert_eq(gpuarb_client_mem_reserve(a, 9 * GIB), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(b, 8 * GIB), 0);
	for (int i = 0; i < 10; i++) {
		work(a);
		u_clock_ns += 500 * MS;
	}
	look();
	cr_assert_eq(count(ARB_EVENT_TURN_BEGAN) + count(ARB_EVENT_TURN_ENDED), 0, "nobody waited for any");
	cr_assert_eq(gpuarb_client_enter(a, NULL), 0);
	from = u_clock_ns;
	u_futex.while_asleep = a_works_on;
	cr_assert_eq(gpuarb_client_wait(b, NULL, 100000 * MS), 0);
	u_futex.while_asleep = NULL;
	look();
	ended = find(ARB_EVENT_TURN_ENDED, 0);
	began = find(ARB_EVENT_TURN_BEGAN, 0);
	cr_assert(ended && began && ended < began, "%u %u", count(ARB_EVENT_TURN_ENDED),
		count(ARB_EVENT_TURN_BEGAN));
	cr_assert_eq(ended->slot, a->me.slot);
	cr_assert_eq(ended->why, ARB_TURN_OVER);
	cr_assert_eq(ended->a, 9 * GIB);
	cr_assert(ended->b >= 1000 * MS, "%lu", (unsigned long)ended->b);
	cr_assert_eq(began->slot, b->me.slot);
	cr_assert_eq(began->a, 8 * GIB);
	cr_assert(began->b >= 1000 * MS && began->b <= u_clock_ns - from, "%lu", (unsigned long)began->b);
	/* It leaves because it has no work: that its turn has ended is noticed when the next one begins. */
	cr_assert_eq(gpuarb_client_leave(b, 0), 0);
	u_clock_ns += 5000 * MS;
	work(b);
	look();
	cr_assert_eq(count(ARB_EVENT_TURN_ENDED), 1);
	cr_assert_eq(find(ARB_EVENT_TURN_ENDED, 0)->why, ARB_TURN_IDLE);
	cr_assert(find(ARB_EVENT_TURN_ENDED, 0)->c <= u_clock_ns - 4000 * MS);
	cr_assert_eq(count(ARB_EVENT_TURN_BEGAN), 0, "that one did not wait");
}

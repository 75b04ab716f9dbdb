/* Leases and the running set: policies and quotas, clients of the preload, waiters that are cancelled or silent,
 * viewers. */
#include "test/unit/unit_admission.h"

TestSuite(admission_set, .init = open_dir, .fini = u_end);

static int low_result;

Test(admission_set, leases_go_one_at_a_time_where_the_policy_says_so)
{
	three();
	sample(10);
	u_set("policy", "exclusive");
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	cr_assert_eq(acquire_for(b, "nmt", 40, &lb), GPUARB_TIMEOUT);
	cr_assert_eq(lb.reason, GPUARB_QUEUE);
	cr_assert_eq(acquire(b, "repair", &lb), GPUARB_SKIP);
	cr_assert_eq(lb.reason, GPUARB_QUEUE);
	cr_assert_not(leased(b) || runs(b));
	arb_admission_release(a, &la);
	cr_assert_eq(acquire(b, "nmt", &lb), GPUARB_OK);
	arb_admission_release(b, &lb);
	done();
}

static void a_releases_at_the_last_moment(void)
{
	u_futex.while_asleep = NULL;
	arb_admission_release(a, &la);
	u_clock_ns += 40 * MS;
}

static void a_releases_and_b_is_cancelled(void)
{
	u_futex.while_asleep = NULL;
	arb_admission_release(a, &la);
	__atomic_store_n(&lb.cancelled, 1, __ATOMIC_SEQ_CST);
}

Test(admission_set, a_place_that_comes_at_the_last_moment_is_taken_or_given_back)
{
	three();
	sample(10);
	u_set("policy", "exclusive");
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	u_futex.while_asleep = a_releases_at_the_last_moment;
	cr_assert_eq(acquire_for(b, "asr", 40, &lb), GPUARB_OK);
	arb_admission_release(b, &lb);
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	u_futex.while_asleep = a_releases_and_b_is_cancelled;
	cr_assert_eq(acquire_for(b, "asr", 40, &lb), -ECANCELED);
	cr_assert_not(leased(b) || runs(b));
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK, "nobody is in its way");
	arb_admission_release(c, &lc);
	done();
}

static int order[4], norder;

static void a_releases(void)
{
	u_futex.while_asleep = NULL;
	arb_admission_release(a, &la);
}

static void b_comes_with_a_higher_class(void)
{
	u_futex.while_asleep = a_releases;
	low_result = acquire_for(b, "asr", 100, &lb);
	order[norder++] = 2;
	u_futex.while_asleep = NULL;
	arb_admission_release(b, &lb);
}

Test(admission_set, the_set_goes_by_classes_too_however_long_a_client_has_waited)
{
	three();
	sample(10);
	u_set("policy", "exclusive");
	u_set("max_wait_ms", "5");
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	/* c waits first and for longer than max_wait_ms; b comes later with a higher class. */
	u_futex.while_asleep = b_comes_with_a_higher_class;
	u_clock_ns += MS;
	cr_assert_eq(acquire(c, "tts", &lc), GPUARB_OK);
	order[norder++] = 3;
	cr_assert_eq(low_result, GPUARB_OK);
	cr_assert(order[0] == 2 && order[1] == 3);
	arb_admission_release(c, &lc);
	done();
}

static void a_low_one_with_quota_goes(void)
{
	u_futex.while_asleep = NULL;
	low_result = acquire_for(b, "repair", GPUARB_NO_WAIT, &lb);
	arb_admission_release(b, &lb);
}

Test(admission_set, a_client_without_quota_waits_and_is_in_nobodys_way)
{
	a = u_client("limited", 10);
	b = u_client("b", 0);
	c = u_client("c", 0);
	sample(10);
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	u_clock_ns += 50 * MS;
	arb_admission_release(a, &la);
	u_futex.while_asleep = a_low_one_with_quota_goes;
	cr_assert_eq(acquire_for(a, "asr", 20, &la), GPUARB_TIMEOUT);
	cr_assert_eq(la.reason, GPUARB_QUOTA);
	cr_assert_eq(low_result, GPUARB_OK);
	cr_assert_eq(acquire_for(a, "asr", 2000, &la), GPUARB_OK, "when its debt is paid");
	arb_admission_release(a, &la);
	done();
}

Test(admission_set, a_tracked_client_is_not_put_into_the_set)
{
	three();
	sample(10);
	a->admission.tracked = true;
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	cr_assert(leased(a));
	cr_assert_not(runs(a));
	cr_assert_eq(arb_load32(&a->seg.slots[a->me.slot].priority), 90, "its launches wait by the class");
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(b, NULL), 0);
	cr_assert_eq(acquire(a, "repair", &lb), GPUARB_SKIP, "it would have to wait");
	cr_assert_eq(acquire(a, "nmt", &lb), GPUARB_OK, "its launches do that");
	arb_admission_release(a, &la);
	arb_admission_release(a, &lb);
	cr_assert_eq(arb_load32(&a->seg.slots[a->me.slot].priority), 50);
	gpuarb_client_leave(b, 0);
	done();
}

static void cancelled(void)
{
	u_futex.while_asleep = NULL;
	__atomic_store_n(&la.cancelled, 1, __ATOMIC_SEQ_CST);
	arb_admission_cancel(a);
}

Test(admission_set, a_wait_can_be_cancelled)
{
	three();
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	sample(100);
	u_futex.while_asleep = cancelled;
	cr_assert_eq(acquire(a, "asr", &la), -ECANCELED);
	cr_assert_eq(u_futex.nslept, 1);
	la = (struct gpuarb_lease)GPUARB_LEASE_INIT;
	arb_admission_release(c, &lc);
	/* Waiting in the queue of the running set can be cancelled as well. */
	sample(10);
	u_set("policy", "exclusive");
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	u_futex.while_asleep = cancelled;
	cr_assert_eq(acquire(a, "asr", &la), -ECANCELED);
	arb_admission_release(c, &lc);
	done();
}

static void c_releases(void)
{
	u_futex.while_asleep = NULL;
	arb_admission_release(c, &lc);
}

static void the_other_thread_is_cancelled(void)
{
	u_futex.while_asleep = c_releases;
	__atomic_store_n(&lb.cancelled, 1, __ATOMIC_SEQ_CST);
	arb_admission_cancel(a);
}

static void another_thread_of_the_process_waits(void)
{
	u_futex.while_asleep = the_other_thread_is_cancelled;
	low_result = acquire_for(a, "nmt", 500, &lb);
}

Test(admission_set, a_cancelled_thread_does_not_end_the_wait_of_another)
{
	three();
	sample(10);
	u_set("policy", "exclusive");
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	u_futex.while_asleep = another_thread_of_the_process_waits;
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	cr_assert_eq(low_result, -ECANCELED);
	cr_assert_lt(la.waited_ns, 100 * MS);
	arb_admission_release(a, &la);
	done();
}

Test(admission_set, a_waiter_that_does_not_look_is_passed_over)
{
	three();
	sample(10);
	/* b stands in the queue and its program is stopped. */
	arb_store32(&b->seg.slots[b->me.slot].adm_want, 2 | 90 << ARB_WANT_PRIORITY_SHIFT);
	arb_store64(&b->seg.slots[b->me.slot].adm_since_ns, u_clock_ns);
	arb_store64(&b->seg.slots[b->me.slot].heartbeat_ns, u_clock_ns);
	arb_bit_set(&b->seg.header->adm_waiting[0], 1ull << b->me.slot);
	cr_assert_eq(acquire_for(a, "nmt", 100, &la), GPUARB_TIMEOUT);
	cr_assert_eq(la.reason, GPUARB_QUEUE);
	cr_assert_eq(acquire_for(a, "nmt", 600, &la), GPUARB_OK, "after grace_ms");
	arb_admission_release(a, &la);
	arb_bit_clear(&b->seg.header->adm_waiting[0], 1ull << b->me.slot);
	done();
}

static void it_gives_a_sign_of_life(void)
{
	arb_store64(&b->seg.slots[b->me.slot].heartbeat_ns, u_clock_ns);
}

/* Another process says that it waits, and never goes. */
Test(admission_set, a_waiter_that_fits_and_does_not_go_is_passed_over)
{
	struct arb_slot *s;
	uint64_t began;

	three();
	sample(10);
	s = &b->seg.slots[b->me.slot];
	arb_store32(&s->adm_want, 2 | 127u << ARB_WANT_PRIORITY_SHIFT);
	arb_store64(&s->adm_since_ns, 1);
	it_gives_a_sign_of_life();
	arb_bit_set(&b->seg.header->adm_waiting[0], 1ull << b->me.slot);
	u_futex.while_asleep = it_gives_a_sign_of_life;
	began = u_clock_ns;
	cr_assert_eq(acquire_for(a, "nmt", 5000, &la), GPUARB_OK);
	cr_assert(u_clock_ns - began > a->rules.grace_ns);
	cr_assert(u_clock_ns - began <= a->rules.grace_ns + 100 * MS);
	arb_admission_release(a, &la);
	began = u_clock_ns;
	it_gives_a_sign_of_life();
	cr_assert_eq(acquire_for(a, "nmt", 5000, &la), GPUARB_OK, "the next one goes at once");
	cr_assert_eq(u_clock_ns, began);
	arb_admission_release(a, &la);
	u_futex.while_asleep = NULL;
	arb_bit_clear(&b->seg.header->adm_waiting[0], 1ull << b->me.slot);
	done();
}

Test(admission_set, garbage_in_a_clients_bits_is_put_right_by_the_client)
{
	three();
	sample(10);
	/* b neither waits nor holds a lease; it lives, and its sign of life is fresh. */
	arb_store32(&b->seg.slots[b->me.slot].adm_want, 2 | 127u << ARB_WANT_PRIORITY_SHIFT);
	arb_bit_set(&b->seg.header->adm_waiting[0], 1ull << b->me.slot);
	arb_bit_set(&b->seg.header->adm_leased[0], 1ull << b->me.slot);
	cr_assert_eq(acquire_for(a, "nmt", GPUARB_NO_WAIT, &la), GPUARB_TIMEOUT);
	cr_assert_eq(la.reason, GPUARB_QUEUE);
	cr_assert_eq(gpuarb_client_tick(b), 0);
	cr_assert_not(leased(b));
	cr_assert_eq(acquire_for(a, "nmt", GPUARB_NO_WAIT, &la), GPUARB_OK);
	/* The bit of a client that holds a lease is set again. */
	arb_bit_clear(&a->seg.header->adm_leased[0], 1ull << a->me.slot);
	cr_assert_eq(gpuarb_client_tick(a), 0);
	cr_assert(leased(a));
	arb_admission_release(a, &la);
	done();
}

static void the_highest_tries_and_is_refused_by_the_set(void)
{
	u_futex.while_asleep = NULL;
	u_futex.nwoken = 0;
	cr_assert_eq(acquire_for(b, "top", GPUARB_NO_WAIT, &lb), GPUARB_TIMEOUT);
	cr_assert_eq(lb.reason, GPUARB_QUEUE);
	cr_assert_eq(u_futex.nwoken, 1, "a waiter that may have seen the bit");
	cr_assert_eq(u_futex.first_woken, &b->seg.slots[a->me.slot].wake);
}

Test(admission_set, a_stale_bit_makes_nobody_wait)
{
	three();
	set_class("top", "priority", "99");
	sample(100);
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0, "a client without a lease runs");
	u_futex.while_asleep = the_highest_tries_and_is_refused_by_the_set;
	cr_assert_eq(acquire_for(a, "asr", 20, &la), GPUARB_TIMEOUT);
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	done();
}

static uint64_t slept_until_ns;

/* Each read of the clock takes a while, as on a machine that seldom runs us. */
static uint64_t slow_clock(void)
{
	return u_clock_ns += MS / 2;
}

static int sleep_until(arb_u32 *word, uint32_t value, uint64_t until_ns)
{
	(void)word, (void)value;
	if (until_ns > slept_until_ns)
		slept_until_ns = until_ns;
	if (until_ns > u_clock_ns)
		u_clock_ns = until_ns;
	return -ETIMEDOUT;
}

static void waits_to_the_moment(void)
{
	for (int ms = 30; ms < 45; ms++) {
		uint64_t end = u_clock_ns + MS / 2 + (uint64_t)ms * MS;

		slept_until_ns = 0;
		cr_assert_eq(acquire_for(a, "asr", ms, &la), GPUARB_TIMEOUT);
		cr_assert_leq(slept_until_ns, end, "%d ms", ms);
		cr_assert_gt(slept_until_ns, end - 10 * MS, "%d ms", ms);
	}
}

Test(admission_set, nobody_sleeps_beyond_its_timeout_however_slow_the_machine)
{
	static const struct arb_os_hooks slow = {
		.now_ns = slow_clock, .futex_wake = u_futex_wake, .futex_wait_until = sleep_until};

	three();
	u_set("grace_ms", "600000");
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	sample(100);
	arb_os_hooks = &slow;
	waits_to_the_moment();
	/* So it is in the queue of the running set. */
	sample(10);
	u_set("policy", "exclusive");
	waits_to_the_moment();
	arb_admission_release(c, &lc);
	done();
}

/* The sampler's next sample comes between a viewer's look at the clock and its look at the sample. */
static uint64_t clock_before_the_sample(void)
{
	static int looks;
	uint64_t now = u_clock_ns;

	if (++looks == 1) {
		u_clock_ns += MS;
		arb_store64(
			&a->seg.header->adm_sample, arb_usage_pack(9500, ARB_SAMPLE_BUSY, true, u_clock_ns));
		u_clock_ns += MS;
	}
	return now;
}

Test(admission_set, a_viewer_sees_pressure_that_came_while_it_looked)
{
	static const struct arb_os_hooks hooks = {
		.now_ns = clock_before_the_sample, .futex_wake = u_futex_wake};
	static struct gpuarb_picture p;
	struct gpuarb_view *view;
	struct gpuarb_error err;

	three();
	sample(10);
	cr_assert_eq(gpuarb_view_open(u_dir.path, T_GPU, &view, &err), 0, "%s", err.text);
	arb_os_hooks = &hooks;
	cr_assert_eq(gpuarb_view_read(view, &p), 0);
	cr_assert(p.admission.high_pressure && p.admission.usage_known && p.admission.sampled);
	cr_assert_eq(p.admission.usage_hundredths, 9500);
	gpuarb_view_close(view);
	done();
}

Test(admission_set, a_viewer_sees_leases_and_waiters)
{
	static struct gpuarb_picture p;
	struct gpuarb_view *view;
	struct gpuarb_error err;

	three();
	sample(88);
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	u_clock_ns += 300 * MS;
	arb_store32(&b->seg.slots[b->me.slot].adm_want, 3 | 80 << ARB_WANT_PRIORITY_SHIFT);
	arb_bit_set(&b->seg.header->adm_waiting[0], 1ull << b->me.slot);
	cr_assert_eq(gpuarb_view_open(u_dir.path, T_GPU, &view, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_view_read(view, &p), 0);
	cr_assert(p.admission.high_pressure && p.admission.usage_known && p.admission.sampled);
	cr_assert_eq(p.admission.usage_hundredths, 8800);
	cr_assert_eq(p.admission.sample_age_ns / MS, 300);
	cr_assert_eq(p.admission.high_water, 85);
	cr_assert_eq(p.admission.queue_len, 1);
	cr_assert_eq(p.admission.leases, 1);
	cr_assert_eq(p.admission.nclasses, 5);
	cr_assert_str_eq(p.admission.classes[2].name, "nmt");
	cr_assert_eq(p.admission.classes[2].waiting, 1);
	cr_assert_eq(p.admission.classes[1].waiting, 0);
	gpuarb_view_close(view);
	arb_bit_clear(&b->seg.header->adm_waiting[0], 1ull << b->me.slot);
	arb_admission_release(a, &la);
	done();
}

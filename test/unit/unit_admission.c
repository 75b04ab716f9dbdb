/* Leases: which class goes, which waits and for how long, which is skipped. */
#include "test/unit/unit_admission.h"

TestSuite(admission, .init = open_dir, .fini = u_end);

Test(admission, a_lease_is_a_place_in_the_running_set)
{
	three();
	sample(10);
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	cr_assert(leased(a) && runs(a));
	cr_assert_eq(acquire(a, NULL, &lb), GPUARB_OK);
	cr_assert_eq(acquire(a, NULL, &lb), -EALREADY, "it would never be released");
	cr_assert_eq(a->guard->leases, 2, "counted here, one place for both");
	cr_assert_eq(arb_admission_release(a, &la), 0);
	cr_assert(leased(a) && runs(a));
	cr_assert_eq(arb_admission_release(a, &la), 0, "twice is as good as once");
	cr_assert_eq(a->guard->leases, 1);
	cr_assert_eq(arb_admission_release(a, &lb), 0);
	cr_assert_not(leased(a) || runs(a));
	cr_assert_eq(u_futex.nslept, 0);
	done();
}

static void pressure_ends(void)
{
	u_futex.while_asleep = NULL;
	sample(50);
}

Test(admission, under_pressure_a_high_class_waits_as_long_as_it_may)
{
	three();
	cr_assert_eq(acquire(c, "tts", &lc), GPUARB_OK);
	sample(90);
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_TIMEOUT);
	cr_assert_eq(la.reason, GPUARB_GPU_USAGE_HIGH);
	cr_assert_eq(la.waited_ns, 1000 * MS, "its class says so");
	u_futex.slept_ns = 0;
	cr_assert_eq(acquire_for(a, "asr", 37, &la), GPUARB_TIMEOUT);
	cr_assert_eq(la.waited_ns, 37 * MS, "its request says so");
	cr_assert_eq(acquire_for(a, "asr", GPUARB_NO_WAIT, &la), GPUARB_TIMEOUT);
	cr_assert_eq(la.waited_ns, 0);
	u_futex.while_asleep = pressure_ends;
	cr_assert_eq(acquire_for(a, "asr", INT64_MAX, &la), GPUARB_OK, "for as long as can be said");
	arb_admission_release(a, &la);
	cr_assert_eq(a->guard->leases, 0);
	arb_admission_release(c, &lc);
	done();
}

Test(admission, a_low_class_is_skipped_at_once_and_never_queues)
{
	three();
	sample(90);
	u_futex.nwoken = 0;
	cr_assert_eq(acquire(a, "repair", &la), GPUARB_SKIP);
	cr_assert_eq(la.reason, GPUARB_GPU_USAGE_HIGH);
	cr_assert_eq(acquire_for(a, "repair", 5000, &la), GPUARB_SKIP, "however long it would wait");
	cr_assert_eq(u_futex.nslept, 0);
	cr_assert_eq(arb_load32(&a->seg.slots[a->me.slot].adm_want), 0, "it never stood there");
	sample(10);
	cr_assert_eq(acquire(a, "repair", &la), GPUARB_OK);
	arb_admission_release(a, &la);
	done();
}

Test(admission, a_class_may_pass_under_pressure)
{
	three();
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	sample(100);
	cr_assert_eq(acquire(a, "tts", &la), GPUARB_OK);
	arb_admission_release(a, &la);
	arb_admission_release(c, &lc);
	done();
}

Test(admission, waiters_go_when_the_pressure_ends)
{
	three();
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	sample(90);
	u_futex.while_asleep = pressure_ends;
	cr_assert_eq(acquire(a, "nmt", &la), GPUARB_OK);
	cr_assert_eq(u_futex.nslept, 1);
	cr_assert_eq(u_futex.slept_ns, 0, "it was woken");
	arb_admission_release(a, &la);
	arb_admission_release(c, &lc);
	done();
}

static int low_result, low_skip;

/* The lease of high class waits: it is on the way to its futex, or asleep. */
static void low_tries_when_the_pressure_is_over(void)
{
	u_futex.while_asleep = NULL;
	sample(50);
	low_result = acquire_for(b, "nmt", GPUARB_NO_WAIT, &lb);
	low_skip = acquire(b, "repair", &lc);
}

Test(admission, a_low_class_does_not_go_while_a_high_one_that_fits_waits)
{
	three();
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	sample(90);
	u_futex.while_asleep = low_tries_when_the_pressure_is_over;
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	cr_assert_eq(low_result, GPUARB_TIMEOUT);
	cr_assert_eq(lb.reason, GPUARB_QUEUE);
	cr_assert_eq(low_skip, GPUARB_SKIP, "it does not stand behind others either");
	cr_assert_eq(acquire(b, "nmt", &lb), GPUARB_OK);
	done();
}

static void high_tries_when_the_pressure_is_over(void)
{
	u_futex.while_asleep = NULL;
	sample(50);
	low_result = acquire_for(b, "asr", GPUARB_NO_WAIT, &lb);
}

Test(admission, a_high_class_goes_before_a_low_one_that_waits)
{
	three();
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	sample(90);
	u_futex.while_asleep = high_tries_when_the_pressure_is_over;
	cr_assert_eq(acquire(a, "nmt", &la), GPUARB_OK);
	cr_assert_eq(low_result, GPUARB_OK);
	done();
}

Test(admission, without_leases_the_highest_class_goes_in_spite_of_the_pressure)
{
	three();
	sample(100);
	cr_assert_eq(acquire_for(a, "nmt", GPUARB_NO_WAIT, &la), GPUARB_TIMEOUT);
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	cr_assert_eq(acquire_for(b, "asr", 20, &lb), GPUARB_TIMEOUT, "one lease is out already");
	cr_assert_eq(acquire_for(a, "asr", 20, &lc), GPUARB_TIMEOUT, "its own lease counts as well");
	arb_admission_release(a, &la);
	cr_assert_eq(acquire(b, "asr", &lb), GPUARB_OK);
	arb_admission_release(b, &lb);
	done();
}

static void the_lease_is_released(void)
{
	u_futex.while_asleep = NULL;
	u_futex.nwoken = 0;
	arb_admission_release(a, &la);
	cr_assert_eq(u_futex.nwoken, 1, "the waiter at the head of the queue");
}

Test(admission, the_last_lease_wakes_the_highest_class)
{
	three();
	sample(100);
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	u_futex.while_asleep = the_lease_is_released;
	cr_assert_eq(acquire(b, "asr", &lb), GPUARB_OK);
	cr_assert_eq(u_futex.nslept, 1);
	arb_admission_release(b, &lb);
	done();
}

static void a_higher_one_comes_and_gives_up(void)
{
	u_futex.while_asleep = NULL;
	u_futex.nwoken = 0;
	cr_assert_eq(acquire_for(b, "asr", 20, &lb), GPUARB_TIMEOUT);
	cr_assert_eq(u_futex.nwoken, 1, "the waiter behind it");
	cr_assert_eq(u_futex.first_woken, &b->seg.slots[a->me.slot].wake);
}

static void a_lower_one_is_skipped(void)
{
	u_futex.while_asleep = NULL;
	u_futex.nwoken = 0;
	cr_assert_eq(acquire(b, "repair", &lb), GPUARB_SKIP);
	cr_assert_eq(u_futex.nwoken, 0);
}

Test(admission, a_skipped_task_disturbs_nobody)
{
	three();
	cr_assert_eq(acquire(c, "tts", &lc), GPUARB_OK);
	sample(100);
	u_futex.while_asleep = a_lower_one_is_skipped;
	cr_assert_eq(acquire(a, "nmt", &la), GPUARB_TIMEOUT);
	arb_admission_release(c, &lc);
	done();
}

Test(admission, a_waiter_that_gives_up_wakes_the_next)
{
	three();
	cr_assert_eq(acquire(c, "tts", &lc), GPUARB_OK);
	sample(100);
	u_futex.while_asleep = a_higher_one_comes_and_gives_up;
	cr_assert_eq(acquire(a, "nmt", &la), GPUARB_TIMEOUT);
	arb_admission_release(c, &lc);
	done();
}

static void another_of_the_class_comes(void)
{
	u_futex.while_asleep = NULL;
	low_result = acquire(b, "nmt", &lb);
	cr_assert_eq(lb.waited_ns, 0, "it is told at once");
}

Test(admission, a_full_queue_takes_nobody_in)
{
	three();
	sample(100);
	u_futex.while_asleep = another_of_the_class_comes;
	cr_assert_eq(acquire(a, "nmt", &la), GPUARB_TIMEOUT);
	cr_assert_eq(la.reason, GPUARB_GPU_USAGE_HIGH);
	cr_assert_eq(low_result, GPUARB_TIMEOUT);
	cr_assert_eq(lb.reason, GPUARB_QUEUE);
	done();
}

Test(admission, a_class_that_does_not_exist_is_an_error)
{
	three();
	cr_assert_eq(acquire(a, "nonsense", &la), -ENOENT);
	cr_assert_eq(acquire(a, "", &la), -ENOENT);
	set_class("nonsense", "priority", "95");
	cr_assert_eq(acquire(a, "nonsense", &la), GPUARB_OK);
	arb_admission_release(a, &la);
	sample(100);
	cr_assert_eq(acquire_for(a, "asr", GPUARB_NO_WAIT, &la), GPUARB_TIMEOUT, "no longer the highest");
	set_class("nonsense", NULL, NULL);
	cr_assert_eq(acquire(a, "nonsense", &la), -ENOENT);
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	arb_admission_release(a, &la);
	done();
}

Test(admission, classes_change_while_everything_runs)
{
	char text[32];
	struct gpuarb_error err;

	three();
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	sample(100);
	cr_assert_eq(acquire_for(a, "nmt", GPUARB_NO_WAIT, &la), GPUARB_TIMEOUT);
	set_class("nmt", "under_pressure", "pass");
	cr_assert_eq(acquire(a, "nmt", &la), GPUARB_OK);
	arb_admission_release(a, &la);
	set_class("nmt", "under_pressure", NULL);
	cr_assert_eq(acquire(a, "nmt", &la), GPUARB_TIMEOUT);
	cr_assert_eq(
		gpuarb_control_class(u_dir.path, T_GPU, "nmt", "max_wait_ms", text, sizeof(text), &err), 0);
	cr_assert_str_eq(text, "300");
	cr_assert_eq(gpuarb_control_class(u_dir.path, T_GPU, "default", "mode", text, sizeof(text), &err), 0);
	cr_assert_str_eq(text, "queue");
	cr_assert_eq(
		gpuarb_control_class(u_dir.path, T_GPU, "no", "mode", text, sizeof(text), &err), -ENOENT);
	cr_assert_eq(gpuarb_control_class(u_dir.path, T_GPU, "asr", "no", text, sizeof(text), &err), -EINVAL);
	arb_admission_release(c, &lc);
	done();
}

Test(admission, water_lines_change_while_everything_runs)
{
	three();
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	sample(88);
	cr_assert_eq(acquire(a, "repair", &la), GPUARB_SKIP);
	u_set("high_water", "95");
	cr_assert_eq(acquire(a, "repair", &la), GPUARB_SKIP, "88 is not yet below the low line");
	u_set("low_water", "90");
	cr_assert_eq(acquire(a, "repair", &la), GPUARB_OK);
	arb_admission_release(a, &la);
	arb_admission_release(c, &lc);
	done();
}

Test(admission, a_long_task_raises_the_lines_for_a_while)
{
	struct gpuarb_request request = {.task_class = "asr", .hint = {.input_ms = 7999, .hold_ms = 10}};

	three();
	sample(86);
	cr_assert_eq(arb_admission_acquire(c, &request, &lc), GPUARB_OK, "nobody has a lease");
	cr_assert_eq(acquire(a, "repair", &la), GPUARB_SKIP);
	request.hint.input_ms = 8000;
	sample(80);
	cr_assert_eq(arb_admission_acquire(a, &request, &la), GPUARB_OK, "80 is below 85");
	sample(91);
	cr_assert_eq(acquire(b, "repair", &lb), GPUARB_OK, "and 91 below 92");
	arb_admission_release(b, &lb);
	u_clock_ns += 15000 * MS - 1;
	cr_assert_eq(acquire(b, "repair", &lb), GPUARB_OK);
	arb_admission_release(b, &lb);
	u_clock_ns++;
	cr_assert_eq(acquire(b, "repair", &lb), GPUARB_SKIP, "the boost ends to the millisecond");
	arb_admission_release(a, &la);
	arb_admission_release(c, &lc);
	done();
}

Test(admission, without_a_sample_the_busy_clock_is_asked)
{
	three();
	u_set("cache_ttl_ms", "2000");
	sample(100);
	u_clock_ns += 3000 * MS;
	u_futex.nwoken = 0;
	cr_assert_eq(acquire(b, "repair", &lb), GPUARB_OK, "nobody runs, nobody has run in this window");
	cr_assert_eq(u_futex.nwoken, 1, "the sampler is woken");
	/* It was in the set for 60 of the 70 ms since the window began. */
	u_clock_ns += 60 * MS;
	cr_assert_eq(acquire(a, "repair", &la), GPUARB_SKIP);
	cr_assert_eq(la.reason, GPUARB_GPU_USAGE_HIGH);
	arb_admission_release(b, &lb);
	done();
}

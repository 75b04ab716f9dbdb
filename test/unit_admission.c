/* Leases, with a clock and a futex by hand: who goes, who waits and how long, who is passed over. */
#include "unit.h"

#include "../shm/admission.h"
#include "../shm/client.h"
#include "gpuarb/control.h"

#define MS 1000000ull

static struct {
	int nslept, nwoken;
	uint64_t slept_ns;
	void (*while_asleep)(void);
} f;

static int fake_wait(arb_u32 *word, uint32_t value, uint64_t timeout_ns)
{
	f.nslept++;
	cr_assert(f.nslept < 100000, "sleeps for ever");
	if (f.while_asleep)
		f.while_asleep();
	if (arb_load32(word) != value)
		return 0;
	f.slept_ns += timeout_ns;
	u_clock_ns += timeout_ns;
	return -ETIMEDOUT;
}

static int fake_wake(arb_u32 *word)
{
	(void)word;
	f.nwoken++;
	return 0;
}

static const struct arb_os_hooks hooks = {u_now, fake_wait, fake_wake};

static void open_dir(void)
{
	t_dir_make(&u_dir, "usage_sample_ms = 800\n"
			   "cache_ttl_ms = 600000\n"
			   "[class asr]\npriority = 90\nmax_wait_ms = 1000\n"
			   "[class nmt]\npriority = 80\nmax_wait_ms = 300\nqueue_limit = 1\n"
			   "[class tts]\npriority = 70\nunder_pressure = pass\n"
			   "[class repair]\npriority = 10\nmode = skip\n");
	memset(&f, 0, sizeof(f));
	arb_os_hooks = &hooks;
}

static void close_dir(void)
{
	t_dir_remove(&u_dir);
}

TestSuite(admission, .init = open_dir, .fini = close_dir);

static struct gpuarb_client *client(const char *account, unsigned core_pct)
{
	struct gpuarb_options o = t_options(&u_dir, account);
	struct gpuarb_client *c;
	struct gpuarb_error err = {0};

	o.core_pct = core_pct;
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), 0, "%s", err.text);
	return c;
}

static void set(const char *key, const char *value)
{
	struct gpuarb_change change = {NULL, key, value};
	struct gpuarb_error err = {0};

	cr_assert_eq(gpuarb_control_change(u_dir.path, T_GPU, &change, 1, &err), 0, "%s", err.text);
}

static void set_class(const char *name, const char *key, const char *value)
{
	struct gpuarb_class_change change = {name, key, value};
	struct gpuarb_error err = {0};

	cr_assert_eq(gpuarb_control_change_classes(u_dir.path, T_GPU, &change, 1, &err), 0, "%s", err.text);
}

static struct gpuarb_client *a, *b, *c;
static struct gpuarb_lease la, lb, lc;

/* A sample, as whoever is elected would bring it. */
static void sample(unsigned percent)
{
	if (arb_usage_publish(&a->seg, &a->rules.usage, percent * 100, ARB_SAMPLE_NVML, u_clock_ns))
		arb_sampler_wake_waiters(&a->seg);
}

static int acquire_for(
	struct gpuarb_client *who, const char *name, int64_t max_wait_ms, struct gpuarb_lease *lease)
{
	struct gpuarb_request r = {.task_class = name, .max_wait_ms = max_wait_ms};

	return arb_admission_acquire(who, &r, lease);
}

static int acquire(struct gpuarb_client *who, const char *name, struct gpuarb_lease *lease)
{
	return acquire_for(who, name, 0, lease);
}

static void three(void)
{
	a = client("a", 0);
	b = client("b", 0);
	c = client("c", 0);
}

static void done(void)
{
	cr_assert_eq(arb_admission_next(&a->seg, a->seg.header->adm_waiting, 0), ARB_NONE, "nobody waits");
	cr_assert_eq(arb_check(&a->seg, t_say, NULL), 0);
	gpuarb_client_close(c);
	gpuarb_client_close(b);
	cr_assert_eq(arb_admission_next(&a->seg, a->seg.header->adm_leased, 0) != ARB_NONE,
		a->guard->leases > 0, "a lease goes with its client");
	gpuarb_client_close(a);
}

static bool leased(const struct gpuarb_client *who)
{
	return arb_load64(&who->seg.header->adm_leased[0]) >> who->me.slot & 1;
}

static bool runs(struct gpuarb_client *who)
{
	struct gpuarb_client_status s;

	cr_assert_eq(gpuarb_client_status(who, &s), 0);
	return s.running;
}

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
	cr_assert_eq(f.nslept, 0);
	done();
}

static void pressure_ends(void)
{
	f.while_asleep = NULL;
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
	f.slept_ns = 0;
	cr_assert_eq(acquire_for(a, "asr", 37, &la), GPUARB_TIMEOUT);
	cr_assert_eq(la.waited_ns, 37 * MS, "its request says so");
	cr_assert_eq(acquire_for(a, "asr", GPUARB_NO_WAIT, &la), GPUARB_TIMEOUT);
	cr_assert_eq(la.waited_ns, 0);
	f.while_asleep = pressure_ends;
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
	f.nwoken = 0;
	cr_assert_eq(acquire(a, "repair", &la), GPUARB_SKIP);
	cr_assert_eq(la.reason, GPUARB_GPU_USAGE_HIGH);
	cr_assert_eq(acquire_for(a, "repair", 5000, &la), GPUARB_SKIP, "however long it would wait");
	cr_assert_eq(f.nslept, 0);
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

Test(admission, whoever_waits_goes_when_the_pressure_ends)
{
	three();
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	sample(90);
	f.while_asleep = pressure_ends;
	cr_assert_eq(acquire(a, "nmt", &la), GPUARB_OK);
	cr_assert_eq(f.nslept, 1);
	cr_assert_eq(f.slept_ns, 0, "it was woken");
	arb_admission_release(a, &la);
	arb_admission_release(c, &lc);
	done();
}

static int low_result, low_skip;

/* The high one is on the way to its futex, or asleep: it waits. */
static void low_tries_when_the_pressure_is_over(void)
{
	f.while_asleep = NULL;
	sample(50);
	low_result = acquire_for(b, "nmt", GPUARB_NO_WAIT, &lb);
	low_skip = acquire(b, "repair", &lc);
}

Test(admission, a_low_class_does_not_go_while_a_high_one_that_fits_waits)
{
	three();
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	sample(90);
	f.while_asleep = low_tries_when_the_pressure_is_over;
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	cr_assert_eq(low_result, GPUARB_TIMEOUT);
	cr_assert_eq(lb.reason, GPUARB_QUEUE);
	cr_assert_eq(low_skip, GPUARB_SKIP, "it does not stand behind others either");
	cr_assert_eq(acquire(b, "nmt", &lb), GPUARB_OK);
	done();
}

static void high_tries_when_the_pressure_is_over(void)
{
	f.while_asleep = NULL;
	sample(50);
	low_result = acquire_for(b, "asr", GPUARB_NO_WAIT, &lb);
}

Test(admission, a_high_class_goes_before_a_low_one_that_waits)
{
	three();
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	sample(90);
	f.while_asleep = high_tries_when_the_pressure_is_over;
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
	cr_assert_eq(acquire_for(b, "asr", 20, &lb), GPUARB_TIMEOUT, "one of them");
	cr_assert_eq(acquire_for(a, "asr", 20, &lc), GPUARB_TIMEOUT, "its own lease is one too");
	arb_admission_release(a, &la);
	cr_assert_eq(acquire(b, "asr", &lb), GPUARB_OK);
	arb_admission_release(b, &lb);
	done();
}

static void the_lease_is_released(void)
{
	f.while_asleep = NULL;
	f.nwoken = 0;
	arb_admission_release(a, &la);
	cr_assert_eq(f.nwoken, 1, "the one who waits for it");
}

Test(admission, the_last_lease_wakes_the_highest_class)
{
	three();
	sample(100);
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	f.while_asleep = the_lease_is_released;
	cr_assert_eq(acquire(b, "asr", &lb), GPUARB_OK);
	cr_assert_eq(f.nslept, 1);
	arb_admission_release(b, &lb);
	done();
}

static void another_of_the_class_comes(void)
{
	f.while_asleep = NULL;
	low_result = acquire(b, "nmt", &lb);
	cr_assert_eq(lb.waited_ns, 0, "it is told at once");
}

Test(admission, a_full_queue_takes_nobody_in)
{
	three();
	sample(100);
	f.while_asleep = another_of_the_class_comes;
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
	set("high_water", "95");
	cr_assert_eq(acquire(a, "repair", &la), GPUARB_SKIP, "88 is not yet below the low line");
	set("low_water", "90");
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
	cr_assert_eq(acquire(b, "repair", &lb), GPUARB_SKIP, "to the moment");
	arb_admission_release(a, &la);
	arb_admission_release(c, &lc);
	done();
}

Test(admission, without_a_sample_the_busy_clock_is_asked)
{
	three();
	set("cache_ttl_ms", "2000");
	sample(100);
	u_clock_ns += 3000 * MS;
	f.nwoken = 0;
	cr_assert_eq(acquire(b, "repair", &lb), GPUARB_OK, "nobody runs, nobody has run in this window");
	cr_assert_eq(f.nwoken, 1, "whoever samples is woken");
	/* 60 ms in the set of the 70 since the window began. */
	u_clock_ns += 60 * MS;
	cr_assert_eq(acquire(a, "repair", &la), GPUARB_SKIP);
	cr_assert_eq(la.reason, GPUARB_GPU_USAGE_HIGH);
	arb_admission_release(b, &lb);
	done();
}

Test(admission, one_at_a_time_where_the_policy_says_so)
{
	three();
	sample(10);
	set("policy", "exclusive");
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
	f.while_asleep = NULL;
	arb_admission_release(a, &la);
	u_clock_ns += 40 * MS;
}

static void a_releases_and_b_is_cancelled(void)
{
	f.while_asleep = NULL;
	arb_admission_release(a, &la);
	__atomic_store_n(&lb.cancelled, 1, __ATOMIC_SEQ_CST);
}

Test(admission, what_comes_at_the_last_moment_is_taken_or_given_back)
{
	three();
	sample(10);
	set("policy", "exclusive");
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	f.while_asleep = a_releases_at_the_last_moment;
	cr_assert_eq(acquire_for(b, "asr", 40, &lb), GPUARB_OK);
	arb_admission_release(b, &lb);
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	f.while_asleep = a_releases_and_b_is_cancelled;
	cr_assert_eq(acquire_for(b, "asr", 40, &lb), -ECANCELED);
	cr_assert_not(leased(b) || runs(b));
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK, "nobody is in its way");
	arb_admission_release(c, &lc);
	done();
}

static int order[4], norder;

static void a_releases(void)
{
	f.while_asleep = NULL;
	arb_admission_release(a, &la);
}

static void b_comes_with_a_higher_class(void)
{
	f.while_asleep = a_releases;
	low_result = acquire_for(b, "asr", 100, &lb);
	order[norder++] = 2;
	f.while_asleep = NULL;
	arb_admission_release(b, &lb);
}

Test(admission, the_set_goes_by_classes_too_however_long_one_has_waited)
{
	three();
	sample(10);
	set("policy", "exclusive");
	set("max_wait_ms", "5");
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	/* c waits first and for longer than max_wait_ms; b comes later with a higher class. */
	f.while_asleep = b_comes_with_a_higher_class;
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
	f.while_asleep = NULL;
	low_result = acquire_for(b, "repair", GPUARB_NO_WAIT, &lb);
	arb_admission_release(b, &lb);
}

Test(admission, without_quota_it_waits_and_is_in_nobodys_way)
{
	a = client("limited", 10);
	b = client("b", 0);
	c = client("c", 0);
	sample(10);
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	u_clock_ns += 50 * MS;
	arb_admission_release(a, &la);
	f.while_asleep = a_low_one_with_quota_goes;
	cr_assert_eq(acquire_for(a, "asr", 20, &la), GPUARB_TIMEOUT);
	cr_assert_eq(la.reason, GPUARB_QUOTA);
	cr_assert_eq(low_result, GPUARB_OK);
	cr_assert_eq(acquire_for(a, "asr", 2000, &la), GPUARB_OK, "when its debt is paid");
	arb_admission_release(a, &la);
	done();
}

Test(admission, a_tracked_client_is_not_put_into_the_set)
{
	three();
	sample(10);
	a->tracked = true;
	cr_assert_eq(acquire(a, "asr", &la), GPUARB_OK);
	cr_assert(leased(a));
	cr_assert_not(runs(a));
	cr_assert_eq(arb_load32(&a->seg.slots[a->me.slot].priority), 90, "its launches wait by the class");
	set("policy", "exclusive");
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
	f.while_asleep = NULL;
	__atomic_store_n(&la.cancelled, 1, __ATOMIC_SEQ_CST);
	arb_admission_cancel(a);
}

Test(admission, a_wait_can_be_cancelled)
{
	three();
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	sample(100);
	f.while_asleep = cancelled;
	cr_assert_eq(acquire(a, "asr", &la), -ECANCELED);
	cr_assert_eq(f.nslept, 1);
	la = (struct gpuarb_lease)GPUARB_LEASE_INIT;
	arb_admission_release(c, &lc);
	/* In the queue of the running set as well. */
	sample(10);
	set("policy", "exclusive");
	cr_assert_eq(acquire(c, "asr", &lc), GPUARB_OK);
	f.while_asleep = cancelled;
	cr_assert_eq(acquire(a, "asr", &la), -ECANCELED);
	arb_admission_release(c, &lc);
	done();
}

Test(admission, one_that_waits_and_does_not_look_is_passed_over)
{
	three();
	sample(10);
	/* b stands in the queue, stopped. */
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

Test(admission, a_viewer_sees_it)
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

/* Utilisation: NORMAL and HIGH_PRESSURE by tables of samples, boosts to the millisecond, words full of garbage. */
#include "test/unit/unit.h"

#include "shm/segment/usage.h"
#include "shm/admission/sampler.h"
#include "shm/admission/admission.h"
#include "units.h"

static const struct arb_usage_rules rules = {.sample_ns = 800 * MS,
	.ttl_ns = 2000 * MS,
	.high_pct = 85,
	.low_pct = 78,
	.high_boost_pct = 7,
	.low_boost_pct = 7,
	.long_task_ms = 8000,
	.boost_ttl_ns = 15000 * MS};

struct sequence {
	const char *what;
	int usage[12]; /* percent; -1 ends it */
	const char *states;
};

/* The state after each sample: N is NORMAL, H is HIGH_PRESSURE. */
static const struct sequence plain[] = {
	{"below both lines", {0, 50, 77, 78, -1}, "NNNN"},
	{"between the lines nothing changes", {84, 79, 84, 80, -1}, "NNNN"},
	{"the high line itself is pressure", {84, 85, -1}, "NH"},
	{"the low line itself ends it", {85, 79, 78, -1}, "HHN"},
	{"it comes back from the high line alone", {90, 78, 84, 79, 85, -1}, "HNNNH"},
	{"one sample may jump over both", {0, 100, 0, 100, -1}, "NHNH"},
	{"it stays while it stays high", {100, 99, 86, 85, 84, 79, -1}, "HHHHHH"},
};

static const struct sequence boosted[] = {
	{"what was pressure is none", {85, 91, -1}, "NN"},
	{"the raised line is one", {91, 92, -1}, "NH"},
	{"and so is the low one", {92, 86, 85, -1}, "HHN"},
};

static void run(const struct sequence *s, bool boost)
{
	struct arb_usage_lines lines = arb_usage_lines(&rules, boost);
	bool high = false;

	for (int i = 0; s->usage[i] >= 0; i++) {
		high = arb_usage_pressure(high, (unsigned)s->usage[i] * 100, lines);
		cr_assert_eq(high, s->states[i] == 'H', "%s: sample %d", s->what, i);
	}
}

Test(usage, states_follow_the_table)
{
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		run(&plain[i], false);
	for (size_t i = 0; i < sizeof(boosted) / sizeof(boosted[0]); i++)
		run(&boosted[i], true);
}

Test(usage, lines_never_pass_one_hundred_percent)
{
	struct arb_usage_rules r = rules;
	struct arb_usage_lines lines;

	r.high_pct = 97;
	r.low_pct = 96;
	r.low_boost_pct = 100;
	lines = arb_usage_lines(&r, true);
	cr_assert_eq(lines.high, ARB_USAGE_FULL);
	cr_assert_eq(lines.low, ARB_USAGE_FULL);
	cr_assert(arb_usage_pressure(false, ARB_USAGE_FULL, lines));
	cr_assert_not(arb_usage_pressure(true, ARB_USAGE_FULL - 1, lines));
}

Test(usage, low_line_boosted_above_the_high_one_does_not_swing)
{
	struct arb_usage_rules r = rules;
	struct arb_usage_lines lines;

	r.high_boost_pct = 0;
	r.low_boost_pct = 20;
	lines = arb_usage_lines(&r, true);
	cr_assert(arb_usage_pressure(false, 8500, lines));
	cr_assert(arb_usage_pressure(true, 8500, lines), "the same sample, the same answer");
}

Test(usage, a_sample_is_what_was_packed)
{
	uint64_t now = 123456789 * MS;
	struct arb_usage u =
		arb_usage_judge(&rules, arb_usage_pack(4321, ARB_SAMPLE_NVML, false, now), 0, now + 300 * MS);

	cr_assert(u.sampled && u.fresh);
	cr_assert_eq(u.hundredths, 4321);
	cr_assert_eq(u.source, ARB_SAMPLE_NVML);
	cr_assert(u.age_ns >= 300 * MS && u.age_ns < 301 * MS, "%llu", (unsigned long long)u.age_ns);
	cr_assert_eq(u.lines.high, 8500);
	cr_assert_eq(u.lines.low, 7800);
}

Test(usage, an_old_sample_is_not_believed)
{
	uint64_t now = 123456789ull << ARB_SAMPLE_TIME_UNIT,
		 word = arb_usage_pack(100, ARB_SAMPLE_BUSY, true, now);

	cr_assert(arb_usage_judge(&rules, word, 0, now + 2000 * MS).fresh);
	cr_assert_not(arb_usage_judge(&rules, word, 0, now + 2000 * MS + 1).fresh);
	cr_assert(arb_usage_judge(&rules, word, 0, now + 2000 * MS + 1).sampled);
	cr_assert(arb_usage_judge(&rules, word, 0, now + 2000 * MS + 1).high, "the last state there was");
}

Test(usage, garbage_is_no_sample)
{
	uint64_t now = 5000 * 1000 * MS;

	cr_assert_not(arb_usage_judge(&rules, 0, 0, now).sampled, "none yet");
	cr_assert_not(arb_usage_judge(&rules, UINT64_MAX, UINT64_MAX, now).sampled);
	cr_assert_not(
		arb_usage_judge(&rules, arb_usage_pack(1, ARB_SAMPLE_NVML, true, now + MS), 0, now).sampled,
		"from the future");
	cr_assert_not(arb_usage_judge(&rules, arb_usage_pack(1, ARB_SAMPLE_NONE, true, now), 0, now).sampled);
	cr_assert_not(arb_usage_judge(&rules, arb_usage_pack(0, ARB_SAMPLE_NVML, true, now) | 16383, 0, now)
			      .sampled,
		"more than everything");
	cr_assert_eq(arb_usage_judge(&rules, 0, now + rules.boost_ttl_ns + 1001 * MS, now).boost_until_ns, 0,
		"a boost longer than any that is given");
}

static void open_segment(void)
{
	u_open(8);
}

TestSuite(sample, .init = open_segment, .fini = u_close);

static bool high_at(uint64_t ns)
{
	return arb_usage_read(&u_seg, &rules, ns).high;
}

Test(sample, a_boost_ends_to_the_millisecond)
{
	uint64_t t = u_clock_ns, end = t + rules.boost_ttl_ns;

	cr_assert(arb_usage_boost(&u_seg, &rules, t));
	/* Samples come again and again, so that there is always a fresh one. */
	for (uint64_t at = t; at < end + 2000 * MS; at += 800 * MS)
		arb_usage_publish(&u_seg, &rules, 8800, ARB_SAMPLE_NVML, at);
	arb_store64(&u_seg.header->adm_sample, arb_usage_pack(8800, ARB_SAMPLE_NVML, false, end - 100 * MS));
	cr_assert_not(high_at(end - MS), "raised to 92");
	cr_assert(high_at(end), "back at 85, without a new sample");
	cr_assert_eq(arb_usage_read(&u_seg, &rules, end).lines.high, 8500);
	cr_assert_eq(arb_usage_read(&u_seg, &rules, end - 1).lines.high, 9200);
}

Test(sample, a_later_hint_lengthens_a_boost_and_an_earlier_one_does_not_shorten_it)
{
	uint64_t t = u_clock_ns;

	cr_assert(arb_usage_boost(&u_seg, &rules, t + 100 * MS));
	cr_assert_not(arb_usage_boost(&u_seg, &rules, t + 99 * MS));
	cr_assert_eq(arb_load64(&u_seg.header->adm_boost_until_ns), t + 100 * MS + rules.boost_ttl_ns);
	cr_assert(arb_usage_boost(&u_seg, &rules, t + 200 * MS));
	cr_assert_eq(arb_load64(&u_seg.header->adm_boost_until_ns), t + 200 * MS + rules.boost_ttl_ns);
}

Test(sample, a_boost_of_garbage_is_replaced)
{
	arb_store64(&u_seg.header->adm_boost_until_ns, UINT64_MAX);
	cr_assert_eq(arb_usage_read(&u_seg, &rules, u_clock_ns).boost_until_ns, 0);
	cr_assert(arb_usage_boost(&u_seg, &rules, u_clock_ns));
	cr_assert_eq(arb_load64(&u_seg.header->adm_boost_until_ns), u_clock_ns + rules.boost_ttl_ns);
}

Test(sample, the_sampler_says_when_the_pressure_is_over)
{
	uint64_t t = u_clock_ns;

	cr_assert_not(arb_usage_publish(&u_seg, &rules, 9000, ARB_SAMPLE_NVML, t));
	cr_assert_not(arb_usage_publish(&u_seg, &rules, 8000, ARB_SAMPLE_NVML, t + MS), "between the lines");
	cr_assert(high_at(t + MS));
	cr_assert(arb_usage_publish(&u_seg, &rules, 7800, ARB_SAMPLE_NVML, t + 2 * MS));
	cr_assert_not(high_at(t + 2 * MS));
	cr_assert_not(
		arb_usage_publish(&u_seg, &rules, 7700, ARB_SAMPLE_NVML, t + 3 * MS), "it was over before");
}

Test(sample, moved_lines_take_hold_without_a_sample_and_are_remembered)
{
	struct arb_usage_rules moved = rules;
	struct arb_usage u;

	arb_usage_publish(&u_seg, &rules, 8600, ARB_SAMPLE_NVML, u_clock_ns);
	moved.high_pct = 95;
	moved.low_pct = 90;
	u = arb_usage_read(&u_seg, &moved, u_clock_ns + MS);
	cr_assert_not(u.high);
	cr_assert(arb_usage_settle(&u_seg, &u, u_clock_ns + MS), "it was another state before");
	/* Between the lines of the new settings, the state is the one that was settled. */
	moved.high_pct = 87;
	moved.low_pct = 80;
	cr_assert_not(arb_usage_read(&u_seg, &moved, u_clock_ns + 2 * MS).high);
	u = arb_usage_read(&u_seg, &moved, u_clock_ns + 2 * MS);
	cr_assert_not(arb_usage_settle(&u_seg, &u, u_clock_ns + 2 * MS));
}

Test(sample, the_busy_clock_gives_the_part_of_the_time_in_which_a_client_ran)
{
	struct arb_busy base = {0, 0};
	struct arb_snap s;

	cr_assert_eq(arb_running_read(&u_seg, &s), 0);
	arb_running_advance(&s, u_ticks(), 100);
	cr_assert_eq(arb_usage_busy(&s, &base, 10 * MS, true), -1, "no time has passed");
	u_clock_ns += 20 * MS;
	u_enter(0, 256);
	u_clock_ns += 30 * MS;
	cr_assert_eq(arb_running_read(&u_seg, &s), 0);
	arb_running_advance(&s, u_ticks(), 100);
	cr_assert_eq(arb_usage_busy(&s, &base, 10 * MS, true), 6000, "30 of 50 ms of the window");
	u_clock_ns += 10 * MS;
	u_leave(0);
	u_clock_ns += 30 * MS;
	cr_assert_eq(arb_running_read(&u_seg, &s), 0);
	arb_running_advance(&s, u_ticks(), 100);
	cr_assert_eq(arb_usage_busy(&s, &base, 10 * MS, true), 2500, "10 of 40 ms since the last look");
}

Test(sample, a_bit_of_a_slot_that_is_not_live_counts_for_nothing)
{
	arb_store64(&u_seg.header->adm_waiting[0], ~0ull);
	cr_assert_eq(arb_admission_next(&u_seg, u_seg.header->adm_waiting, 0), ARB_NONE);
	arb_store32(&u_seg.slots[5].state, ARB_SLOT_LIVE);
	cr_assert_eq(arb_admission_next(&u_seg, u_seg.header->adm_waiting, 0), 5);
	cr_assert_eq(arb_admission_next(&u_seg, u_seg.header->adm_waiting, 6), ARB_NONE);
	arb_admission_forget(&u_seg, 5);
	cr_assert_eq(arb_admission_next(&u_seg, u_seg.header->adm_waiting, 0), ARB_NONE);
	arb_store32(&u_seg.slots[5].state, ARB_SLOT_FREE);
}

#define SAMPLERS 3

/* Three processes look at their times; the one that samples dies at `point_ns` of its period. */
static void one_dies_at(uint64_t period_ns, uint64_t point_ns)
{
	struct arb_usage_rules r = rules;
	struct arb_sampler s[SAMPLERS] = {0};
	uint64_t next[SAMPLERS], last = 0, dies = 0, worst = 0, until = u_clock_ns + 8 * period_ns;
	int elected = -1;

	r.sample_ns = period_ns;
	arb_store64(&u_seg.header->adm_sample, 0);
	for (int i = 0; i < SAMPLERS; i++)
		next[i] = u_clock_ns + (uint64_t)i * period_ns / SAMPLERS;
	while (u_clock_ns < until) {
		int i = 0;
		uint64_t wait_ns;

		for (int k = 1; k < SAMPLERS; k++)
			i = next[k] < next[i] ? k : i;
		if (dies && next[i] >= dies) {
			u_clock_ns = dies;
			dies = 0;
			next[elected] = UINT64_MAX;
			arb_sampler_stop(&s[elected]);
			continue;
		}
		u_clock_ns = next[i];
		if (arb_sampler_due(&s[i], &u_seg, &r, u_clock_ns, &wait_ns)) {
			cr_assert(arb_sampler_put(&s[i], &u_seg, &r, 100, 4200, u_clock_ns));
			if (last && u_clock_ns - last > worst)
				worst = u_clock_ns - last;
			last = u_clock_ns;
			if (elected < 0) {
				elected = i;
				dies = u_clock_ns + 2 * period_ns + point_ns;
			}
		}
		next[i] = u_clock_ns + (wait_ns > MS ? wait_ns : MS);
	}
	cr_assert_eq(dies, 0);
	cr_assert_eq(next[elected], UINT64_MAX);
	cr_assert_leq(u_clock_ns - last, 2 * period_ns, "nobody took over");
	cr_assert_leq(worst, 2 * period_ns, "%.2f periods of %llu ms without a sample, dead at %.2f",
		(double)worst / (double)period_ns, (unsigned long long)(period_ns / MS),
		(double)point_ns / (double)period_ns);
	for (int i = 0; i < SAMPLERS; i++)
		arb_sampler_stop(&s[i]);
}

Test(sample, a_sampler_that_dies_at_any_point_is_replaced_within_two_periods)
{
	static const uint64_t periods_ms[] = {50, 800, 10000};

	for (size_t p = 0; p < sizeof(periods_ms) / sizeof(periods_ms[0]); p++)
		for (uint64_t point = 0; point < 32; point++)
			one_dies_at(periods_ms[p] * MS, point * periods_ms[p] * MS / 32 + 1);
}

/* Whether a task may have a lease, by tables: the decision sees nothing but numbers. */
#include <criterion/criterion.h>

#include "shm/admission/decide.h"

#define PRIORITY(n) ((uint32_t)(n) << ARB_WANT_PRIORITY_SHIFT)

static const struct arb_usage_lines lines = {8500, 7800};

static struct arb_usage sample(bool fresh, bool was, bool high)
{
	return (struct arb_usage){.sampled = true,
		.fresh = fresh,
		.high = high,
		.lines = lines,
		.word = was ? ARB_SAMPLE_HIGH : 0};
}

Test(decide, a_change_of_pressure_is_noted_and_its_end_is_told)
{
	static const struct {
		bool was, high, note, over;
	} table[] = {{false, false, false, false}, {false, true, true, false}, {true, true, false, false},
		{true, false, true, true}};

	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct arb_usage u = sample(true, table[i].was, table[i].high);
		struct arb_decide_pressure p = arb_decide_pressure(&u, ARB_DECIDE_UNKNOWN);

		cr_assert_eq(p.high, table[i].high, "row %u", i);
		cr_assert_eq(p.note, table[i].note, "row %u", i);
		cr_assert_eq(p.over, table[i].over, "row %u", i);
	}
}

Test(decide, an_old_sample_gives_way_to_the_busy_clock_and_is_not_changed)
{
	static const struct {
		bool high;
		int busy;
		bool expected;
	} table[] = {{false, 8499, false}, {false, 8500, true}, {true, 7801, true}, {true, 7800, false},
		{false, ARB_DECIDE_UNKNOWN, true}, {true, ARB_DECIDE_UNKNOWN, true}};

	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct arb_usage u = sample(false, table[i].high, table[i].high);
		struct arb_decide_pressure p = arb_decide_pressure(&u, table[i].busy);

		cr_assert_eq(p.high, table[i].expected, "row %u", i);
		cr_assert_not(p.note || p.over, "row %u", i);
	}
}

Test(decide, which_task_goes_follows_the_table)
{
	static const struct {
		struct arb_decide_case c;
		uint32_t reason;
	} table[] = {
		{{.want = PRIORITY(50), .highest = 80}, ARB_REASON_NONE},
		{{.want = PRIORITY(50), .highest = 80, .ahead = 1}, ARB_REASON_QUEUE},
		{{.want = PRIORITY(50), .highest = 80, .high = true}, ARB_REASON_PRESSURE},
		{{.want = PRIORITY(50) | ARB_WANT_PASS, .highest = 80, .high = true}, ARB_REASON_NONE},
		{{.want = PRIORITY(80), .highest = 80, .high = true}, ARB_REASON_NONE},
		{{.want = PRIORITY(80), .highest = 80, .high = true, .leases = true}, ARB_REASON_PRESSURE},
		/* The reason is "others go first" even if the pressure would hold the task up as well. */
		{{.want = PRIORITY(50), .highest = 80, .high = true, .ahead = 2}, ARB_REASON_QUEUE},
		/* The mark that a task was blocked before does not keep it from asking again. */
		{{.want = PRIORITY(50) | ARB_WANT_BLOCKED, .highest = 80}, ARB_REASON_NONE},
	};

	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		cr_assert_eq(arb_decide(&table[i].c), table[i].reason, "row %u", i);
}

Test(decide, a_blocked_task_is_in_nobodys_way)
{
	struct arb_decide_case c = {.want = PRIORITY(80) | ARB_WANT_PASS, .highest = 80};

	cr_assert(arb_decide_fits(&c));
	c.want |= ARB_WANT_BLOCKED;
	cr_assert_not(arb_decide_fits(&c));
}

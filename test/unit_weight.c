/* What a client that waits for its work pays beside others. */
#include <criterion/criterion.h>

#include "../preload/weight.h"

#define US 1000ull

static void stays(struct weight *w, unsigned n, uint64_t ns, uint64_t calls, uint32_t others)
{
	for (unsigned i = 0; i < n; i++)
		weight_learn(
			w, &(struct weight_stay){
				   .ns = ns, .calls = calls, .handle = 7, .others = others, .steady = true});
}

Test(weight, is_whole_while_nothing_is_known)
{
	struct weight w = {0};

	stays(&w, 100, 2020 * US, 1, WEIGHT_ONE);
	cr_assert(w.now == 0 || w.now == WEIGHT_ONE);
}

Test(weight, pays_what_it_gets_in_time_slices)
{
	struct weight w = {0};

	stays(&w, 100, 20 * US, 1, 0);
	stays(&w, 100, 2020 * US, 1, WEIGHT_ONE);
	/* One percent of the GPU: 256 / 100. */
	cr_assert(w.now >= 2 && w.now <= 3, "%u", w.now);
	/* Beside two of them it comes round half as often, and pays half as much of twice as many. */
	stays(&w, 1000, 4020 * US, 1, 2 * WEIGHT_ONE);
	cr_assert(w.now >= 2 && w.now <= 3, "%u", w.now);
}

Test(weight, is_told_by_events_where_nothing_was_seen_alone)
{
	struct weight w = {0};

	for (int i = 0; i < 100; i++)
		weight_learn(&w, &(struct weight_stay){.ns = 2020 * US,
					 .calls = 1,
					 .handle = 7,
					 .others = WEIGHT_ONE,
					 .timed_ns = 20 * US});
	cr_assert(w.now >= 2 && w.now <= 3, "%u", w.now);
}

Test(weight, is_whole_where_the_device_is_shared)
{
	struct weight w = {0};

	stays(&w, 100, 20 * US, 1, 0);
	stays(&w, 100, 40 * US, 1, WEIGHT_ONE);
	cr_assert(w.now >= WEIGHT_ONE - 1, "%u", w.now);
	stays(&w, 10000, 60 * US, 1, 2 * WEIGHT_ONE);
	cr_assert(w.now >= WEIGHT_ONE - 1, "%u", w.now);
}

Test(weight, counts_the_calls_of_a_stay)
{
	struct weight w = {0};

	stays(&w, 100, 200 * US, 10, 0);
	stays(&w, 100, 2200 * US, 10, WEIGHT_ONE);
	cr_assert(w.now >= 25 && w.now <= 26, "%u", w.now);
}

Test(weight, is_whole_again_with_the_first_stay_that_was_held_up)
{
	struct weight w = {0};

	stays(&w, 100, 20 * US, 1, 0);
	stays(&w, 100, 2020 * US, 1, WEIGHT_ONE);
	weight_learn(
		&w, &(struct weight_stay){.ns = 5000 * US, .calls = 9, .others = WEIGHT_ONE, .held = true});
	cr_assert_eq(w.now, WEIGHT_ONE);
}

Test(weight, is_not_misled_by_one_that_was_not_alone_after_all)
{
	struct weight w = {0};

	stays(&w, 100, 20 * US, 1, 0);
	stays(&w, 1, 40 * US, 1, 0);
	cr_assert(w.call_ns < 22 * US, "%lu", (unsigned long)w.call_ns);
	weight_learn(&w, &(struct weight_stay){.ns = 2000 * US, .calls = 1, .handle = 7});
	cr_assert(w.call_ns < 22 * US, "somebody came and went: %lu", (unsigned long)w.call_ns);
}

Test(weight, bears_nonsense)
{
	struct weight w = {0};

	stays(&w, 1, 0, 0, 0);
	stays(&w, 1, 1, 0, 5);
	stays(&w, 1, 0, 1, 5);
	stays(&w, 10, 1, UINT64_MAX, 1);
	stays(&w, 10, UINT64_MAX, 1, UINT32_MAX);
	stays(&w, 10, 1, 1, UINT32_MAX);
	cr_assert(w.now <= WEIGHT_ONE);
}

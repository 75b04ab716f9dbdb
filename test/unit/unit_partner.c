/* Kernels that wait for a partner on another GPU: when that is believed, and what is learned from their length. */
#include <criterion/criterion.h>

#include "preload/book/parts.h"
#include "test/alarm.h"

#define WINDOW_NS (100 * MS)

static struct book b;

/* Asks about the only kernel that is queued, with the gate closed, in the window that ends at `window_end_ns`. */
static bool waits(uint64_t window_end_ns)
{
	uint64_t begun_ns = window_end_ns - 50 * MS;

	b.state = BOOK_DRAINING;
	b.others.window_ns = WINDOW_NS;
	b.others.window_end_ns = window_end_ns;
	b.queue.count = 1;
	b.queue.fence[0] = (struct book_fence){
		.launches = 1, .begun_ns = begun_ns, .recorded_ns = begun_ns, .expected_ns = MS};
	cr_assert_not(partner_waits(&b, begun_ns + 2 * MS + LONG_NS - 1), "it is not late yet");
	return partner_waits(&b, begun_ns + 2 * MS + LONG_NS);
}

static void passes(uint64_t at_ns)
{
	partner_passed(&b, &b.queue.fence[0], at_ns, 50 * MS);
}

/* `n` kernels behind it end, each after `took_ns`. */
static void more(uint64_t n, uint64_t took_ns)
{
	for (uint64_t i = 0; i < n; i++)
		partner_passed(&b, &(struct book_fence){.launches = 1, .recorded_ns = i + 1}, 0, took_ns);
}

Test(partner, a_wait_is_believed_once_and_then_only_with_short_kernels_behind_the_last)
{
	uint64_t end = 10 * WINDOW_NS;

	book_init(&b, true);
	cr_assert_not(waits(end), "nobody has seen one yet");
	passes(end + MS);
	cr_assert(waits(end += WINDOW_NS), "two that wait from their first window on have none behind it");
	passes(end + MS);
	more(PARTNER_SHORTS - 1, MS);
	cr_assert_not(waits(end += WINDOW_NS), "one short kernel too few");
	passes(end + MS);
	more(PARTNER_SHORTS, 50 * MS / PARTNER_SHORTS);
	cr_assert_not(waits(end += WINDOW_NS), "those behind it are long as well: it did not wait");
	passes(end + MS);
	more(PARTNER_SHORTS, 50 * MS / PARTNER_SHORTS - 1);
	cr_assert(waits(end += WINDOW_NS));
	passes(end + 50 * MS);
	more(PARTNER_SHORTS, MS);
	cr_assert_not(waits(end += WINDOW_NS), "the last one ended in the midst of a window");
}

/* A kernel of a client whose work stalls has ended. Returns the length that is expected of the next. */
static uint64_t teach(uint64_t expected_ns, uint64_t took_ns)
{
	struct book_event fence = {.kind = EVENT_FENCED, .covers = 1, .work = 7, .at_ns = MS, .now_ns = MS};
	struct book_event passed = {.kind = EVENT_PASSED, .at_ns = MS + took_ns, .now_ns = MS + took_ns};
	uint8_t alternates = 0;

	book_init(&b, true);
	durations_raise(&b.durations, 7, expected_ns);
	fence_put(&b, &fence);
	b.others.stalls = true;
	fence_passed(&b, &passed, &alternates);
	return durations_expect(&b.durations, 7, 1);
}

Test(partner, a_kernel_that_may_have_waited_at_most_doubles_the_expected_length)
{
	cr_assert_eq(teach(10 * MS, 15 * MS), 15 * MS);
	cr_assert_eq(teach(10 * MS, 900 * MS), 20 * MS);
}

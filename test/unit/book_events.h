/* For tests of the tracking core, which tell it events and look at its decisions. Each test program has one book, one
 * clock and one count of calls. */
#ifndef TEST_UNIT_BOOK_EVENTS_H
#define TEST_UNIT_BOOK_EVENTS_H

#include <criterion/criterion.h>
#include <errno.h>

#include "preload/book/book.h"
#include "preload/book/parts.h"

#define KERNEL 77
#define STREAM 1000
#define CTX    5

static struct book b;
static uint64_t now, calls;

static inline struct book_event event(enum book_event_kind kind)
{
	return (struct book_event){
		.kind = (uint8_t)kind,
		.fence = BOOK_NO_FENCE,
		.covers = 1,
		.now_ns = now,
		.calls = calls,
		.look_ns = 2 * MS,
		.budget_ns = (int64_t)MS,
		.work = KERNEL,
		.stream = STREAM,
		.ctx = CTX,
	};
}

static inline struct book_action tell(struct book_event e)
{
	return book_tell(&b, &e);
}

static inline void begin(bool limited)
{
	now = 1000 * MS;
	calls = 0;
	book_init(&b, limited);
}

static inline struct book_action ask(uint32_t call)
{
	struct book_event e = event(EVENT_ASKED);

	e.call = call | STEP_LOOKED;
	return tell(e);
}

static inline struct book_action entered(int result)
{
	struct book_event e = event(EVENT_ENTERED);

	e.result = result;
	return tell(e);
}

/* A launch that is let through, takes a microsecond in the driver and gets a fence at `fence`. */
static inline struct book_action launch(uint8_t fence)
{
	struct book_event e;
	struct book_action act;

	tell(event(EVENT_LET));
	now += US;
	e = event(EVENT_RETURNED);
	e.at_ns = now - US;
	act = tell(e);
	cr_assert_eq(act.what, ACT_FENCE);
	e = event(EVENT_FENCED);
	e.fence = fence;
	e.at_ns = now;
	e.call = act.wake ? CALL_FIRST : 0;
	return tell(e);
}

static inline void enter_and_launch(uint8_t fence)
{
	calls++;
	cr_assert_eq(ask(0).what, ACT_ENTER);
	entered(0);
	cr_assert_eq(ask(CALL_ENTERED).what, ACT_PASS);
	launch(fence);
}

static inline void pass(uint8_t fence, uint64_t end)
{
	struct book_event e = event(EVENT_PASSED);

	e.fence = fence;
	e.at_ns = end;
	tell(e);
}

static inline struct book_action status(struct book_status s)
{
	struct book_event e = event(EVENT_STATUS);

	e.status = s;
	e.status.tail_pct = -1;
	e.status.turn_left_ns = UINT64_MAX;
	return tell(e);
}

static inline struct book_status limited(int verdict, uint64_t left_ns)
{
	return (struct book_status){.verdict = verdict,
		.core_pct = 30,
		.running = true,
		.window_ns = 100 * MS,
		.window_end_ns = now + 50 * MS,
		.left_ns = left_ns};
}

#endif

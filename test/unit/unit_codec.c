/* The bytes of traces: whatever is written is read again, and a torn or garbled file is noticed. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "preload/book/codec.h"
#include "preload/book/parts.h"
#include "preload/book/replay.h"
#include "test/harness.h"

static uint8_t trace[1 << 20];
static size_t size;
static struct codec writer;
static struct book b;
static uint64_t now;

static const struct trace_header header = {.began_ns = 1000 * SECOND,
	.pid = 4711,
	.limited = true,
	.version = "0.1",
	.program = "train",
	.gpu = "GPU-x"};

static void begin(void)
{
	struct trace_header h = header;

	h.thresholds = codec_thresholds();
	now = h.began_ns;
	codec_begin(&writer, &h);
	size = codec_put_header(trace, &h);
	book_init(&b, h.limited);
}

static void put(const struct trace_record *r)
{
	cr_assert_lt(size + CODEC_MOST, sizeof(trace));
	size += codec_put(&writer, trace + size, r);
}

/* Tells the book an event, as the recorder does. */
static struct book_action tell(struct book_event e)
{
	struct trace_record r = {.thread = 7};

	e.now_ns = now;
	r.event = e;
	r.action = book_tell(&b, &e);
	r.outcome = codec_outcome(&b);
	put(&r);
	return r.action;
}

static void end(enum trace_note note)
{
	const struct trace_record r = {.note = (uint8_t)note};

	put(&r);
}

/* Records launches that get a fence each and end, one after the other. */
static void record_work(unsigned launches)
{
	begin();
	for (unsigned i = 1; i <= launches; i++) {
		struct book_event e = {.covers = 1, .calls = i, .work = 77 + i % 3, .stream = 9, .ctx = 5};

		e.kind = EVENT_ASKED;
		e.call = STEP_LOOKED;
		if (tell(e).what == ACT_ENTER) {
			e.kind = EVENT_ENTERED;
			tell(e);
		}
		now += US;
		e.kind = EVENT_LET;
		tell(e);
		e.kind = EVENT_RETURNED;
		e.at_ns = now;
		now += 5 * US;
		tell(e);
		e.kind = EVENT_FENCED;
		e.fence = (uint8_t)(i % BOOK_FENCES);
		e.at_ns = now;
		tell(e);
		now += 300 * US;
		e.kind = EVENT_PASSED;
		e.at_ns = now - 7 * US;
		tell(e);
	}
	end(TRACE_ENDED);
}

static struct replay *replayed(size_t of)
{
	static struct replay p;
	struct trace_record r;

	cr_assert(replay_begin(&p, trace, of));
	while (replay_next(&p, &r))
		;
	return &p;
}

Test(codec, what_was_recorded_is_decided_the_same_again)
{
	struct replay *p;
	char words[768];

	record_work(100);
	p = replayed(size);
	cr_assert(replay_verdict(p, words, sizeof(words)), "%s", words);
	cr_assert(strstr(words, "until the program ended"), "%s", words);
	cr_assert_gt(p->events, 499);
	cr_assert_str_eq(p->header.program, "train");
	cr_assert_str_eq(p->header.gpu, "GPU-x");
	cr_assert_eq(p->header.pid, 4711);
}

Test(codec, a_record_is_short)
{
	record_work(1000);
	cr_assert_lt(size / 5000, 12, "%zu bytes an event", size / 5000);
}

/* Tries every field at its smallest, its largest and at random values. */
Test(codec, any_event_and_any_decision_come_back)
{
	struct t_random random = t_seeded(3);
	static struct trace_record told[400];
	struct codec reader;
	struct trace_header h;
	size_t at;

	begin();
	for (unsigned i = 0; i < 400; i++) {
		struct trace_record *r = &told[i];
		struct book_status *s = &r->event.status;
		uint64_t *words[] = {&r->event.now_ns, &r->event.calls, &r->event.unfenced, &r->event.look_ns,
			&r->event.work, &r->event.stream, &r->event.ctx, &r->event.at_ns, &r->event.took_ns,
			&s->window_ns, &s->window_end_ns, &s->left_ns, &s->look_ns, &s->turn_left_ns,
			&r->action.at_ns, &r->action.ns};
		bool *flags[] = {&s->turns, &s->running, &s->gated, &s->above_present, &s->request_present,
			&s->shares, &r->action.wake, &r->action.soon, &r->action.callback, &r->action.carry};

		for (unsigned w = 0; w < sizeof(words) / sizeof(words[0]); w++)
			*words[w] = t_below(&random, 3) ? t_next(&random) >> t_below(&random, 64)
							: 0 - (uint64_t)t_below(&random, 2);
		for (unsigned f = 0; f < sizeof(flags) / sizeof(flags[0]); f++)
			*flags[f] = t_below(&random, 2);
		r->thread = (uint32_t)t_next(&random);
		r->outcome = (uint8_t)t_next(&random);
		r->event.kind = (uint8_t)t_below(&random, EVENT_KINDS);
		r->event.fence = (uint8_t)t_next(&random);
		r->event.facts = (uint16_t)t_next(&random);
		r->event.call = (uint32_t)t_next(&random);
		r->event.covers = (uint32_t)t_next(&random);
		r->event.result = (int32_t)t_next(&random);
		r->event.budget_ns = (int64_t)t_next(&random);
		s->verdict = -EDQUOT;
		s->tail_pct = -1;
		s->core_pct = t_below(&random, 101);
		s->others = t_below(&random, 3);
		r->action.what = (uint8_t)t_below(&random, ACT_KINDS);
		r->action.alternates = (uint8_t)t_below(&random, 2);
		r->action.n = (uint32_t)t_next(&random);
		r->action.step = (uint32_t)t_next(&random);
		put(r);
	}
	at = (size_t)codec_take_header(trace, size, &h);
	codec_begin(&reader, &h);
	for (unsigned i = 0; i < 400; i++) {
		struct trace_record r;
		int n = codec_take(&reader, trace + at, size - at, &r);

		cr_assert_gt(n, 0, "record %u", i);
		cr_assert_eq(memcmp(&r, &told[i], sizeof(r)), 0, "record %u", i);
		at += (size_t)n;
	}
	cr_assert_eq(at, size);
}

/* The file of a killed program may end anywhere. */
Test(codec, a_torn_trace_is_replayed_up_to_where_it_ends)
{
	char words[768];
	uint64_t before = 0;
	int whole;

	record_work(20);
	whole = codec_take_header(trace, size, &(struct trace_header){0});
	for (size_t of = (size_t)whole; of < size; of++) {
		struct replay *p = replayed(of);

		cr_assert(replay_verdict(p, words, sizeof(words)), "%zu of %zu bytes: %s", of, size, words);
		cr_assert(p->events >= before && p->events <= before + 1);
		cr_assert(strstr(words, "killed"), "%s", words);
		before = p->events;
	}
	for (size_t of = 0; of < (size_t)whole; of++)
		cr_assert_not(replay_begin(&(struct replay){0}, trace, of));
}

Test(codec, another_decision_is_found_and_said)
{
	struct trace_record r = {.thread = 7};
	struct replay *p;
	char words[768];

	begin();
	r.event = (struct book_event){.kind = EVENT_ASKED, .covers = 1, .now_ns = now};
	r.action = book_tell(&b, &r.event);
	cr_assert_eq(r.action.what, ACT_ENTER);
	r.action.what = ACT_PASS;
	put(&r);
	end(TRACE_ENDED);
	p = replayed(size);
	cr_assert_not(replay_verdict(p, words, sizeof(words)));
	cr_assert(strstr(words, "event 1 is decided otherwise"), "%s", words);
	cr_assert(strstr(words, "it may go on") && strstr(words, "enter the running set"), "%s", words);
}

Test(codec, an_open_gate_that_was_closed_is_another_decision)
{
	struct trace_record r = {.thread = 7};

	begin();
	r.event = (struct book_event){.kind = EVENT_LET, .now_ns = now};
	r.action = book_tell(&b, &r.event);
	r.outcome = codec_outcome(&b) | 8;
	put(&r);
	cr_assert(replayed(size)->differs);
}

Test(codec, garbage_ends_the_replay)
{
	char words[768];

	record_work(3);
	size -= 2; /* the last record, a note */
	trace[size++] = 0x1e;
	trace[size++] = 0;
	cr_assert_not(replay_verdict(replayed(size), words, sizeof(words)));
	cr_assert(strstr(words, "garbage"), "%s", words);
	memcpy(trace, "GPUARB", 6);
	cr_assert_not(replay_begin(&(struct replay){0}, trace, size));
}

/* A clock or a count that is impossibly large is not told to the book. */
Test(codec, what_cannot_have_been_told_is_garbage)
{
	struct trace_record r = {.event = {.kind = EVENT_FENCED, .covers = UINT32_MAX}};

	begin();
	r.event.now_ns = now;
	put(&r);
	cr_assert(replayed(size)->garbage);
	cr_assert_eq(replayed(size)->events, 0);
}

Test(codec, a_full_trace_says_so)
{
	char words[768];

	begin();
	end(TRACE_FULL);
	cr_assert(replay_verdict(replayed(size), words, sizeof(words)));
	cr_assert(strstr(words, "until the trace was full"), "%s", words);
}

Test(codec, other_thresholds_are_said)
{
	struct trace_header h = header;
	char words[768];

	h.thresholds = codec_thresholds() + 1;
	size = codec_put_header(trace, &h);
	cr_assert(replay_verdict(replayed(size), words, sizeof(words)));
	cr_assert(strstr(words, "other thresholds"), "%s", words);
}

/* Every event and decision has words, and no words are too long for their buffer. */
Test(codec, every_event_and_every_decision_has_words)
{
	for (unsigned kind = 0; kind < EVENT_KINDS; kind++)
		for (unsigned what = 0; what < ACT_KINDS; what++) {
			struct book_event e = {.kind = (uint8_t)kind,
				.now_ns = 5,
				.covers = UINT32_MAX,
				.status = {.core_pct = 30, .others = UINT32_MAX, .above_present = true}};
			struct book_action a = {.what = (uint8_t)what,
				.at_ns = UINT64_MAX,
				.ns = UINT64_MAX,
				.wake = true,
				.callback = true,
				.alternates = 1};
			char words[256], few[8];

			book_words(words, sizeof(words), &e, &a);
			cr_assert_null(
				strchr(words, '?') && kind != EVENT_SETTLE ? words : NULL, "%s", words);
			cr_assert(strstr(words, ": "), "%s", words);
			book_words(few, sizeof(few), &e, &a);
			cr_assert_eq(strncmp(few, words, sizeof(few) - 1), 0);
			cr_assert_str_neq(book_event_name(kind), "?");
			cr_assert_str_neq(book_action_name(what), "?");
		}
}

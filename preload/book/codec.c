#include "preload/book/codec.h"

#include <string.h>

#include "preload/book/thresholds.h"

/* How a changed field is written. NUMBER: as the difference to its last value. FLAG: nothing follows, it is the opposite.
 * TIME: as the difference to the event's own time. NAME, of a kernel, stream or context: by its place in a table. */
enum coding { NUMBER, FLAG, TIME, NAME };

struct field {
	uint16_t offset;
	uint8_t bytes, coding;
};

#define FIELD(type, name, coding)                                                                            \
	{                                                                                                    \
		offsetof(struct type, name), sizeof(((struct type *)0)->name), coding                        \
	}
#define EVENT(name, coding)  FIELD(trace_record, event.name, coding)
#define ACTION(name, coding) FIELD(trace_record, action.name, coding)

/* Fields that change often come first, so that most masks have one byte. */
static const struct field event_fields[] = {
	EVENT(at_ns, TIME),
	EVENT(took_ns, NUMBER),
	EVENT(fence, NUMBER),
	EVENT(calls, NUMBER),
	EVENT(unfenced, NUMBER),
	EVENT(call, NUMBER),
	EVENT(work, NAME),
	EVENT(look_ns, NUMBER),
	EVENT(budget_ns, NUMBER),
	EVENT(facts, NUMBER),
	EVENT(covers, NUMBER),
	EVENT(result, NUMBER),
	EVENT(stream, NAME),
	EVENT(ctx, NAME),
	EVENT(status.left_ns, NUMBER),
	EVENT(status.look_ns, NUMBER),
	EVENT(status.window_end_ns, TIME),
	EVENT(status.turn_left_ns, NUMBER),
	EVENT(status.others, NUMBER),
	EVENT(status.verdict, NUMBER),
	EVENT(status.tail_pct, NUMBER),
	EVENT(status.core_pct, NUMBER),
	EVENT(status.window_ns, NUMBER),
	EVENT(status.turns, FLAG),
	EVENT(status.running, FLAG),
	EVENT(status.gated, FLAG),
	EVENT(status.above_present, FLAG),
	EVENT(status.request_present, FLAG),
	EVENT(status.shares, FLAG),
};

static const struct field action_fields[] = {
	ACTION(what, NUMBER),
	FIELD(trace_record, outcome, NUMBER),
	ACTION(ns, NUMBER),
	ACTION(at_ns, TIME),
	ACTION(n, NUMBER),
	ACTION(step, NUMBER),
	ACTION(wake, FLAG),
	ACTION(soon, FLAG),
	ACTION(callback, FLAG),
	ACTION(carry, FLAG),
	ACTION(alternates, NUMBER),
};

/* Without the NUL. */
#define MAGIC_BYTES   (sizeof(TRACE_MAGIC) - 1)
#define EVENT_FIELDS  (sizeof(event_fields) / sizeof(event_fields[0]))
#define ACTION_FIELDS (sizeof(action_fields) / sizeof(action_fields[0]))

/* The first byte of a record. */
#define KIND_MASK  0x1f
#define KIND_NOTE  0x1f
#define HAS_THREAD 0x20
#define HAS_EVENT  0x40
#define HAS_ACTION 0x80

_Static_assert(EVENT_KINDS < KIND_NOTE, "a kind of event and the note must fit into five bits");
_Static_assert(CODEC_MOST >= 1 + 5 + 3 * 10 + 10 * (EVENT_FIELDS + ACTION_FIELDS), "the longest record");
_Static_assert(CODEC_MOST >= sizeof(TRACE_MAGIC) + 4 * 10 + 1 + sizeof(struct trace_header), "the header");

static uint64_t load(const struct trace_record *r, const struct field *f)
{
	uint64_t value = 0;

	/* Right on little-endian machines alone; CUDA runs on no others. */
	memcpy(&value, (const char *)r + f->offset, f->bytes);
	return value;
}

static void store(struct trace_record *r, const struct field *f, uint64_t value)
{
	memcpy((char *)r + f->offset, &value, f->bytes);
}

static uint8_t *put_number(uint8_t *to, uint64_t n)
{
	for (; n >= 0x80; n >>= 7)
		*to++ = (uint8_t)(n | 0x80);
	*to++ = (uint8_t)n;
	return to;
}

/* Small differences of either sign take few bytes. */
static uint8_t *put_difference(uint8_t *to, uint64_t n, uint64_t base)
{
	uint64_t d = n - base;

	return put_number(to, d >> 63 ? ~(d << 1) : d << 1);
}

/* What is left to be read. `early`: the bytes end within a field; `wrong`: no gpuarb can have written them. */
struct bytes {
	const uint8_t *at, *end;
	bool early, wrong;
};

static uint8_t take_byte(struct bytes *b)
{
	if (b->at == b->end) {
		b->early = true;
		return 0;
	}
	return *b->at++;
}

static uint64_t take_number(struct bytes *b)
{
	uint64_t n = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t byte = take_byte(b);

		n |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return n;
	}
	b->wrong = true;
	return 0;
}

static uint64_t take_difference(struct bytes *b, uint64_t base)
{
	uint64_t n = take_number(b);

	return base + ((n >> 1) ^ (0 - (n & 1)));
}

/* Writes the place of a name in the table, counted from 1. A name that has no place is written as 0 and itself, and gets one. */
static uint8_t *put_name(struct codec *c, uint8_t *to, uint64_t name)
{
	for (uint32_t i = 0; i < CODEC_NAMES && i < c->named; i++)
		if (c->names[i] == name)
			return put_number(to, i + 1);
	c->names[c->named++ % CODEC_NAMES] = name;
	return put_number(put_number(to, 0), name);
}

static uint64_t take_name(struct codec *c, struct bytes *b)
{
	uint64_t place = take_number(b), name;

	if (place && (place > CODEC_NAMES || place > c->named)) {
		b->wrong = true;
		return 0;
	}
	if (place)
		return c->names[place - 1];
	name = take_number(b);
	c->names[c->named++ % CODEC_NAMES] = name;
	return name;
}

static uint64_t differing(
	const struct trace_record *r, const struct trace_record *last, const struct field *f, size_t n)
{
	uint64_t mask = 0;

	for (size_t i = 0; i < n; i++)
		if (load(r, &f[i]) != load(last, &f[i]))
			mask |= 1ull << i;
	return mask;
}

static uint8_t *put_fields(struct codec *c, uint8_t *to, const struct trace_record *r,
	const struct trace_record *last, const struct field *fields, uint64_t mask)
{
	for (; mask; mask &= mask - 1) {
		const struct field *f = &fields[__builtin_ctzll(mask)];
		uint64_t value = load(r, f);

		if (f->coding == NUMBER)
			to = put_difference(to, value, load(last, f));
		else if (f->coding == TIME)
			to = put_difference(to, value, r->event.now_ns);
		else if (f->coding == NAME)
			to = put_name(c, to, value);
	}
	return to;
}

static void take_fields(
	struct codec *c, struct bytes *b, struct trace_record *r, const struct field *fields, uint64_t mask)
{
	for (; mask; mask &= mask - 1) {
		const struct field *f = &fields[__builtin_ctzll(mask)];

		if (f->coding == NUMBER)
			store(r, f, take_difference(b, load(r, f)));
		else if (f->coding == TIME)
			store(r, f, take_difference(b, r->event.now_ns));
		else if (f->coding == NAME)
			store(r, f, take_name(c, b));
		else
			store(r, f, !load(r, f));
	}
}

void codec_begin(struct codec *c, const struct trace_header *h)
{
	memset(c, 0, sizeof(*c));
	c->now_ns = h->began_ns;
}

size_t codec_put(struct codec *c, uint8_t *to, const struct trace_record *r)
{
	unsigned kind = r->event.kind % EVENT_KINDS;
	struct trace_record *last = &c->last[kind];
	uint8_t *at = to + 1;
	uint64_t events, actions;

	if (r->note) {
		to[0] = KIND_NOTE;
		to[1] = r->note;
		return 2;
	}
	events = differing(r, last, event_fields, EVENT_FIELDS);
	actions = differing(r, last, action_fields, ACTION_FIELDS);
	to[0] = (uint8_t)(kind | (r->thread != c->thread ? HAS_THREAD : 0) |
			  (events != c->event_mask[kind] ? HAS_EVENT : 0) |
			  (actions != c->action_mask[kind] ? HAS_ACTION : 0));
	if (to[0] & HAS_THREAD)
		at = put_number(at, r->thread);
	if (to[0] & HAS_EVENT)
		at = put_number(at, events);
	if (to[0] & HAS_ACTION)
		at = put_number(at, actions);
	at = put_difference(at, r->event.now_ns, c->now_ns);
	at = put_fields(c, at, r, last, event_fields, events);
	at = put_fields(c, at, r, last, action_fields, actions);
	c->now_ns = r->event.now_ns;
	c->thread = r->thread;
	c->event_mask[kind] = events;
	c->action_mask[kind] = actions;
	*last = *r;
	return (size_t)(at - to);
}

int codec_take(struct codec *c, const uint8_t *from, size_t size, struct trace_record *r)
{
	struct bytes b = {.at = from, .end = from + size};
	uint8_t first = take_byte(&b);
	unsigned kind = first & KIND_MASK;

	memset(r, 0, sizeof(*r));
	if (b.early)
		return 0;
	if (kind == KIND_NOTE) {
		r->note = take_byte(&b);
		return b.early ? 0 : !r->note || r->note >= TRACE_NOTES ? -1 : 2;
	}
	if (kind >= EVENT_KINDS)
		return -1;
	*r = c->last[kind];
	r->event.kind = (uint8_t)kind;
	if (first & HAS_THREAD)
		c->thread = (uint32_t)take_number(&b);
	if (first & HAS_EVENT)
		c->event_mask[kind] = take_number(&b);
	if (first & HAS_ACTION)
		c->action_mask[kind] = take_number(&b);
	if (c->event_mask[kind] >> EVENT_FIELDS || c->action_mask[kind] >> ACTION_FIELDS)
		return -1;
	r->thread = c->thread;
	r->event.now_ns = take_difference(&b, c->now_ns);
	take_fields(c, &b, r, event_fields, c->event_mask[kind]);
	take_fields(c, &b, r, action_fields, c->action_mask[kind]);
	c->now_ns = r->event.now_ns;
	c->last[kind] = *r;
	return b.wrong ? -1 : b.early ? 0 : (int)(b.at - from);
}

static uint8_t *put_text(uint8_t *to, const char *text, size_t most)
{
	size_t n = strnlen(text, most - 1);

	to = put_number(to, n);
	memcpy(to, text, n);
	return to + n;
}

/* Replaces what cannot be shown on a terminal. */
static void take_text(struct bytes *b, char *text, size_t room)
{
	uint64_t n = take_number(b);

	if (n >= room) {
		b->wrong = true;
		return;
	}
	for (uint64_t i = 0; i < n; i++) {
		uint8_t byte = take_byte(b);

		text[i] = byte < ' ' || byte >= 0x7f ? '?' : (char)byte;
	}
}

size_t codec_put_header(uint8_t *to, const struct trace_header *h)
{
	uint8_t *at = to;

	memcpy(at, TRACE_MAGIC, MAGIC_BYTES);
	at = put_number(at + MAGIC_BYTES, h->thresholds);
	at = put_number(at, h->began_ns);
	at = put_number(at, h->pid);
	*at++ = h->limited;
	at = put_text(at, h->version, sizeof(h->version));
	at = put_text(at, h->program, sizeof(h->program));
	at = put_text(at, h->gpu, sizeof(h->gpu));
	return (size_t)(at - to);
}

int codec_take_header(const uint8_t *from, size_t size, struct trace_header *h)
{
	struct bytes b = {.at = from, .end = from + size};

	memset(h, 0, sizeof(*h));
	if (memcmp(from, TRACE_MAGIC, size < MAGIC_BYTES ? size : MAGIC_BYTES) != 0)
		return -1;
	if (size < MAGIC_BYTES)
		return 0;
	b.at += MAGIC_BYTES;
	h->thresholds = take_number(&b);
	h->began_ns = take_number(&b);
	h->pid = (uint32_t)take_number(&b);
	h->limited = take_byte(&b) & 1;
	take_text(&b, h->version, sizeof(h->version));
	take_text(&b, h->program, sizeof(h->program));
	take_text(&b, h->gpu, sizeof(h->gpu));
	return b.wrong ? -1 : b.early ? 0 : (int)(b.at - from);
}

uint8_t codec_outcome(const struct book *b)
{
	return (uint8_t)(b->state | b->open << 3 | b->broken << 4 | b->others.watched << 5 |
			 b->others.outlasts << 6 | b->others.stalls << 7);
}

static uint64_t mix(uint64_t sum, const void *data, size_t size)
{
	const uint8_t *byte = data;

	for (size_t i = 0; i < size; i++)
		sum = (sum ^ byte[i]) * 0x100000001b3ull;
	return sum;
}

uint64_t codec_thresholds(void)
{
	uint64_t sum = 0xcbf29ce484222325ull, value;

#define THRESHOLD(name, number, unit, reason)                                                                \
	value = name;                                                                                        \
	sum = mix(mix(sum, #name, sizeof(#name)), &value, sizeof(value));
#include "preload/book/thresholds.def"
#undef THRESHOLD
	return sum;
}

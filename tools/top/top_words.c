#include "tools/top/top_words.h"

#include <string.h>

#include "gpuarb/config.h"

#include "tools/top/top_text.h"

const char *top_words_choice(const struct gpuarb_picture *p, int key, char *to, size_t size)
{
	gpuarb_config_format((enum arb_key)key, p->setting[key], to, size);
	return to;
}

static const char *const counter_keys[] = {
#define ARB_COUNTER_KEY(name, key, text) #key,
	ARB_COUNTER_LIST(ARB_COUNTER_KEY)
#undef ARB_COUNTER_KEY
};

static const char *const counter_texts[] = {
#define ARB_COUNTER_TEXT(name, key, text) text,
	ARB_COUNTER_LIST(ARB_COUNTER_TEXT)
#undef ARB_COUNTER_TEXT
};

const char *top_words_counter_key(int counter)
{
	return counter >= 0 && counter < ARB_COUNTER_COUNT ? counter_keys[counter] : "?";
}

const char *top_words_counter_text(int counter)
{
	return counter >= 0 && counter < ARB_COUNTER_COUNT ? counter_texts[counter] : "?";
}

static const char *reason_words(uint64_t reason)
{
	switch (reason) {
	case ARB_REASON_QUOTA:
		return "its quota was used up";
	case ARB_REASON_QUEUE:
		return "others were before it";
	case ARB_REASON_MEMORY:
		return "its memory did not fit";
	case ARB_REASON_PRESSURE:
		return "the GPU was under pressure";
	case ARB_REASON_ABOVE:
		return "one above it had work";
	default:
		return "no reason was noted";
	}
}

/* Returns the name of a class by the number that events carry; the class may be gone. */
static const char *class_name(const struct top_gpu *g, uint64_t index, char *to, size_t size)
{
	const struct gpuarb_view_admission *a = g->picture ? &g->picture->admission : NULL;

	for (unsigned i = 0; a && i < a->nclasses && i < ARB_CLASSES; i++)
		if (a->classes[i].index == index)
			return top_text_safe(a->classes[i].name, to, size);
	return "?";
}

static void refusal_words(const struct gpuarb_event *e, char *to, size_t size)
{
	char a[32], b[32], c[32];

	top_text_bytes(e->a, a, sizeof(a));
	top_text_bytes(e->b, b, sizeof(b));
	top_text_bytes(e->c, c, sizeof(c));
	if (e->kind == ARB_EVENT_MEM_DRIVER && e->b)
		snprintf(to, size,
			"was refused %s of memory by the driver, although of its quota of %s only %s were in "
			"use",
			a, b, c);
	else if (e->kind == ARB_EVENT_MEM_DRIVER)
		snprintf(to, size, "was refused %s of memory by the driver; it has no quota and %s in use", a,
			c);
	else if (e->why == ARB_REFUSAL_SINGLE)
		snprintf(to, size,
			"was refused %s of memory: one process may have %s of this GPU (single_oversub), and "
			"it had %s",
			a, b, c);
	else if (e->why == ARB_REFUSAL_SIZE)
		snprintf(to, size, "was refused %s of memory: no GPU has so much", a);
	else
		snprintf(to, size, "was refused %s of memory: its quota is %s, of which %s were in use", a, b,
			c);
}

static void turn_words(const struct top_gpu *g, const struct gpuarb_event *e, char *to, size_t size)
{
	char a[32], b[32], c[32];

	top_text_bytes(e->a, a, sizeof(a));
	top_text_time(e->b, b, sizeof(b));
	if (e->kind == ARB_EVENT_TURN_BEGAN)
		snprintf(to, size, "got its turn at the GPU's memory, with %s, after waiting for %s", a, b);
	else if (e->why == ARB_TURN_IDLE)
		snprintf(to, size, "had its turn at the GPU's memory for %s, until %s, when it had no work",
			b, top_text_clock(e->c + g->real_minus_mono_ns, c, sizeof(c)));
	else
		snprintf(to, size,
			"made room at the end of its turn at the GPU's memory: it had %s there for %s", a, b);
}

static void lease_words(const struct top_gpu *g, const struct gpuarb_event *e, char *to, size_t size)
{
	char class[64], waited[32];

	if (e->kind == ARB_EVENT_LEASE_SKIPPED)
		snprintf(to, size, "was told to skip a task of class %s: %s",
			class_name(g, e->a, class, sizeof(class)), reason_words(e->why));
	else
		snprintf(to, size, "got no lease of class %s within %s: %s",
			class_name(g, e->a, class, sizeof(class)),
			top_text_time(e->b, waited, sizeof(waited)), reason_words(e->why));
}

static void limit_words(const struct gpuarb_event *e, char *to, size_t size)
{
	char a[32] = "none", b[32] = "none";

	if (e->kind == ARB_EVENT_LIMIT_CHANGED) {
		snprintf(to, size, "limit changed from %s to %s percent",
			top_text_ppm((unsigned)e->a, a, sizeof(a)),
			top_text_ppm((unsigned)e->b, b, sizeof(b)));
		return;
	}
	if (e->a)
		top_text_bytes(e->a, a, sizeof(a));
	if (e->b)
		top_text_bytes(e->b, b, sizeof(b));
	snprintf(to, size, "memory quota changed from %s to %s", a, b);
}

static const char *restored(unsigned what, char *to, size_t size)
{
	size_t length = 0;

	*to = 0;
#define ARB_RESTORED_ADD(name, text)                                                                         \
	if (what & ARB_RESTORED_##name && length < size)                                                     \
		length += (size_t)snprintf(to + length, size - length, "%s" text, length ? ", " : "");
	ARB_RESTORED_LIST(ARB_RESTORED_ADD)
#undef ARB_RESTORED_ADD
	return *to ? to : "something";
}

static void words(const struct top_gpu *g, const struct gpuarb_event *e, char *to, size_t size)
{
	char a[32], b[32], list[200];

	switch (e->kind) {
	case ARB_EVENT_JOINED:
		snprintf(to, size, "joined: pid %u, uid %u", (unsigned)e->a, (unsigned)e->b);
		break;
	case ARB_EVENT_LEFT:
		snprintf(to, size, "left; it had used %s and freed %s",
			top_text_time(e->a / ARB_TICKS_PER_NS, a, sizeof(a)),
			top_text_bytes(e->b, b, sizeof(b)));
		break;
	case ARB_EVENT_RECLAIMED:
		snprintf(to, size, "died and was cleaned up behind; it had used %s and held %s",
			top_text_time(e->a / ARB_TICKS_PER_NS, a, sizeof(a)),
			top_text_bytes(e->b, b, sizeof(b)));
		break;
	case ARB_EVENT_THROTTLED:
		snprintf(to, size, "throttled: its quota is used up until %s",
			top_text_clock(e->b + g->real_minus_mono_ns, b, sizeof(b)));
		break;
	case ARB_EVENT_RESUMED:
		snprintf(to, size, "resumed after %s", top_text_time(e->a, a, sizeof(a)));
		break;
	case ARB_EVENT_EVICTED:
		snprintf(to, size, "was taken out of the running set: no sign of life for %s",
			top_text_time(e->a, a, sizeof(a)));
		break;
	case ARB_EVENT_RETURNED:
		snprintf(to, size, "came back after it had been taken out of the running set");
		break;
	case ARB_EVENT_WAIT_TIMEOUT:
		snprintf(to, size, "gave up after waiting for %s: %s", top_text_time(e->a, a, sizeof(a)),
			reason_words(e->b));
		break;
	case ARB_EVENT_LIMIT_CHANGED:
	case ARB_EVENT_MEM_LIMIT_CHANGED:
		limit_words(e, to, size);
		break;
	case ARB_EVENT_MEM_REFUSED:
	case ARB_EVENT_MEM_DRIVER:
		refusal_words(e, to, size);
		break;
	case ARB_EVENT_TURN_BEGAN:
	case ARB_EVENT_TURN_ENDED:
		turn_words(g, e, to, size);
		break;
	case ARB_EVENT_LEASE_SKIPPED:
	case ARB_EVENT_LEASE_TIMEOUT:
		lease_words(g, e, to, size);
		break;
	case ARB_EVENT_PRESSURE:
		snprintf(to, size, "is %s: utilisation %llu.%llu percent, %s water %llu",
			e->why ? "under HIGH_PRESSURE" : "NORMAL again", (unsigned long long)e->a / 100,
			(unsigned long long)e->a % 100 / 10, e->why ? "high" : "low",
			(unsigned long long)e->b / 100);
		break;
	case ARB_EVENT_AUTO:
		snprintf(to, size,
			"runs %s: the limits of the active accounts add up to %s percent (policy auto)",
			e->why ? "one client at a time" : "all clients at once again",
			top_text_ppm((unsigned)e->a, a, sizeof(a)));
		break;
	case ARB_EVENT_WINDOW:
		snprintf(to, size, "has windows of %s from now on; they were %s long",
			top_text_time(e->a, a, sizeof(a)), top_text_time(e->b, b, sizeof(b)));
		break;
	case ARB_EVENT_ALTERNATES:
		snprintf(to, size,
			"serves its processes one after the other: clients take turns for the next %s (alternation)",
			top_text_time(e->a, a, sizeof(a)));
		break;
	case ARB_EVENT_CORRUPT:
		snprintf(to, size, "found garbage in the segment (check %u) and repaired it", (unsigned)e->a);
		break;
	case ARB_EVENT_CROWDED:
		snprintf(to, size,
			"refused a slot to a process of user %llu: that user, or its container, has %llu, and may have %llu (slots_per_user)",
			(unsigned long long)e->c, (unsigned long long)e->a, (unsigned long long)e->b);
		break;
	case ARB_EVENT_RESTORED:
		snprintf(to, size,
			e->a ? "had been written over while nobody used it: %s was put right"
			     : "found that somebody else had written over %s, and put it right",
			restored(e->why, list, sizeof(list)));
		break;
	case ARB_EVENT_EMPTIED:
		snprintf(to, size, "has no members any more; they have used %s, and it owes %s",
			top_text_time(e->a / ARB_TICKS_PER_NS, a, sizeof(a)),
			top_text_time(e->b / ARB_TICKS_PER_NS, b, sizeof(b)));
		break;
	default:
		snprintf(to, size, "%s (%llu, %llu)", e->name ? e->name : "something",
			(unsigned long long)e->a, (unsigned long long)e->b);
	}
}

char *top_words_event(const struct top_gpu *g, const struct top_event *event, char *to, size_t size)
{
	size_t length;

	words(g, &event->e, to, size);
	length = strlen(to);
	if (event->e.times > 1)
		snprintf(to + length, size - length, " (%u times)", event->e.times);
	return to;
}

const char *top_words_subject(const struct top_event *event, char *to, size_t size)
{
	if (*event->account)
		return top_text_safe(event->account, to, size);
	switch (event->e.kind) {
	case ARB_EVENT_PRESSURE:
	case ARB_EVENT_AUTO:
	case ARB_EVENT_WINDOW:
	case ARB_EVENT_ALTERNATES:
	case ARB_EVENT_CROWDED:
		return "the GPU";
	default:
		return "?";
	}
}

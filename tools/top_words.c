#include "top_words.h"

#include <string.h>

#include "config.h"
#include "top_text.h"

const char *top_words_choice(const struct gpuarb_picture *p, int key, char *to, size_t size)
{
	arb_config_format((enum arb_key)key, p->setting[key], to, size);
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
	case ARB_REASON_EVICTED:
		return "it had been taken out of the set";
	default:
		return "no reason was noted";
	}
}

char *top_words_event(const struct top_gpu *g, const struct top_event *event, char *to, size_t size)
{
	const struct gpuarb_event *e = &event->e;
	char a[32], b[32];

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
		snprintf(to, size, "limit changed from %s to %s percent",
			top_text_ppm((unsigned)e->a, a, sizeof(a)),
			top_text_ppm((unsigned)e->b, b, sizeof(b)));
		break;
	case ARB_EVENT_MEM_REFUSED:
		snprintf(to, size, "was refused %s of memory: its quota is %s",
			top_text_bytes(e->a, a, sizeof(a)), top_text_bytes(e->b, b, sizeof(b)));
		break;
	case ARB_EVENT_WINDOW:
		snprintf(to, size, "windows are %s long from now on", top_text_time(e->a, a, sizeof(a)));
		break;
	case ARB_EVENT_TAIL:
		snprintf(to, size, "was billed %s for work that ended after its gate had closed",
			top_text_time(e->a / ARB_TICKS_PER_NS, a, sizeof(a)));
		break;
	case ARB_EVENT_CORRUPT:
		snprintf(to, size, "found garbage in the segment (check %u) and repaired it", (unsigned)e->a);
		break;
	default:
		snprintf(to, size, "%s (%llu, %llu)", e->name ? e->name : "something",
			(unsigned long long)e->a, (unsigned long long)e->b);
	}
	return to;
}

#include "preload/hooks/coverage.h"

#include <string.h>

#include "gpuarb/abi.h"
#include "gpuarb/client.h"

#include "preload/process/act.h"
#include "preload/process/device.h"
#include "preload/process/threads.h"
#include "shm/base/word.h"

#define SHOW_NS 100000000ull

_Static_assert(ARB_COUNTER_COUNT <= ARB_COUNTERS, "a slot has no room for this many counters");
_Static_assert(ARB_COUNTER_COUNT - ARB_COUNTER_PAST == NOTE_COUNT, "the notes are the last of the counters");

static const uint8_t counter_of[CAT_COUNT] = {
#define CATEGORY(name, counter, text) [CAT_##name] = ARB_COUNTER_##counter,
#include "preload/hooks/categories.def"
#undef CATEGORY
};

/* Joins as many whole names as there is room for. */
static void join_names(char *to, size_t size)
{
	uint32_t n = arb_word_load_acquire(&arb_own.unknown.n);
	size_t used = 0;

	*to = 0;
	for (uint32_t i = 0; i < n && i < ACT_UNKNOWN_NAMES; i++) {
		size_t length = strnlen(arb_own.unknown.name[i], ACT_UNKNOWN_BYTES - 1);

		if (used + length + 2 > size)
			break;
		if (used)
			to[used++] = ' ';
		memcpy(to + used, arb_own.unknown.name[i], length);
		used += length;
		to[used] = 0;
	}
}

void coverage_show(void)
{
	char names[ARB_UNKNOWN_BYTES];
	uint64_t seen[CAT_COUNT + NOTE_COUNT], counters[ARB_COUNTER_COUNT] = {0};

	gpuarb_preload_seen(seen, CAT_COUNT + NOTE_COUNT);
	for (unsigned i = 0; i < CAT_COUNT; i++)
		counters[counter_of[i]] += seen[i];
	for (unsigned i = 0; i < NOTE_COUNT; i++)
		counters[ARB_COUNTER_PAST + i] = seen[CAT_COUNT + i];
	join_names(names, sizeof(names));
	for (CUdevice i = 0; i < ARB_DEVICES; i++) {
		struct arb_device *device = arb_device_known(i);

		if (!device)
			continue;
		gpuarb_client_counters(arb_device_client(device), counters, ARB_COUNTER_COUNT);
		if (*names)
			gpuarb_client_unknown(arb_device_client(device), names);
	}
}

void coverage_tick(uint64_t now_ns)
{
	uint64_t next = arb_word_load(&arb_own.shown_ns);

	/* If several threads come at the same time, only the one whose CAS succeeds shows the counts. */
	if (now_ns >= next && arb_word_cas(&arb_own.shown_ns, &next, now_ns + SHOW_NS))
		coverage_show();
}

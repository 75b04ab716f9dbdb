#include "coverage.h"

#include "gpuarb/abi.h"
#include "gpuarb/client.h"

#include "act.h"
#include "device.h"
#include "threads.h"

#define SHOW_NS 100000000ull

_Static_assert(ARB_COUNTER_COUNT <= ARB_COUNTERS, "a slot has no room for this many counters");
_Static_assert(ARB_COUNTER_COUNT - ARB_COUNTER_PAST == NOTE_COUNT, "the notes are the last of the counters");

static const uint8_t counter_of[CAT_COUNT] = {
#define CATEGORY(name, counter, text) [CAT_##name] = ARB_COUNTER_##counter,
#include "categories.def"
#undef CATEGORY
};

void coverage_show(void)
{
	uint64_t seen[CAT_COUNT + NOTE_COUNT], counters[ARB_COUNTER_COUNT] = {0};

	gpuarb_preload_seen(seen, CAT_COUNT + NOTE_COUNT);
	for (unsigned i = 0; i < CAT_COUNT; i++)
		counters[counter_of[i]] += seen[i];
	for (unsigned i = 0; i < NOTE_COUNT; i++)
		counters[ARB_COUNTER_PAST + i] = seen[CAT_COUNT + i];
	for (CUdevice i = 0; i < ARB_DEVICES; i++) {
		struct arb_device *device = arb_device_known(i);

		if (device)
			gpuarb_client_counters(arb_device_client(device), counters, ARB_COUNTER_COUNT);
	}
}

void coverage_tick(uint64_t now_ns)
{
	uint64_t next = __atomic_load_n(&arb_own.shown_ns, __ATOMIC_RELAXED);

	/* Of several that come at once, one does it. */
	if (now_ns >= next && __atomic_compare_exchange_n(&arb_own.shown_ns, &next, now_ns + SHOW_NS, false,
				      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		coverage_show();
}

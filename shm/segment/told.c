#include "shm/segment/told.h"

#include "shm/base/atomic.h"
#include "shm/segment/events.h"
#include "shm/policy/policy.h"

enum { AUTO_TOGETHER = 1, AUTO_SERIAL = 2 };

static void put(struct arb_segment *seg, enum arb_event_kind kind, uint32_t slot, uint64_t a, uint64_t b,
	uint32_t why)
{
	const struct arb_event_copy event = {
		.kind = kind, .slot = slot, .account = ARB_NONE, .a = a, .b = b, .why = why, .times = 1};

	arb_events_put(seg, &event);
}

void arb_told_window(struct arb_segment *seg, uint32_t slot, uint32_t win_ms)
{
	arb_u32 *told = &seg->header->told_window_ms;
	uint32_t old = arb_load32(told);

	if (__builtin_expect(old == win_ms, 1) || !arb_cas32_full(told, old, win_ms) || !old)
		return;
	put(seg, ARB_EVENT_WINDOW, slot, win_ms * 1000000ull, old * 1000000ull, 0);
}

void arb_told_auto(struct arb_segment *seg, uint32_t slot, bool is_auto, uint64_t sum_ppm)
{
	arb_u32 *told = &seg->header->told_auto;
	uint32_t old = arb_load32(told);
	uint32_t is = !is_auto                                           ? 0
		      : arb_policy_takes_turns(ARB_POLICY_AUTO, sum_ppm) ? AUTO_SERIAL
									 : AUTO_TOGETHER;

	if (__builtin_expect(old == is, 1) || !arb_cas32_full(told, old, is))
		return;
	/* At first all run at once, which needs no event. */
	if (is == AUTO_SERIAL || (is == AUTO_TOGETHER && old == AUTO_SERIAL))
		put(seg, ARB_EVENT_AUTO, slot, sum_ppm, 0, is == AUTO_SERIAL);
}

void arb_told_pressure(
	struct arb_segment *seg, bool high, unsigned hundredths, unsigned line_hundredths, uint64_t now_ns)
{
	arb_u64 *told = &seg->header->told_pressure;
	uint64_t old = arb_load64(told), at = old & ~1ull;

	if (__builtin_expect((old & 1) == high, 1))
		return;
	/* A time from the future is garbage. */
	if (at <= now_ns && now_ns - at < ARB_TOLD_PRESSURE_NS && at)
		return;
	if (arb_cas64_full(told, old, (now_ns & ~1ull) | high))
		put(seg, ARB_EVENT_PRESSURE, ARB_NONE, hundredths, line_hundredths, high);
}

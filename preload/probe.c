/*
 * Where the device gives time slices, what a call took of the GPU is the time from the beginning of our slice
 * to its end. An event recorded before the call says when that was only if it waits for the slice as the call
 * does. Some drivers let it take place at once, when nothing is before it in its stream; then it is recorded
 * behind a little work of our own, one byte set. If that makes no difference, the device does not give
 * slices: it is left at that.
 */
#include "track.h"

#include "hooks.h"

/* So many in a row seem to have had the GPU from beginning to end, beside others. */
#define PROBE_DOUBT 4
/* And so many with the byte before them. */
#define PROBE_VAIN 8

bool probe_wants_memory(struct track *t)
{
	bool wants = t->probe.state == PROBE_ON && !t->probe.asked;

	t->probe.asked |= wants;
	return wants;
}

void probe_give_memory(struct track *t, CUcontext ctx)
{
	__typeof__(cuMemHostAlloc) *alloc = arb_real(cuMemHostAlloc);
	void *byte = NULL;

	/* Of the host, which the GPU reaches by the same address: its own memory is the program's. */
	if (!alloc || alloc(&byte, 1, CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS)
		return;
	track_lock(t);
	t->probe.byte = (CUdeviceptr)(uintptr_t)byte;
	t->probe.ctx = ctx;
	track_unlock(t);
}

void probe_begin(struct track *t, const struct act_call *call, CUcontext ctx)
{
	__typeof__(cuMemsetD8Async) *set = arb_hooks[call->id].variant == VARIANT_LEGACY
						   ? arb_real(cuMemsetD8Async)
						   : arb_real(cuMemsetD8Async_ptsz);

	t->probe.begun = t->probe.state == PROBE_ON && t->probe.byte && t->probe.ctx == ctx && set &&
			 set(t->probe.byte, 0, 1, call->stream) == CUDA_SUCCESS;
}

void probe_learn(struct track *t, uint64_t stay_ns, uint64_t timed_ns)
{
	bool whole = timed_ns + stay_ns / 16 >= stay_ns, begun = t->probe.begun;

	t->probe.begun = false;
	if (t->probe.state == PROBE_OVER || begun != (t->probe.state == PROBE_ON))
		return;
	/* One that was shorter with the byte before it: from here on it is known to be of use. */
	if (!whole) {
		t->probe.doubts = 0;
		t->probe.useful |= begun;
		return;
	}
	t->probe.doubts++;
	if (t->probe.state == PROBE_OFF && t->probe.doubts >= PROBE_DOUBT) {
		t->probe.state = PROBE_ON;
		t->probe.doubts = 0;
	} else if (t->probe.doubts >= PROBE_VAIN && !t->probe.useful) {
		t->probe.state = PROBE_OVER;
	}
}

void probe_forget(struct track *t, CUcontext ctx)
{
	if (t->probe.ctx != ctx)
		return;
	t->probe.ctx = NULL;
	t->probe.byte = 0;
	t->probe.asked = false;
}

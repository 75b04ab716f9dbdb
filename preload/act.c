/* Counts every call, and hands it to whoever acts on its category. */
#include "act.h"

#include "device.h"
#include "memory.h"
#include "threads.h"
#include "track.h"

void act_count(enum hook_category category)
{
	act_thread_get()->seen[category]++;
}

static bool makes_context(enum hook_id id)
{
	return (id >= HOOK_cuCtxCreate && id <= HOOK_cuCtxCreate_v4) || id == HOOK_cuDevicePrimaryCtxRetain ||
	       id == HOOK_cuGreenCtxCreate;
}

/* No context, and if there is one nevertheless, no work and no memory in it. */
static CUresult refused(const struct act_call *call, unsigned category)
{
	if (category == CAT_CONTEXT)
		return makes_context(call->id) ? arb_device_refuses(call->device) : CUDA_SUCCESS;
	if (!__atomic_load_n(&arb_own.refusals, __ATOMIC_RELAXED) || category > CAT_ARRAY ||
		category == CAT_FREE || category == CAT_FREE_ASYNC)
		return CUDA_SUCCESS;
	return arb_device_refuses_current();
}

bool act_before(struct act_call *call, CUresult *result)
{
	struct act_thread *self = act_thread_get();
	unsigned category = arb_hooks[call->id].category;
	CUresult refusal;

	self->seen[category]++;
	/* A tool that the driver calls back in the midst of a call of ours. */
	if (__builtin_expect(arb_mine.locks, 0))
		return true;
	if (arb_disabled()) {
		/* The thread need not come this way again for as long as can be said. */
		self->gate = __atomic_load_n(&arb_own.gate.open, __ATOMIC_RELAXED);
		self->credit = UINT32_MAX;
		return true;
	}
	refusal = refused(call, category);
	if (refusal != CUDA_SUCCESS) {
		*result = refusal;
		return false;
	}
	if (category == CAT_GRAPH) {
		/* Not the other way round: while it stands at the gate its memory is somebody else's. */
		gate_before(call);
		if (arb_memory_before(call, result))
			return true;
		gate_after(call, *result);
		return false;
	}
	if (!arb_memory_before(call, result))
		return false;
	if (category <= CAT_INTEROP) {
		gate_before(call);
	} else if (category == CAT_SYNC) {
		__atomic_store_n(&self->waiting, 1, __ATOMIC_RELAXED);
		gate_waits();
	} else if (category == CAT_STREAM || category == CAT_CAPTURE || category == CAT_CONTEXT) {
		streams_before(call);
	}
	return true;
}

CUresult act_after(struct act_call *call, CUresult result)
{
	unsigned category = arb_hooks[call->id].category;

	if (arb_disabled() || arb_mine.locks)
		return result;
	if (category <= CAT_INTEROP) {
		gate_after(call, result);
	} else if (category == CAT_SYNC) {
		__atomic_store_n(&act_thread_get()->waiting, 0, __ATOMIC_RELAXED);
		if (result == CUDA_SUCCESS)
			gate_settle();
	} else if (category == CAT_STREAM || category == CAT_CAPTURE || category == CAT_CONTEXT) {
		streams_after(call, result);
		/* Another context may be another GPU, on which there is no credit. */
		if (category == CAT_CONTEXT && __atomic_load_n(&arb_own.gpus, __ATOMIC_RELAXED) > 1)
			act_thread_take_back(act_thread_get());
	}
	return arb_memory_after(call, result);
}

void act_note(enum act_note note)
{
	__atomic_fetch_add(&arb_own.notes[note], 1, __ATOMIC_RELAXED);
}

unsigned gpuarb_preload_seen(uint64_t *counts, unsigned n)
{
	uint64_t sum[CAT_COUNT];

	act_thread_sum(sum);
	for (unsigned i = 0; i < n && i < CAT_COUNT + NOTE_COUNT; i++)
		counts[i] = i < CAT_COUNT ? sum[i] : __atomic_load_n(&arb_own.notes[i - CAT_COUNT], __ATOMIC_RELAXED);
	return CAT_COUNT + NOTE_COUNT;
}

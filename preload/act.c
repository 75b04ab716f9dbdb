/* Lets everything through and counts it. */
#include "act.h"

#include "device.h"
#include "memory.h"
#include "threads.h"

struct act_gate act_gate = {.open = 1};

static uint64_t notes[NOTE_COUNT];

void act_count(enum hook_category category)
{
	act_thread_get()->seen[category]++;
}

bool act_before(struct act_call *call, CUresult *result)
{
	struct act_thread *self = act_thread_get();

	self->seen[arb_hooks[call->id].category]++;
	/* Nothing is due: the thread need not come this way again for as long as can be said. */
	self->credit = UINT32_MAX;
	return arb_memory_before(call, result);
}

CUresult act_after(struct act_call *call, CUresult result)
{
	if (result == CUDA_SUCCESS && !arb_disabled() && arb_hooks[call->id].category == CAT_CONTEXT)
		switch (call->id) {
		case HOOK_cuCtxCreate:
		case HOOK_cuCtxCreate_v2:
		case HOOK_cuCtxCreate_v3:
		case HOOK_cuCtxCreate_v4:
		case HOOK_cuDevicePrimaryCtxRetain:
			arb_device_get(call->device);
			break;
		default:
			break;
		}
	return arb_memory_after(call, result);
}

void act_note(enum act_note note)
{
	__atomic_fetch_add(&notes[note], 1, __ATOMIC_RELAXED);
}

unsigned gpuarb_preload_seen(uint64_t *counts, unsigned n)
{
	uint64_t sum[CAT_COUNT];

	act_thread_sum(sum);
	for (unsigned i = 0; i < n && i < CAT_COUNT + NOTE_COUNT; i++)
		counts[i] = i < CAT_COUNT ? sum[i] : __atomic_load_n(&notes[i - CAT_COUNT], __ATOMIC_RELAXED);
	return CAT_COUNT + NOTE_COUNT;
}

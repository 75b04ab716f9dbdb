/* Counts every call, and hands it to the files that act on its category. */
#include "preload/process/act.h"

#include <string.h>

#include "preload/process/device.h"
#include "preload/memory/memory.h"
#include "preload/track/place.h"
#include "preload/process/threads.h"
#include "preload/track/track.h"
#include "preload/track/vigil.h"
#include "shm/base/word.h"

void act_count(enum hook_category category)
{
	act_thread_get()->seen[category]++;
}

static bool makes_context(enum hook_id id)
{
	return (id >= HOOK_cuCtxCreate && id <= HOOK_cuCtxCreate_v4) || id == HOOK_cuDevicePrimaryCtxRetain ||
	       id == HOOK_cuGreenCtxCreate;
}

/* Returns why the call is refused, or CUDA_SUCCESS. On a refused GPU no context is made; if there is one nevertheless, it gets
 * neither work nor memory. */
static CUresult refused(const struct act_call *call, unsigned category)
{
	if (category == CAT_CONTEXT)
		return makes_context(call->id) ? arb_device_refuses(call->device) : CUDA_SUCCESS;
	if (!arb_word_load(&arb_own.refusals) || category > CAT_ARRAY || category == CAT_FREE ||
		category == CAT_FREE_ASYNC)
		return CUDA_SUCCESS;
	return arb_device_refuses_current();
}

/*
 * CUDA 13.2 and 13.3 added new calls that begin or end a capture. They are treated as the older calls that do the same.
 */
static void as_older(struct act_call *call)
{
	switch (call->id) {
	case HOOK_cuStreamBeginRecaptureToGraph:
		call->id = HOOK_cuStreamBeginCaptureToGraph;
		break;
	case HOOK_cuStreamBeginRecaptureToGraph_ptsz:
		call->id = HOOK_cuStreamBeginCaptureToGraph_ptsz;
		break;
	case HOOK_cuStreamEndCaptureToCig:
		call->id = HOOK_cuStreamEndCapture;
		break;
	case HOOK_cuStreamEndCaptureToCig_ptsz:
		call->id = HOOK_cuStreamEndCapture_ptsz;
		break;
	default:
		break;
	}
}

/* Makes the context of the stream current, so that the gate is that of the stream's GPU. */
static void before_gate(struct act_call *call)
{
	bool entered = place_enter(call);

	peers_ask(call);
	gate_before(call);
	peers_let(call);
	if (entered)
		place_leave();
	if (__builtin_expect(place_strays(), 0))
		act_thread_take_back(act_thread_get());
}

static void after_gate(struct act_call *call, CUresult result)
{
	bool entered = place_enter(call);

	gate_after(call, result);
	peers_after(call, result);
	if (entered)
		place_leave();
	if (__builtin_expect(place_strays(), 0))
		act_thread_take_back(act_thread_get());
}

static void settle(const struct act_call *call)
{
	bool entered = place_enter(call);

	gate_settle();
	if (entered)
		place_leave();
}

bool act_before(struct act_call *call, CUresult *result)
{
	struct act_thread *self = act_thread_get();
	unsigned category = arb_hooks[call->id].category;
	CUresult refusal;

	self->seen[category]++;
	if (category == CAT_CAPTURE)
		as_older(call);
	/* A tool makes this call: the driver has called it back during one of our own calls. */
	if (__builtin_expect(arb_mine.locks, 0))
		return true;
	if (arb_disabled()) {
		/* As much credit as there can be: the thread comes here again as late as possible. */
		self->gate = arb_word_load(&arb_own.gate.open);
		self->credit = UINT32_MAX;
		return true;
	}
	refusal = refused(call, category);
	if (refusal != CUDA_SUCCESS) {
		*result = refusal;
		return false;
	}
	if (category == CAT_GRAPH) {
		/* The gate first: while the graph waits there, others may use the memory that it needs. */
		before_gate(call);
		if (arb_memory_before(call, result))
			return true;
		after_gate(call, *result);
		return false;
	}
	if (!arb_memory_before(call, result))
		return false;
	if (category == CAT_GRAPH_MAKE)
		peers_graph_before(call);
	if (category <= CAT_INTEROP) {
		before_gate(call);
	} else if (category == CAT_SYNC) {
		arb_word_store(&self->waiting, 1);
		gate_waits();
	} else if (category == CAT_STREAM || category == CAT_CAPTURE || category == CAT_CONTEXT) {
		streams_before(call);
		if (makes_context(call->id))
			vigil_begin(call->device);
	}
	return true;
}

CUresult act_after(struct act_call *call, CUresult result)
{
	unsigned category = arb_hooks[call->id].category;

	if (arb_disabled() || arb_mine.locks)
		return result;
	if (category <= CAT_INTEROP) {
		after_gate(call, result);
	} else if (category == CAT_SYNC) {
		arb_word_store(&act_thread_get()->waiting, 0);
		if (result == CUDA_SUCCESS)
			settle(call);
	} else if (category == CAT_STREAM || category == CAT_CAPTURE || category == CAT_CONTEXT) {
		streams_after(call, result);
		if (makes_context(call->id))
			vigil_end(call->device, result == CUDA_SUCCESS);
		/* The context that is current now may be one of another GPU, where the credit is not good. */
		if (category == CAT_CONTEXT && arb_word_load(&arb_own.gpus) > 1)
			act_thread_take_back(act_thread_get());
	} else if (category == CAT_GRAPH_MAKE) {
		peers_graph_after(call, result);
	}
	return arb_memory_after(call, result);
}

bool act_graph_is_seen(uint64_t exec)
{
	return memory_graph_has(exec) || peers_graph(exec, NULL);
}

void act_note(enum act_note note)
{
	arb_word_add(&arb_own.notes[note], 1);
}

void act_unknown(const char *name)
{
	uint32_t n = arb_word_load_acquire(&arb_own.unknown.n), at;

	act_note(NOTE_UNKNOWN);
	for (at = 0; at < n && at < ACT_UNKNOWN_NAMES; at++)
		if (!strncmp(arb_own.unknown.name[at], name, ACT_UNKNOWN_BYTES - 1))
			return;
	/* Two threads at the same time may note the same name twice, which wastes a place. */
	if (n >= ACT_UNKNOWN_NAMES)
		return;
	at = arb_word_add_acq_rel(&arb_own.unknown.n, 1);
	if (at < ACT_UNKNOWN_NAMES)
		strncpy(arb_own.unknown.name[at], name, ACT_UNKNOWN_BYTES - 1);
}

unsigned gpuarb_preload_seen(uint64_t *counts, unsigned n)
{
	uint64_t sum[CAT_COUNT];

	act_thread_sum(sum);
	for (unsigned i = 0; i < n && i < CAT_COUNT + NOTE_COUNT; i++)
		counts[i] = i < CAT_COUNT ? sum[i] : arb_word_load(&arb_own.notes[i - CAT_COUNT]);
	return CAT_COUNT + NOTE_COUNT;
}

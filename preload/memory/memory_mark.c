/* Records events behind work that uses memory, and waits for them without holding a lock. */
#include "preload/memory/memory_mark.h"

#include "preload/hooks/hooks.h"
#include "preload/process/log.h"
#include "shm/base/os.h"
#include "preload/track/place.h"
#include "preload/process/threads.h"
#include "preload/track/track.h"
#include "shm/base/word.h"

#include <stddef.h>

/* A kernel may take long. In a program whose streams may wait for something that only this thread can do, work may wait
 * for ever, so the patience is shorter there. */
#define PATIENCE_NS       60000000000ull
#define PATIENCE_SHORT_NS 2000000000ull

#define NAP_LEAST_NS 30000u
#define NAP_MOST_NS  1000000u

void memory_nap(uint64_t ns)
{
	arb_os_sleep_ns(ns);
}

void memory_nap_longer(uint64_t *ns)
{
	*ns = !*ns ? NAP_LEAST_NS : *ns < NAP_MOST_NS ? 2 * *ns : *ns;
	memory_nap(*ns);
}

bool memory_may_wait(void)
{
	uint64_t seen[CAT_COUNT];

	act_thread_sum(seen);
	return seen[CAT_HOSTFN] + seen[CAT_MEMOP] + seen[CAT_INTEROP];
}

uint64_t memory_patience_ns(void)
{
	return memory_may_wait() ? PATIENCE_SHORT_NS : PATIENCE_NS;
}

/* A number names a thread for good. The address of thread-local memory would not: a later thread may have the same. */
static uint64_t thread_number(void)
{
	static uint64_t last;
	static __thread uint64_t own;

	if (!own)
		own = arb_word_add_then_load(&last, 1);
	return own;
}

struct memory_place memory_place_of(const struct act_call *call)
{
	struct memory_place p = {.stream = call->stream};

	if (!p.stream)
		p.stream = arb_hooks[call->id].variant == VARIANT_LEGACY ? CU_STREAM_LEGACY
									 : CU_STREAM_PER_THREAD;
	if (p.stream == CU_STREAM_LEGACY || p.stream == CU_STREAM_PER_THREAD)
		p.ctx = place_current();
	if (p.stream == CU_STREAM_PER_THREAD)
		p.thread = thread_number();
	return p;
}

bool memory_place_same(const struct memory_place *a, const struct memory_place *b)
{
	return a->stream == b->stream && a->ctx == b->ctx && a->thread == b->thread;
}

CUcontext memory_place_here(const struct act_call *call)
{
	CUcontext ctx = place_of(call);

	return ctx == place_current() ? ctx : NULL;
}

static bool push(CUcontext ctx)
{
	__typeof__(cuCtxPushCurrent_v2) *call = arb_real(cuCtxPushCurrent_v2);

	return ctx && call && arb_real(cuCtxPopCurrent_v2) && call(ctx) == CUDA_SUCCESS;
}

static void pop(void)
{
	CUcontext popped;

	arb_real(cuCtxPopCurrent_v2)(&popped);
}

bool memory_mark_fits(const struct memory_mark *mark, const struct act_call *call)
{
	return mark->event && mark->ctx == place_of(call);
}

CUresult memory_mark_set(struct memory_mark *mark, const struct act_call *call)
{
	bool legacy = arb_hooks[call->id].variant == VARIANT_LEGACY;
	__typeof__(cuEventRecord) *record = legacy ? arb_real(cuEventRecord) : arb_real(cuEventRecord_ptsz);
	__typeof__(cuEventCreate) *create = arb_real(cuEventCreate);
	CUcontext ctx = place_of(call);
	CUresult result = CUDA_SUCCESS;
	CUstreamCaptureMode mode;

	if (!record || !create)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!push(ctx))
		return CUDA_ERROR_INVALID_HANDLE;
	mode = track_relax();
	if (!mark->event) {
		result = create(&mark->event, CU_EVENT_DISABLE_TIMING);
		mark->ctx = ctx;
	}
	if (result == CUDA_SUCCESS)
		result = record(mark->event, call->stream);
	track_unrelax(mode);
	pop();
	return result;
}

bool memory_mark_passed(const struct memory_mark *mark)
{
	__typeof__(cuEventQuery) *query = arb_real(cuEventQuery);
	CUresult result;

	if (mark->ending)
		return false;
	if (!mark->event || !query || !push(mark->ctx))
		return true;
	result = query(mark->event);
	pop();
	return result != CUDA_ERROR_NOT_READY;
}

bool memory_mark_context(struct memory_mark *mark, CUcontext ctx, enum memory_end what)
{
	if (mark->ctx != ctx)
		return false;
	mark->ending = what == MEMORY_ENDING;
	if (what == MEMORY_ENDED)
		*mark = (struct memory_mark){0};
	return what == MEMORY_ENDED;
}

void memory_mark_drop(struct memory_mark *mark)
{
	__typeof__(cuEventDestroy_v2) *destroy = arb_real(cuEventDestroy_v2);

	if (mark->event && destroy)
		destroy(mark->event);
	*mark = (struct memory_mark){0};
}

/* Synchronises with an event that has passed, which does not block: the driver takes queued frees as done only after a
 * synchronisation. */
static void observe(const struct memory_mark *mark)
{
	__typeof__(cuEventSynchronize) *wait = arb_real(cuEventSynchronize);

	if (!wait || !push(mark->ctx))
		return;
	wait(mark->event);
	pop();
}

/*
 * Does not use the driver's own wait for a stream, which never ends if the stream waits for what this thread would do
 * next. Uses an event of our own, because other threads may go on filling the stream, or begin to capture it.
 */
bool memory_mark_wait(const struct act_call *call)
{
	uint64_t patience = memory_patience_ns(), until = track_now() + patience, nap = 0;
	struct memory_mark mark = {0};
	CUstreamCaptureMode mode;
	bool set, passed = false;

	if (streams_capturing(call))
		return false;
	mode = track_relax();
	set = memory_mark_set(&mark, call) == CUDA_SUCCESS;
	while (set && !(passed = memory_mark_passed(&mark)) && track_now() < until)
		memory_nap_longer(&nap);
	if (passed)
		observe(&mark);
	else if (set)
		arb_log(ARB_LOG_WARN, "there is no room, and what is in the stream has not ended for %u ms",
			(unsigned)(patience / MS));
	memory_mark_drop(&mark);
	track_unrelax(mode);
	return passed;
}

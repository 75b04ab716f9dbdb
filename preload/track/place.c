#include "preload/track/place.h"

#include "preload/hooks/hooks.h"
#include "preload/process/own.h"

/* Nobody gates it, so it is not in the table. */
static __typeof__(cuStreamGetCtx) *find_get_context(void)
{
	static __typeof__(cuStreamGetCtx) *found;
	__typeof__(cuStreamGetCtx) *get = arb_word_load(&found);

	if (!get) {
		get = (__typeof__(get))arb_driver_symbol("cuStreamGetCtx");
		arb_word_store(&found, get);
	}
	return get;
}

CUcontext place_current(void)
{
	__typeof__(cuCtxGetCurrent) *current = arb_real(cuCtxGetCurrent);
	CUcontext ctx = NULL;

	return current && current(&ctx) == CUDA_SUCCESS ? ctx : NULL;
}

static bool is_default(CUstream stream)
{
	return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

CUcontext place_of(const struct act_call *call)
{
	__typeof__(cuStreamGetCtx) *get;
	CUcontext ctx;

	if (is_default(call->stream))
		return place_current();
	get = find_get_context();
	return get && get(call->stream, &ctx) == CUDA_SUCCESS ? ctx : NULL;
}

static int ordinal(void)
{
	__typeof__(cuCtxGetDevice) *get = arb_real(cuCtxGetDevice);
	CUdevice device = -1;

	return get && get(&device) == CUDA_SUCCESS ? device : -1;
}

bool place_enter(const struct act_call *call)
{
	__typeof__(cuCtxPushCurrent_v2) *push = arb_real(cuCtxPushCurrent_v2);
	CUcontext ctx;
	int before;

	if (is_default(call->stream) || arb_word_load(&arb_own.gpus) < 2)
		return false;
	ctx = place_of(call);
	if (!ctx || ctx == place_current() || !push || !arb_real(cuCtxPopCurrent_v2))
		return false;
	before = ordinal();
	if (push(ctx) != CUDA_SUCCESS)
		return false;
	if (ordinal() != before)
		arb_word_store(&arb_own.strays, 1);
	return true;
}

void place_leave(void)
{
	CUcontext popped;

	arb_real(cuCtxPopCurrent_v2)(&popped);
}

bool place_strays(void)
{
	return arb_word_load(&arb_own.strays) != 0;
}

/* Contexts: each thread's stack of current contexts, primary contexts, limits and flags. */
#include "test/sim/driver/driver.h"

#define DEPTH 16

static __thread struct {
	CUcontext at[DEPTH];
	unsigned long long id[DEPTH];
	unsigned n;
} stack;

bool drv_ctx_valid(CUcontext ctx)
{
	return ctx && ctx->mark == MARK_CTX;
}

CUresult drv_current(CUcontext *out)
{
	CUcontext ctx;

	if (!drv.ready)
		return drv_why();
	ctx = stack.n ? stack.at[stack.n - 1] : NULL;
	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (ctx->mark != MARK_CTX || ctx->id != stack.id[stack.n - 1])
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*out = ctx;
	return ctx->sticky;
}

static CUresult push(CUcontext ctx)
{
	if (stack.n == DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack.at[stack.n] = ctx;
	stack.id[stack.n++] = ctx ? ctx->id : 0;
	return CUDA_SUCCESS;
}

/* drv.lock held */
static CUresult begin(CUcontext ctx, uint32_t device, unsigned flags)
{
	struct sim_account *a = &sim_shm.file->proc[sim_shm.slot].dev[device];
	CUresult rc = drv_take(device, drv.set->context_bytes);

	if (rc != CUDA_SUCCESS)
		return rc;
	sim_lock();
	a->contexts++;
	sim_unlock();
	ctx->device = device;
	ctx->flags = flags;
	ctx->id = drv.next_id++;
	ctx->api_version = 3020;
	ctx->sticky = CUDA_SUCCESS;
	ctx->legacy_stream = NULL;
	ctx->touched = false;
	memset(ctx->limit, 0, sizeof(ctx->limit));
	ctx->limit[CU_LIMIT_STACK_SIZE] = 1024;
	ctx->limit[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
	ctx->limit[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
	ctx->limit[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
	ctx->limit[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
	ctx->limit[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
	ctx->mark = MARK_CTX;
	return CUDA_SUCCESS;
}

/* drv.lock held */
static void end(CUcontext ctx)
{
	struct sim_account *a = &sim_shm.file->proc[sim_shm.slot].dev[ctx->device];

	drv_ctx_drain(ctx);
	drv_streams_close(ctx);
	drv_alloc_drop_ctx(ctx);
	drv_give(ctx->device, drv.set->context_bytes);
	sim_lock();
	a->contexts -= a->contexts != 0;
	sim_unlock();
	ctx->legacy_stream = NULL;
	ctx->mark = 0;
}

static CUresult create(CUcontext *pctx, unsigned flags, CUdevice dev)
{
	uint32_t device;
	CUcontext ctx;
	CUresult rc;

	if (!drv.ready)
		return drv_why();
	if (!pctx || (flags & 7) > 4 || flags & ~0x1ffu)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(drv_device(dev, &device));
	drv_cost(COST_CTX);
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	drv_lock();
	rc = begin(ctx, device, flags);
	if (rc == CUDA_SUCCESS) {
		ctx->next = drv.contexts;
		drv.contexts = ctx;
		rc = push(ctx);
		*pctx = ctx;
	} else {
		free(ctx);
	}
	drv_unlock();
	return rc;
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return create(pctx, flags, dev);
}

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return create(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(
	CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags, CUdevice dev)
{
	(void)paramsArray;
	(void)numParams;
	return create(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
	(void)ctxCreateParams;
	return create(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	CUresult rc = CUDA_SUCCESS;

	if (!drv.ready)
		return drv_why();
	drv_lock();
	if (!drv_ctx_valid(ctx) || ctx->primary) {
		rc = CUDA_ERROR_INVALID_CONTEXT;
	} else {
		end(ctx);
		/* The object stays, so that a stale handle is recognised; it only leaves the list. */
		for (CUcontext *p = &drv.contexts; *p; p = &(*p)->next) {
			if (*p == ctx) {
				*p = ctx->next;
				break;
			}
		}
		if (stack.n && stack.at[stack.n - 1] == ctx)
			stack.n--;
	}
	drv_unlock();
	return rc;
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
	if (!pctx || flags)
		return CUDA_ERROR_INVALID_VALUE;
	return drv_current(pctx);
}

CUresult cuCtxDetach(CUcontext ctx)
{
	return drv_ctx_valid(ctx) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	if (!drv.ready)
		return drv_why();
	if (!drv_ctx_valid(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	return push(ctx);
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
	return cuCtxPushCurrent_v2(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
	if (!drv.ready)
		return drv_why();
	if (!stack.n)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.n--;
	if (pctx)
		*pctx = stack.at[stack.n];
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
	return cuCtxPopCurrent_v2(pctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	if (!drv.ready)
		return drv_why();
	if (ctx && !drv_ctx_valid(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (stack.n)
		stack.n--;
	return ctx ? push(ctx) : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
	if (!drv.ready)
		return drv_why();
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = stack.n ? stack.at[stack.n - 1] : NULL;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = drv_device_index(ctx->device);
	return CUDA_SUCCESS;
}

static CUresult given_or_current(CUcontext *ctx)
{
	if (!drv.ready)
		return drv_why();
	if (!*ctx)
		return drv_current(ctx);
	return drv_ctx_valid(*ctx) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	TRY(given_or_current(&ctx));
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = drv_device_index(ctx->device);
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	CUresult rc;

	TRY(given_or_current(&ctx));
	drv_cost(COST_SYNC);
	drv_lock();
	rc = drv.captures ? drv_capture_unsafe() : CUDA_SUCCESS;
	if (rc == CUDA_SUCCESS)
		rc = drv_ctx_drain(ctx);
	drv_unlock();
	return rc;
}

CUresult cuCtxSynchronize(void)
{
	return cuCtxSynchronize_v2(NULL);
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = ctx->flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	ctx->flags = flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
	TRY(given_or_current(&ctx));
	if (!ctxId)
		return CUDA_ERROR_INVALID_VALUE;
	*ctxId = ctx->id;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	TRY(given_or_current(&ctx));
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = ctx->api_version;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (!pvalue || limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*pvalue = ctx->limit[limit];
	return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	ctx->limit[limit] = value;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (!pconfig)
		return CUDA_ERROR_INVALID_VALUE;
	*pconfig = ctx->cache;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	ctx->cache = config;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *pConfig)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (!pConfig)
		return CUDA_ERROR_INVALID_VALUE;
	*pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	CUcontext ctx;

	(void)config;
	return drv_current(&ctx);
}

CUresult cuCtxResetPersistingL2Cache(void)
{
	CUcontext ctx;

	return drv_current(&ctx);
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (leastPriority)
		*leastPriority = 0;
	if (greatestPriority)
		*greatestPriority = -5;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	uint32_t device;
	CUcontext ctx;
	CUresult rc = CUDA_SUCCESS;

	if (!drv.ready)
		return drv_why();
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(drv_device(dev, &device));
	ctx = &drv.primary[device];
	if (!ctx->active)
		drv_cost(COST_CTX);
	drv_lock();
	ctx->primary = true;
	if (!ctx->active) {
		rc = begin(ctx, device, ctx->flags);
		ctx->active = rc == CUDA_SUCCESS;
	}
	if (ctx->active) {
		ctx->refs++;
		*pctx = ctx;
	}
	drv_unlock();
	return rc;
}

static CUresult primary_end(CUdevice dev, bool all)
{
	uint32_t device;
	CUcontext ctx;
	CUresult rc = CUDA_SUCCESS;

	if (!drv.ready)
		return drv_why();
	TRY(drv_device(dev, &device));
	ctx = &drv.primary[device];
	drv_lock();
	if (!ctx->active) {
		rc = all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	} else if (all || --ctx->refs == 0) {
		end(ctx);
		ctx->active = false;
		ctx->refs = 0;
	}
	drv_unlock();
	return rc;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return primary_end(dev, false);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return primary_end(dev, false);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	return primary_end(dev, true);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	return primary_end(dev, true);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	uint32_t device;

	if (!drv.ready)
		return drv_why();
	TRY(drv_device(dev, &device));
	if (flags)
		*flags = drv.primary[device].flags;
	if (active)
		*active = drv.primary[device].active;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	uint32_t device;

	if (!drv.ready)
		return drv_why();
	TRY(drv_device(dev, &device));
	drv.primary[device].flags = flags;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

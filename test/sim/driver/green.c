/*
 * Green contexts, as far as programs need them to run. Multiprocessors can be split and given to a green
 * context, whose streams are streams of the primary context. The split does not limit its kernels.
 */
#include "test/sim/driver/driver.h"

#define SPLIT_MIN 8

struct CUdevResourceDesc_st {
	uint32_t mark;
	CUdevResource sm;
};

struct CUgreenCtx_st {
	uint32_t mark;
	CUcontext ctx;
	CUdevice dev;
	unsigned long long id;
	CUdevResource sm;
};

enum { MARK_DESC = 0x51c0de81, MARK_GREEN };

static CUresult whole(uint32_t physical, CUdevResource *out, CUdevResourceType type)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	memset(out, 0, sizeof(*out));
	out->type = CU_DEV_RESOURCE_TYPE_SM;
	out->sm.smCount = sim_shm.file->device[physical].info.multiprocessors;
	out->sm.minSmPartitionSize = SPLIT_MIN;
	out->sm.smCoscheduledAlignment = SPLIT_MIN;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
	uint32_t physical;

	TRY(drv_device(device, &physical));
	return whole(physical, resource, type);
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource, CUdevResourceType type)
{
	if (!drv_ctx_valid(hCtx))
		return CUDA_ERROR_INVALID_CONTEXT;
	return whole(hCtx->device, resource, type);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups,
	const CUdevResource *input, CUdevResource *remaining, unsigned int useFlags, unsigned int minCount)
{
	unsigned size, n;

	(void)useFlags;
	if (!nbGroups || !input || input->type != CU_DEV_RESOURCE_TYPE_SM || minCount > input->sm.smCount)
		return CUDA_ERROR_INVALID_VALUE;
	size = minCount < SPLIT_MIN ? SPLIT_MIN : (minCount + SPLIT_MIN - 1) / SPLIT_MIN * SPLIT_MIN;
	n = input->sm.smCount / size;
	if (!result) {
		*nbGroups = n;
		return CUDA_SUCCESS;
	}
	if (*nbGroups < n)
		n = *nbGroups;
	*nbGroups = n;
	for (unsigned i = 0; i < n; i++) {
		result[i] = *input;
		result[i].sm.smCount = size;
	}
	if (remaining) {
		*remaining = *input;
		remaining->sm.smCount -= n * size;
		if (!remaining->sm.smCount)
			remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
	}
	return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(
	CUdevResourceDesc *phDesc, CUdevResource *resources, unsigned int nbResources)
{
	CUdevResourceDesc d;

	if (!phDesc || !resources || nbResources != 1 || resources->type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_VALUE;
	d = calloc(1, sizeof(*d));
	if (!d)
		return CUDA_ERROR_OUT_OF_MEMORY;
	d->mark = MARK_DESC;
	d->sm = *resources;
	*phDesc = d;
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
	CUgreenCtx g;
	CUresult rc;

	if (!drv.ready)
		return drv_why();
	if (!phCtx || !desc || desc->mark != MARK_DESC || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	g = calloc(1, sizeof(*g));
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	rc = cuDevicePrimaryCtxRetain(&g->ctx, dev);
	if (rc != CUDA_SUCCESS) {
		free(g);
		return rc;
	}
	g->mark = MARK_GREEN;
	g->dev = dev;
	g->sm = desc->sm;
	drv_lock();
	g->id = drv.next_id++;
	drv_unlock();
	*phCtx = g;
	return CUDA_SUCCESS;
}

static CUresult check(CUgreenCtx g)
{
	if (!drv.ready)
		return drv_why();
	return g && g->mark == MARK_GREEN ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	TRY(check(hCtx));
	hCtx->mark = 0;
	return cuDevicePrimaryCtxRelease_v2(hCtx->dev);
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	TRY(check(hCtx));
	if (!pContext)
		return CUDA_ERROR_INVALID_VALUE;
	*pContext = hCtx->ctx;
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *resource, CUdevResourceType type)
{
	TRY(check(hCtx));
	if (!resource)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	*resource = hCtx->sm;
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId)
{
	TRY(check(greenCtx));
	if (!greenCtxId)
		return CUDA_ERROR_INVALID_VALUE;
	*greenCtxId = greenCtx->id;
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
{
	CUcontext old;
	CUresult rc;

	TRY(check(greenCtx));
	if (flags != CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(cuCtxPushCurrent_v2(greenCtx->ctx));
	rc = cuStreamCreateWithPriority(phStream, flags, priority);
	cuCtxPopCurrent_v2(&old);
	return rc;
}

/* drv.lock held: records the event behind all work that the context has submitted */
static CUresult record_all(CUcontext ctx, CUevent e)
{
	CUstream gather = drv_stream_new(ctx, CU_STREAM_NON_BLOCKING);

	if (!gather)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (CUstream s = drv.streams; s; s = s->next)
		if (s->ctx == ctx && s != gather && s->mark == MARK_STREAM)
			drv_push_wait(gather, s->ring, s->gen, s->tail);
	drv_event_record(e, gather);
	gather->mark = 0; /* freed when it is empty */
	return CUDA_SUCCESS;
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
	CUresult rc;

	if (!drv_ctx_valid(hCtx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!hEvent || hEvent->mark != MARK_EVENT || hEvent->ctx != hCtx)
		return CUDA_ERROR_INVALID_HANDLE;
	drv_lock();
	rc = drv.captures ? drv_capture_unsafe() : CUDA_SUCCESS;
	if (rc == CUDA_SUCCESS)
		rc = record_all(hCtx, hEvent);
	drv_unlock();
	return rc;
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
	if (!drv_ctx_valid(hCtx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!hEvent || hEvent->mark != MARK_EVENT)
		return CUDA_ERROR_INVALID_HANDLE;
	drv_lock();
	for (CUstream s = drv.streams; s && hEvent->recorded && !hEvent->done; s = s->next)
		if (s->ctx == hCtx && s->mark == MARK_STREAM && !s->capture)
			drv_push_wait(s, hEvent->ring, hEvent->gen, hEvent->count);
	drv_unlock();
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
	TRY(check(hCtx));
	return cuCtxRecordEvent(hCtx->ctx, hEvent);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
	TRY(check(hCtx));
	return cuCtxWaitEvent(hCtx->ctx, hEvent);
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx *phCtx)
{
	unsigned flags;

	if (!phCtx)
		return CUDA_ERROR_INVALID_VALUE;
	*phCtx = NULL;
	return cuStreamGetFlags(hStream, &flags);
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *pExecAffinity, CUexecAffinityType type)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (!pExecAffinity || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
		return CUDA_ERROR_INVALID_VALUE;
	pExecAffinity->type = type;
	pExecAffinity->param.smCount.val = sim_shm.file->device[ctx->device].info.multiprocessors;
	return CUDA_SUCCESS;
}

/* Events. An event's time is the model's time of its completion, however late that is noticed. */
#include "test/sim/driver/driver.h"

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	CUcontext ctx;
	CUevent e;

	TRY(drv_current(&ctx));
	if (!phEvent || Flags & ~7u ||
		((Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	if (Flags & CU_EVENT_INTERPROCESS)
		return CUDA_ERROR_NOT_SUPPORTED;
	e = calloc(1, sizeof(*e));
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->mark = MARK_EVENT;
	e->ctx = ctx;
	e->flags = Flags;
	e->refs = 1;
	*phEvent = e;
	return CUDA_SUCCESS;
}

/* drv.lock held */
void drv_event_put(CUevent e)
{
	if (--e->refs)
		return;
	free(e->cap_deps);
	free(e);
}

CUresult cuEventDestroy_v2(CUevent hEvent)
{
	CUresult rc = CUDA_SUCCESS;

	if (!drv.ready)
		return drv_why();
	drv_lock();
	if (!hEvent || hEvent->mark != MARK_EVENT) {
		rc = CUDA_ERROR_INVALID_HANDLE;
	} else {
		hEvent->mark = 0;
		drv_event_put(hEvent);
	}
	drv_unlock();
	return rc;
}

CUresult cuEventDestroy(CUevent hEvent)
{
	return cuEventDestroy_v2(hEvent);
}

/* drv.lock held */
void drv_event_record(CUevent e, CUstream s)
{
	e->refs++;
	e->recorded = true;
	e->done = false;
	e->capture = NULL;
	e->ring = s->ring;
	e->gen = s->gen;
	e->count = drv_push(s, (struct sim_op){.kind = SIM_OP_NOP}, (struct effect){FX_EVENT, e});
}

static CUresult record(CUevent e, CUstream handle)
{
	CUstream s;
	CUresult rc;

	drv_cost(COST_EVENT);
	drv_lock();
	rc = drv_stream(handle, &s);
	if (rc == CUDA_SUCCESS && (!e || e->mark != MARK_EVENT))
		rc = CUDA_ERROR_INVALID_HANDLE;
	if (rc == CUDA_SUCCESS) {
		if (s->capture)
			rc = drv_capture_record(e, s);
		else
			drv_event_record(e, s);
	}
	drv_unlock();
	return rc;
}
TWIN(cuEventRecord, _ptsz, (CUevent hEvent, CUstream hStream), record(hEvent, PICK(hStream)))

static CUresult record_flags(CUevent e, CUstream handle, unsigned flags)
{
	CUstream s;
	CUresult rc;
	bool captured;

	if (flags & ~1u)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	rc = drv_stream(handle, &s);
	captured = rc == CUDA_SUCCESS && s->capture;
	drv_unlock();
	TRY(rc);
	/* An external record becomes a node of the captured graph. */
	if (captured && (flags & CU_EVENT_RECORD_EXTERNAL)) {
		struct task t = {.kind = TASK_RECORD, .event = e};

		return drv_issue(handle, &t, false);
	}
	return record(e, handle);
}
TWIN(cuEventRecordWithFlags, _ptsz, (CUevent hEvent, CUstream hStream, unsigned int flags),
	record_flags(hEvent, PICK(hStream), flags))

static CUresult check(CUevent e)
{
	CUcontext current;

	if (!drv.ready)
		return drv_why();
	if (!e || e->mark != MARK_EVENT)
		return CUDA_ERROR_INVALID_HANDLE;
	return drv.strict ? drv_current(&current) : CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent hEvent)
{
	CUresult rc;

	TRY(check(hEvent));
	drv_cost(COST_QUERY);
	drv_lock();
	rc = hEvent->ctx->sticky;
	if (rc == CUDA_SUCCESS && hEvent->capture)
		rc = CUDA_ERROR_CAPTURED_EVENT;
	else if (rc == CUDA_SUCCESS && drv.captures)
		rc = drv_capture_unsafe();
	if (rc == CUDA_SUCCESS && hEvent->recorded && !hEvent->done) {
		if (!drv_reached(hEvent->ring, hEvent->gen, hEvent->count)) {
			rc = CUDA_ERROR_NOT_READY;
		} else {
			drv_collect();
			rc = hEvent->ctx->sticky;
		}
	}
	drv_unlock();
	return rc;
}

CUresult cuEventSynchronize(CUevent hEvent)
{
	CUresult rc;

	TRY(check(hEvent));
	drv_cost(COST_SYNC);
	drv_lock();
	rc = hEvent->ctx->sticky;
	if (rc == CUDA_SUCCESS && hEvent->capture)
		rc = CUDA_ERROR_CAPTURED_EVENT;
	else if (rc == CUDA_SUCCESS && drv.captures)
		rc = drv_capture_unsafe();
	if (rc == CUDA_SUCCESS && hEvent->recorded && !hEvent->done) {
		uint32_t ring = hEvent->ring, gen = hEvent->gen;
		uint64_t count = hEvent->count;

		hEvent->refs++;
		drv_unlock();
		drv_wait_count(ring, gen, count);
		drv_lock();
		drv_collect();
		rc = hEvent->ctx->sticky;
		drv_event_put(hEvent);
	}
	drv_unlock();
	return rc;
}

/* Returns when an event was, by the clock of its device and with the resolution of events. */
static int64_t device_time(CUevent e)
{
	__int128 ns = (__int128)e->end_ns * (1000000000 + drv.set->drift_ppb[e->ctx->device]) / 1000000000;

	return (int64_t)(ns / (int64_t)drv.set->event_ns * (int64_t)drv.set->event_ns);
}

CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	CUresult rc = CUDA_SUCCESS;

	TRY(check(hStart));
	TRY(check(hEnd));
	if (!pMilliseconds)
		return CUDA_ERROR_INVALID_VALUE;
	if ((hStart->flags | hEnd->flags) & CU_EVENT_DISABLE_TIMING)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!hStart->recorded || !hEnd->recorded)
		return CUDA_ERROR_INVALID_HANDLE;
	drv_lock();
	if (hStart->capture || hEnd->capture)
		rc = CUDA_ERROR_CAPTURED_EVENT;
	else if (!(hStart->done || drv_reached(hStart->ring, hStart->gen, hStart->count)) ||
		 !(hEnd->done || drv_reached(hEnd->ring, hEnd->gen, hEnd->count)))
		rc = CUDA_ERROR_NOT_READY;
	if (rc == CUDA_SUCCESS) {
		drv_collect();
		*pMilliseconds = (float)((double)(device_time(hEnd) - device_time(hStart)) / 1e6);
	}
	drv_unlock();
	return rc;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}

/* Streams: how they are made, destroyed and waited for; the two default streams. */
#include "test/sim/driver/driver.h"

static pthread_key_t thread_streams_key;
static pthread_once_t thread_streams_once = PTHREAD_ONCE_INIT;

/* The per-thread default streams of a thread: one for each context. */
struct thread_streams {
	unsigned n;
	struct {
		unsigned long long ctx_id;
		CUstream stream;
	} of[16];
};

static void close_stream(CUstream s);
static void reap(void);

static void thread_ends(void *arg)
{
	struct thread_streams *t = arg;

	drv_lock();
	for (unsigned i = 0; i < t->n && drv.ready; i++)
		if (t->of[i].stream->mark == MARK_STREAM && t->of[i].stream->ctx->id == t->of[i].ctx_id)
			close_stream(t->of[i].stream);
	drv_unlock();
	free(t);
}

static void make_key(void)
{
	pthread_key_create(&thread_streams_key, thread_ends);
}

CUstream drv_stream_new(CUcontext ctx, unsigned flags)
{
	CUstream s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	reap();
	s->fx = calloc(SIM_RING_OPS, sizeof(*s->fx));
	sim_lock();
	sim_engine_advance(sim_clock_ns());
	s->ring = sim_ring_open(ctx->device);
	if (s->ring != SIM_NONE) {
		s->r = &sim_shm.file->ring[s->ring];
		s->gen = s->r->gen;
		if (drv.connections) {
			s->r->queue = drv.streams_made++ % drv.connections + 1;
			sim_shm.file->queues = 1;
		}
	}
	sim_unlock();
	if (!s->fx || s->ring == SIM_NONE) {
		free(s->fx);
		free(s);
		return NULL;
	}
	s->ctx = ctx;
	s->flags = flags;
	s->id = drv.next_id++;
	s->blocking = !(flags & CU_STREAM_NON_BLOCKING);
	s->mark = MARK_STREAM;
	s->next = drv.streams;
	drv.streams = s;
	return s;
}

/* Frees closed streams once their effects on memory are done. Until then their rings must not be used again. */
static void reap(void)
{
	CUstream *p = &drv.streams;

	drv_collect();
	while (*p) {
		CUstream s = *p;

		if (s->mark == MARK_STREAM || s->fx_pending) {
			p = &s->next;
			continue;
		}
		*p = s->next;
		sim_lock();
		sim_engine_advance(sim_clock_ns());
		sim_ring_close(s->ring);
		sim_unlock();
		free(s->fx);
		s->fx = NULL;
	}
}

/* Makes the handle invalid now; queued work goes on. */
static void close_stream(CUstream s)
{
	if (s->capture)
		drv_capture_drop(s);
	s->mark = 0;
	reap();
}

void drv_streams_close(CUcontext ctx)
{
	for (;;) {
		CUstream s = drv.streams;

		while (s && (s->ctx != ctx || s->mark != MARK_STREAM))
			s = s->next;
		if (!s)
			return;
		close_stream(s);
	}
}

static CUstream per_thread(CUcontext ctx)
{
	struct thread_streams *t;
	CUstream s;

	pthread_once(&thread_streams_once, make_key);
	t = pthread_getspecific(thread_streams_key);
	if (!t) {
		t = calloc(1, sizeof(*t));
		if (!t)
			return NULL;
		pthread_setspecific(thread_streams_key, t);
	}
	for (unsigned i = 0; i < t->n; i++)
		if (t->of[i].ctx_id == ctx->id)
			return t->of[i].stream;
	s = drv_stream_new(ctx, 0);
	if (!s)
		return NULL;
	s->per_thread = true;
	if (t->n == sizeof(t->of) / sizeof(t->of[0]))
		t->n = 0;
	t->of[t->n].ctx_id = ctx->id;
	t->of[t->n++].stream = s;
	return s;
}

/* drv.lock held. */
CUresult drv_stream(CUstream handle, CUstream *out)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (handle == CU_STREAM_LEGACY || !handle) {
		if (!ctx->legacy_stream) {
			ctx->legacy_stream = drv_stream_new(ctx, 0);
			if (!ctx->legacy_stream)
				return CUDA_ERROR_OUT_OF_MEMORY;
			ctx->legacy_stream->legacy = true;
		}
		*out = ctx->legacy_stream;
		return drv.captures ? drv_capture_implicit(ctx) : CUDA_SUCCESS;
	}
	if (handle == CU_STREAM_PER_THREAD) {
		*out = per_thread(ctx);
		return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (handle->mark != MARK_STREAM)
		return CUDA_ERROR_INVALID_HANDLE;
	*out = handle;
	return handle->ctx->sticky;
}

static void set_priority(CUstream s, int priority)
{
	s->priority = priority;
	s->r->priority = priority;
	if (priority)
		__atomic_store_n(&sim_shm.file->priorities, 1, __ATOMIC_SEQ_CST);
}

static CUresult create(CUstream *out, unsigned flags, int priority)
{
	CUcontext ctx;
	CUstream s;

	TRY(drv_current(&ctx));
	if (!out || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	drv_cost(COST_ALLOC);
	drv_lock();
	s = drv_stream_new(ctx, flags);
	if (s)
		set_priority(s, priority > 0 ? 0 : priority < -5 ? -5 : priority);
	drv_unlock();
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = s;
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
	return create(phStream, Flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	return create(phStream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream hStream)
{
	CUcontext ctx;
	CUresult rc = CUDA_SUCCESS;

	TRY(drv_current(&ctx));
	if (!hStream || hStream == CU_STREAM_LEGACY || hStream == CU_STREAM_PER_THREAD)
		return CUDA_ERROR_INVALID_HANDLE;
	drv_lock();
	if (hStream->mark != MARK_STREAM)
		rc = CUDA_ERROR_INVALID_HANDLE;
	else
		close_stream(hStream);
	drv_unlock();
	return rc;
}

CUresult cuStreamDestroy(CUstream hStream)
{
	return cuStreamDestroy_v2(hStream);
}

/* Finds the count at which the stream will be idle. The legacy stream stands for the blocking streams, too. */
static CUresult idle_at(CUstream handle, CUstream *s, uint64_t *count)
{
	*count = 0;
	TRY(drv_stream(handle, s));
	if ((*s)->capture)
		return drv_capture_invalidate(*s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if ((*s)->legacy && (*s)->ctx->touched)
		drv_marker(*s);
	*count = (*s)->tail;
	return CUDA_SUCCESS;
}

static CUresult synchronize(CUstream handle)
{
	CUstream s;
	CUresult rc;
	uint64_t count;

	drv_cost(COST_SYNC);
	drv_lock();
	rc = idle_at(handle, &s, &count);
	if (rc == CUDA_SUCCESS) {
		drv_unlock();
		drv_wait_count(s->ring, s->gen, count);
		drv_lock();
		drv_collect();
		drv_pool_trim();
		rc = s->ctx->sticky;
	}
	drv_unlock();
	return rc;
}
TWIN(cuStreamSynchronize, _ptsz, (CUstream hStream), synchronize(PICK(hStream)))

static CUresult query(CUstream handle)
{
	CUstream s;
	CUresult rc;
	uint64_t count;

	drv_cost(COST_QUERY);
	drv_lock();
	rc = idle_at(handle, &s, &count);
	if (rc == CUDA_SUCCESS) {
		if (!drv_reached(s->ring, s->gen, count))
			rc = CUDA_ERROR_NOT_READY;
		else if (drv.fx_pending)
			drv_collect();
		if (rc == CUDA_SUCCESS)
			rc = s->ctx->sticky;
	}
	drv_unlock();
	return rc;
}
TWIN(cuStreamQuery, _ptsz, (CUstream hStream), query(PICK(hStream)))

/* drv.lock held. Waits for all work that the context has submitted. */
CUresult drv_ctx_drain(CUcontext ctx)
{
	bool again;

	do {
		again = false;
		for (CUstream s = drv.streams; s; s = s->next) {
			uint32_t ring = s->ring, gen = s->gen;
			uint64_t count = s->tail;

			if (s->ctx != ctx || s->r->gen != gen || s->r->head >= count)
				continue;
			drv_unlock();
			drv_wait_count(ring, gen, count);
			drv_lock();
			again = true;
			break;
		}
	} while (again);
	drv_collect();
	drv_pool_trim();
	return ctx->sticky;
}

static CUresult wait_event(CUstream handle, CUevent e)
{
	CUstream s;
	CUresult rc;

	drv_cost(COST_EVENT);
	drv_lock();
	rc = drv_stream(handle, &s);
	if (rc == CUDA_SUCCESS && (!e || e->mark != MARK_EVENT))
		rc = CUDA_ERROR_INVALID_HANDLE;
	if (rc == CUDA_SUCCESS && (e->capture || s->capture))
		rc = drv_capture_wait(e, s);
	else if (rc == CUDA_SUCCESS && e->recorded && !e->done) {
		/* The wait is an op of the stream, so the legacy stream orders it like other ops. */
		if (s->blocking)
			drv_marker(s);
		drv_push_wait(s, e->ring, e->gen, e->count);
	}
	drv_unlock();
	return rc;
}
TWIN(cuStreamWaitEvent, _ptsz, (CUstream hStream, CUevent hEvent, unsigned int Flags),
	Flags & ~1u ? CUDA_ERROR_INVALID_VALUE : wait_event(PICK(hStream), hEvent))

enum what { GET_PRIORITY, GET_FLAGS, GET_ID, GET_CTX, GET_DEVICE };

static CUresult get(CUstream handle, enum what what, void *out)
{
	CUstream s;
	CUresult rc;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	rc = drv_stream(handle, &s);
	if (rc == CUDA_SUCCESS) {
		switch (what) {
		case GET_PRIORITY:
			*(int *)out = s->priority;
			break;
		case GET_FLAGS:
			*(unsigned *)out = s->flags;
			break;
		case GET_ID:
			*(unsigned long long *)out = s->id;
			break;
		case GET_CTX:
			*(CUcontext *)out = s->ctx;
			break;
		case GET_DEVICE:
			*(CUdevice *)out = drv_device_index(s->ctx->device);
			break;
		}
	}
	drv_unlock();
	return rc;
}
TWIN(cuStreamGetPriority, _ptsz, (CUstream hStream, int *priority),
	get(PICK(hStream), GET_PRIORITY, priority))
TWIN(cuStreamGetFlags, _ptsz, (CUstream hStream, unsigned int *flags), get(PICK(hStream), GET_FLAGS, flags))
TWIN(cuStreamGetId, _ptsz, (CUstream hStream, unsigned long long *streamId),
	get(PICK(hStream), GET_ID, streamId))
TWIN(cuStreamGetCtx, _ptsz, (CUstream hStream, CUcontext *pctx), get(PICK(hStream), GET_CTX, pctx))
TWIN(cuStreamGetDevice, _ptsz, (CUstream hStream, CUdevice *device), get(PICK(hStream), GET_DEVICE, device))

static CUresult get_ctx_v2(CUstream handle, CUcontext *ctx, CUgreenCtx *green)
{
	if (green)
		*green = NULL;
	return get(handle, GET_CTX, ctx);
}
TWIN(cuStreamGetCtx_v2, _ptsz, (CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx),
	get_ctx_v2(PICK(hStream), pCtx, pGreenCtx))

/* Attributes can be set without effect; reading them gives plausible values. */
static CUresult get_attribute(CUstream handle, CUstreamAttrID attr, CUstreamAttrValue *value)
{
	CUstream s;
	CUresult rc;

	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	rc = drv_stream(handle, &s);
	if (rc == CUDA_SUCCESS) {
		memset(value, 0, sizeof(*value));
		if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY)
			value->priority = s->priority;
		else if (attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
			value->syncPolicy = CU_SYNC_POLICY_AUTO;
	}
	drv_unlock();
	return rc;
}
TWIN(cuStreamGetAttribute, _ptsz, (CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out),
	get_attribute(PICK(hStream), attr, value_out))

static CUresult set_attribute(CUstream handle, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
	CUstream s;
	CUresult rc;

	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	rc = drv_stream(handle, &s);
	if (rc == CUDA_SUCCESS && attr == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		set_priority(s, value->priority);
	drv_unlock();
	return rc;
}
TWIN(cuStreamSetAttribute, _ptsz, (CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value),
	set_attribute(PICK(hStream), attr, value))

static CUresult copy_attributes(CUstream to, CUstream from)
{
	CUstream a, b;
	CUresult rc;

	drv_lock();
	rc = drv_stream(to, &a);
	if (rc == CUDA_SUCCESS)
		rc = drv_stream(from, &b);
	if (rc == CUDA_SUCCESS)
		set_priority(a, b->priority);
	drv_unlock();
	return rc;
}
TWIN(cuStreamCopyAttributes, _ptsz, (CUstream dst, CUstream src), copy_attributes(PICK(dst), PICK(src)))

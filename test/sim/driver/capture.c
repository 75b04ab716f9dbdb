/*
 * Stream capture. A capturing stream adds nodes to a graph instead of running; an event recorded in it
 * carries the place in the graph to other streams, which join the capture by waiting for it.
 */
#include "test/sim/driver/graph.h"

static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static bool set_deps(CUgraphNode **deps, size_t *n, const CUgraphNode *from, size_t nfrom)
{
	CUgraphNode *copy = malloc((nfrom + 1) * sizeof(*copy));

	if (!copy)
		return false;
	if (nfrom)
		memcpy(copy, from, nfrom * sizeof(*copy));
	free(*deps);
	*deps = copy;
	*n = nfrom;
	return true;
}

static bool join_deps(CUstream s, const CUgraphNode *from, size_t nfrom)
{
	for (size_t i = 0; i < nfrom; i++) {
		CUgraphNode *deps;
		size_t k = 0;

		while (k < s->ncap_deps && s->cap_deps[k] != from[i])
			k++;
		if (k < s->ncap_deps)
			continue;
		deps = realloc(s->cap_deps, (s->ncap_deps + 1) * sizeof(*deps));
		if (!deps)
			return false;
		s->cap_deps = deps;
		deps[s->ncap_deps++] = from[i];
	}
	return true;
}

static void invalidate(struct capture *c)
{
	c->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

CUresult drv_capture_invalidate(CUstream s, CUresult rc)
{
	if (s->capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	invalidate(s->capture);
	return rc;
}

CUresult drv_capture_task(CUstream s, const struct task *task)
{
	struct capture *c = s->capture;
	CUgraphNode n;

	if (c->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	n = drv_graph_add(c->graph, s->cap_deps, s->ncap_deps, task);
	if (!n || !set_deps(&s->cap_deps, &s->ncap_deps, &n, 1)) {
		invalidate(c);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	n->capture = c->id;
	return CUDA_SUCCESS;
}

/* Checks whether this thread may now make a call that could disturb a capture. If not, the captures become invalid. */
CUresult drv_capture_unsafe(void)
{
	bool bad = false;

	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	for (CUstream s = drv.streams; s; s = s->next) {
		struct capture *c = s->capture;
		bool mine;

		if (!c || c->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
			continue;
		mine = pthread_equal(c->thread, pthread_self());
		if (mine || (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
				    c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
			bad = true;
			invalidate(c);
		}
	}
	return bad ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* Refuses implicit use of the legacy stream while a blocking stream is captured: the legacy stream would wait for a
 * stream that runs nothing. */
CUresult drv_capture_implicit(CUcontext ctx)
{
	CUresult rc = CUDA_SUCCESS;

	for (CUstream s = drv.streams; s; s = s->next) {
		if (s->capture && s->blocking && s->ctx == ctx) {
			invalidate(s->capture);
			rc = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	}
	return rc;
}

CUresult drv_capture_record(CUevent e, CUstream s)
{
	if (s->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!set_deps(&e->cap_deps, &e->ncap_deps, s->cap_deps, s->ncap_deps))
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->capture = s->capture;
	e->recorded = true;
	return CUDA_SUCCESS;
}

CUresult drv_capture_wait(CUevent e, CUstream s)
{
	if (!e->capture) {
		if (!e->recorded)
			return CUDA_SUCCESS;
		return drv_capture_invalidate(s, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	}
	if (e->capture->ended)
		return s->capture ? drv_capture_invalidate(s, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
				  : CUDA_ERROR_CAPTURED_EVENT;
	if (e->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (s->legacy) {
		invalidate(e->capture);
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (s->capture && s->capture != e->capture) {
		invalidate(s->capture);
		invalidate(e->capture);
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (!s->capture) {
		s->capture = e->capture;
		s->ncap_deps = 0;
	}
	return join_deps(s, e->cap_deps, e->ncap_deps) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void leave(CUstream s)
{
	s->capture = NULL;
	free(s->cap_deps);
	s->cap_deps = NULL;
	s->ncap_deps = 0;
}

/* Ends the capture of a stream that is destroyed during it. */
void drv_capture_drop(CUstream s)
{
	struct capture *c = s->capture;

	if (c->origin == s) {
		for (CUstream t = drv.streams; t; t = t->next)
			if (t->capture == c && t != s)
				leave(t);
		if (c->own_graph)
			drv_graph_end(c->graph);
		c->ended = true;
		drv.captures--;
	} else {
		invalidate(c);
	}
	leave(s);
}

static CUresult begin(
	CUstream handle, CUstreamCaptureMode mode, CUgraph graph, const CUgraphNode *deps, size_t ndeps)
{
	struct capture *c;
	CUstream s;
	CUresult rc;

	if (mode > CU_STREAM_CAPTURE_MODE_RELAXED || (ndeps && !deps))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	rc = drv_stream(handle, &s);
	if (rc == CUDA_SUCCESS && s->legacy)
		rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	else if (rc == CUDA_SUCCESS && s->capture)
		rc = CUDA_ERROR_ILLEGAL_STATE;
	else if (rc == CUDA_SUCCESS && graph && !drv_graph_valid(graph))
		rc = CUDA_ERROR_INVALID_VALUE;
	c = rc == CUDA_SUCCESS ? calloc(1, sizeof(*c)) : NULL;
	if (c) {
		/* The capture is never freed: events may point to it long after its end. */
		c->own_graph = !graph;
		c->graph = graph ? graph : drv_graph_new();
		c->origin = s;
		c->mode = mode;
		c->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
		c->id = drv.next_id++;
		c->thread = pthread_self();
		s->capture = c;
		set_deps(&s->cap_deps, &s->ncap_deps, deps, ndeps);
		drv.captures++;
	} else if (rc == CUDA_SUCCESS) {
		rc = CUDA_ERROR_OUT_OF_MEMORY;
	}
	drv_unlock();
	return rc;
}

static CUresult begin_again(CUstream handle, CUstreamCaptureMode mode, CUgraph graph)
{
	CUstream s;

	if (!drv.ready)
		return drv_why();
	if (!graph || !drv_graph_valid(graph))
		return CUDA_ERROR_INVALID_VALUE;
	TRY(begin(handle, mode, NULL, NULL, 0));
	drv_lock();
	if (drv_stream(handle, &s) == CUDA_SUCCESS && s->capture)
		s->capture->again = graph;
	drv_unlock();
	return CUDA_SUCCESS;
}
TWIN(cuStreamBeginCapture_v2, _ptsz, (CUstream hStream, CUstreamCaptureMode mode),
	begin(PICK(hStream), mode, NULL, NULL, 0))
TWIN(cuStreamBeginCapture, _ptsz, (CUstream hStream),
	begin(PICK(hStream), CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0))
TWIN(cuStreamBeginCaptureToGraph, _ptsz,
	(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
		const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode),
	((void)dependencyData, hGraph ? begin(PICK(hStream), mode, hGraph, dependencies, numDependencies)
				      : CUDA_ERROR_INVALID_VALUE))

TWIN(cuStreamBeginRecaptureToGraph, _ptsz,
	(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph, CUgraphRecaptureCallback callbackFunc,
		void *userData),
	((void)callbackFunc, (void)userData, begin_again(PICK(hStream), mode, hGraph)))

/* Gives the graph's nodes what was captured. A different number or kind of nodes is a different topology. */
static CUresult replace_nodes(struct capture *c)
{
	CUgraph from = c->graph, to = c->again;

	for (size_t i = 0; i < from->n && i < to->n; i++)
		if (from->nodes[i]->task.kind != to->nodes[i]->task.kind)
			return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	if (from->n != to->n)
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	for (size_t i = 0; i < from->n; i++) {
		struct task task = to->nodes[i]->task;

		to->nodes[i]->task = from->nodes[i]->task;
		from->nodes[i]->task = task;
	}
	drv_graph_end(from);
	c->graph = to;
	c->own_graph = false;
	return CUDA_SUCCESS;
}

/* Returns whether the origin stream has joined every branch of what was captured. */
static bool joined(struct capture *c, CUstream s)
{
	for (size_t i = 0; i < c->graph->n; i++) {
		CUgraphNode n = c->graph->nodes[i];
		bool inner = n->capture != c->id;

		for (size_t k = 0; k < c->graph->n && !inner; k++)
			for (size_t j = 0; j < c->graph->nodes[k]->ndeps; j++)
				inner |= c->graph->nodes[k]->deps[j] == n;
		for (size_t k = 0; k < s->ncap_deps && !inner; k++)
			inner = s->cap_deps[k] == n;
		if (!inner)
			return false;
	}
	return true;
}

static CUresult end(CUstream handle, CUgraph *out)
{
	struct capture *c;
	CUstream s;
	CUresult rc;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	drv_lock();
	rc = drv_stream(handle, &s);
	if (rc != CUDA_SUCCESS)
		goto done;
	c = s->capture;
	if (!c)
		rc = CUDA_ERROR_ILLEGAL_STATE;
	else if (c->origin != s)
		rc = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	else if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
		rc = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	if (rc != CUDA_SUCCESS)
		goto done;
	if (c->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!joined(c, s))
		rc = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	else if (c->again)
		rc = replace_nodes(c);
	for (CUstream t = drv.streams; t; t = t->next)
		if (t->capture == c)
			leave(t);
	c->ended = true;
	drv.captures--;
	if (rc == CUDA_SUCCESS)
		*out = c->graph;
	else if (c->own_graph)
		drv_graph_end(c->graph);
done:
	drv_unlock();
	return rc;
}
TWIN(cuStreamEndCapture, _ptsz, (CUstream hStream, CUgraph *phGraph), end(PICK(hStream), phGraph))

/* Returns whether the stream is the legacy stream and a blocking stream is being captured. A query of the legacy stream
 * fails then, but the capture stays valid. */
static bool captures_blocking(CUstream handle, CUcontext ctx)
{
	if (handle && handle != CU_STREAM_LEGACY)
		return false;
	for (CUstream s = drv.streams; s; s = s->next)
		if (s->capture && s->blocking && s->ctx == ctx)
			return true;
	return false;
}

static CUresult info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
	const CUgraphNode **deps, const CUgraphEdgeData **edges, size_t *ndeps)
{
	CUcontext ctx;
	CUstream s;
	CUresult rc;

	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(drv_current(&ctx));
	drv_lock();
	rc = captures_blocking(handle, ctx) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : drv_stream(handle, &s);
	if (rc == CUDA_SUCCESS) {
		*status = s->capture ? s->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
		if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
			if (id)
				*id = s->capture->id;
			if (graph)
				*graph = s->capture->graph;
			if (deps)
				*deps = s->cap_deps;
			if (edges)
				*edges = NULL;
			if (ndeps)
				*ndeps = s->ncap_deps;
		}
	}
	drv_unlock();
	return rc;
}
TWIN(cuStreamIsCapturing, _ptsz, (CUstream hStream, CUstreamCaptureStatus *captureStatus),
	info(PICK(hStream), captureStatus, NULL, NULL, NULL, NULL, NULL))
TWIN(cuStreamGetCaptureInfo, _ptsz,
	(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out),
	info(PICK(hStream), captureStatus_out, id_out, NULL, NULL, NULL, NULL))
TWIN(cuStreamGetCaptureInfo_v2, _ptsz,
	(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out,
		const CUgraphNode **dependencies_out, size_t *numDependencies_out),
	info(PICK(hStream), captureStatus_out, id_out, graph_out, dependencies_out, NULL,
		numDependencies_out))
TWIN(cuStreamGetCaptureInfo_v3, _ptsz,
	(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out,
		const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out,
		size_t *numDependencies_out),
	info(PICK(hStream), captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
		numDependencies_out))

static CUresult update(CUstream handle, CUgraphNode *deps, size_t n, unsigned flags)
{
	CUstream s;
	CUresult rc;

	if (flags > 1 || (n && !deps))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	rc = drv_stream(handle, &s);
	if (rc == CUDA_SUCCESS && !s->capture)
		rc = CUDA_ERROR_ILLEGAL_STATE;
	else if (rc == CUDA_SUCCESS && flags)
		rc = set_deps(&s->cap_deps, &s->ncap_deps, deps, n) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	else if (rc == CUDA_SUCCESS)
		rc = join_deps(s, deps, n) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	drv_unlock();
	return rc;
}
TWIN(cuStreamUpdateCaptureDependencies, _ptsz,
	(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies, unsigned int flags),
	update(PICK(hStream), dependencies, numDependencies, flags))
TWIN(cuStreamUpdateCaptureDependencies_v2, _ptsz,
	(CUstream hStream, CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
		size_t numDependencies, unsigned int flags),
	((void)dependencyData, update(PICK(hStream), dependencies, numDependencies, flags)))

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode old = thread_mode;

	if (!drv.ready)
		return drv_why();
	if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}

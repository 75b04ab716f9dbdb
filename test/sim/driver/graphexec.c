/*
 * Executable graphs. At instantiation child graphs are flattened, and the nodes are put in an order and
 * on lanes: a lane is a chain of nodes that depend on each other. Lane 0 is the stream into which the
 * graph is launched. The others are hidden streams that are joined to it before and after.
 */
#include "test/sim/driver/graph.h"

#define MAX_LANES 16

struct step {
	CUgraphNode node; /* of the program's graph; NULL for the beginning and the end of a child graph */
	struct task task;
	unsigned *deps;
	unsigned ndeps;
	unsigned lane;
	bool enabled;
	uint64_t count; /* its lane's count of ops after it, in the current launch */
};

struct CUgraphExec_st {
	uint32_t mark;
	struct step *steps;
	unsigned n, room;
	unsigned nlanes;
	CUstream lane[MAX_LANES];
	CUcontext ctx;
	unsigned long long flags;
	bool launched;
	bool loaded; /* its first launch or upload is over; only used with drv.lazy_ns */
	struct graph_memory memory;
	uint32_t last_ring, last_gen;
	uint64_t last_count;
};

static int add_step(
	CUgraphExec x, CUgraphNode node, const struct task *t, const unsigned *deps, unsigned ndeps)
{
	struct step *s;

	if (x->n == x->room) {
		unsigned room = x->room ? x->room * 2 : 32;

		s = realloc(x->steps, room * sizeof(*s));
		if (!s)
			return -1;
		x->steps = s;
		x->room = room;
	}
	s = &x->steps[x->n];
	*s = (struct step){.node = node, .task = *t, .ndeps = ndeps, .enabled = true};
	s->deps = malloc((ndeps + 1) * sizeof(*deps));
	if (!s->deps)
		return -1;
	memcpy(s->deps, deps, ndeps * sizeof(*deps));
	return (int)x->n++;
}

/* Adds the nodes of `g` as steps behind those in `after`. Writes its last steps to `ends` and returns how many they
 * are, or -1. */
static int flatten(CUgraphExec x, CUgraph g, const unsigned *after, unsigned nafter, unsigned *ends)
{
	int *place = malloc((g->n + 1) * sizeof(*place));
	bool *inner = calloc(g->n + 1, sizeof(*inner));
	unsigned *deps = malloc((g->n + nafter + 1) * sizeof(*deps));
	size_t done = 0;
	int nends = 0;

	if (!place || !inner || !deps)
		goto fail;
	for (size_t i = 0; i < g->n; i++)
		place[i] = -1;
	while (done < g->n) {
		size_t before = done;

		for (size_t i = 0; i < g->n; i++) {
			CUgraphNode n = g->nodes[i];
			unsigned ndeps = 0;
			bool ready = place[i] < 0;

			for (size_t k = 0; ready && k < n->ndeps; k++) {
				size_t j = 0;

				while (j < g->n && g->nodes[j] != n->deps[k])
					j++;
				ready = j < g->n && place[j] >= 0;
				if (ready)
					deps[ndeps++] = (unsigned)place[j];
			}
			if (!ready)
				continue;
			if (!n->ndeps && nafter) {
				memcpy(deps, after, nafter * sizeof(*deps));
				ndeps = nafter;
			}
			for (size_t k = 0; k < n->ndeps; k++)
				for (size_t j = 0; j < g->n; j++)
					if (g->nodes[j] == n->deps[k])
						inner[j] = true;
			if (n->task.kind == TASK_CHILD) {
				struct task empty = {.kind = TASK_EMPTY};
				unsigned *child_ends = malloc((n->task.child->n + 1) * sizeof(*child_ends));
				int entry = add_step(x, NULL, &empty, deps, ndeps), m = -1;
				unsigned at = (unsigned)entry;

				if (entry >= 0 && child_ends)
					m = flatten(x, n->task.child, &at, 1, child_ends);
				if (m == 0)
					child_ends[m++] = at;
				if (m > 0)
					place[i] = add_step(x, n, &empty, child_ends, (unsigned)m);
				free(child_ends);
			} else {
				place[i] = add_step(x, n, &n->task, deps, ndeps);
			}
			if (place[i] < 0)
				goto fail;
			done++;
		}
		if (done == before)
			goto fail; /* a cycle */
	}
	for (size_t i = 0; i < g->n; i++)
		if (!inner[i])
			ends[nends++] = (unsigned)place[i];
	free(place);
	free(inner);
	free(deps);
	return nends;
fail:
	free(place);
	free(inner);
	free(deps);
	return -1;
}

static void assign_lanes(CUgraphExec x)
{
	int last[MAX_LANES];

	x->nlanes = 0;
	for (unsigned i = 0; i < x->n; i++) {
		struct step *s = &x->steps[i];
		unsigned lane = MAX_LANES;

		for (unsigned k = 0; k < s->ndeps && lane == MAX_LANES; k++)
			if (last[x->steps[s->deps[k]].lane] == (int)s->deps[k])
				lane = x->steps[s->deps[k]].lane;
		if (lane == MAX_LANES)
			lane = x->nlanes < MAX_LANES ? x->nlanes++ : i % MAX_LANES;
		s->lane = lane;
		last[lane] = (int)i;
	}
}

static void exec_free_steps(CUgraphExec x)
{
	for (unsigned i = 0; i < x->n; i++)
		free(x->steps[i].deps);
	free(x->steps);
	x->steps = NULL;
	x->n = x->room = 0;
}

static CUresult instantiate(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
	CUcontext ctx;
	CUgraphExec x;
	unsigned *ends;
	int n;

	TRY(drv_current(&ctx));
	if (!out || flags & ~15ull)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		return CUDA_ERROR_NOT_SUPPORTED;
	drv_cost(COST_GRAPH);
	drv_lock();
	x = calloc(1, sizeof(*x));
	ends = drv_graph_valid(g) ? malloc((g->n + 1) * sizeof(*ends)) : NULL;
	n = x && ends ? flatten(x, g, NULL, 0, ends) : -1;
	free(ends);
	if (n < 0) {
		if (x)
			exec_free_steps(x);
		free(x);
		drv_unlock();
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (unsigned i = 0; i < x->n; i++)
		drv_graphmem_step(&x->memory, &x->steps[i].task);
	assign_lanes(x);
	x->ctx = ctx;
	x->flags = flags;
	x->mark = MARK_EXEC;
	for (unsigned i = 1; i < x->nlanes; i++) {
		x->lane[i] = drv_stream_new(ctx, CU_STREAM_NON_BLOCKING);
		if (!x->lane[i]) {
			x->nlanes = i;
			for (unsigned k = 0; k < x->n; k++)
				x->steps[k].lane %= i;
			break;
		}
		x->lane[i]->internal = true;
	}
	drv_unlock();
	*out = x;
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
	return instantiate(phGraphExec, hGraph, flags);
}

static CUresult instantiate_logged(CUgraphExec *x, CUgraph g, CUgraphNode *error, char *log, size_t size)
{
	if (error)
		*error = NULL;
	if (log && size)
		*log = 0;
	return instantiate(x, g, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
	char *logBuffer, size_t bufferSize)
{
	return instantiate_logged(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
	char *logBuffer, size_t bufferSize)
{
	return instantiate_logged(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

/* drv.lock held */
static CUresult run(CUgraphExec x, CUstream s)
{
	CUresult rc = CUDA_SUCCESS;
	bool used[MAX_LANES] = {false};
	uint64_t start;

	TRY(drv_graphmem_bind(
		&x->memory, s, x->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, true));
	if (x->launched)
		drv_push_wait(s, x->last_ring, x->last_gen, x->last_count);
	start = drv_push(s, (struct sim_op){.kind = SIM_OP_NOP, .flags = SIM_OP_GRAPH}, (struct effect){0});
	x->lane[0] = s;
	for (unsigned i = 0; rc == CUDA_SUCCESS && i < x->n; i++) {
		struct step *step = &x->steps[i];
		CUstream lane = x->lane[step->lane];

		if (step->lane && !used[step->lane])
			drv_push_wait(lane, s->ring, s->gen, start);
		used[step->lane] = true;
		for (unsigned k = 0; k < step->ndeps; k++) {
			struct step *dep = &x->steps[step->deps[k]];

			if (dep->lane != step->lane)
				drv_push_wait(
					lane, x->lane[dep->lane]->ring, x->lane[dep->lane]->gen, dep->count);
		}
		if (step->enabled)
			rc = drv_task(lane, &step->task, 0);
		step->count = lane->tail;
	}
	for (unsigned i = 1; i < x->nlanes; i++)
		if (used[i])
			drv_push_wait(s, x->lane[i]->ring, x->lane[i]->gen, x->lane[i]->tail);
	x->last_count = drv_marker(s);
	x->last_ring = s->ring;
	x->last_gen = s->gen;
	x->launched = true;
	drv_graphmem_queued(&x->memory, s, x->last_count);
	return rc;
}

static bool exec_valid(CUgraphExec x)
{
	return x && x->mark == MARK_EXEC;
}

/* Loads the graph and its functions. drv.lock is held, but released meanwhile. */
static CUresult load(CUgraphExec x, CUstream handle, CUstream *s)
{
	if (!drv_unloaded(&x->loaded))
		return CUDA_SUCCESS;
	drv_unlock();
	drv_load(&x->loaded);
	drv_lock();
	for (unsigned i = 0; i < x->n; i++)
		if (x->steps[i].task.kind == TASK_KERNEL)
			__atomic_store_n(&x->steps[i].task.kernel.fn->loaded, true, __ATOMIC_RELEASE);
	return drv_stream(handle, s);
}

static CUresult launch(CUgraphExec x, CUstream handle)
{
	CUstream s;
	CUresult rc;

	if (!drv.ready)
		return drv_why();
	drv_cost(COST_GRAPH);
	drv_lock();
	rc = drv_stream(handle, &s);
	if (rc == CUDA_SUCCESS && !exec_valid(x))
		rc = CUDA_ERROR_INVALID_VALUE;
	if (rc == CUDA_SUCCESS && !s->capture)
		rc = load(x, handle, &s);
	if (rc == CUDA_SUCCESS)
		rc = s->capture ? drv_capture_invalidate(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
				: run(x, s);
	drv_unlock();
	return rc;
}
TWIN(cuGraphLaunch, _ptsz, (CUgraphExec hGraph, CUstream hStream), launch(hGraph, PICK(hStream)))

static CUresult upload(CUgraphExec x, CUstream handle)
{
	CUstream s;
	CUresult rc;

	drv_lock();
	rc = drv_stream(handle, &s);
	if (rc == CUDA_SUCCESS && !exec_valid(x))
		rc = CUDA_ERROR_INVALID_VALUE;
	if (rc == CUDA_SUCCESS && s->capture)
		rc = drv_capture_invalidate(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (rc == CUDA_SUCCESS)
		rc = load(x, handle, &s);
	/* Unlike a launch, an upload may find allocations that an earlier launch has left behind. */
	if (rc == CUDA_SUCCESS)
		rc = drv_graphmem_bind(&x->memory, s, false, false);
	if (rc == CUDA_SUCCESS && x->memory.n)
		drv_graphmem_queued(&x->memory, s, drv_marker(s));
	drv_unlock();
	return rc;
}
TWIN(cuGraphUpload, _ptsz, (CUgraphExec hGraph, CUstream hStream), upload(hGraph, PICK(hStream)))

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	if (!drv.ready)
		return drv_why();
	if (!exec_valid(hGraphExec))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 1; i < hGraphExec->nlanes; i++)
		if (hGraphExec->lane[i])
			cuStreamDestroy_v2(hGraphExec->lane[i]);
	drv_lock();
	hGraphExec->mark = 0;
	drv_collect();
	drv_graphmem_end(&hGraphExec->memory,
		hGraphExec->memory.n && hGraphExec->launched &&
			!drv_reached(hGraphExec->last_ring, hGraphExec->last_gen, hGraphExec->last_count));
	exec_free_steps(hGraphExec);
	drv_unlock();
	return CUDA_SUCCESS;
}

static CUresult instantiate_params(
	CUgraphExec *x, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p, CUstream stream)
{
	CUresult rc;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	rc = instantiate(x, g, p->flags);
	if (rc == CUDA_SUCCESS && p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) {
		rc = upload(*x, stream);
		if (rc != CUDA_SUCCESS)
			cuGraphExecDestroy(*x);
	}
	p->hErrNode_out = NULL;
	p->result_out = rc == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
	return rc;
}

TWIN(cuGraphInstantiateWithParams, _ptsz,
	(CUgraphExec * phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
	instantiate_params(phGraphExec, hGraph, instantiateParams,
		instantiateParams ? PICK(instantiateParams->hUploadStream) : NULL))

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
	if (!exec_valid(hGraphExec) || !flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = hGraphExec->flags;
	return CUDA_SUCCESS;
}

static struct step *find(CUgraphExec x, CUgraphNode node)
{
	for (unsigned i = 0; exec_valid(x) && i < x->n; i++)
		if (x->steps[i].node == node)
			return &x->steps[i];
	return NULL;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
	struct step *s = find(hGraphExec, hNode);

	if (!s || (s->task.kind != TASK_KERNEL && s->task.kind != TASK_COPY && s->task.kind != TASK_MEMSET))
		return CUDA_ERROR_INVALID_VALUE;
	s->enabled = isEnabled;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled)
{
	struct step *s = find(hGraphExec, hNode);

	if (!s || !isEnabled)
		return CUDA_ERROR_INVALID_VALUE;
	*isEnabled = s->enabled;
	return CUDA_SUCCESS;
}

static CUresult set(CUgraphExec x, CUgraphNode node, const struct task *t, CUresult rc)
{
	struct step *s;

	TRY(rc);
	drv_lock();
	s = find(x, node);
	if (!s || s->task.kind != t->kind)
		rc = CUDA_ERROR_INVALID_VALUE;
	else
		s->task = *t;
	drv_unlock();
	return rc;
}

CUresult cuGraphExecKernelNodeSetParams_v2(
	CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct task t;

	return nodeParams ? set(hGraphExec, hNode, &t, drv_task_kernel(&t, nodeParams))
			  : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecKernelNodeSetParams(
	CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUDA_KERNEL_NODE_PARAMS k = {0};

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&k, nodeParams, sizeof(*nodeParams));
	return cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &k);
}

CUresult cuGraphExecMemcpyNodeSetParams(
	CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct task t;

	(void)ctx;
	return copyParams ? set(hGraphExec, hNode, &t, drv_task_memcpy(&t, copyParams))
			  : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecMemsetNodeSetParams(
	CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	struct task t;

	(void)ctx;
	return memsetParams ? set(hGraphExec, hNode, &t, drv_task_memset(&t, memsetParams))
			    : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecHostNodeSetParams(
	CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct task t = {.kind = TASK_HOST};

	if (!nodeParams || !nodeParams->fn)
		return CUDA_ERROR_INVALID_VALUE;
	t.host.fn = nodeParams->fn;
	t.host.data = nodeParams->userData;
	return set(hGraphExec, hNode, &t, CUDA_SUCCESS);
}

static CUresult set_event(CUgraphExec x, CUgraphNode node, enum task_kind kind, CUevent e)
{
	struct task t = {.kind = kind, .event = e};

	return set(x, node, &t, e && e->mark == MARK_EVENT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	return set_event(hGraphExec, hNode, TASK_RECORD, event);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	return set_event(hGraphExec, hNode, TASK_WAIT, event);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	struct task t;

	if (!nodeParams || nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH ||
		nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return CUDA_ERROR_INVALID_VALUE;
	return set(hGraphExec, hNode, &t, drv_task_from_params(nodeParams, &t));
}

/* The new graph must have nodes of the same kinds in the same places; then only what they do is replaced. */
CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
	CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
	struct CUgraphExec_st other = {0};
	unsigned *ends;

	if (!exec_valid(hGraphExec) || !drv_graph_valid(hGraph) || !resultInfo)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	ends = malloc((hGraph->n + 1) * sizeof(*ends));
	if (!ends || flatten(&other, hGraph, NULL, 0, ends) < 0)
		info.result = CU_GRAPH_EXEC_UPDATE_ERROR;
	else if (other.n != hGraphExec->n)
		info.result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (unsigned i = 0; info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS && i < other.n; i++) {
		struct step *a = &hGraphExec->steps[i], *b = &other.steps[i];

		if (a->task.kind != b->task.kind)
			info.result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
		else if ((a->task.kind == TASK_ALLOC && a->task.alloc.dptr != b->task.alloc.dptr) ||
			 (a->task.kind == TASK_FREE && a->task.free != b->task.free))
			info.result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
		else if (a->ndeps != b->ndeps || memcmp(a->deps, b->deps, a->ndeps * sizeof(*a->deps)))
			info.result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		if (info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
			info.errorNode = b->node;
	}
	for (unsigned i = 0; info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS && i < other.n; i++) {
		hGraphExec->steps[i].task = other.steps[i].task;
		hGraphExec->steps[i].node = other.steps[i].node;
	}
	exec_free_steps(&other);
	free(ends);
	drv_unlock();
	*resultInfo = info;
	return info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
							   : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
	CUgraphExecUpdateResult *updateResult_out)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUresult rc = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);

	if (hErrorNode_out)
		*hErrorNode_out = info.errorNode;
	if (updateResult_out)
		*updateResult_out = info.result;
	return rc;
}

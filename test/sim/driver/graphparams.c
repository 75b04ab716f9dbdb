/* Graph nodes: how each kind is added, and how what it does is read and changed. */
#include "test/sim/driver/graph.h"
#include "test/sim/driver/copy.h"

CUresult drv_task_kernel(struct task *t, const CUDA_KERNEL_NODE_PARAMS *p)
{
	CUfunction f = p->func ? p->func : (CUfunction)(void *)p->kern;

	return drv_kernel_task(t, f, (const unsigned[]){p->gridDimX, p->gridDimY, p->gridDimZ},
		(const unsigned[]){p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes,
		p->kernelParams, p->extra);
}

CUresult drv_task_memcpy(struct task *t, const CUDA_MEMCPY3D *p)
{
	t->kind = TASK_COPY;
	t->copy.desc = *p;
	t->copy.staged = NULL;
	return drv_copy_normal(&t->copy.desc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult drv_task_memset(struct task *t, const CUDA_MEMSET_NODE_PARAMS *p)
{
	t->kind = TASK_MEMSET;
	t->set = *p;
	return drv_memset_normal(&t->set) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult task_alloc(struct task *t, const CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	uint32_t device;

	if (!p->bytesize || p->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(drv_device(p->poolProps.location.id, &device));
	t->kind = TASK_ALLOC;
	t->alloc = *p;
	return CUDA_SUCCESS;
}

static CUresult task_host(struct task *t, CUhostFn fn, void *data)
{
	t->kind = TASK_HOST;
	t->host.fn = fn;
	t->host.callback = NULL;
	t->host.data = data;
	t->host.stream = NULL;
	return fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult task_event(struct task *t, enum task_kind kind, CUevent e)
{
	t->kind = kind;
	t->event = e;
	return e && e->mark == MARK_EVENT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult task_child(struct task *t, CUgraph g)
{
	if (!drv_graph_valid(g))
		return CUDA_ERROR_INVALID_VALUE;
	t->kind = TASK_CHILD;
	t->child = drv_graph_clone(g);
	if (!t->child)
		return CUDA_ERROR_OUT_OF_MEMORY;
	t->child->child = true;
	return CUDA_SUCCESS;
}

/* drv.lock held */
CUresult drv_task_from_params(const CUgraphNodeParams *p, struct task *t)
{
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL: {
		CUDA_KERNEL_NODE_PARAMS k;

		memcpy(&k, &p->kernel, sizeof(k));
		return drv_task_kernel(t, &k);
	}
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return drv_task_memcpy(t, &p->memcpy.copyParams);
	case CU_GRAPH_NODE_TYPE_MEMSET: {
		CUDA_MEMSET_NODE_PARAMS m;

		memcpy(&m, &p->memset, sizeof(m));
		return drv_task_memset(t, &m);
	}
	case CU_GRAPH_NODE_TYPE_HOST:
		return task_host(t, p->host.fn, p->host.userData);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return task_child(t, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		t->kind = TASK_EMPTY;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return task_event(t, TASK_WAIT, p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return task_event(t, TASK_RECORD, p->eventRecord.event);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return task_alloc(t, (const CUDA_MEM_ALLOC_NODE_PARAMS *)&p->alloc);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		t->kind = TASK_FREE;
		t->free = p->free.dptr;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

/* Gives an allocation its address, which depends on its place in the graph. */
static CUresult address(CUgraph g, const CUgraphNode *deps, size_t n, struct task *t)
{
	uint32_t device;

	if (t->kind != TASK_ALLOC)
		return CUDA_SUCCESS;
	TRY(drv_device(t->alloc.poolProps.location.id, &device));
	t->alloc.dptr = drv_graphmem_address(g, deps, n, device, t->alloc.bytesize);
	return t->alloc.dptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add(
	CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n, struct task *t, CUresult rc)
{
	if (rc == CUDA_SUCCESS && (!out || !drv_graph_valid(g) || (n && !deps)))
		rc = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; rc == CUDA_SUCCESS && i < n; i++)
		if (!drv_node_valid(deps[i]) || deps[i]->graph != g)
			rc = CUDA_ERROR_INVALID_VALUE;
	if (rc == CUDA_SUCCESS)
		rc = address(g, deps, n, t);
	if (rc == CUDA_SUCCESS) {
		*out = drv_graph_add(g, deps, n, t);
		rc = *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	drv_unlock();
	return rc;
}

#define ADD(make) (drv_lock(), add(phGraphNode, hGraph, dependencies, numDependencies, &t, make))
#define DEPS      CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies

CUresult cuGraphAddKernelNode_v2(DEPS, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct task t;

	return nodeParams ? ADD(drv_task_kernel(&t, nodeParams)) : CUDA_ERROR_INVALID_VALUE;
}

static CUDA_KERNEL_NODE_PARAMS from_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS k = {0};

	memcpy(&k, p, sizeof(*p));
	return k;
}

CUresult cuGraphAddKernelNode(DEPS, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUDA_KERNEL_NODE_PARAMS k;

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	k = from_v1(nodeParams);
	return cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &k);
}

CUresult cuGraphAddMemcpyNode(DEPS, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct task t;

	if (!copyParams || !drv_ctx_valid(ctx))
		return CUDA_ERROR_INVALID_VALUE;
	return ADD(drv_task_memcpy(&t, copyParams));
}

CUresult cuGraphAddMemsetNode(DEPS, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	struct task t;

	if (!memsetParams || !drv_ctx_valid(ctx))
		return CUDA_ERROR_INVALID_VALUE;
	return ADD(drv_task_memset(&t, memsetParams));
}

CUresult cuGraphAddHostNode(DEPS, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct task t;

	return nodeParams ? ADD(task_host(&t, nodeParams->fn, nodeParams->userData))
			  : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddEmptyNode(DEPS)
{
	struct task t = {.kind = TASK_EMPTY};

	return ADD(CUDA_SUCCESS);
}

CUresult cuGraphAddChildGraphNode(DEPS, CUgraph childGraph)
{
	struct task t;

	return ADD(task_child(&t, childGraph));
}

CUresult cuGraphAddEventRecordNode(DEPS, CUevent event)
{
	struct task t;

	return ADD(task_event(&t, TASK_RECORD, event));
}

CUresult cuGraphAddEventWaitNode(DEPS, CUevent event)
{
	struct task t;

	return ADD(task_event(&t, TASK_WAIT, event));
}

CUresult cuGraphAddMemAllocNode(DEPS, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	struct task t;
	CUresult rc = nodeParams ? ADD(task_alloc(&t, nodeParams)) : CUDA_ERROR_INVALID_VALUE;

	if (rc == CUDA_SUCCESS)
		nodeParams->dptr = t.alloc.dptr;
	return rc;
}

CUresult cuGraphAddMemFreeNode(DEPS, CUdeviceptr dptr)
{
	struct task t = {.kind = TASK_FREE, .free = dptr};

	return ADD(dptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphAddNode(DEPS, CUgraphNodeParams *nodeParams)
{
	struct task t;
	CUresult rc = nodeParams ? ADD(drv_task_from_params(nodeParams, &t)) : CUDA_ERROR_INVALID_VALUE;

	if (rc == CUDA_SUCCESS && t.kind == TASK_ALLOC)
		nodeParams->alloc.dptr = t.alloc.dptr;
	return rc;
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
	const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	(void)dependencyData;
	return cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
	static const CUgraphNodeType types[] = {
		[TASK_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
		[TASK_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
		[TASK_MEMSET] = CU_GRAPH_NODE_TYPE_MEMSET,
		[TASK_HOST] = CU_GRAPH_NODE_TYPE_HOST,
		[TASK_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,
		[TASK_CHILD] = CU_GRAPH_NODE_TYPE_GRAPH,
		[TASK_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
		[TASK_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
		[TASK_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
		[TASK_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,
		[TASK_MIGRATE] = CU_GRAPH_NODE_TYPE_EMPTY,
		[TASK_MEMOP] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
	};

	if (!drv_node_valid(hNode) || !type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = types[hNode->task.kind];
	return CUDA_SUCCESS;
}

static CUresult is(CUgraphNode n, enum task_kind kind, const void *out)
{
	return drv_node_valid(n) && n->task.kind == kind && out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set(CUgraphNode n, const struct task *t, CUresult rc)
{
	if (rc == CUDA_SUCCESS)
		rc = is(n, t->kind, t);
	if (rc == CUDA_SUCCESS)
		n->task = *t;
	drv_unlock();
	return rc;
}
#define SET(make) (drv_lock(), set(hNode, &t, make))

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	const struct task *t = &hNode->task;

	TRY(is(hNode, TASK_KERNEL, nodeParams));
	memset(nodeParams, 0, sizeof(*nodeParams));
	nodeParams->func = t->kernel.fn;
	nodeParams->gridDimX = t->kernel.grid[0];
	nodeParams->gridDimY = t->kernel.grid[1];
	nodeParams->gridDimZ = t->kernel.grid[2];
	nodeParams->blockDimX = t->kernel.block[0];
	nodeParams->blockDimY = t->kernel.block[1];
	nodeParams->blockDimZ = t->kernel.block[2];
	nodeParams->sharedMemBytes = t->kernel.shared_bytes;
	return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	CUDA_KERNEL_NODE_PARAMS_v1 v1;

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(cuGraphKernelNodeGetParams(hNode, &v1));
	*nodeParams = from_v1(&v1);
	return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct task t;

	return nodeParams ? SET(drv_task_kernel(&t, nodeParams)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUDA_KERNEL_NODE_PARAMS k;

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	k = from_v1(nodeParams);
	return cuGraphKernelNodeSetParams_v2(hNode, &k);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
	TRY(is(hNode, TASK_COPY, nodeParams));
	*nodeParams = hNode->task.copy.desc;
	return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
	struct task t;

	return nodeParams ? SET(drv_task_memcpy(&t, nodeParams)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	TRY(is(hNode, TASK_MEMSET, nodeParams));
	*nodeParams = hNode->task.set;
	return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	struct task t;

	return nodeParams ? SET(drv_task_memset(&t, nodeParams)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
	TRY(is(hNode, TASK_HOST, nodeParams));
	nodeParams->fn = hNode->task.host.fn;
	nodeParams->userData = hNode->task.host.data;
	return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct task t;

	return nodeParams ? SET(task_host(&t, nodeParams->fn, nodeParams->userData))
			  : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
	TRY(is(hNode, TASK_CHILD, phGraph));
	*phGraph = hNode->task.child;
	return CUDA_SUCCESS;
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
	TRY(is(hNode, TASK_RECORD, event_out));
	*event_out = hNode->task.event;
	return CUDA_SUCCESS;
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event)
{
	struct task t;

	return SET(task_event(&t, TASK_RECORD, event));
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
	TRY(is(hNode, TASK_WAIT, event_out));
	*event_out = hNode->task.event;
	return CUDA_SUCCESS;
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
	struct task t;

	return SET(task_event(&t, TASK_WAIT, event));
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
	TRY(is(hNode, TASK_ALLOC, params_out));
	*params_out = hNode->task.alloc;
	return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
	TRY(is(hNode, TASK_FREE, dptr_out));
	*dptr_out = hNode->task.free;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	struct task t;

	return nodeParams ? SET(drv_task_from_params(nodeParams, &t)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphKernelNodeGetAttribute(
	CUgraphNode hNode, CUkernelNodeAttrID attr, CUkernelNodeAttrValue *value_out)
{
	(void)attr;
	TRY(is(hNode, TASK_KERNEL, value_out));
	memset(value_out, 0, sizeof(*value_out));
	return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(
	CUgraphNode hNode, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue *value)
{
	(void)attr;
	return is(hNode, TASK_KERNEL, value);
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
	TRY(is(dst, TASK_KERNEL, dst));
	return is(src, TASK_KERNEL, src);
}

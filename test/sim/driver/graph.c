/* The structure of graphs: how nodes are made, cloned, listed and connected. */
#include "test/sim/driver/graph.h"

#include <stdio.h>

bool drv_graph_valid(CUgraph g)
{
	return g && g->mark == MARK_GRAPH;
}

bool drv_node_valid(CUgraphNode n)
{
	return n && n->mark == MARK_NODE;
}

CUgraph drv_graph_new(void)
{
	CUgraph g = calloc(1, sizeof(*g));

	if (g)
		g->mark = MARK_GRAPH;
	return g;
}

static void node_end(CUgraphNode n)
{
	if (n->task.kind == TASK_CHILD)
		drv_graph_end(n->task.child);
	if (n->task.kind == TASK_ALLOC)
		drv_graphmem_put(n->task.alloc.dptr);
	free(n->deps);
	n->deps = NULL;
	n->mark = 0; /* the object stays, so that a stale handle is recognised */
}

void drv_graph_end(CUgraph g)
{
	for (size_t i = 0; i < g->n; i++)
		node_end(g->nodes[i]);
	free(g->nodes);
	g->nodes = NULL;
	g->n = g->room = 0;
	g->mark = 0;
}

bool drv_node_depend(CUgraphNode node, CUgraphNode on)
{
	CUgraphNode *deps;

	for (size_t i = 0; i < node->ndeps; i++)
		if (node->deps[i] == on)
			return true;
	deps = realloc(node->deps, (node->ndeps + 1) * sizeof(*deps));
	if (!deps)
		return false;
	node->deps = deps;
	deps[node->ndeps++] = on;
	return true;
}

CUgraphNode drv_graph_add(CUgraph g, const CUgraphNode *deps, size_t ndeps, const struct task *task)
{
	CUgraphNode n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	if (g->n == g->room) {
		size_t room = g->room ? g->room * 2 : 16;
		CUgraphNode *nodes = realloc(g->nodes, room * sizeof(*nodes));

		if (!nodes) {
			free(n);
			return NULL;
		}
		g->nodes = nodes;
		g->room = room;
	}
	n->mark = MARK_NODE;
	n->graph = g;
	n->task = *task;
	if (task->kind == TASK_ALLOC)
		drv_graphmem_get(task->alloc.dptr);
	for (size_t i = 0; i < ndeps; i++)
		drv_node_depend(n, deps[i]);
	g->nodes[g->n++] = n;
	return n;
}

CUgraph drv_graph_clone(CUgraph g)
{
	CUgraph c = drv_graph_new();

	for (size_t i = 0; c && i < g->n; i++) {
		struct task t = g->nodes[i]->task;
		CUgraphNode n;

		if (t.kind == TASK_CHILD) {
			t.child = drv_graph_clone(t.child);
			if (t.child)
				t.child->child = true;
		}
		n = drv_graph_add(c, NULL, 0, &t);
		if (n)
			n->original = g->nodes[i];
	}
	for (size_t i = 0; c && i < g->n; i++) {
		for (size_t k = 0; k < g->nodes[i]->ndeps; k++) {
			for (size_t j = 0; j < c->n; j++)
				if (c->nodes[j]->original == g->nodes[i]->deps[k])
					drv_node_depend(c->nodes[i], c->nodes[j]);
		}
	}
	return c;
}

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
	if (!drv.ready)
		return drv_why();
	if (!phGraph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*phGraph = drv_graph_new();
	return *phGraph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
	CUresult rc = CUDA_SUCCESS;

	if (!drv.ready)
		return drv_why();
	drv_lock();
	if (!drv_graph_valid(hGraph) || hGraph->child)
		rc = CUDA_ERROR_INVALID_VALUE;
	else
		drv_graph_end(hGraph);
	drv_unlock();
	if (rc == CUDA_SUCCESS)
		drv_graph_objects_end(hGraph);
	return rc;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
	if (!drv.ready)
		return drv_why();
	if (!phGraphClone || !drv_graph_valid(originalGraph))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	*phGraphClone = drv_graph_clone(originalGraph);
	drv_unlock();
	return *phGraphClone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph)
{
	if (!phNode || !drv_graph_valid(hClonedGraph))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < hClonedGraph->n; i++) {
		if (hClonedGraph->nodes[i]->original == hOriginalNode) {
			*phNode = hClonedGraph->nodes[i];
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
	CUgraph g;
	size_t at = 0;

	if (!drv_node_valid(hNode))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	g = hNode->graph;
	while (at < g->n && g->nodes[at] != hNode)
		at++;
	if (at < g->n) {
		memmove(&g->nodes[at], &g->nodes[at + 1], (g->n - at - 1) * sizeof(*g->nodes));
		g->n--;
	}
	for (size_t i = 0; i < g->n; i++) {
		CUgraphNode n = g->nodes[i];

		for (size_t k = 0; k < n->ndeps; k++)
			if (n->deps[k] == hNode)
				n->deps[k--] = n->deps[--n->ndeps];
	}
	node_end(hNode);
	drv_unlock();
	return CUDA_SUCCESS;
}

/* Gives a list as the driver does: without an array only the count; an array is filled, and padded if it is longer. */
static CUresult give(CUgraphNode *out, size_t *count, CUgraphNode *list, size_t n)
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	if (out) {
		for (size_t i = 0; i < *count; i++)
			out[i] = i < n ? list[i] : NULL;
		if (*count > n)
			*count = n;
	} else {
		*count = n;
	}
	return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
	if (!drv_graph_valid(hGraph))
		return CUDA_ERROR_INVALID_VALUE;
	return give(nodes, numNodes, hGraph->nodes, hGraph->n);
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
	CUgraphNode *list;
	size_t n = 0;
	CUresult rc;

	if (!drv_graph_valid(hGraph))
		return CUDA_ERROR_INVALID_VALUE;
	list = calloc(hGraph->n + 1, sizeof(*list));
	for (size_t i = 0; list && i < hGraph->n; i++)
		if (!hGraph->nodes[i]->ndeps)
			list[n++] = hGraph->nodes[i];
	rc = give(rootNodes, numRootNodes, list, n);
	free(list);
	return rc;
}

CUresult cuGraphGetEdges_v2(
	CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData, size_t *numEdges)
{
	size_t n = 0;

	if (!drv_graph_valid(hGraph) || !numEdges || (!from) != (!to))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < hGraph->n; i++) {
		for (size_t k = 0; k < hGraph->nodes[i]->ndeps; k++, n++) {
			if (!from || n >= *numEdges)
				continue;
			from[n] = hGraph->nodes[i]->deps[k];
			to[n] = hGraph->nodes[i];
			if (edgeData)
				memset(&edgeData[n], 0, sizeof(edgeData[n]));
		}
	}
	if (!from || n < *numEdges)
		*numEdges = n;
	return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
	return cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

CUresult cuGraphNodeGetDependencies_v2(
	CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData, size_t *numDependencies)
{
	if (!drv_node_valid(hNode))
		return CUDA_ERROR_INVALID_VALUE;
	if (edgeData && numDependencies)
		memset(edgeData, 0, *numDependencies * sizeof(*edgeData));
	return give(dependencies, numDependencies, hNode->deps, hNode->ndeps);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies)
{
	return cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes_v2(
	CUgraphNode hNode, CUgraphNode *dependentNodes, CUgraphEdgeData *edgeData, size_t *numDependentNodes)
{
	CUgraphNode *list;
	size_t n = 0;
	CUresult rc;

	if (!drv_node_valid(hNode))
		return CUDA_ERROR_INVALID_VALUE;
	if (edgeData && numDependentNodes)
		memset(edgeData, 0, *numDependentNodes * sizeof(*edgeData));
	list = calloc(hNode->graph->n + 1, sizeof(*list));
	for (size_t i = 0; list && i < hNode->graph->n; i++)
		for (size_t k = 0; k < hNode->graph->nodes[i]->ndeps; k++)
			if (hNode->graph->nodes[i]->deps[k] == hNode)
				list[n++] = hNode->graph->nodes[i];
	rc = give(dependentNodes, numDependentNodes, list, n);
	free(list);
	return rc;
}

CUresult cuGraphNodeGetDependentNodes(
	CUgraphNode hNode, CUgraphNode *dependentNodes, size_t *numDependentNodes)
{
	return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}

static bool reaches(CUgraphNode from, CUgraphNode to)
{
	if (from == to)
		return true;
	for (size_t i = 0; i < from->ndeps; i++)
		if (reaches(from->deps[i], to))
			return true;
	return false;
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
	const CUgraphEdgeData *edgeData, size_t numDependencies)
{
	CUresult rc = CUDA_SUCCESS;

	(void)edgeData;
	if (!drv_graph_valid(hGraph) || (numDependencies && (!from || !to)))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	for (size_t i = 0; rc == CUDA_SUCCESS && i < numDependencies; i++) {
		if (!drv_node_valid(from[i]) || !drv_node_valid(to[i]) || reaches(from[i], to[i]))
			rc = CUDA_ERROR_INVALID_VALUE;
		else if (!drv_node_depend(to[i], from[i]))
			rc = CUDA_ERROR_OUT_OF_MEMORY;
	}
	drv_unlock();
	return rc;
}

CUresult cuGraphAddDependencies(
	CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t numDependencies)
{
	return cuGraphAddDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
	const CUgraphEdgeData *edgeData, size_t numDependencies)
{
	CUresult rc = CUDA_SUCCESS;

	(void)edgeData;
	if (!drv_graph_valid(hGraph) || (numDependencies && (!from || !to)))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	for (size_t i = 0; i < numDependencies; i++) {
		CUgraphNode n = to[i];
		bool found = false;

		for (size_t k = 0; drv_node_valid(n) && k < n->ndeps; k++) {
			if (n->deps[k] == from[i]) {
				n->deps[k] = n->deps[--n->ndeps];
				found = true;
				break;
			}
		}
		if (!found)
			rc = CUDA_ERROR_INVALID_VALUE;
	}
	drv_unlock();
	return rc;
}

CUresult cuGraphRemoveDependencies(
	CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t numDependencies)
{
	return cuGraphRemoveDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
	FILE *out;

	(void)flags;
	if (!drv_graph_valid(hGraph) || !path)
		return CUDA_ERROR_INVALID_VALUE;
	out = fopen(path, "we");
	if (!out)
		return CUDA_ERROR_OPERATING_SYSTEM;
	fprintf(out, "digraph simulated {\n");
	for (size_t i = 0; i < hGraph->n; i++) {
		CUgraphNode n = hGraph->nodes[i];

		fprintf(out, "\t\"%p\" [label=\"%s\"];\n", (void *)n,
			n->task.kind == TASK_KERNEL ? n->task.kernel.fn->name : "node");
		for (size_t k = 0; k < n->ndeps; k++)
			fprintf(out, "\t\"%p\" -> \"%p\";\n", (void *)n->deps[k], (void *)n);
	}
	fprintf(out, "}\n");
	fclose(out);
	return CUDA_SUCCESS;
}

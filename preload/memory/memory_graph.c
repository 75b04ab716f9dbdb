/*
 * Finds the graphs that have memory of their own, and how much each of them needs. The driver gives an allocation its
 * address when the node is made; allocations that never exist at the same time may get the same address. So a graph
 * needs as much memory as its addresses cover. Physical memory comes with an upload or a launch: memory_launch.c.
 */
#include "preload/memory/memory_graph.h"

#include "preload/memory/memory.h"
#include "preload/track/track.h"
#include "shm/base/word.h"

#include <stdlib.h>

#define DEPTH 16 /* levels of graphs in graphs */

/* An allocation node, or a free node, of a graph. */
struct part {
	CUdeviceptr at;
	CUdevice ordinal;
	uint64_t bytes; /* 0: a free */
};

struct parts {
	struct part *of;
	size_t n, room;
};

/* These calls give the GPU no work, so they have no row in hooks.def. */
static struct {
	__typeof__(cuGraphGetNodes) *nodes;
	__typeof__(cuGraphNodeGetType) *type;
	__typeof__(cuGraphChildGraphNodeGetGraph) *child;
} driver;

static bool find_driver(void)
{
	if (arb_word_load_acquire(&driver.child))
		return true;
	driver.nodes = (__typeof__(driver.nodes))arb_driver_symbol("cuGraphGetNodes");
	driver.type = (__typeof__(driver.type))arb_driver_symbol("cuGraphNodeGetType");
	if (!driver.nodes || !driver.type)
		return false;
	arb_word_store_release(
		&driver.child, (__typeof__(driver.child))arb_driver_symbol("cuGraphChildGraphNodeGetGraph"));
	return driver.child != NULL;
}

static void add(struct parts *p, struct part part)
{
	if (p->n == p->room) {
		size_t room = p->room ? 2 * p->room : 16;
		struct part *more = realloc(p->of, room * sizeof(*more));

		if (!more)
			return;
		p->of = more;
		p->room = room;
	}
	p->of[p->n++] = part;
}

static void read_node(void *argument, CUgraphNode node, CUgraphNodeType type)
{
	struct parts *p = argument;
	__typeof__(cuGraphMemAllocNodeGetParams) *alloc = arb_real(cuGraphMemAllocNodeGetParams);
	__typeof__(cuGraphMemFreeNodeGetParams) *release = arb_real(cuGraphMemFreeNodeGetParams);
	CUDA_MEM_ALLOC_NODE_PARAMS made;
	CUdeviceptr freed;
	CUdevice ordinal;

	if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && alloc && alloc(node, &made) == CUDA_SUCCESS &&
		memory_on_device(&made.poolProps.location, &ordinal))
		add(p, (struct part){made.dptr, ordinal, made.bytesize});
	if (type == CU_GRAPH_NODE_TYPE_MEM_FREE && release && release(node, &freed) == CUDA_SUCCESS)
		add(p, (struct part){freed, 0, 0});
}

typedef void visit_fn(void *argument, CUgraphNode node, CUgraphNodeType type);

static void walk(CUgraph graph, visit_fn *visit, void *argument, unsigned depth)
{
	CUgraphNode *list;
	CUgraphNodeType type;
	CUgraph inner;
	size_t n = 0;

	if (depth == DEPTH || driver.nodes(graph, NULL, &n) != CUDA_SUCCESS || !n)
		return;
	list = calloc(n, sizeof(*list));
	if (list && driver.nodes(graph, list, &n) == CUDA_SUCCESS)
		for (size_t i = 0; i < n; i++) {
			if (driver.type(list[i], &type) != CUDA_SUCCESS)
				continue;
			if (type != CU_GRAPH_NODE_TYPE_GRAPH)
				visit(argument, list[i], type);
			else if (driver.child(list[i], &inner) == CUDA_SUCCESS)
				walk(inner, visit, argument, depth + 1);
		}
	free(list);
}

void graph_walk(CUgraph graph, visit_fn *visit, void *argument)
{
	if (find_driver())
		walk(graph, visit, argument, 0);
}

/* Sorts by device, then by address; of parts with the same address the largest comes first. */
static int compare(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	if (x->ordinal != y->ordinal)
		return x->ordinal < y->ordinal ? -1 : 1;
	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return x->bytes == y->bytes ? 0 : x->bytes > y->bytes ? -1 : 1;
}

static void need(struct graph_exec *x, CUdevice ordinal, uint64_t bytes)
{
	unsigned i = 0;

	while (i < x->n && x->need[i].ordinal != ordinal)
		i++;
	if (i == GRAPH_DEVICES)
		return;
	if (i == x->n)
		x->need[x->n++] = (struct graph_need){.ordinal = ordinal};
	x->need[i].bytes = bytes > UINT64_MAX - x->need[i].bytes ? UINT64_MAX : x->need[i].bytes + bytes;
}

/* Adds up what the sorted addresses cover; a range that is covered already adds nothing. */
static void add_up(struct graph_exec *x, const struct parts *p)
{
	CUdeviceptr end = 0;
	CUdevice ordinal = -1;

	for (size_t i = 0; i < p->n; i++) {
		const struct part *part = &p->of[i];

		if (!part->bytes)
			continue;
		if (part->ordinal == ordinal && part->at && part->at + part->bytes <= end)
			continue;
		need(x, part->ordinal, memory_pool_most(part->bytes));
		ordinal = part->ordinal;
		end = part->at + part->bytes;
	}
}

/* Returns the number of allocations of this address minus the number of its frees. */
static int balance(const struct parts *p, CUdeviceptr at)
{
	int n = 0;

	for (size_t i = 0; i < p->n; i++)
		if (p->of[i].at == at)
			n += p->of[i].bytes ? 1 : -1;
	return n;
}

static void sort_out(struct graph_exec *x, const struct parts *p)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct part *part = &p->of[i];
		int left = balance(p, part->at);

		if (left > 0 && part->bytes)
			x->rest[x->nrest++] = (struct graph_rest){
				part->at, part->ordinal, memory_pool_most(part->bytes), false};
		else if (left < 0 && !part->bytes)
			x->frees[x->nfrees++] = part->at;
	}
}

struct graph_exec *graph_read(CUgraph graph, bool auto_free)
{
	struct graph_exec *x = NULL;
	struct parts p = {0};

	graph_walk(graph, read_node, &p);
	if (p.n)
		x = calloc(1, sizeof(*x));
	if (x) {
		x->auto_free = auto_free;
		x->rest = calloc(p.n, sizeof(*x->rest));
		x->frees = calloc(p.n, sizeof(*x->frees));
		qsort(p.of, p.n, sizeof(*p.of), compare);
		add_up(x, &p);
		if (x->rest && x->frees)
			sort_out(x, &p);
	}
	free(p.of);
	return x;
}

void graph_drop(struct graph_exec *x)
{
	memory_mark_drop(&x->mark);
	free(x->rest);
	free(x->frees);
	free(x);
}

static unsigned long long flags_of(const struct act_call *call)
{
	const CUDA_GRAPH_INSTANTIATE_PARAMS *params = call->desc;

	if (call->id == HOOK_cuGraphInstantiateWithParams ||
		call->id == HOOK_cuGraphInstantiateWithParams_ptsz)
		return params ? params->flags : 0;
	return call->aux;
}

bool memory_exec_before(struct act_call *call, CUresult *result)
{
	unsigned long long flags = flags_of(call);
	struct memory_entry entry;
	struct graph_exec *x;

	call->token = 0;
	if (!memory_graph_any() || !call->handle)
		return true;
	if (call->id == HOOK_cuGraphExecDestroy) {
		/* Done before the driver's call, because the handle may be a new graph's as soon as it was
		 * destroyed. */
		if (memory_table_take(call->handle, MEMORY_EXEC, &entry)) {
			arb_word_sub(&arb_own.gate.graphs, 1);
			graph_unlist(entry.owner);
		}
		return true;
	}
	x = graph_read(
		(CUgraph)(uintptr_t)call->handle, flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	if (!x)
		return true;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD && call->desc) {
		call->stream = ((const CUDA_GRAPH_INSTANTIATE_PARAMS *)call->desc)->hUploadStream;
		if (!graph_enter(x, call)) {
			graph_drop(x);
			*result = CUDA_ERROR_OUT_OF_MEMORY;
			return false;
		}
	} else {
		graph_enter_if_room(x);
	}
	call->token = (uintptr_t)x;
	return true;
}

void memory_exec_after(struct act_call *call, CUresult result)
{
	struct graph_exec *x = (struct graph_exec *)(uintptr_t)call->token;
	struct memory_entry entry = {.owner = x, .kind = MEMORY_EXEC};
	bool made = result == CUDA_SUCCESS && call->out;

	if (call->id == HOOK_cuGraphExecDestroy || !x)
		return;
	graph_leave(x, call, false);
	if (made)
		entry.key = (uintptr_t) * (CUgraphExec *)call->out;
	if (!made || !memory_table_put(&entry)) {
		graph_drop(x);
		return;
	}
	graph_list(x);
	arb_word_add(&arb_own.gate.graphs, 1);
}

bool memory_graph_has(uint64_t exec)
{
	struct memory_entry entry;

	return memory_table_find(exec, MEMORY_EXEC, &entry);
}

bool memory_launch_before(struct act_call *call, CUresult *result)
{
	struct memory_entry entry;

	call->token = 0;
	if (!arb_word_load(&arb_own.gate.graphs) || !memory_table_find(call->handle, MEMORY_EXEC, &entry))
		return true;
	if (!graph_enter(entry.owner, call)) {
		*result = CUDA_ERROR_OUT_OF_MEMORY;
		return false;
	}
	call->token = (uintptr_t)entry.owner;
	return true;
}

void memory_launch_after(struct act_call *call, CUresult result)
{
	struct graph_exec *x = (struct graph_exec *)(uintptr_t)call->token;

	if (x)
		graph_leave(x, call, result == CUDA_SUCCESS);
}

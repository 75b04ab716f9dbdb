/*
 * Graphs with memory of their own. The driver may take it as late as at a launch, which goes past us while
 * the gate is open; so what the largest executable graph of a device needs counts from its instantiation
 * until it is destroyed, whether the driver has it already or not. Graphs that run one after the other share
 * it; what several take that run at the same time counts with the next call that looks.
 */
#include "memory.h"

#include "compat.h"
#include "elf.h"
#include "symbols.h"

#include <stdlib.h>

#define DEVICES 16 /* of one graph */
#define DEPTH   16 /* of graphs in graphs */

/* While one is made its needs are in nobody's table yet, and the floor must not sink. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned making;

struct needs {
	unsigned n;
	struct {
		CUdevice ordinal;
		uint64_t bytes;
	} of[DEVICES];
};

/* Nobody gates these, so they are not in the table. */
static struct {
	__typeof__(cuGraphGetNodes) *nodes;
	__typeof__(cuGraphNodeGetType) *type;
	__typeof__(cuGraphChildGraphNodeGetGraph) *child;
} driver;

static bool find_driver(void)
{
	struct elf_object object;

	if (__atomic_load_n(&driver.child, __ATOMIC_ACQUIRE))
		return true;
	if (!arb_library_loaded(LIBRARY_CUDA, &object))
		return false;
	driver.nodes = (__typeof__(driver.nodes))arb_elf_symbol(&object, "cuGraphGetNodes");
	driver.type = (__typeof__(driver.type))arb_elf_symbol(&object, "cuGraphNodeGetType");
	if (!driver.nodes || !driver.type)
		return false;
	__atomic_store_n(&driver.child,
		(__typeof__(driver.child))arb_elf_symbol(&object, "cuGraphChildGraphNodeGetGraph"),
		__ATOMIC_RELEASE);
	return driver.child != NULL;
}

static void add(struct needs *needs, const CUDA_MEM_ALLOC_NODE_PARAMS *node)
{
	uint64_t bytes = memory_pool_most(node->bytesize);
	unsigned i = 0;

	if (node->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return;
	while (i < needs->n && needs->of[i].ordinal != node->poolProps.location.id)
		i++;
	if (i == DEVICES)
		return;
	if (i == needs->n) {
		needs->of[i].ordinal = node->poolProps.location.id;
		needs->of[i].bytes = 0;
		needs->n++;
	}
	needs->of[i].bytes =
		bytes > UINT64_MAX - needs->of[i].bytes ? UINT64_MAX : needs->of[i].bytes + bytes;
}

static void add_up(CUgraph graph, struct needs *needs, unsigned depth)
{
	__typeof__(cuGraphMemAllocNodeGetParams) *params = arb_real(cuGraphMemAllocNodeGetParams);
	CUDA_MEM_ALLOC_NODE_PARAMS node;
	CUgraphNode *list;
	CUgraphNodeType type;
	CUgraph inner;
	size_t n = 0;

	if (depth == DEPTH || !params || driver.nodes(graph, NULL, &n) != CUDA_SUCCESS || !n)
		return;
	list = calloc(n, sizeof(*list));
	if (list && driver.nodes(graph, list, &n) == CUDA_SUCCESS)
		for (size_t i = 0; i < n; i++) {
			if (driver.type(list[i], &type) != CUDA_SUCCESS)
				continue;
			if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && params(list[i], &node) == CUDA_SUCCESS)
				add(needs, &node);
			else if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
				 driver.child(list[i], &inner) == CUDA_SUCCESS)
				add_up(inner, needs, depth + 1);
		}
	free(list);
}

static void lower(unsigned done)
{
	pthread_mutex_lock(&lock);
	making -= done;
	if (!making)
		memory_graph_lower();
	pthread_mutex_unlock(&lock);
}

static bool raise_floor(const struct needs *needs)
{
	bool fits = true;

	pthread_mutex_lock(&lock);
	making++;
	for (unsigned i = 0; i < needs->n && fits; i++)
		fits = memory_graph_floor(needs->of[i].ordinal, needs->of[i].bytes);
	pthread_mutex_unlock(&lock);
	return fits;
}

bool memory_exec_before(struct act_call *call, CUresult *result)
{
	struct memory_entry entry;
	struct needs *needs;

	call->token = 0;
	if (!memory_graph_any() || !call->handle)
		return true;
	if (call->id == HOOK_cuGraphExecDestroy) {
		/* Before: the handle may come back as another's as soon as the driver has it. */
		while (memory_table_take(call->handle, MEMORY_EXEC, &entry))
			call->token = 1;
		return true;
	}
	needs = find_driver() ? calloc(1, sizeof(*needs)) : NULL;
	if (!needs)
		return true;
	add_up((CUgraph)(uintptr_t)call->handle, needs, 0);
	if (!raise_floor(needs)) {
		free(needs);
		lower(1);
		*result = CUDA_ERROR_OUT_OF_MEMORY;
		return false;
	}
	call->token = (uintptr_t)needs;
	return true;
}

void memory_exec_after(struct act_call *call, CUresult result)
{
	struct needs *needs = (struct needs *)(uintptr_t)call->token;

	if (!call->token)
		return;
	if (call->id == HOOK_cuGraphExecDestroy) {
		lower(0);
		return;
	}
	for (unsigned i = 0; i < needs->n && result == CUDA_SUCCESS && call->out; i++)
		memory_table_put(&(struct memory_entry){.key = (uintptr_t) * (CUgraphExec *)call->out,
			.bytes = needs->of[i].bytes,
			.epoch = (uint64_t)needs->of[i].ordinal,
			.kind = MEMORY_EXEC});
	lower(1);
	free(needs);
}

void memory_exec_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	making = 0;
}

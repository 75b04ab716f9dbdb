/*
 * Graphs with copies between GPUs. The nodes of a graph say which GPUs; they are read when the graph is instantiated,
 * whether it was captured or built by hand. A launch of the graph counts on the other GPU as a copy does (peers.c): one event
 * is recorded before it and one behind it. If the graph has only copies, the time between the two events is billed there.
 * If it has kernels too, these work for the stream's GPU alone: the other GPU is billed for the time that the bytes take at
 * the rate of the fastest copy between GPUs so far.
 */
#include "preload/track/track.h"

#include "preload/hooks/hooks.h"
#include "preload/memory/memory_graph.h"
#include "preload/memory/memory_table.h"
#include "preload/track/place.h"
#include "shm/base/word.h"

/* The rate until a copy was measured: about 10 GB/s, that of PCIe 3.0. */
#define NS_PER_MIB 100000u
/* The duration of a shorter copy is mostly its start-up time, so it says little about the rate. */
#define RATE_LEAST_NS (100 * US)

struct reading {
	struct peers_graph found;
	bool mixed; /* it has kernels, or other nodes that take time */
};

static uint64_t size_of(const CUDA_MEMCPY3D *copy)
{
	return (uint64_t)copy->WidthInBytes * (copy->Height ? copy->Height : 1) *
	       (copy->Depth ? copy->Depth : 1);
}

static int end_of(CUmemorytype type, CUdeviceptr address)
{
	return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED ? place_of_address(address) : -1;
}

static void read_node(void *argument, CUgraphNode node, CUgraphNodeType type)
{
	static __typeof__(cuGraphMemcpyNodeGetParams) *found;
	__typeof__(cuGraphMemcpyNodeGetParams) *get = arb_word_load(&found);
	struct reading *r = argument;
	CUDA_MEMCPY3D copy;
	int to, from;

	/* Looked up here, because calls that are not hooked are not in the table. */
	if (!get) {
		get = (__typeof__(get))arb_driver_symbol("cuGraphMemcpyNodeGetParams");
		arb_word_store(&found, get);
	}
	if (type != CU_GRAPH_NODE_TYPE_MEMCPY) {
		r->mixed |= type != CU_GRAPH_NODE_TYPE_EMPTY && type != CU_GRAPH_NODE_TYPE_EVENT_RECORD;
		return;
	}
	if (!get || get(node, &copy) != CUDA_SUCCESS)
		return;
	to = end_of(copy.dstMemoryType, copy.dstDevice);
	from = end_of(copy.srcMemoryType, copy.srcDevice);
	if (to < 0 || from < 0 || to == from || to >= 64 || from >= 64) {
		r->mixed = true;
		return;
	}
	r->found.devices |= 1ull << to | 1ull << from;
	r->found.bytes += size_of(&copy);
}

bool peers_graph(uint64_t exec, struct peers_graph *graph)
{
	struct memory_entry entry;

	if (!memory_table_find(exec, MEMORY_PEERS, &entry))
		return false;
	if (graph)
		*graph = (struct peers_graph){(uintptr_t)entry.owner, entry.bytes, entry.epoch != 0};
	return true;
}

/* Before the call: afterwards the driver may have given the same handle to another graph. */
void peers_graph_before(const struct act_call *call)
{
	struct memory_entry entry;

	if (call->id == HOOK_cuGraphExecDestroy && arb_word_load(&arb_own.gate.graphs) &&
		memory_table_take(call->handle, MEMORY_PEERS, &entry))
		arb_word_sub(&arb_own.gate.graphs, 1);
}

void peers_graph_after(const struct act_call *call, CUresult result)
{
	struct memory_entry entry = {.kind = MEMORY_PEERS};
	struct reading r = {{0}, false};
	CUstreamCaptureMode mode;

	if (call->id == HOOK_cuGraphExecDestroy || result != CUDA_SUCCESS || !call->out ||
		arb_word_load(&arb_own.gpus) < 2)
		return;
	mode = track_relax();
	graph_walk((CUgraph)(uintptr_t)call->handle, read_node, &r);
	track_unrelax(mode);
	if (!r.found.devices)
		return;
	entry.key = (uintptr_t) * (CUgraphExec *)call->out;
	entry.bytes = r.found.bytes;
	entry.owner = (void *)(uintptr_t)r.found.devices;
	entry.epoch = r.mixed;
	if (memory_table_put(&entry))
		arb_word_add(&arb_own.gate.graphs, 1);
}

struct peers_copy peers_copy_of(const struct act_call *call)
{
	struct peers_graph graph;

	if (arb_hooks[call->id].category != CAT_GRAPH)
		return (struct peers_copy){call->bytes, false};
	if (!peers_graph(call->handle, &graph))
		return (struct peers_copy){0, false};
	return (struct peers_copy){graph.bytes, graph.mixed};
}

uint64_t peers_copy_ns(const struct peers_copy *copy, uint64_t took_ns)
{
	uint64_t rate = arb_word_load(&arb_own.peers_ns_per_mib), ns;

	if (copy->mixed) {
		ns = copy->bytes / 1024 * (rate ? rate : NS_PER_MIB) / 1024;
		return ns < took_ns ? ns + !ns : took_ns;
	}
	if (copy->bytes >= 1 << 20 && took_ns >= RATE_LEAST_NS) {
		ns = took_ns / (copy->bytes >> 20);
		if (ns && (!rate || ns < rate))
			arb_word_store(&arb_own.peers_ns_per_mib, ns);
	}
	return took_ns;
}

/* Graphs: nodes with what they do and what they come after. */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "test/sim/driver/driver.h"

struct CUgraphNode_st {
	uint32_t mark;
	CUgraph graph;
	struct task task;
	CUgraphNode *deps; /* it comes after these */
	size_t ndeps;
	CUgraphNode original;       /* the node that this one was cloned from */
	unsigned long long capture; /* id of the capture that made it */
};

struct CUgraph_st {
	uint32_t mark;
	CUgraphNode *nodes; /* in the order they were added */
	size_t n, room;
	bool child; /* belongs to a child graph node */
};

struct capture {
	CUgraph graph;
	CUstream origin;
	CUstreamCaptureMode mode;
	CUstreamCaptureStatus status;
	unsigned long long id;
	pthread_t thread;
	bool ended, own_graph;
	CUgraph again; /* the graph that is captured once more; meanwhile the nodes go into another graph */
};

/* These are called with drv.lock held. */
CUgraph drv_graph_new(void);
void drv_graph_end(CUgraph g);
CUgraph drv_graph_clone(CUgraph g);
CUgraphNode drv_graph_add(CUgraph g, const CUgraphNode *deps, size_t ndeps, const struct task *task);
bool drv_node_depend(CUgraphNode node, CUgraphNode on);
bool drv_graph_valid(CUgraph g);
bool drv_node_valid(CUgraphNode n);

/* graphmem.c, with drv.lock held. The memory that an executable graph needs at an address. */
struct graph_part {
	CUdeviceptr addr;
	uint32_t device;
	uint64_t bytes;
	unsigned allocs, frees; /* how many nodes allocate and free it */
};
struct graph_memory {
	struct graph_part *part;
	unsigned n;
};
CUdeviceptr drv_graphmem_address(
	CUgraph g, const CUgraphNode *deps, size_t n, uint32_t device, uint64_t bytes);
bool drv_graphmem_step(struct graph_memory *m, const struct task *task);
void drv_graphmem_end(struct graph_memory *m, bool running);
/* Puts memory behind the addresses, before the graph's work is queued; and notes until when that work uses it. */
CUresult drv_graphmem_bind(struct graph_memory *m, CUstream s, bool auto_free, bool launch);
void drv_graphmem_queued(struct graph_memory *m, CUstream s, uint64_t count);
/* Takes a reference of an address (drv_graphmem_put releases it). Nodes, executable graphs and allocations that are
 * left behind have one. */
void drv_graphmem_get(CUdeviceptr p);

/* userobject.c; without drv.lock */
void drv_graph_objects_end(CUgraph graph);

/* graphparams.c: node parameters to tasks */
CUresult drv_task_from_params(const CUgraphNodeParams *p, struct task *t);
CUresult drv_task_kernel(struct task *t, const CUDA_KERNEL_NODE_PARAMS *p);
CUresult drv_task_memcpy(struct task *t, const CUDA_MEMCPY3D *p);
CUresult drv_task_memset(struct task *t, const CUDA_MEMSET_NODE_PARAMS *p);

#endif

/* Executable graphs with memory: what each of them needs, and whether it is running. */
#ifndef PRELOAD_MEMORY_GRAPH_H
#define PRELOAD_MEMORY_GRAPH_H

#include "preload/memory/memory_mark.h"

#define GRAPH_DEVICES 16 /* of one graph */

struct graph_need {
	CUdevice ordinal;
	uint64_t bytes;
};

/* An allocation that it makes and does not free. */
struct graph_rest {
	CUdeviceptr at;
	CUdevice ordinal;
	uint64_t bytes;
	bool there; /* a launch has made it, and nobody has freed it since */
};

struct graph_exec {
	struct graph_exec *next;
	bool gone; /* destroyed; what was launched may still run */
	bool busy;
	struct memory_mark mark; /* behind its last launch */
	bool auto_free;          /* a launch frees what the last one left */
	unsigned n;
	struct graph_need need[GRAPH_DEVICES];
	struct graph_rest *rest;
	size_t nrest;
	CUdeviceptr *frees; /* what other graphs have left */
	size_t nfrees;
};

/* Shows every node of a graph, and of the graphs in it, but for those graphs themselves. */
void graph_walk(
	CUgraph graph, void (*visit)(void *argument, CUgraphNode node, CUgraphNodeType type), void *argument);
/* What the nodes of a graph, and of the graphs in it, need; NULL: no memory at all. */
struct graph_exec *graph_read(CUgraph graph, bool auto_free);
void graph_drop(struct graph_exec *x);

/*
 * Room for a launch or an upload of it, before the driver is asked: what it may take counts. False: there is
 * none. Whether it is refused is not known before those that run have ended, and they are waited for.
 */
bool graph_enter(struct graph_exec *x, const struct act_call *call);
/* Counts what the graph may take, if there is room now; for launches in which the driver will hardly take any. */
void graph_enter_if_room(struct graph_exec *x);
/* The driver has answered: what there is counts. */
void graph_leave(struct graph_exec *x, const struct act_call *call, bool launched);

/* Into the list, and out of it when its work has ended. */
void graph_list(struct graph_exec *x);
void graph_unlist(struct graph_exec *x);

#endif

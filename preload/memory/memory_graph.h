/* Executable graphs with memory: how much each of them needs, and whether it is running. */
#ifndef PRELOAD_MEMORY_GRAPH_H
#define PRELOAD_MEMORY_GRAPH_H

#include "preload/memory/memory_mark.h"

#define GRAPH_DEVICES 16 /* that one graph may use */

struct graph_need {
	CUdevice ordinal;
	uint64_t bytes;
};

/* An allocation that the graph makes and does not free. */
struct graph_rest {
	CUdeviceptr at;
	CUdevice ordinal;
	uint64_t bytes;
	bool there; /* a launch has made it, and nobody has freed it since */
};

struct graph_exec {
	struct graph_exec *next;
	bool gone; /* destroyed; a launch of it may still run */
	bool busy;
	struct memory_mark mark; /* behind its last launch */
	bool auto_free;          /* a launch frees what the launch before it left */
	unsigned n;
	struct graph_need need[GRAPH_DEVICES];
	struct graph_rest *rest;
	size_t nrest;
	CUdeviceptr *frees; /* addresses that it frees and that other graphs have left */
	size_t nfrees;
};

/* Calls `visit` for every node of a graph and of the graphs in it, except for the nodes that are graphs themselves. */
void graph_walk(
	CUgraph graph, void (*visit)(void *argument, CUgraphNode node, CUgraphNodeType type), void *argument);
/* Returns the memory that the nodes of a graph, and of the graphs in it, need; NULL: none. */
struct graph_exec *graph_read(CUgraph graph, bool auto_free);
void graph_drop(struct graph_exec *x);

/*
 * Reserves the most that a launch or an upload of the graph may take, before the driver is asked. False: there is no
 * room. Before it refuses, it waits for the graphs of this process that run, because they may give room.
 */
bool graph_enter(struct graph_exec *x, const struct act_call *call);
/* Reserves what the graph may take, if there is room now. For calls in which the driver will hardly take any memory. */
void graph_enter_if_room(struct graph_exec *x);
/* To be called after the driver's answer: from then on what the driver holds counts, and the reservation ends. */
void graph_leave(struct graph_exec *x, const struct act_call *call, bool launched);

/* Puts the graph into the list; takes it out, and frees it, when its work has ended. */
void graph_list(struct graph_exec *x);
void graph_unlist(struct graph_exec *x);

#endif
